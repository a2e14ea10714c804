"""Money: a budget is never passed, a worst case is one, and what an upstream bills is on the books, once."""

import json
import threading
import time
from collections.abc import Mapping
from typing import Any

from probes import client
from probes.gateways import Running
from probes.lab import Lab, Probe
from probes.upstream import (
    DONE,
    OUTPUT_NANOUSD,
    PATIENCE_S,
    PROMPT_NANOUSD,
    ROLE,
    STOP,
    Call,
    Reply,
    Upstream,
    completion,
    failing,
    good,
    report,
    silent,
    usage,
    wait_until,
    word,
)

CALLERS = 32
ROUNDS = 30
CAP = 16


def worst_case_nanousd(gateway: Running, upstream: Upstream, body: Mapping[str, Any]) -> int:
    """What is held for a request: seen while its upstream waits."""
    seen: list[int] = []

    def reply(call: Call) -> None:
        seen.extend(int(hold["amount_nanousd"]) for hold in gateway.holds() if hold["state"] == "open")
        good()(call)

    upstream.script(reply)
    gateway.ask(gateway.key(), dict(body))
    if len(seen) != 1:
        raise AssertionError(f"one hold was awaited, not {seen}")
    return seen[0]


# --- one slot, many callers -------------------------------------------------------------------------------------


def race(lab: Lab) -> str:
    """Budget for exactly one request, 32 callers at once, 30 rounds: one is served, and the books are the meter's."""
    upstream = lab.upstream(good())
    gateway = lab.inside(upstream)
    worst = worst_case_nanousd(gateway, upstream, client.chat())
    prompt_tokens = (worst - CAP * OUTPUT_NANOUSD) // PROMPT_NANOUSD
    upstream.script(good(prompt_tokens=prompt_tokens, completion_tokens=CAP, delay_s=0.05))
    for number in range(ROUNDS):
        key, calls, meter = gateway.key(worst), len(upstream.calls), upstream.metered_nanousd
        callers = [client.Poised(gateway.address, client.chat(), key=key) for _ in range(CALLERS)]
        statuses = [answer.status for answer in lab.at_once(client.Poised.fire, callers)]
        gateway.wait_quiet()
        served, made = statuses.count(200), len(upstream.calls) - calls
        billed, shown = upstream.metered_nanousd - meter, gateway.shown(key)
        lab.check(served == 1 and made == 1, f"round {number}: {served} served, {made} upstream calls, for 1")
        lab.check(set(statuses) <= {200, 402, 429}, f"round {number}: statuses {sorted(set(statuses))}")
        lab.check(shown["spent_nanousd"] == billed, f"round {number}: spent {shown['spent_nanousd']}, billed {billed}")
        lab.check(shown["spent_nanousd"] <= worst, f"round {number}: the budget of {worst} was passed")
    return f"{ROUNDS} rounds of {CALLERS} callers: one served and one upstream call in each"


TENANT_ROUNDS = 10


