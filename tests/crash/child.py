"""One request in a process that kills itself at a chosen effect, and the process that comes after it.

Every statement of the ledger, every step of the upstream and every step towards the client is one effect. Nothing
happens between two effects, so death before each of them, and after the last one, is death at every point. Runs only in
forked processes: see tests.support.forks.
"""

import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

from gateway import audit, sqlite_store
from gateway.app import build_gateway
from gateway.books import Books, open_books
from gateway.config import load
from gateway.config_schema import Config
from gateway.context import Caller
from gateway.data_dir import DataDir
from gateway.drive import drive
from gateway.gateway import Gateway
from gateway.keys import ShownKey
from gateway.ledger import Ledger
from gateway.levels import Scope
from gateway.providers import ProviderAnswer, UpstreamCall
from llmkit.sse import DONE
from tests.support import twins
from tests.support.connections import watched
from tests.support.world import CONFIG, chat, scripted

T = TypeVar("T")

PROMPT_TOKENS, WORDS = 10, 3
PROMPT_COST, WORD_COST = PROMPT_TOKENS * 1_000, 4_000
COST = PROMPT_COST + WORDS * WORD_COST
"""Nano-dollars of the whole request at the price of `mini`."""
USAGE = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": WORDS, "total_tokens": PROMPT_TOKENS + WORDS}


