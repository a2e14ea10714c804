"""`python -m tests.support.broken_serve MISTAKE,MISTAKE ... ARGUMENTS` serves as `python -m gateway.api` does, with
these mistakes.

A mistake is a list of patches of the serving process (owner, name, what it is instead), or limits, or one
of the fronts of `sloppy_front` before it, or what stands around the process and hears its signals. Patches touch what
the front is built on, never how it is built.
"""

import contextlib
import ctypes
import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from gateway import answers, api, app, books, chat, cli, commands, relay_stream, verdict
from gateway import gateway as story
from gateway.answers import lines
from gateway.cli import serve_main
from gateway.config_schema import Config
from gateway.headers import fact_headers
from gateway.holds import OnCrash
from gateway.keys import Key, KeyRing, ShownKey
from gateway.ledger import Ledger
from gateway.oplog import OpLog
from gateway.serve import load_config
from llmkit import client, openai, transport
from llmkit.client import OpenAICompatClient
from llmkit.http1 import ResponseHead
from llmkit.transport import Exchange
from tests.support.sloppy_front import FRONTS, stand_before

_ENDLESS = 1 << 40
_FOR_EVER_S = 3600.0
_refuse = client._refusal


def _client_without_limits(*arguments: Any, **options: Any) -> OpenAICompatClient:
    return OpenAICompatClient(*arguments, **options | {"max_event_bytes": _ENDLESS, "max_answer_bytes": _ENDLESS})


class _ForgetsTheDead(Ledger):
    """Gives the holds of a dead process back, whatever the configuration says."""

    async def open(self, *, pid: int, machine_boot: str, on_crash: OnCrash | None = OnCrash.VOID) -> int:
        return await super().open(pid=pid, machine_boot=machine_boot, on_crash=OnCrash.VOID)


# --- keys -------------------------------------------------------------------------------------------------------

_authenticate = KeyRing.authenticate


def _by_id(self: KeyRing, shown: ShownKey) -> Key:
    """Looks a key up by its public id, and takes the rest for granted."""
    return self._keys.get(shown.id) or _authenticate(self, shown)


_SEEN: dict[str, Key] = {}


def _remembered(self: KeyRing, shown: ShownKey) -> Key:
    """What was right once is right for ever."""
    if shown.digest not in _SEEN:
        _SEEN[shown.digest] = _authenticate(self, shown)
    return _SEEN[shown.digest]


# --- requests ---------------------------------------------------------------------------------------------------

_parse_chat = chat.parse_chat


def _fetches(raw: bytes, *facts: Any) -> Any:
    """Looks at every address in a request, to know how large what it means is."""
    for address in re.findall(rb"http://(127\.0\.0\.1):(\d+)/v1/", raw):
        with contextlib.suppress(OSError):
            socket.create_connection((address[0].decode(), int(address[1])), 1).close()
    return _parse_chat(raw, *facts)


def _rounded(raw: bytes) -> Any:
    """Reads numbers as JavaScript does."""
    return json.loads(raw, parse_int=lambda digits: int(float(digits)))


# --- upstreams --------------------------------------------------------------------------------------------------

_start = Exchange.start
_heads: list[ResponseHead] = []
_facts = fact_headers


def _looks_where_it_is_sent(self: Exchange, request: Any) -> Exchange:
    """Follows a redirect, at least so far as to connect."""
    try:
        return _start(self, request)
    finally:
        head = self._reader.head
        place = re.match(r"(?:http:)?//([^/:]+):(\d+)", (head.get("location") or "") if head else "")
        if place:
            with contextlib.suppress(OSError):
                socket.create_connection((place[1], int(place[2])), 1).close()


def _does_not_look(self: Exchange, request: Any) -> Exchange:
    """Uses a kept connection whatever has arrived on it meanwhile."""
    self._reused = False
    return _start(self, request)


def _remembers_the_head(self: Exchange, request: Any) -> Exchange:
    exchange = _start(self, request)
    _heads[:] = [exchange.head]
    return exchange


def _all_fields(*arguments: Any) -> bytes:
    """The gateway's facts, and the upstream's headers but for those that frame its body."""
    framing = ("content-length", "transfer-encoding", "connection", "content-type")
    fields = [f"{name}: {value}" for head in _heads for name, value in head.headers if name not in framing]
    return _facts(*arguments) + lines(*fields)


# --- what is written --------------------------------------------------------------------------------------------