def tenant_race(lab: Lab) -> str:
    """The same for a tenant's budget and eight of its keys, half of the calls streamed."""
    upstream = lab.upstream(good())
    bound = worst_case_nanousd(lab.inside(upstream), upstream, client.chat(stream=True))
    usd = f"{bound // 10**9}.{bound % 10**9:09d}"
    tenants = [f'[[tenants]]\nname = "t{number}"\nbudget_usd = {usd}\n' for number in range(TENANT_ROUNDS)]
    gateway = lab.inside(upstream, more="".join(tenants))
    upstream.script(good(prompt_tokens=7, completion_tokens=CAP, delay_s=0.05))
    for number in range(TENANT_ROUNDS):
        keys, calls, meter = (
            [gateway.key(tenant=f"t{number}") for _ in range(8)],
            len(upstream.calls),
            upstream.metered_nanousd,
        )
        callers = [
            client.Poised(gateway.address, client.chat(stream=bool(at % 2)), key=keys[at // 2 % 8])
            for at in range(CALLERS)
        ]
        statuses = [answer.status for answer in lab.at_once(client.Poised.fire, callers)]
        gateway.wait_quiet()
        served, made = statuses.count(200), len(upstream.calls) - calls
        billed, counted = upstream.metered_nanousd - meter, sum(map(gateway.counted_nanousd, keys))
        lab.check(served == made == 1, f"round {number}: {served} served, {made} upstream calls, for 1")
        lab.check(set(statuses) <= {200, 402, 429}, f"round {number}: statuses {sorted(set(statuses))}")
        lab.check(counted == billed, f"round {number}: {counted} counts, {billed} was billed")
    return f"{TENANT_ROUNDS} rounds of {CALLERS} callers with 8 keys of a tenant: one served in each"


_DEAR = """
[[deployments]]
name = "dear"
provider = "p1"
model = "dear"
price = { input = 100, output = 400 }
[[aliases]]
name = "mixed"
deployments = ["d0", "dear"]
"""


def dearer_backup(lab: Lab) -> str:
    """The first deployment fails, the backup costs a hundred times as much: held for the dearest, or not called."""
    failed, backup = lab.upstream(failing(500)), lab.upstream(good())
    gateway = lab.inside(failed, backup, more=_DEAR)
    rich = gateway.key()
    served = gateway.chat(rich, model="mixed")
    gateway.wait_quiet()
    [row], billed = gateway.rows(rich), 100 * backup.metered_nanousd
    lab.check(served.status == 200, f"failover to a dearer deployment: {served.status}")
    lab.check(row["cost_nanousd"] == billed, f"billed {billed}, booked {row['cost_nanousd']}")
    lab.check(row["overage_nanousd"] == 0, f"{row['overage_nanousd']} was not held for the dearer one")
    poor, calls = gateway.key(billed), len(backup.calls)
    refused = gateway.chat(poor, model="mixed")
    gateway.wait_quiet()
    lab.check(len(backup.calls) == calls, "the dearer one was called without money for its worst case")
    lab.check(refused.status in (402, 503), f"without money for the dearer one: {refused.status}")
    lab.check(gateway.counted_nanousd(poor) == 0, "a call that was not billed was charged")
    return f"served for {row['cost_nanousd']} without overage; with less money {refused.status}, and not called"


# --- a provider that bills more ---------------------------------------------------------------------------------


def overage_of_a_whole(lab: Lab) -> str:
    """A provider bills 300 times the cap: all is booked, the part above the hold is told, the next is refused."""
    return _overage(lab, stream=False)


def overage_at_the_end_of_a_stream(lab: Lab) -> str:
    """The same in the usage with which a stream ends."""
    return _overage(lab, stream=True)


def _overage(lab: Lab, *, stream: bool) -> str:
    upstream = lab.upstream(good())
    gateway = lab.inside(upstream)
    worst = worst_case_nanousd(gateway, upstream, client.chat(stream=stream))
    key, calls, meter = gateway.key(3 * worst), len(upstream.calls), upstream.metered_nanousd
    upstream.script(good(completion_tokens=300 * CAP))
    answer = gateway.chat(key, stream=stream)
    gateway.wait_quiet()
    billed, [row] = upstream.metered_nanousd - meter, gateway.rows(key)
    lab.check(row["cost_nanousd"] == billed, f"billed {billed}, booked {row['cost_nanousd']}")
    lab.check(row["overage_nanousd"] == billed - worst, f"overage {row['overage_nanousd']} of {billed - worst}")
    lab.check(gateway.counted_nanousd(key) == billed, "the overage does not count against the key")
    lab.check(gateway.gateway.overbilled == ("d0",), "the deployment is not flagged")
    refused = gateway.chat(key)
    lab.check(refused.status == 402, f"the next request of a key in overage: {refused.status}, not 402")
    lab.check(len(upstream.calls) == calls + 1, "the upstream was called again")
    return f"answered {answer.status}; billed {billed}, held {worst}: overage {row['overage_nanousd']} booked, next 402"


def quarantine(lab: Lab) -> str:
    """A deployment that is to be taken out after an overage gets no further call, whoever asks."""
    upstream, backup = lab.upstream(good(completion_tokens=300 * CAP)), lab.upstream(good())
    gateway = lab.inside(upstream, backup, deployment="quarantine_on_overage = true")
    statuses = [gateway.chat(gateway.key(tenant=tenant)).status for tenant in ("acme", "acme", "other")]
    lab.check(statuses == [200] * 3, f"answered {statuses}")
    lab.check(len(upstream.calls) == 1, f"it was called {len(upstream.calls)} times")
    return f"one call, then {len(backup.calls)} answers of its backup"


def overrun_of_a_stream(lab: Lab) -> str:
    """Deltas, long deltas, or running usage beyond the cap: the stream is cut, the upstream left, what came is paid."""
    upstream = lab.upstream(good())
    gateway = lab.inside(upstream)
    seen = []
    for kind in ("deltas", "long deltas", "running usage"):
        left = threading.Event()
        upstream.script(_overrunning(kind, left))
        key, meter = gateway.key(), upstream.metered_nanousd
        answer = gateway.chat(key, stream=True, stream_options={"include_usage": True})
        lab.check(not answer.looks_finished, f"{kind}: an overrun stream looks finished")
        lab.check(left.wait(PATIENCE_S), f"{kind}: the upstream was not left")
        gateway.wait_quiet()
        relayed, [row] = answer.body.count(b'"content": "'), gateway.rows(key)
        lab.check(relayed <= 2 * CAP + 3, f"{kind}: {relayed} deltas were relayed, the cap is {CAP}")
        billed, slack = upstream.metered_nanousd - meter, 4 * OUTPUT_NANOUSD
        lab.check(row["cost_nanousd"] + slack >= billed, f"{kind}: billed {billed}, booked {row['cost_nanousd']}")
        seen.append(f"{kind} cut after {relayed}")
    return ", ".join(seen)


def _overrunning(kind: str, left: threading.Event) -> Reply:
    """Writes for ever, slowly enough to be stopped before much more is billed."""
    text = "w" * 4096 if kind == "long deltas" else "word "

    def reply(call: Call) -> None:
        call.bill(7, 0)
        call.begin_stream()
        call.event(ROLE)
        for number in range(1, 20 * CAP):
            if call.left_within(0.004):
                break
            call.bill(0, 1)
            running = {"usage": usage(7, number)} if kind == "running usage" else {}
            document = json.loads(word(text)) | running
            call.event(json.dumps(document).encode())
        left.set()
        call.close()

    return reply


# --- what a request can multiply --------------------------------------------------------------------------------

_MULTIPLIERS: tuple[dict[str, Any], ...] = (
    {"n": 100},
    {"best_of": 100},
    {"n": 2, "best_of": 7},
    {"max_tokens": None},
    {"max_tokens": ...},
    {"max_completion_tokens": 10_000_000},
    {"max_tokens": 16, "max_completion_tokens": 100_000},
    {"max_tokens": 100_000, "max_completion_tokens": 16},
    *({"max_tokens": value} for value in (-1, 0, 1000.0, 16.5, True, "16", 1e308, 10**30, [16], {"a": 1}, -(2**63))),
    *({"max_completion_tokens": value} for value in (-1, 0, 1000.0, False, "1", 10**30)),
    *({"n": value} for value in (0, -3, 1.5, 2.0, "2", True, 10**9, None, [2])),
    *({"best_of": value} for value in (0, -3, 1.5, "2", True, 10**9)),
    {"max_output_tokens": 100_000},
    {"reasoning_effort": "high"},
    {"service_tier": "priority"},
    {"service_tier": "flex"},
    {"service_tier": ["priority"]},
    {"prediction": {"type": "content", "content": "a" * 65_536}},
    {"prediction": {"type": "content", "content": [{"type": "text", "text": "a" * 65_536}]}},
    {"modalities": ["text", "audio"], "audio": {"voice": "x", "format": "wav"}},
    {"web_search_options": {}},
    {"stream": True, "stream_options": {"include_usage": False}},
    {"stream": True, "stream_options": None},
    {"stream": True, "n": 3},
    {"logprobs": True, "top_logprobs": 20},
    {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"enum": ["x" * 4000]}}}]},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"enum": ["y" * 4000]}}}},
    {"extra_body": {"n": 100, "max_tokens": 10**6}},
    {"unknown": {"padding": "z" * 4000}},
)


