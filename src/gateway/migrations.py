"""The schema, one step per released version, each step one transaction together with its `user_version`.

Amounts are nano-dollars in STRICT integer columns, bounded far below 2**63 so that a sum cannot turn into a float.
`holds` is the book of what was reserved and what became of it; `balances` is its running sum per level and window.
Triggers keep them together, so that no statement can change a hold and forget a balance, resolve a hold twice, or hold
more than a limit has room for, or in a balance that is not there: such an insert or raise changes no row. `requests`
has one row per request and is append-only, which triggers enforce too. `epochs` has one row per restore: a ledger that
was never restored is in epoch 1. A step that was released is never edited.
"""

import re

from gateway.types import MAX_NANOUSD

APPLICATION_ID = 0x67776C31
"""`gwl1`: marks a database file as a gateway ledger."""

_V1 = (
    """CREATE TABLE boots (
        id INTEGER PRIMARY KEY,
        started_ms INTEGER NOT NULL,
        stopped_ms INTEGER,
        pid INTEGER NOT NULL,
        machine_boot TEXT NOT NULL
    ) STRICT""",
    """CREATE TABLE tenants (
        name TEXT PRIMARY KEY,
        created_ms INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE keys (
        id TEXT PRIMARY KEY,
        tenant TEXT NOT NULL REFERENCES tenants(name),
        digest TEXT NOT NULL UNIQUE,
        name TEXT,
        created_ms INTEGER NOT NULL,
        expires_ms INTEGER,
        blocked INTEGER NOT NULL DEFAULT 0 CHECK (blocked IN (0, 1)),
        deleted_ms INTEGER
    ) STRICT, WITHOUT ROWID""",
    f"""CREATE TABLE levels (
        id INTEGER PRIMARY KEY,
        scope TEXT NOT NULL CHECK (scope IN ('key', 'tenant', 'global')),
        name TEXT NOT NULL,
        window_kind TEXT NOT NULL CHECK (window_kind IN ('total', 'day', 'week', 'month')),
        limit_nanousd INTEGER CHECK (limit_nanousd BETWEEN 0 AND {MAX_NANOUSD}),
        active INTEGER NOT NULL DEFAULT 1 CHECK (active IN (0, 1)),
        window_number INTEGER NOT NULL DEFAULT -1,
        balance_id INTEGER REFERENCES balances(id),
        UNIQUE (scope, name, window_kind)
    ) STRICT""",
    """CREATE TABLE balances (
        id INTEGER PRIMARY KEY,
        level_id INTEGER NOT NULL REFERENCES levels(id),
        window_number INTEGER NOT NULL,
        spent_nanousd INTEGER NOT NULL DEFAULT 0 CHECK (spent_nanousd >= 0),
        held_nanousd INTEGER NOT NULL DEFAULT 0 CHECK (held_nanousd >= 0),
        unresolved_nanousd INTEGER NOT NULL DEFAULT 0 CHECK (unresolved_nanousd >= 0),
        overage_nanousd INTEGER NOT NULL DEFAULT 0 CHECK (overage_nanousd >= 0),
        UNIQUE (level_id, window_number)
    ) STRICT""",
    f"""CREATE TABLE holds (
        id INTEGER PRIMARY KEY,
        request_id TEXT NOT NULL,
        attempt INTEGER NOT NULL,
        boot_id INTEGER NOT NULL REFERENCES boots(id),
        tenant TEXT NOT NULL,
        key_id TEXT NOT NULL,
        alias TEXT NOT NULL,
        deployment TEXT NOT NULL,
        price_version TEXT NOT NULL,
        key_balance INTEGER NOT NULL REFERENCES balances(id),
        tenant_balance INTEGER NOT NULL REFERENCES balances(id),
        global_balance INTEGER NOT NULL REFERENCES balances(id),
        amount_nanousd INTEGER NOT NULL CHECK (amount_nanousd BETWEEN 0 AND {MAX_NANOUSD}),
        state TEXT NOT NULL CHECK (state IN ('open', 'settled', 'void', 'unresolved')),
        cost_nanousd INTEGER NOT NULL DEFAULT 0 CHECK (cost_nanousd BETWEEN 0 AND {MAX_NANOUSD}),
        overage_nanousd INTEGER NOT NULL DEFAULT 0 CHECK (overage_nanousd >= 0),
        opened_ms INTEGER NOT NULL,
        unresolved_ms INTEGER,
        unresolved_why TEXT,
        resolved_ms INTEGER,
        resolved_by TEXT CHECK (resolved_by IN ('request', 'recovery', 'policy', 'admin'))
    ) STRICT""",
    "CREATE INDEX holds_pending ON holds (state, opened_ms) WHERE state IN ('open', 'unresolved')",
    "CREATE INDEX holds_of_request ON holds (request_id)",
    """CREATE TABLE requests (
        id INTEGER PRIMARY KEY,
        request_id TEXT NOT NULL UNIQUE,
        boot_id INTEGER NOT NULL REFERENCES boots(id),
        started_ms INTEGER NOT NULL,
        ended_ms INTEGER NOT NULL,
        tenant TEXT NOT NULL,
        key_id TEXT NOT NULL,
        alias TEXT NOT NULL,
        stream INTEGER NOT NULL CHECK (stream IN (0, 1)),
        exit TEXT NOT NULL CHECK (exit IN ('cache_hit', 'routed', 'retried', 'failed_over', 'escalated', 'rejected',
                                           'failed', 'client_gone')),
        status INTEGER NOT NULL,
        code TEXT,
        cache TEXT,
        tier TEXT,
        deployment TEXT,
        provider TEXT,
        attempts INTEGER NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('none', 'settled', 'void', 'unresolved')),
        cost_nanousd INTEGER NOT NULL,
        overage_nanousd INTEGER NOT NULL,
        estimated INTEGER NOT NULL CHECK (estimated IN (0, 1)),
        prompt_tokens INTEGER NOT NULL,
        cached_tokens INTEGER NOT NULL,
        cache_write_tokens INTEGER NOT NULL,
        completion_tokens INTEGER NOT NULL,
        reasoning_tokens INTEGER NOT NULL,
        price_version TEXT,
        ttft_ms INTEGER,
        duration_ms INTEGER NOT NULL,
        tags TEXT NOT NULL DEFAULT ''
    ) STRICT""",
    """CREATE TRIGGER requests_are_never_rewritten BEFORE UPDATE ON requests
        BEGIN SELECT RAISE(ABORT, 'request rows are append-only'); END""",
    """CREATE TRIGGER requests_are_never_deleted BEFORE DELETE ON requests
        BEGIN SELECT RAISE(ABORT, 'request rows are append-only'); END""",
)

