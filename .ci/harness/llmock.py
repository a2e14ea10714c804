"""LLMock, an upstream that breaks on demand and then judges its client, which here is the gateway.

Each scenario breaks the upstream in one way and sends a request through the gateway. The client is an honest one: it
asks again when it was told of a failure that may pass, and only then. LLMock groups what reached it into calls and
their repetitions; it blames the gateway for asking again too soon, too often or in vain, and for an answer that was cut
and passed on as whole: nobody told the client, so nobody asked again. What the client saw is compared too.
"""

import http.client
import json
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Literal

from harness.gateway import serve
from harness.install import program
from harness.processes import OPENER, Processes, free_address

TEXT = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
CHUNK_DELAY_MS = 10
"""So that the rest of a stream is not already in a socket's buffer when the gateway stops reading it."""
STALL_S = 20
"""Far beyond the gateway's clock for it."""
PATIENCE_S = 5
"""A client that is told to wait longer gives up."""
PAUSE_S = 0.3
"""Before a client asks again, as SDKs do."""
TIMEOUT_S = 30

Seen = Literal["whole", "told", "untold", "400", "429", "5xx"]
"""What one request comes to: the whole answer, a stream that says it broke, something broken that says nothing, or a
refusal."""

Fault = Mapping[str, Any]


@dataclass(frozen=True)
class Scenario:
    """One way to break.

    faults   what the upstream does to the requests that reach it
    seen     what the client must see, request by request, as far as it matters
    stream   whether it asks for a stream
    models   the upstream's models behind the name, in failover order; LLMock knows a repetition by its equal body, so
             two of one name are one upstream to it
    excused  findings that are right here, or not the gateway's
    """

    name: str
    faults: Sequence[Fault]
    seen: Sequence[Seen]
    stream: bool = False
    models: Sequence[str] = ("only",)
    excused: frozenset[str] = frozenset()

    def deployments(self) -> dict[str, str]:
        """The model of each of its deployments; no other scenario uses them, so their health is its own."""
        return {f"{self.name}-{i}": f"{self.name}-{model}" for i, model in enumerate(self.models)}


def _status(status: int, retry_after_s: float = 0, times: int | None = 1) -> Fault:
    return {"type": "fail", "status": status, "retry_after": retry_after_s, "times": times}


def _broken(kind: str, after_chunks: int) -> Fault:
    """A stream that breaks; its first chunk holds the role, the others a word each."""
    return {"type": "stream_fault", "kind": kind, "after_chunks": after_chunks, "stall_seconds": STALL_S}


_IN_TEXT = 4
_TWICE = ("same", "same")
_OTHER = ("first", "second")
_UNSEEN = frozenset({"malformed_chunk_ignored"})
"""A failover may reach LLMock before it notices that the first stream was closed; then it sees two calls."""

SCENARIOS = (
    Scenario("sound", (), ("whole",)),
    Scenario("sound-stream", (), ("whole",), stream=True),
    Scenario("limit-once", (_status(429, 0.5),), ("whole",)),
    Scenario("limit-once-stream", (_status(429, 0.5),), ("whole",), stream=True),
    Scenario("limit-other", (_status(429, 60),), ("whole",), models=_OTHER, excused=frozenset({"gave_up"})),
    Scenario("limit-long", (_status(429, 60),), ("429",), excused=frozenset({"gave_up"})),
    Scenario("error-once", (_status(500),), ("whole",)),
    Scenario("error-twice", (_status(502, times=2),), ("whole",)),
    Scenario("error-once-stream", (_status(500),), ("whole",), stream=True),
    Scenario("overload", (_status(503, 0.5),), ("whole",)),
    Scenario("timeout-once", (_status(408),), ("whole",)),
    Scenario("outage", (_status(503, times=None),), ("5xx",)),
    Scenario("fault-of-ours", (_status(401, times=None),), ("5xx",)),
    Scenario("fault-of-theirs", (_status(400),), ("400",)),
    Scenario("unprocessable", (_status(422),), ("400",)),
    Scenario("slow-first-word", ({"type": "slow_first_token", "seconds": 1.5},), ("whole",), stream=True),
    *(
        Scenario(f"{kind}-at-{after}", (_broken(kind, after),), ("5xx", "whole"), stream=True)
        for kind in ("disconnect", "truncate", "stall", "malformed")
        for after in (0, 1)
    ),
    *(
        Scenario(f"{kind}-spare", (_broken(kind, 1),), ("whole",), stream=True, models=_TWICE, excused=_UNSEEN)
        for kind in ("disconnect", "truncate", "stall", "malformed")
    ),
    *(
        Scenario(f"{kind}-in-text", (_broken(kind, _IN_TEXT),), ("told", "whole"), stream=True, models=_TWICE)
        for kind in ("disconnect", "truncate", "stall", "malformed")
    ),
)

CANARY_MODEL = "canary"

_REFUSALS: Mapping[int, Seen] = {400: "400", 429: "429", 502: "5xx", 503: "5xx", 504: "5xx"}


