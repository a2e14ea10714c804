"""What was used: requests, tokens and cost, summed over what the rows say of the requests. Changes nothing.

A request counts from its row on, in the moment it arrived. Its cost is what its holds say by now, so late settlements
count, as in the balances. Reads every row: about two seconds for a million of them, and no request waits for it.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from gateway.store import Readable, Value

_STARTED: Final = "started_ms / 1000, 'unixepoch'"
GROUPS: Final[Mapping[str, str]] = {
    "tenant": "tenant",
    "key_id": "key_id",
    "alias": "alias",
    "deployment": "deployment",
    "provider": "provider",
    "tier": "tier",
    "exit": "exit",
    "cache": "cache",
    "tags": "tags",
    "day": f"strftime('%Y-%m-%d', {_STARTED})",
    "month": f"strftime('%Y-%m', {_STARTED})",
}
"""What requests can be told apart by, as SQL over a row; days and months are UTC, tags all of a request's together."""

BY_DEFAULT: Final = ("tenant", "key_id", "alias")

_SUMS: Final = {
    "requests": "count(*)",
    "prompt_tokens": "sum(prompt_tokens)",
    "completion_tokens": "sum(completion_tokens)",
    "cost_nanousd": """coalesce(sum(
        (SELECT sum(cost_nanousd) FROM holds WHERE holds.request_id = requests.request_id)), 0)""",
}


async def usage(
    store: Readable,
    by: Sequence[str] = BY_DEFAULT,
    *,
    tenant: str | None = None,
    key_id: str | None = None,
    since_ms: int | None = None,
    until_ms: int | None = None,
) -> list[dict[str, Value]]:
    """One entry for each combination of `by`, which are names of GROUPS, in their order.

    tenant, key_id      only requests of this tenant, of this key
    since_ms, until_ms  only requests that arrived at or after the one and before the other, UTC milliseconds
    """
    wanted = {"tenant = ?": tenant, "key_id = ?": key_id, "started_ms >= ?": since_ms, "started_ms < ?": until_ms}
    given = {condition: value for condition, value in wanted.items() if value is not None}
    places = ", ".join(str(place) for place in range(1, len(by) + 1))
    records = await store.read(
        f"""SELECT {", ".join([*(GROUPS[name] for name in by), *_SUMS.values()])} FROM requests
            WHERE {" AND ".join(["TRUE", *given])} GROUP BY {places} ORDER BY {places}""",  # noqa: S608 - constants only
        tuple(given.values()),
    )
    return [dict(zip((*by, *_SUMS), record, strict=True)) for record in records]