_V2 = (
    """CREATE TABLE epochs (
        number INTEGER PRIMARY KEY CHECK (number > 1),
        restored_ms INTEGER NOT NULL,
        backup TEXT NOT NULL,
        backup_until_ms INTEGER NOT NULL,
        replaced TEXT,
        replaced_until_ms INTEGER,
        differences TEXT,
        confirmed_ms INTEGER
    ) STRICT""",
)

_BALANCES_OF_A_HOLD = ("key_balance", "tenant_balance", "global_balance")


def _first(what: str) -> str:
    """The statement of the first step that creates `what`."""
    return next(statement for statement in _V1 if statement.startswith(f"CREATE {what} "))


def _compared(table: str) -> str:
    """The statement of a table whose CHECKs compare with each value, where they looked into a list of them."""

    def compared(check: re.Match[str]) -> str:
        column, values = check.groups()
        return " OR ".join(f"{column} = {value.strip()}" for value in values.split(","))

    return re.sub(r"(\w+) IN \(([^)]*)\)", compared, table)


def _at_each_balance(change: str) -> str:
    """The statements that make `change` to the three balances of a hold: one look-up by its id each."""
    return " ".join(f"UPDATE balances SET {change} WHERE id = NEW.{balance};" for balance in _BALANCES_OF_A_HOLD)  # noqa: S608 - constants only


def _unless_there_is_room(amount: str) -> str:
    """The statement that leaves the row as it was unless each level has room for `amount`."""
    full = (f"{amount} > (SELECT nanousd FROM room WHERE id = NEW.{balance})" for balance in _BALANCES_OF_A_HOLD)  # noqa: S608 - constants only
    return f"SELECT RAISE(IGNORE) WHERE {' OR '.join(full)};"


_WHAT_A_HOLD_MOVES = """held_nanousd = held_nanousd
        + iif(NEW.state = 'open', NEW.amount_nanousd, 0) - iif(OLD.state = 'open', OLD.amount_nanousd, 0),
    unresolved_nanousd = unresolved_nanousd
        + iif(NEW.state = 'unresolved', NEW.amount_nanousd, 0) - iif(OLD.state = 'unresolved', OLD.amount_nanousd, 0),
    spent_nanousd = spent_nanousd + NEW.cost_nanousd - OLD.cost_nanousd,
    overage_nanousd = overage_nanousd + NEW.overage_nanousd - OLD.overage_nanousd"""

