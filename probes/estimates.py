"""Worst cases: whatever a request multiplies or a provider reports, the hold and the books bound what is billed."""

import json
from collections.abc import Mapping
from typing import Any

from probes import client
from probes.gateways import worst_case_nanousd
from probes.lab import Lab, Probe
from probes.upstream import (
    DONE,
    OUTPUT_NANOUSD,
    ROLE,
    STOP,
    Call,
    Reply,
    completion,
    failing,
    good,
    report,
    word,
)

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
    Probe("multipliers", "money-estimate", multipliers),
    Probe("lying-usage", "money-estimate", lying_usage),
    Probe("failed-call-with-usage", "money-estimate", failed_call_with_usage),
)