def _any_text(arguments: Mapping[str, Any], name: str) -> str | None:
    return arguments.get(name)


def _in_words(self: OpLog, event: str, **facts: object) -> None:
    """Logs for people, as it comes."""
    print(event, *(f"{name}={value}" for name, value in facts.items()), file=sys.stderr, flush=True)


# --- limits -----------------------------------------------------------------------------------------------------

_load_config = load_config
_limits: dict[str, Any] = {}


def _with_limits(*arguments: Any) -> Config:
    config = _load_config(*arguments)
    return replace(config, server=replace(config.server, **_limits))


# --- signals ----------------------------------------------------------------------------------------------------


def _around(heard: Callable[[subprocess.Popen[bytes], int], None]) -> Callable[[], int]:
    """A process around the gateway that hears its signals, and ends with it."""

    def serve() -> int:
        child = subprocess.Popen([sys.executable, "-m", "gateway.api", *sys.argv[2:]], preexec_fn=_die_with_the_parent)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda caught, _frame: heard(child, caught))
        return child.wait()

    return serve


def _die_with_the_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def _first_only(child: subprocess.Popen[bytes], number: int) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    child.send_signal(number)


AROUND = {"hears-once": _around(_first_only)}

MISTAKES: dict[str, list[tuple[Any, str, Any]]] = {
    "reads-without-end": [
        (app, "OpenAICompatClient", _client_without_limits),
        (relay_stream, "MOST_HELD_BYTES", _ENDLESS),
    ],
    "forgets-the-dead": [(books, "Ledger", _ForgetsTheDead)],
    "repeats-secrets": [
        (verdict, "without_secrets", str),
        (answers, "without_secrets", str),
        (client, "_refusal", lambda head, body, **facts: _refuse(head, body, **facts | {"api_key": None})),
    ],
    "keys-by-id": [(KeyRing, "authenticate", _by_id)],
    "remembers-keys": [(KeyRing, "authenticate", _remembered)],
    "reads-leniently": [(chat, "loads_object", json.loads)],
    "rounds-numbers": [(chat, "loads_object", _rounded)],
    "fetches": [(story, "parse_chat", _fetches)],
    "forwards-everything": [(openai, "_REMOVED", frozenset(openai.GATEWAY_FIELDS))],
    "follows-redirects": [(transport.Exchange, "start", _looks_where_it_is_sent)],
    "does-not-look": [(transport.Exchange, "start", _does_not_look)],
    "relays-headers": [
        (transport.Exchange, "start", _remembers_the_head),
        (api, "fact_headers", _all_fields),
    ],
    "takes-any-name": [(commands, "_optional_text", _any_text)],
    "logs-in-words": [(OpLog, "event", _in_words)],
}

LIMITS: dict[str, dict[str, float]] = {
    "waits-for-readers": {"write_timeout_s": _FOR_EVER_S},
    "keeps-the-idle": {"idle_timeout_s": _FOR_EVER_S},
    "admits-everybody": {"max_in_flight": 1024, "max_per_tenant": 1024, "queue_wait_s": _FOR_EVER_S},
    "accepts-everybody": {"max_connections": 2048},
    "takes-any-size": {"max_body_bytes": _ENDLESS},
    "cuts-at-once": {"announce_s": 0, "drain_s": 0},
    "never-ends": {"drain_s": _FOR_EVER_S},
}
"""Limits that hold whatever the file says."""


def program(*mistakes: str) -> tuple[str, ...]:
    """What an interpreter runs to serve with mistakes."""
    return ("-m", "tests.support.broken_serve", ",".join(mistakes))


def serve() -> int:
    """Serve as the command line says."""
    return serve_main(sys.argv[2:])


if __name__ == "__main__":
    mistakes = sys.argv[1].split(",")
    patches = [patch for mistake in mistakes for patch in MISTAKES.get(mistake, ())]
    for mistake in mistakes:
        _limits |= LIMITS.get(mistake, {})
    for owner, name, broken in [*patches, (cli, "load_config", _with_limits)]:
        if not hasattr(owner, name):
            raise AttributeError(f"{owner} has no {name} that could be wrong")
        setattr(owner, name, broken)
    fronts = [FRONTS[mistake] for mistake in mistakes if mistake in FRONTS]
    around = [AROUND[mistake] for mistake in mistakes if mistake in AROUND]
    sys.exit(around[0]() if around else stand_before(fronts[0], serve) if fronts else serve())