class LLMock:
    """A running LLMock, and the gateway in front of it."""

    def __init__(self, processes: Processes) -> None:
        self._url, port = free_address()
        command = [program("upstreams", "llmock"), "serve", "--host", "127.0.0.1", "--port", port]
        delay = ["--stream-chunk-delay-ms", str(CHUNK_DELAY_MS), "--log-level", "warning"]
        processes.start("llmock", [*command, *delay], f"{self._url}/health")
        deployments = {name: model for scenario in SCENARIOS for name, model in scenario.deployments().items()}
        self.gateway = serve(
            processes,
            "llmock",
            f"{self._url}/v1",
            {CANARY_MODEL: CANARY_MODEL, **deployments},
            aliases={scenario.name: list(scenario.deployments()) for scenario in SCENARIOS},
            provider={"ttft_timeout_s": 6, "idle_timeout_s": 2},
            sections={"retry": {"base_s": 0.05}},
        )
        self._key = self.gateway.create_key()

    def blames_nobody(self, scenario: Scenario) -> bool:
        """Play one scenario; whether the client saw what it must, and LLMock finds nothing to blame."""
        self._call("POST", "/_llmock/reset")
        behaviors = [{"type": "reply", "text": TEXT, "times": None}, *scenario.faults]
        self._call("POST", "/_llmock/scenario", {"behaviors": behaviors})
        seen = self._ask(scenario)
        complaints = [*self._complaints(scenario, seen), *self._findings(scenario)]
        print(
            f"{'FAIL' if complaints else 'ok  '}  {scenario.name}: {'; '.join(complaints) or ', '.join(seen)}",
            flush=True,
        )
        return not complaints

    def _complaints(self, scenario: Scenario, seen: Sequence[Seen]) -> Iterator[str]:
        if tuple(seen[: len(scenario.seen)]) != tuple(scenario.seen):
            yield f"the client saw {', '.join(seen)} instead of {', '.join(scenario.seen)}"
        if any(behavior["times"] for behavior in self._call("GET", "/_llmock/scenario")["pending"]):
            yield "no request reached a fault"

    def _findings(self, scenario: Scenario) -> Iterator[str]:
        for finding in self._call("GET", "/_llmock/verdict")["findings"]:
            if finding["code"] not in scenario.excused:
                yield f"{finding['code']}: {finding['title']}"

    def _ask(self, scenario: Scenario) -> list[Seen]:
        """Ask once, and once more if told of a failure that may pass, after the wait that was asked for."""
        seen, wait_s = self._request(scenario)
        if seen not in ("told", "429", "5xx") or wait_s > PATIENCE_S:
            return [seen]
        time.sleep(wait_s)
        self._call("GET", "/_llmock/requests")  # answered once it knows how the first one ended
        return [seen, self._request(scenario)[0]]

    def _request(self, scenario: Scenario) -> tuple[Seen, float]:
        """One request; what it comes to, and how many seconds to wait before another."""
        body = {"model": scenario.name, "messages": [{"role": "user", "content": "count"}], "stream": scenario.stream}
        headers = {"authorization": f"Bearer {self._key}", "content-type": "application/json"}
        address = self.gateway.url.removeprefix("http://")
        with closing(http.client.HTTPConnection(address, timeout=TIMEOUT_S)) as connection:
            try:
                connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
                answer = connection.getresponse()
            except (http.client.HTTPException, OSError):
                return "untold", PAUSE_S
            seen = _seen(answer, stream=scenario.stream)
        return seen, max(PAUSE_S, float(answer.headers.get("retry-after", 0)))

    def _call(self, method: str, path: str, body: object = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        with OPENER.open(urllib.request.Request(self._url + path, data, method=method), timeout=TIMEOUT_S) as answer:
            return json.load(answer)


def _seen(answer: http.client.HTTPResponse, *, stream: bool) -> Seen:
    raw, complete = _read(answer)
    if answer.status != 200:
        return _REFUSALS.get(answer.status, "untold")
    try:
        return _stream_seen(raw.decode(), complete) if stream else _whole_seen(raw)
    except (ValueError, LookupError, TypeError):
        return "untold"


def _read(answer: http.client.HTTPResponse) -> tuple[bytes, bool]:
    """What came, and whether its end did."""
    raw = b""
    try:
        while piece := answer.read1(65536):
            raw += piece
    except (http.client.HTTPException, OSError):
        return raw, False
    return raw, True


def _whole_seen(raw: bytes) -> Seen:
    return "whole" if json.loads(raw)["choices"][0]["message"]["content"] == TEXT else "untold"


def _stream_seen(text: str, complete: bool) -> Seen:
    payloads = [event.removeprefix("data: ") for event in text.split("\n\n") if event.startswith("data: ")]
    ended = payloads[-1:] == ["[DONE]"]
    chunks = [json.loads(payload) for payload in payloads if payload != "[DONE]"]
    if not ended and (not complete or any("error" in chunk for chunk in chunks)):
        return "told"
    written = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
    return "whole" if ended and written == TEXT else "untold"
