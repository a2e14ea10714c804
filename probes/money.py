"""Money: a budget is never passed, a worst case is one, and what an upstream bills is on the books, once."""

import json
import threading

from probes import client
from probes.gateways import worst_case_nanousd
from probes.hands import at_once
from probes.lab import Lab, Probe
from probes.upstream import (
    OUTPUT_NANOUSD,
    PATIENCE_S,
    PROMPT_NANOUSD,
    ROLE,
    Call,
    Reply,
    good,
    usage,
    word,
)

CALLERS = 32
ROUNDS = 30


# --- one slot, many callers -------------------------------------------------------------------------------------


def race(lab: Lab) -> str:
    """Budget for exactly one request, 32 callers at once, 30 rounds: one is served, and the books are the meter's."""
    upstream = lab.upstream(good())
    gateway = lab.inside(upstream)
    worst = worst_case_nanousd(gateway, upstream, client.chat())
    prompt_tokens = (worst - client.CAP * OUTPUT_NANOUSD) // PROMPT_NANOUSD
    upstream.script(good(prompt_tokens=prompt_tokens, completion_tokens=client.CAP, delay_s=0.05))
    for number in range(ROUNDS):
        key, calls, meter = gateway.key(worst), len(upstream.calls), upstream.metered_nanousd
        callers = [client.Poised(gateway.address, client.chat(), key=key) for _ in range(CALLERS)]
        statuses = [answer.status for answer in at_once(client.Poised.fire, callers)]
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
    upstream.script(good(prompt_tokens=7, completion_tokens=client.CAP, delay_s=0.05))
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
        statuses = [answer.status for answer in at_once(client.Poised.fire, callers)]
        gateway.wait_quiet()
        served, made = statuses.count(200), len(upstream.calls) - calls
        billed, counted = upstream.metered_nanousd - meter, sum(map(gateway.counted_nanousd, keys))
        lab.check(served == made == 1, f"round {number}: {served} served, {made} upstream calls, for 1")
        lab.check(set(statuses) <= {200, 402, 429}, f"round {number}: statuses {sorted(set(statuses))}")
        lab.check(counted == billed, f"round {number}: {counted} counts, {billed} was billed")
    return f"{TENANT_ROUNDS} rounds of {CALLERS} callers with 8 keys of a tenant: one served in each"


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
    upstream.script(good(completion_tokens=300 * client.CAP))
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
    upstream, backup = lab.upstream(good(completion_tokens=300 * client.CAP)), lab.upstream(good())
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
        left, told = threading.Event(), _Told()
        upstream.script(_overrunning(kind, left, told))
        key, meter = gateway.key(), upstream.metered_nanousd
        body = client.chat(stream=True, stream_options={"include_usage": True})
        answer = gateway.ask(key, body, heard=told.note)
        lab.check(not answer.looks_finished, f"{kind}: an overrun stream looks finished")
        lab.check(left.wait(PATIENCE_S), f"{kind}: the upstream was not left")
        gateway.wait_quiet()
        relayed, [row] = told.deltas, gateway.rows(key)
        lab.check(relayed <= 2 * client.CAP + 3, f"{kind}: {relayed} deltas were relayed, the cap is {client.CAP}")
        billed, slack = upstream.metered_nanousd - meter, 4 * OUTPUT_NANOUSD
        lab.check(row["cost_nanousd"] + slack >= billed, f"{kind}: billed {billed}, booked {row['cost_nanousd']}")
        seen.append(f"{kind} cut after {relayed}")
    return ", ".join(seen)


class _Told:
    """How many deltas a client has been told."""

    def __init__(self) -> None:
        self.deltas = 0

    def note(self, body: bytes) -> None:
        """This is what has come of a stream."""
        self.deltas = body.count(b'"content": "w')

    def awaits(self, count: int, call: Call) -> bool:
        """Wait until it was told so many; False if the gateway has left before."""
        while self.deltas < count:
            if call.left_within(0.001):
                return False
        return True


def _overrunning(kind: str, left: threading.Event, told: _Told) -> Reply:
    """Writes for ever, a delta as soon as the client was told the one before it: no more is billed than can be seen."""
    text = "w" * 4096 if kind == "long deltas" else "word "

    def reply(call: Call) -> None:
        call.bill(7, 0)
        call.begin_stream()
        call.event(ROLE)
        for number in range(1, 20 * client.CAP):
            call.bill(0, 1)
            running = {"usage": usage(7, number)} if kind == "running usage" else {}
            document = json.loads(word(text)) | running
            call.event(json.dumps(document).encode())
            if not told.awaits(number, call):
                break
        left.set()
        call.close()

    return reply


PROBES = (
    Probe("one-slot-race", "money-race", race),
    Probe("tenant-slot-race", "money-race", tenant_race),
    Probe("overage-whole", "money-overage", overage_of_a_whole),
    Probe("overage-stream", "money-overage", overage_at_the_end_of_a_stream),
    Probe("quarantine", "money-overage", quarantine),
    Probe("overrun-stream", "money-overage", overrun_of_a_stream),
)