def multipliers(lab: Lab) -> str:
    """Every field that multiplies the bill, with and without a budget: no upstream call above what was held for it."""
    upstream = lab.upstream(good())
    gateway = lab.inside(upstream)
    budget = 2 * worst_case_nanousd(gateway, upstream, client.chat())
    held: list[int] = []

    def reply(call: Call) -> None:
        held.extend(int(hold["amount_nanousd"]) for hold in gateway.holds() if hold["state"] == "open")
        _serve_the_most(call)

    upstream.script(reply)
    answers: dict[int, int] = {}
    for more in _MULTIPLIERS:
        told = json.dumps({name: "(absent)" if value is ... else value for name, value in more.items()})[:60]
        body = {name: value for name, value in (client.chat() | more).items() if value is not ...}
        for key in (gateway.key(budget), gateway.key()):
            held.clear()
            calls, meter = len(upstream.calls), upstream.metered_nanousd
            answer = gateway.ask(key, body)
            gateway.wait_quiet()
            answers[answer.status] = answers.get(answer.status, 0) + 1
            made, billed = upstream.calls[calls:], upstream.metered_nanousd - meter
            lab.check(answer.status in (200, 400, 402, 422, 429), f"{told}: answered {answer.status}")
            lab.check(len(made) == (answer.status == 200), f"{told}: {answer.status} with {len(made)} upstream calls")
            lab.check(sum(held) >= billed, f"{told}: the upstream billed {billed}, {sum(held)} was held")
            lab.check(gateway.counted_nanousd(key) == billed, f"{told}: {gateway.counted_nanousd(key)} of {billed}")
            for call in made:
                asks = not call.body.get("stream") or call.body.get("stream_options", {}).get("include_usage") is True
                lab.check(asks, f"{told}: a stream goes out that nobody will report the usage of")
    return f"{len(_MULTIPLIERS)} bodies with and without a budget: {_counted(answers)}; never billed above the hold"