_V3 = (
    _compared(_first("TABLE holds")).replace("TABLE holds", "TABLE new_holds"),
    "INSERT INTO new_holds SELECT * FROM holds",
    "DROP TABLE holds",
    "ALTER TABLE new_holds RENAME TO holds",
    _first("INDEX holds_pending"),
    _first("INDEX holds_of_request"),
    _compared(_first("TABLE requests")).replace("TABLE requests", "TABLE new_requests"),
    "INSERT INTO new_requests SELECT * FROM requests",
    "DROP TABLE requests",
    "ALTER TABLE new_requests RENAME TO requests",
    _first("TRIGGER requests_are_never_rewritten"),
    _first("TRIGGER requests_are_never_deleted"),
    """CREATE VIEW room AS SELECT balances.id, coalesce(levels.limit_nanousd, 9223372036854775807)
            - spent_nanousd - held_nanousd - unresolved_nanousd AS nanousd
        FROM balances JOIN levels ON levels.id = balances.level_id""",
    f"""CREATE TRIGGER a_hold_needs_room BEFORE INSERT ON holds
        BEGIN {_unless_there_is_room("NEW.amount_nanousd")} END""",
    f"""CREATE TRIGGER a_raised_hold_needs_room BEFORE UPDATE OF amount_nanousd ON holds
        WHEN NEW.amount_nanousd > OLD.amount_nanousd
        BEGIN {_unless_there_is_room("NEW.amount_nanousd - OLD.amount_nanousd")} END""",
    """CREATE TRIGGER a_resolved_hold_stays
        BEFORE UPDATE OF state, amount_nanousd, cost_nanousd, overage_nanousd ON holds
        WHEN OLD.state = 'settled' OR OLD.state = 'void'
        BEGIN SELECT RAISE(ABORT, 'a hold is resolved once'); END""",
    f"""CREATE TRIGGER a_hold_is_booked AFTER INSERT ON holds
        BEGIN {_at_each_balance("held_nanousd = held_nanousd + NEW.amount_nanousd")} END""",
    f"""CREATE TRIGGER a_hold_moves_its_money
        AFTER UPDATE OF state, amount_nanousd, cost_nanousd, overage_nanousd ON holds
        BEGIN {_at_each_balance(_WHAT_A_HOLD_MOVES)} END""",
)
"""Triggers book what a hold does; before, the ledger's statements did, and each of them could be forgotten. A list of
more than two values in a CHECK makes SQLite fill a temporary table at every insert, so they are comparisons here."""


def _held_where_there_is_room() -> str:
    """The statements that book a hold at each of its balances, or change nothing: not its row, and no page.

    The first of them asks for all three, and thereby also whether they are there.
    """
    room = (f"(SELECT nanousd FROM room WHERE id = NEW.{balance})" for balance in _BALANCES_OF_A_HOLD)  # noqa: S608 - constants only
    has_room = " AND ".join(f"NEW.amount_nanousd <= {nanousd}" for nanousd in room)
    first, *others = _BALANCES_OF_A_HOLD
    held = "UPDATE balances SET held_nanousd = held_nanousd + NEW.amount_nanousd WHERE id = NEW."
    return f"""{held}{first} AND {has_room};
        SELECT RAISE(IGNORE) WHERE changes() = 0;
        {" ".join(f"{held}{balance};" for balance in others)}"""


_V4 = (
    "ALTER TABLE boots ADD COLUMN no_open_below INTEGER NOT NULL DEFAULT 0",
    "DROP INDEX holds_pending",
    "CREATE INDEX holds_unresolved ON holds (unresolved_ms) WHERE state = 'unresolved'",
    """CREATE VIEW pending_holds AS
        SELECT * FROM holds INDEXED BY holds_unresolved WHERE state = 'unresolved'
        UNION ALL SELECT * FROM holds WHERE id >= (SELECT max(no_open_below) FROM boots) AND state = 'open'""",
    "DROP TRIGGER a_hold_needs_room",
    "DROP TRIGGER a_hold_is_booked",
    "DROP TRIGGER a_resolved_hold_stays",
    "DROP TRIGGER a_hold_moves_its_money",
    f"CREATE TRIGGER a_hold_is_booked BEFORE INSERT ON holds BEGIN {_held_where_there_is_room()} END",
    f"""CREATE TRIGGER a_hold_moves_its_money
        AFTER UPDATE OF state, amount_nanousd, cost_nanousd, overage_nanousd ON holds
        BEGIN SELECT RAISE(ABORT, 'a hold is resolved once')
            WHERE OLD.state = 'settled' OR OLD.state = 'void' OR (NEW.state = 'open' AND OLD.state <> 'open');
        {_at_each_balance(_WHAT_A_HOLD_MOVES)} END""",
    f"""CREATE TRIGGER a_hold_stays_where_it_is BEFORE UPDATE OF id, {", ".join(_BALANCES_OF_A_HOLD)} ON holds
        BEGIN SELECT RAISE(ABORT, 'a hold stays where it is'); END""",
    """CREATE TRIGGER holds_are_never_deleted BEFORE DELETE ON holds
        BEGIN SELECT RAISE(ABORT, 'holds are never deleted'); END""",
)
"""Open holds are in no index, where each would come and go, a page with it: none has an id below `no_open_below`, which
is raised now and then; ids only rise, and no hold is opened again. One is booked before its row is inserted, and by the
statement that asks for room: a refusal would have to write the pages that it has changed and changed back."""

MIGRATIONS: tuple[tuple[str, ...], ...] = (_V1, _V2, _V3, _V4)
"""Step k (from 1) takes a database from `user_version` k - 1 to k."""
