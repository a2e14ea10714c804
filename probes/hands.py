"""Many things at the same time: all in one moment, or a few at a time."""

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")

_HANDS = 8


def at_once(act: Callable[[S], T], tasks: Sequence[S]) -> list[T]:
    """What `act` makes of each task, all at the same moment, each on a thread of its own."""
    barrier = threading.Barrier(len(tasks))

    def wait_and_act(task: S) -> T:
        barrier.wait()
        return act(task)

    with ThreadPoolExecutor(len(tasks)) as crowd:
        return list(crowd.map(wait_and_act, tasks))


def side_by_side(act: Callable[[S], T], tasks: Iterable[S]) -> list[T]:
    """What `act` makes of each task, a few at a time."""
    with ThreadPoolExecutor(_HANDS) as hands:
        return list(hands.map(act, tasks))