class Effects:
    """Counts effects once it is `armed`; dies before the one of number `die_at` (from 0), or at last()."""

    def __init__(self, die_at: int | None, *, armed: bool = False) -> None:
        self._die_at = die_at
        self.armed = armed
        self.labels: list[str] = []

    def begin(self, label: str) -> None:
        if self.armed:
            self._die_if_due()
            self.labels.append(label)

    def perform(self, label: str, action: Callable[[], T]) -> T:
        self.begin(label)
        return action()

    def last(self) -> list[str]:
        """The effects of a process that is at its end."""
        self._die_if_due()
        return self.labels

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Every statement of a story or a start, and the renaming of the ledger's draft, is an effect in this block.

        Those of the cache's writer are none: it works at its own pace, and never on money.
        """
        rename = Path.rename

        def watched_rename(path: Path, target: Path) -> Path:
            return self.perform("rename", lambda: rename(path, target))

        def watched_statement(sql: str) -> None:
            if threading.current_thread().name != "cache-write":
                self.begin(sql.split(None, 1)[0])

        statements = watched(before=watched_statement)
        with statements, mock.patch.object(Path, "rename", watched_rename):
            yield

    def _die_if_due(self) -> None:
        if len(self.labels) == self._die_at:
            os.kill(os.getpid(), signal.SIGKILL)


def append(path: Path, text: str) -> None:
    """What was appended survives the death of the process."""
    with path.open("a") as file:
        file.write(text + "\n")


class MeteredProvider:
    """An upstream that bills as it goes: the prompt once the call is there, each word as it is sent."""

    name = "up"

    def __init__(self, folder: Path, effects: Effects) -> None:
        self._meter = folder / "meter"
        self._effects = effects

    async def open(self, call: UpstreamCall, caller: Caller) -> ProviderAnswer:
        self._effects.perform("upstream open", lambda: self.bill(PROMPT_COST))
        return MeteredAnswer(self, self._effects)

    def bill(self, nanousd: int) -> None:
        append(self._meter, str(nanousd))


class MeteredAnswer:
    def __init__(self, provider: MeteredProvider, effects: Effects) -> None:
        self._provider = provider
        self._effects = effects
        self._events = _events()

    async def whole(self) -> bytes:
        self._effects.perform("upstream answer", lambda: self._provider.bill(WORDS * WORD_COST))
        message = {"role": "assistant", "content": "word " * WORDS, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
        return _payload("chat.completion", [choice], USAGE)

    async def next_events(self) -> list[bytes] | None:
        return self._effects.perform("upstream event", self._next)

    def _next(self) -> list[bytes] | None:
        payload, billed = next(self._events, (None, 0))
        if billed:
            self._provider.bill(billed)
        return None if payload is None else [payload]

    def close(self) -> None:
        """Nothing is left to read."""


def _events() -> Iterator[tuple[bytes, int]]:
    for delta in ({"role": "assistant", "content": ""}, *[{"content": "word "}] * WORDS):
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
        yield _payload("chat.completion.chunk", [choice]), WORD_COST if delta["content"] else 0
    last = {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop"}
    yield _payload("chat.completion.chunk", [last]), 0
    yield _payload("chat.completion.chunk", [], USAGE), 0
    yield DONE, 0


def _payload(kind: str, choices: list[dict[str, Any]], usage: dict[str, int] | None = None) -> bytes:
    head = {"id": "chatcmpl-crash", "object": kind, "created": 1, "model": "gw-mini"}
    return json.dumps(head | {"choices": choices, "usage": usage}).encode()


class RecordingCaller:
    """A client whose every step is an effect; the file `client` says `whole` once it has the last byte."""

    cancel = None
    pulse = None

    def __init__(self, folder: Path, effects: Effects) -> None:
        self._client = folder / "client"
        self._effects = effects

    def will_wait(self, head_until_s: float | None) -> None:
        """No time passes here."""

    async def start(self) -> None:
        self._effects.perform("client start", lambda: None)

    async def send(self, *frames: bytes) -> None:
        self._effects.perform("client send", lambda: append(self._client, "events"))

    async def finish(self, last: bytes) -> None:
        self.receive_the_last()

    async def pause(self, seconds: float) -> None:
        """No time passes here."""

    def receive_the_last(self) -> None:
        self._effects.perform("client end", lambda: append(self._client, "whole"))


CONFIGS = {
    durability: load(f'{CONFIG}\n[store]\ndurability = "{durability}"\n', {}) for durability in ("full", "normal")
}


@contextmanager
def opened(folder: Path, config: Config, ledger: str = "") -> Iterator[Books]:
    """The books of a folder that this process owns; `ledger` names a twin. Nothing is closed if the block raises."""
    data_dir = DataDir.own(folder)
    with mock.patch("gateway.books.Ledger", getattr(twins, ledger) if ledger else Ledger):
        books = open_books(data_dir, config)
    yield books
    books.close()
    data_dir.close()


# --- what is run in a fork ----------------------------------------------------------------------------------------


def prepare(folder: str) -> str:
    """Make a ledger with one key; returns the key."""
    with opened(Path(folder), CONFIGS["normal"]) as books:
        return str(books.commands.run("keys.create", {"tenant": "acme", "budget_usd": "1"})["key"])


def request(
    folder: str, raw_key: str, *, stream: bool, durability: str, die_at: int | None, ledger: str = ""
) -> list[str]:
    """Serve one request, then end cleanly, unless death comes first. Returns the effects."""
    home, effects, config = Path(folder), Effects(die_at), CONFIGS[durability]
    with (
        mock.patch.object(sqlite_store, "FLUSH_AFTER_S", 3600.0),
        effects.watched(),
        opened(home, config, ledger) as books,
    ):
        gateway = build_gateway(config, books, providers={"up": MeteredProvider(home, effects)})
        body = json.dumps(chat(max_tokens=50, stream=stream)).encode()
        effects.armed = True
        drive(_serve(gateway, raw_key, body, RecordingCaller(home, effects)))
    return effects.last()


async def _serve(gateway: Gateway, raw_key: str, body: bytes, caller: RecordingCaller) -> None:
    """As the front does: a whole answer is written once the story has returned it."""
    answer = await gateway.serve(gateway.context(gateway.authenticate(ShownKey.of(raw_key)), body, caller))
    if answer.body is not None:
        caller.receive_the_last()


def start(folder: str, *, die_at: int | None) -> list[str]:
    """Start, and end cleanly, unless death comes first. Returns the effects of the start."""
    effects = Effects(die_at, armed=True)
    with effects.watched(), opened(Path(folder), CONFIGS["full"]):
        effects.armed = False
        return effects.last()


def orphans(folder: str) -> int:
    """Start again: how many holds the last process left open."""
    with opened(Path(folder), CONFIGS["full"]) as books:
        return books.orphans


def faults(folder: str, raw_key: str, *, durability: str) -> list[str]:
    """Start after a death and look for everything that must not be; the faults that were found."""
    home, found = Path(folder), []
    meter = sum(map(int, _lines(home / "meter")))
    answered = "whole" in _lines(home / "client")
    with opened(home, CONFIGS[durability]) as books:
        report = drive(audit.verify(books.store))
        (spent, held, unresolved), *others = _levels(books, raw_key)
        facts = f"spent {spent}, unresolved {unresolved}, metered {meter}, holds {report.holds}, rows {report.rows}"
        if not report.ok:
            found.append(f"the books do not balance: {report.differences}")
        if report.open_holds or held:
            found.append("a dead hold is still open")
        if set(others) != {(spent, held, unresolved)}:
            found.append(f"the levels differ: {others} from {facts}")
        if spent not in (0, COST):
            found.append(f"charged {spent}, not {COST} once")
        if spent and unresolved:
            found.append(f"settled and unresolved: {facts}")
        if report.holds > 1 or report.rows != report.holds:
            found.append(f"not one row for one hold: {facts}")
        if report.holds and not spent and not unresolved:
            found.append(f"a hold stopped counting: {facts}")
        if meter > spent + unresolved:
            found.append(f"the upstream bills more than is on the books: {facts}")
        if answered and durability == "full" and spent != COST:
            found.append(f"the client has its answer and it is not settled: {facts}")
        return found + _next_request(books, raw_key)


def _next_request(books: Books, raw_key: str) -> list[str]:
    """What is wrong with a request that comes after the death."""
    [before, *_] = _levels(books, raw_key)
    gateway = build_gateway(CONFIGS["normal"], books, providers=scripted({"text": "word " * WORDS, "usage": USAGE}))
    gateway.handle(raw_key, chat(max_tokens=50))
    books.store.flush()
    [after, *_] = _levels(books, raw_key)
    expected = (before[0] + COST, 0, before[2])
    return [] if after == expected else [f"the next request left {after}, not {expected}"]


def _levels(books: Books, raw_key: str) -> list[tuple[int, int, int]]:
    """What key, tenant and gateway have spent, held and unresolved."""
    names = ((Scope.KEY, books.keys.authenticate(ShownKey.of(raw_key)).id), (Scope.TENANT, "acme"), (Scope.GLOBAL, ""))
    states = [drive(books.ledger.level(*name)) for name in names]
    return [(state.spent_nanousd, state.held_nanousd, state.unresolved_nanousd) for state in states if state]


def _lines(path: Path) -> list[str]:
    return path.read_text().split() if path.exists() else []