_ANSWERLESS_CAP = 10_000_000
"""What a model writes that nobody gave a cap."""


def _serve_the_most(call: Call) -> None:
    """Bill the largest prompt and output that this request allows, with a token for each byte of the prompt."""
    body = call.body
    read = {name: body[name] for name in body if name in ("messages", "tools", "functions", "response_format")}
    caps = [body[name] for name in ("max_tokens", "max_completion_tokens") if body.get(name)]
    choices = max(int(body.get("n") or 1), int(body.get("best_of") or 1))
    prediction = body.get("prediction") or {}
    content = prediction.get("content") or ""
    rejected = len(content if isinstance(content, str) else "".join(part["text"] for part in content))
    output = choices * ((max(map(int, caps)) if caps else _ANSWERLESS_CAP) + rejected)
    good("hi", len(json.dumps(read, separators=(",", ":")).encode()) + 3, output)(call)


def _counted(answers: Mapping[int, int]) -> str:
    return ", ".join(f"{count} x {status}" for status, count in sorted(answers.items()))


# --- one attempt, one hold --------------------------------------------------------------------------------------


def attempts_share_no_hold(lab: Lab) -> str:
    """An upstream bills and is silent, the next answers: both are paid; without money, no second call."""
    quiet, backup = lab.upstream(silent), lab.upstream(good())
    gateway = lab.inside(quiet, backup, provider="ttft_timeout_s = 0.3")
    rich = gateway.key()
    answer = gateway.chat(rich)
    gateway.wait_quiet()
    meter, shown = quiet.metered_nanousd + backup.metered_nanousd, gateway.shown(rich)
    lab.check(answer.status == 200, f"failover after silence: {answer.status}")
    lab.check(shown["spent_nanousd"] == backup.metered_nanousd, f"the answer cost {shown['spent_nanousd']}")
    counted = gateway.counted_nanousd(rich)
    lab.check(counted >= meter, f"two upstreams billed {meter}, {counted} counts")
    [lost] = [hold for hold in gateway.holds() if hold["deployment"] == "d0"] or [{"amount_nanousd": 0}]
    worst = int(lost["amount_nanousd"])
    lab.check(worst > 0, "the silent call left no unresolved hold")
    poor = gateway.key(worst)
    calls = len(backup.calls)
    second = gateway.chat(poor)
    gateway.wait_quiet()
    lab.check(len(backup.calls) == calls, "a second call was made for which there was no money")
    lab.check(second.status == 504, f"the last outcome stands: {second.status}, not 504")
    lab.check(gateway.counted_nanousd(poor) == worst, f"{gateway.counted_nanousd(poor)} counts, not {worst}")
    return f"spent {shown['spent_nanousd']} and unresolved {shown['unresolved_nanousd']}; budget for one: 504, one call"


