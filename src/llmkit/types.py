"""Values that the parts of this package hand to each other.

Rules. Usage is what a provider reported or what was estimated, by token class, in one convention whatever the dialect:
cached and cache-write tokens are part of the prompt, reasoning tokens are part of the completion.
"""

from typing import Protocol

from msgspec import Struct
from msgspec.structs import astuple

_INT = frozenset({int})


class Usage(Struct, frozen=True):
    """Tokens of one upstream call; ints >= 0, ValueError otherwise.

    A provider may contradict itself (more cached than prompt tokens): the parts are kept as they came.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0

    def __post_init__(self) -> None:
        """Refuse what is no count."""
        counts = astuple(self)
        if not _INT.issuperset(map(type, counts)) or min(counts) < 0:
            raise ValueError("token counts are integers, 0 or more")

    def __add__(self, other: "Usage") -> "Usage":
        """The tokens of two calls together, class by class."""
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.cached_tokens + other.cached_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.completion_tokens + other.completion_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
        )

    @property
    def total_tokens(self) -> int:
        """Prompt and completion; their parts are not counted twice."""
        return self.prompt_tokens + self.completion_tokens


class Cancel(Protocol):
    """A file descriptor that tells when an upstream call is no longer wanted."""

    @property
    def fd(self) -> int:
        """The descriptor to poll beside the upstream's."""

    @property
    def mask(self) -> int:
        """The poll events to wait for."""

    def reason(self) -> Exception | None:
        """Called when the descriptor fired: the exception to raise, or None when it was a false alarm."""


class Pulse(Protocol):
    """Something that has to be done now and then while a call waits, on the thread that waits."""

    @property
    def due_s(self) -> float:
        """The point on the call's clock at which beat() is to be called next; inf for never."""

    def beat(self) -> None:
        """Do it, and set the next point. What this raises ends the call, as a cancellation does."""
