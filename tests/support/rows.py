"""Requests that have ended, as who is told of them sees them."""

from typing import Any, cast

from gateway.context import Caller, Facts, Options, Principal, RequestContext
from gateway.rows import Exit, RequestRow


def ended(
    exit_: Exit = Exit.ROUTED,
    status: int = 200,
    *,
    cost_nanousd: int | None = 0,
    upstream_s: float = 0.0,
    **fields: Any,
) -> tuple[RequestRow, RequestContext]:
    """A row, and the context of its request, which started at 0 s."""
    known: dict[str, Any] = {"attempts": 1, "stream": False, **fields}
    row = RequestRow("req", 1, 0, 0, "acme", "key", "mini", exit=exit_, status=status, **known)
    facts = Facts("req", cost_nanousd=cost_nanousd, upstream_s=upstream_s)
    context = RequestContext(
        cast("Principal", None), b"", cast("Caller", None), Options(), facts, started_s=0.0, started_ms=0
    )
    return row, context
