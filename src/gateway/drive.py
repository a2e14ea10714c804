"""Runs a story whose effects block, to its end, on the calling thread.

The rule of the threads engine: an effect may block, it never suspends. A story that suspends was written for another
engine, and is stopped by an error rather than left half done.
"""

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class StorySuspendedError(RuntimeError):
    """A story yielded to a scheduler that is not there."""


def drive(story: Coroutine[Any, Any, T]) -> T:
    """Run `story` until it returns and give back its result; its exceptions pass through.

    Raises StorySuspendedError if it suspends; the story is told first, so that its guards run.
    """
    try:
        story.send(None)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    try:
        story.throw(StorySuspendedError("a story suspended under the threads engine"))
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]
    raise StorySuspendedError("a story went on suspending after it was told not to")