def stale_connection(lab: Lab) -> str:
    """A pooled connection that is dead when it is used again: served by a fresh one, and paid once."""
    seen = []
    for kind in ("closed while idle", "closed at the next request", "reset at the next request"):
        upstream = lab.upstream(good())
        gateway = lab.inside(upstream)
        key = gateway.key()
        upstream.script(_closing_after if kind == "closed while idle" else good(), _dying(kind), good())
        statuses = [gateway.chat(key).status for _ in range(2)]
        gateway.wait_quiet()
        rows, shown = gateway.rows(key), gateway.shown(key)
        lab.check(statuses == [200, 200], f"{kind}: answered {statuses}")
        lab.check(len(rows) == 2, f"{kind}: {len(rows)} rows for 2 requests")
        lab.check(shown["unresolved_nanousd"] == 0, f"{kind}: {shown['unresolved_nanousd']} is unresolved")
        meter = upstream.metered_nanousd
        lab.check(shown["spent_nanousd"] == meter, f"{kind}: spent {shown['spent_nanousd']}, billed {meter}")
        seen.append(f"{kind}: {len(upstream.calls)} arrived")
    return "; ".join(seen) + "; each request paid once"


def _closing_after(call: Call) -> None:
    good()(call)
    call.close()


def _dying(kind: str) -> Reply:
    if kind == "closed while idle":
        return good()
    return Call.close if kind == "closed at the next request" else Call.reset


# --- clients that leave -----------------------------------------------------------------------------------------


def client_leaves(lab: Lab) -> str:
    """A client leaves before the first token, or in a stream: the upstream is left within 2 s, what came is paid."""
    upstream = lab.upstream(silent)
    gateway = lab.inside(upstream)
    seen = []
    for kind in ("before the first token", "in a stream"):
        left, written = threading.Event(), threading.Event()
        upstream.script(_until_left(kind, left, written))
        key, meter = gateway.key(), upstream.metered_nanousd
        sock = client.send_and_leave(gateway.address, client.chat(stream=kind == "in a stream"), key=key)
        lab.check(written.wait(PATIENCE_S), f"{kind}: the upstream was not called")
        started_s = time.monotonic()
        sock.close()
        lab.check(left.wait(2.0), f"{kind}: the upstream was not left within 2 s")
        took_s = time.monotonic() - started_s
        gateway.wait_quiet()
        wait_until(lambda key=key: bool(gateway.rows(key)), "there is no row")  # type: ignore[misc]
        [row], billed = gateway.rows(key), upstream.metered_nanousd - meter
        lab.check(row["exit"] == "client_gone", f"{kind}: the row says {row['exit']}")
        counted = gateway.counted_nanousd(key)
        lab.check(counted >= billed, f"{kind}: the upstream billed {billed}, {counted} counts")
        seen.append(f"{kind}: upstream left after {took_s * 1000:.0f} ms, {counted} counts of {billed} billed")
    return "; ".join(seen)


def _until_left(kind: str, left: threading.Event, written: threading.Event) -> Reply:
    def reply(call: Call) -> None:
        if kind == "in a stream":
            call.bill(7, 3)
            call.begin_stream()
            call.event(ROLE, word(), word(), word())
        written.set()
        if call.left_within(PATIENCE_S):
            left.set()
        call.close()

    return reply


# --- usage that lies --------------------------------------------------------------------------------------------

