"""The threads engine: effects block, stories never suspend, and there is no event loop.

For users of the library, who have no socket for the gateway to watch. The one exception to "never suspends" is the
stream iterator: its send() suspends to the consumer, who is the engine then.
"""

import contextlib
import functools
import queue
import threading
from collections import deque
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

from gateway.clock import RealClock
from gateway.context import Story
from gateway.drive import drive
from gateway.errors import ClientGone
from llmkit.types import Cancel, Pulse
from llmkit.watch import Call, CancelledError, Deadline, ExpiredError, Watch

T = TypeVar("T")
_CLOCK = RealClock()


def pause(seconds: float, cancel: Cancel | None = None, pulse: Pulse | None = None) -> None:
    """Block for `seconds` while `pulse` beats; if `cancel` fires before they are over, raise its reason."""
    end = Deadline(_CLOCK.now_s() + seconds, "pause")
    try:
        Watch(None, Call(_CLOCK.now_s, cancel, end, pulse)).wait(0, end)
    except ExpiredError:
        return
    except CancelledError as cancelled:
        raise cancelled.reason from None


class BlockingEffects:
    """The engine as a front on threads uses it: on the connection's own thread."""

    run = staticmethod(drive)

    def pause(self, seconds: float, cancel: Cancel, pulse: Pulse) -> None:
        """See pause."""
        pause(seconds, cancel, pulse)


class _DirectCaller:
    """A client that waits for a whole answer, and cannot leave but by `cancel`."""

    pulse: Pulse | None = None

    def __init__(self, cancel: Cancel | None) -> None:
        self.cancel = cancel

    def will_wait(self, head_until_s: float | None) -> None:
        if head_until_s is not None:
            raise TypeError("a story that was asked for a whole answer began to stream")

    async def start(self) -> None:
        raise TypeError("a story that was asked for a whole answer began to stream")

    async def send(self, *frames: bytes) -> None:
        raise TypeError("a story that was asked for a whole answer sent an event")

    async def finish(self, last: bytes) -> None:
        raise TypeError("a story that was asked for a whole answer ended a stream")

    async def pause(self, seconds: float) -> None:
        pause(seconds, self.cancel)


class _Yield:
    """Suspends the story with one piece of its stream."""

    def __init__(self, frames: bytes) -> None:
        self._frames = frames

    def __await__(self) -> Generator[bytes, None, None]:
        yield self._frames


class _StreamCaller:
    """A client that pulls events; it leaves by closing its iterator. It has no head, and needs no comments."""

    cancel: Cancel | None = None
    pulse: Pulse | None = None

    def will_wait(self, head_until_s: float | None) -> None:
        """Nothing is held back from whoever pulls."""

    async def start(self) -> None:
        """Nothing to promise: there is no head."""

    async def send(self, *frames: bytes) -> None:
        await _Yield(b"".join(frames))

    async def finish(self, last: bytes) -> None:
        await _Yield(last)

    async def pause(self, seconds: float) -> None:
        pause(seconds)


class StoryStream:
    """The events of a story as an iterator of text. Use from one thread at a time; close it when leaving early.

    An iterator that is forgotten is ended by the reaper thread, because a finaliser may run while its thread holds any
    lock and must therefore touch none.
    """

    def __init__(self, story: Coroutine[Any, Any, Any], reaper: "Reaper") -> None:
        self._story: Coroutine[Any, Any, Any] | None = story
        self._reaper = reaper
        reaper.keep(story)
        self._events: deque[str] = deque()

    def __iter__(self) -> "StoryStream":
        return self

    def __next__(self) -> str:
        while not self._events:
            if self._story is None:
                raise StopIteration
            self._advance()
        return self._events.popleft()

    def close(self) -> None:
        """Leave: the story is told that its client is gone and run to its end."""
        self._events.clear()
        story = self._let_go()
        if story is not None:
            end_as_gone(story)

    def _advance(self) -> None:
        story = self._story
        if story is None:
            return
        try:
            frames: bytes = story.send(None)
        except StopIteration:
            self._let_go()
        except BaseException:
            self._let_go()
            raise
        else:
            self._events.extend(event + "\n\n" for event in frames.decode("utf-8").split("\n\n") if event)

    def _let_go(self) -> Coroutine[Any, Any, Any] | None:
        story, self._story = self._story, None
        if story is not None:
            self._reaper.let_go(story)
        return story

    def __del__(self) -> None:
        if self._story is not None:
            self._reaper.take(self._story)


def end_as_gone(story: Coroutine[Any, Any, Any]) -> None:
    """Throw ClientGone into a suspended story and run it to its end; what it still sends is dropped."""
    try:
        story.throw(ClientGone("the stream was closed by its reader"))
        while True:
            story.send(None)
    except (StopIteration, ClientGone):
        return


class Reaper:
    """Ends the stories of streams that were forgotten. take() puts onto a lock-free queue: a finaliser may call it.

    It keeps every story that is under way. Else the collector, which finalises all of a cycle at once, would close the
    story itself, on any thread, with any lock held. `_kept` is changed by single set operations only.
    """

    def __init__(self) -> None:
        self._kept: set[Coroutine[Any, Any, Any]] = set()
        self._stories: queue.SimpleQueue[Coroutine[Any, Any, Any]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="story-reaper", daemon=True).start()

    def keep(self, story: Coroutine[Any, Any, Any]) -> None:
        """Hold on to a story until it is let go or taken."""
        self._kept.add(story)

    def let_go(self, story: Coroutine[Any, Any, Any]) -> None:
        """Its stream has seen to its end."""
        self._kept.discard(story)

    def take(self, story: Coroutine[Any, Any, Any]) -> None:
        """End a story soon, on the reaper's thread."""
        self._stories.put(story)

    def _run(self) -> None:
        while True:
            story = self._stories.get()
            with contextlib.suppress(Exception):  # a story tells its own errors; the next one must be ended too
                end_as_gone(story)
            self._kept.discard(story)
            del story


class ThreadsEngine:
    """Runs stories on the calling thread. The reaper is started for the first stream: a front needs none."""

    @functools.cached_property
    def _reaper(self) -> Reaper:
        return Reaper()

    def run(self, story: Story[T], cancel: Cancel | None = None) -> T:
        return drive(story(_DirectCaller(cancel)))

    def iterate(self, story: Story[Any]) -> StoryStream:
        return StoryStream(story(_StreamCaller()), self._reaper)