_LIES: tuple[Any, ...] = (
    None,
    {},
    [],
    "many",
    {"prompt_tokens": 7},
    {"prompt_tokens": -7, "completion_tokens": -5, "total_tokens": -12},
    {"prompt_tokens": "7", "completion_tokens": 5.5},
    {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    {"prompt_tokens": 10**30, "completion_tokens": 10**30},
    {"prompt_tokens": True, "completion_tokens": None},
)


def lying_usage(lab: Lab) -> str:
    """Usage that is absent, negative, of the wrong type or absurd: an estimate at least as high as what was said."""
    upstream = lab.upstream(good())
    gateway = lab.inside(upstream)
    costs = []
    for lie in _LIES:
        for stream in (False, True):
            upstream.script(_saying(lie))
            key = gateway.key()
            answer = gateway.chat(key, stream=stream)
            gateway.wait_quiet()
            [row], least = gateway.rows(key), 5 * OUTPUT_NANOUSD
            cost = row["cost_nanousd"]
            lab.check(answer.status == 200, f"usage {lie!r}: answered {answer.status}")
            told = f"usage {lie!r}{' streamed' * stream}"
            lab.check(isinstance(cost, int) and cost >= least, f"{told}: cost {cost} for five words")
            lab.check(row["estimated"] is True, f"{told}: not marked as an estimate")
            costs.append(cost)
    return f"{len(costs)} answers with usage that makes no sense: estimated at {min(costs)} to {max(costs)}"


def _saying(lie: object) -> Reply:
    def reply(call: Call) -> None:
        call.bill()
        if call.body.get("stream"):
            call.begin_stream()
            last = json.dumps(json.loads(STOP) | {"usage": lie}).encode()
            call.event(ROLE, *[word()] * 5, last, DONE)
            call.end_stream()
        else:
            call.answer(completion("word " * 5, None) | {"usage": lie})

    return reply


def failed_call_with_usage(lab: Lab) -> str:
    """An error that reports usage all the same: that much is paid, and of a broken stream what was seen."""
    upstream = lab.upstream(good())
    gateway = lab.inside(upstream)

    def billed_error(call: Call) -> None:
        used = call.bill(700, 50)
        call.answer({"error": {"message": "late", "type": "server_error", "code": None}, "usage": used}, status=500)

    def broken_stream(call: Call) -> None:
        used = call.bill(700, 3)
        call.begin_stream()
        call.event(ROLE, word(), word(), word(), report(used))
        call.reset()

    for kind, reply, stream in (("500 with usage", billed_error, False), ("broken stream", broken_stream, True)):
        upstream.script(reply)
        key, meter = gateway.key(), upstream.metered_nanousd
        gateway.chat(key, stream=stream)
        gateway.wait_quiet()
        counted, billed = gateway.counted_nanousd(key), upstream.metered_nanousd - meter
        lab.check(counted >= billed, f"{kind}: billed {billed}, {counted} counts")
    upstream.script(failing(503))
    key = gateway.key()
    gateway.chat(key)
    gateway.wait_quiet()
    lab.check(gateway.counted_nanousd(key) == 0, "an error that billed nothing was charged")
    return "usage of failed calls is paid; an error without it costs nothing"


PROBES = (
    Probe("one-slot-race", "money-race", race),
    Probe("tenant-slot-race", "money-race", tenant_race),
    Probe("dearer-backup", "money-attempts", dearer_backup),
    Probe("overage-whole", "money-overage", overage_of_a_whole),
    Probe("overage-stream", "money-overage", overage_at_the_end_of_a_stream),
    Probe("quarantine", "money-overage", quarantine),
    Probe("overrun-stream", "money-overage", overrun_of_a_stream),
    Probe("multipliers", "money-estimate", multipliers),
    Probe("lying-usage", "money-estimate", lying_usage),
    Probe("failed-call-with-usage", "money-estimate", failed_call_with_usage),
    Probe("attempts-share-no-hold", "money-attempts", attempts_share_no_hold),
    Probe("stale-connection", "money-attempts", stale_connection),
    Probe("client-leaves", "money-attempts", client_leaves),
)
