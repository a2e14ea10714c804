"""What an operator can ask of a data directory, by name with plain arguments; results are JSON values.

The command line runs these here when nobody owns the directory, and inside the living owner otherwise: there is one
implementation and one set of rules. Runs on the calling thread.

What is queued is committed before a command, so that it sees all that has happened. While nothing can be committed (a
full disk), commands that change nothing go on, and say that what they tell may be older.
"""

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from gateway import audit
from gateway.backup import BackupRefused, Backups
from gateway.clock import Clock
from gateway.drive import drive
from gateway.errors import StoreUnavailable
from gateway.exact_cache import CacheUnavailable, ExactCache
from gateway.holds import AlreadyResolved
from gateway.keys import PREFIX, InvalidTenant, Key, KeyChanged, KeyRing, UnknownKey, unlisted
from gateway.ledger import Ledger, NothingToConfirm
from gateway.levels import LevelChanged, Scope
from gateway.sqlite_store import SqliteStore
from gateway.types import MAX_NANOUSD, Window
from gateway.usage import BY_DEFAULT, GROUPS, usage
from llmkit.money import format_usd, parse_usd

if TYPE_CHECKING:
    from gateway.judging import Judging
    from gateway.semantic_cache import SemanticCache

Arguments = Mapping[str, Any]
Command = Callable[[Arguments], Any]

SLIP_TIMES = 10
SLIP_NANOUSD = 1_000_000_000
"""A settlement above ten times its hold, and above a dollar, is taken for a slip until it is said to be meant."""

_PLACED = frozenset(("id", "hold", "epoch", "file"))
"""Arguments that are known by their place; all others have a name with hyphens."""

_MOST_CHARS = 200
_MOST = 1 << 53
"""Of ids, counts and seconds; in milliseconds it still fits the database."""


class CommandError(Exception):
    """The command cannot be carried out; nothing was changed. The message is for the operator."""


class Commands:
    """The operator's commands over one open data directory.

    listed  the tenants that the configuration in force lists; none if there is none
    """

    def __init__(
        self,
        store: SqliteStore,
        ledger: Ledger,
        keys: KeyRing,
        cache: ExactCache,
        semantic: "SemanticCache | None",
        judging: "Judging | None",
        backups: Backups,
        clock: Clock,
    ) -> None:
        self._store = store
        self._backups = backups
        self._cache = cache
        self._semantic = semantic
        self._judging = judging
        self._ledger = ledger
        self._keys = keys
        self._clock = clock
        self.listed: Collection[str] = ()
        self._reading: dict[str, Command] = {
            "keys.list": lambda _: [self._shown(key) for key in self._keys.all()],
            "keys.show": lambda arguments: self._show_key(_text(arguments, "id")),
            "ledger.verify": lambda _: self._verify(),
            "ledger.balances": lambda _: self._balances(),
            "ledger.rows": self._rows,
            "ledger.holds": lambda _: drive(audit.list_holds(self._store)),
            "ledger.epochs": lambda _: drive(audit.list_epochs(self._store)),
            "backup": self._backup,
            "usage": self._usage,
        }
        self._writing: dict[str, Command] = {
            "keys.create": self._create_key,
            "keys.budget": self._set_budget,
            "keys.rotate": self._rotate_key,
            "keys.block": lambda arguments: self._set_blocked(_text(arguments, "id"), True),
            "keys.unblock": lambda arguments: self._set_blocked(_text(arguments, "id"), False),
            "keys.delete": self._delete_key,
            "ledger.settle": self._settle,
            "ledger.void": self._void,
            "ledger.confirm": self._confirm,
        }
        self._of_the_cache: dict[str, Command] = {
            "cache.stats": lambda _: self._cache_stats(),
            "cache.purge": self._purge,
            "cache.shadow": self._shadow,
        }

    def run(self, name: str, arguments: Arguments, *, on_note: Callable[[str], None] = lambda words: None) -> Any:
        """Run one command. Raises CommandError.

        on_note  is told what the operator must know beside the result
        """
        command = (self._reading | self._writing | self._of_the_cache).get(name)
        if command is None:
            raise CommandError(f"there is no command {name!r}")
        try:
            if name in self._writing:
                self._store.flush()
            if name in self._reading:
                self._catch_up(on_note)
            result = command(arguments)
        except UnknownKey as error:
            raise CommandError(_no_key(str(error))) from error
        except (KeyChanged, LevelChanged) as error:
            raise CommandError(f"key {error} was changed by another command at the same time: try again") from error
        except AlreadyResolved as error:
            raise CommandError(f"there is no hold {error} that is open or unresolved: see ledger holds") from error
        except NothingToConfirm as error:
            raise CommandError(f"{error}: see ledger epochs") from error
        except (BackupRefused, CacheUnavailable) as error:
            raise CommandError(str(error)) from error
        except StoreUnavailable as error:
            if name in self._writing and error.__cause__ is None and self._store.trouble:
                raise CommandError(f"the ledger cannot be written: {self._store.trouble}") from error
            why = f": {error.__cause__}" if error.__cause__ else ""
            raise CommandError(f"the ledger cannot be read or written{why}") from error
        except InvalidTenant as error:
            raise CommandError(str(error)) from error
        if name == "keys.create" and (warning := unlisted([result["tenant"]], self.listed)):
            on_note(warning)
        return result

    def _catch_up(self, on_note: Callable[[str], None]) -> None:
        """Commit what is queued, or say that it could not be."""
        with contextlib.suppress(StoreUnavailable):
            self._store.flush()
        if trouble := self._store.trouble:
            on_note(
                f"the ledger cannot be written ({trouble}): "
                "queued changes could not be applied, so this may be older than what has happened"
            )

    # --- keys ---------------------------------------------------------------------------------------------------

    def _create_key(self, arguments: Arguments) -> dict[str, Any]:
        tenant = _text(arguments, "tenant")
        limit_nanousd = _usd(arguments, "budget_usd")
        window = _window(arguments, "budget_window") or Window.TOTAL
        name = _optional_text(arguments, "name")
        lifetime_s = _optional_int(arguments, "expires_in_s")
        drive(self._keys.make_tenant(tenant))
        if not self._ledger.has_level(Scope.TENANT, tenant):
            drive(self._ledger.set_level(Scope.TENANT, tenant, Window.TOTAL, None))
        key_id = self._keys.new_id()
        drive(self._ledger.set_level(Scope.KEY, key_id, window, limit_nanousd))
        expires_ms = None if lifetime_s is None else self._clock.wall_ms() + lifetime_s * 1000
        raw = drive(self._keys.create(key_id, tenant, name=name, expires_ms=expires_ms))
        return {"id": key_id, "key": raw, "tenant": tenant}

    def _set_budget(self, arguments: Arguments) -> dict[str, Any]:
        """Another limit for a key, from its next reservation on; what it has spent and holds stays.

        A window of another kind begins with nothing spent, or with what was, if the key had it before.
        """
        key_id = _text(arguments, "id")
        limit_nanousd = _usd(arguments, "usd")
        if (limit_nanousd is None) is not (arguments.get("no_limit") is True):
            raise CommandError("budget needs either --usd or --no-limit")
        window = _window(arguments, "window")
        self._keys.get(key_id)
        if window is None:
            drive(self._ledger.set_limit(Scope.KEY, key_id, limit_nanousd))
        else:
            drive(self._ledger.set_window(Scope.KEY, key_id, window, limit_nanousd))
        return self._show_key(key_id)

    def _show_key(self, key_id: str) -> dict[str, Any]:
        return self._shown(self._keys.get(key_id))

    def _shown(self, key: Key) -> dict[str, Any]:
        level = drive(self._ledger.level(Scope.KEY, key.id))
        shown = {name: value for name, value in asdict(key).items() if name != "digest"}
        return shown | (asdict(level) if level else {})

    def _rotate_key(self, arguments: Arguments) -> dict[str, Any]:
        key_id = _text(arguments, "id")
        raw = drive(self._keys.rotate(key_id))
        return {"id": key_id, "key": raw, "tenant": self._keys.get(key_id).tenant}

    def _set_blocked(self, key_id: str, blocked: bool) -> dict[str, Any]:
        drive(self._keys.set_blocked(key_id, blocked))
        return self._show_key(key_id)

    def _delete_key(self, arguments: Arguments) -> dict[str, Any]:
        key_id = _text(arguments, "id")
        drive(self._keys.delete(key_id))
        return {"id": key_id, "deleted": True}

    # --- ledger -------------------------------------------------------------------------------------------------

    def _verify(self) -> dict[str, Any]:
        report = drive(audit.verify(self._store))
        return {"ok": report.ok, **asdict(report)}

    def _balances(self) -> list[dict[str, Any]]:
        """Every level, but for keys that are no more: each start of a demo leaves one, and their money still counts
        in their tenant's.
        """
        keys = {key.id for key in self._keys.all()}
        return [
            {"scope": level.scope, "name": level.name, **asdict(level.state), "resets_at": level.resets_at}
            for level in drive(self._ledger.levels())
            if level.scope is not Scope.KEY or level.name in keys
        ]

    def _rows(self, arguments: Arguments) -> list[dict[str, Any]]:
        key, request = _optional_text(arguments, "key"), _optional_text(arguments, "request")
        limit = _optional_int(arguments, "limit") or audit.MOST_ROWS
        rows = drive(audit.list_rows(self._store, key_id=key, request_id=request, limit=limit))
        if not rows:
            self._refuse_unknown_key(key)
        if not rows and request is not None:
            of_key = "" if key is None else f" with key {key}"
            raise CommandError(f"there is no row of request {request}{of_key}: a request has one once it has ended")
        return rows

    def _usage(self, arguments: Arguments) -> list[dict[str, Any]]:
        """Of a key or a tenant that is not there, an error: nothing would look as if it had used nothing."""
        key = _optional_text(arguments, "key")
        self._refuse_unknown_key(key)
        by, tenant = _groups(arguments, "by"), self._tenant(arguments)
        since_ms, until_ms = _moment(arguments, "since"), _moment(arguments, "until")
        if since_ms is not None and until_ms is not None and since_ms >= until_ms:
            raise CommandError("--since must be before --until: there is no time between them")
        return drive(usage(self._store, by, tenant=tenant, key_id=key, since_ms=since_ms, until_ms=until_ms))

    def _refuse_unknown_key(self, key_id: str | None) -> None:
        """One that is deleted is known: its rows stay."""
        if key_id is not None and not self._ledger.has_level(Scope.KEY, key_id):
            raise UnknownKey(key_id)

    def _settle(self, arguments: Arguments) -> dict[str, Any]:
        cost_nanousd = _usd(arguments, "usd")
        if cost_nanousd is None:
            raise CommandError("settle needs the cost in USD")
        hold_id = _int(arguments, "hold")
        if arguments.get("above_hold") is not True:
            self._refuse_far_above_hold(hold_id, cost_nanousd)
        drive(self._ledger.resolve_by_admin(hold_id, cost_nanousd))
        cost_usd = format_usd(cost_nanousd)
        return {"hold": hold_id, "state": "settled", "cost_nanousd": cost_nanousd, "cost_usd": cost_usd}

    def _refuse_far_above_hold(self, hold_id: int, cost_nanousd: int) -> None:
        """A slip of the hand must not overdraw a budget. The ledger itself books whatever a provider has billed."""
        held_nanousd = drive(audit.pending_nanousd(self._store, hold_id))
        if held_nanousd is not None and cost_nanousd > max(held_nanousd * SLIP_TIMES, SLIP_NANOUSD):
            raise CommandError(
                f"{format_usd(cost_nanousd)} USD is far above hold {hold_id}, which is of "
                f"{format_usd(held_nanousd)} USD: if the call has cost that much, say --above-hold"
            )

    def _void(self, arguments: Arguments) -> dict[str, Any]:
        hold_id = _int(arguments, "hold")
        drive(self._ledger.resolve_by_admin(hold_id, None))
        return {"hold": hold_id, "state": "void"}

    def _confirm(self, arguments: Arguments) -> dict[str, Any]:
        epoch = _int(arguments, "epoch")
        drive(self._ledger.confirm(epoch))
        return {"epoch": epoch, "confirmed": True}

    # --- backup -------------------------------------------------------------------------------------------------

    def _backup(self, arguments: Arguments) -> dict[str, Any]:
        file = arguments.get("file")
        if type(file) is not str or "\0" in file or not Path(file).is_absolute():
            raise CommandError("file must be an absolute path")
        return self._backups.write(Path(file))

    # --- cache --------------------------------------------------------------------------------------------------

    def _cache_stats(self) -> dict[str, Any]:
        """Of the exact cache, and of the semantic one and its judge where they are open."""
        told: dict[str, Any] = self._cache.stats()
        if self._semantic is not None:
            told["semantic"] = self._semantic.stats()
        if self._judging is not None:
            told["judge"] = self._judging.stats()
        return told

    def _shadow(self, arguments: Arguments) -> list[dict[str, Any]]:
        """The last answers that the semantic cache has withheld in this process, with their questions."""
        tenant = self._tenant(arguments)
        if self._semantic is None:
            raise CommandError("the semantic cache is not turned on")
        return [asdict(hit) for hit in self._semantic.shadow.told(tenant)]

    def _purge(self, arguments: Arguments) -> dict[str, Any]:
        if (arguments.get("tenant") is None) is not (arguments.get("all") is True):
            raise CommandError("purge needs either a tenant or --all")
        tenant = self._tenant(arguments)
        removed = drive(self._cache.purge(tenant))
        if self._judging is not None:
            self._judging.forget(tenant)
        if self._semantic is not None:
            try:
                drive(self._semantic.purge(tenant))
            except CacheUnavailable as error:
                raise CommandError(f"the answers were purged, but their questions are still kept: {error}") from error
        return {"tenant": tenant, "removed": removed}

    def _tenant(self, arguments: Arguments) -> str | None:
        """The tenant that is named, which must be there; None if none is."""
        tenant = _optional_text(arguments, "tenant")
        if tenant is not None and tenant not in self._keys.tenants():
            raise CommandError(f"there is no tenant {tenant!r}")
        return tenant


def _no_key(given: str) -> str:
    """What is said of an id that no key has; the secret of a key that was given whole is not shown again."""
    if given.startswith(PREFIX):
        return f"a key is named by its id: what stands between {PREFIX} and the next hyphen, see keys list"
    return f"there is no key {given}"


def _shown(name: str) -> str:
    """An argument as the operator writes it."""
    return name if name in _PLACED else f"--{name.replace('_', '-')}"


def _text(arguments: Arguments, name: str) -> str:
    value = _optional_text(arguments, name)
    if not value:
        raise CommandError(f"{_shown(name)} is missing")
    return value


def _optional_text(arguments: Arguments, name: str) -> str | None:
    value = arguments.get(name)
    if value is not None and (type(value) is not str or not value.isprintable() or len(value) > _MOST_CHARS):
        raise CommandError(f"{_shown(name)} must be text of at most {_MOST_CHARS} printable characters")
    return value


def _int(arguments: Arguments, name: str) -> int:
    value = _optional_int(arguments, name)
    if value is None:
        raise CommandError(f"{_shown(name)} is missing")
    return value


def _optional_int(arguments: Arguments, name: str) -> int | None:
    value = arguments.get(name)
    if value is not None and (type(value) is not int or not 1 <= value <= _MOST):
        raise CommandError(f"{_shown(name)} must be a whole number from 1 to {_MOST}")
    return value


def _usd(arguments: Arguments, name: str) -> int | None:
    """An amount in USD, as nano-dollars."""
    value = arguments.get(name)
    if value is None:
        return None
    try:
        nanousd = parse_usd(value)
    except (ValueError, TypeError) as error:
        what = "0 or more, as a plain decimal with at most 9 digits after the point, such as 5 or 0.25"
        raise CommandError(f"{_shown(name)} must be an amount in USD: {what}") from error
    if nanousd > MAX_NANOUSD:
        raise CommandError(f"{_shown(name)} is above {format_usd(MAX_NANOUSD)} USD, the most that the ledger can hold")
    return nanousd


def _groups(arguments: Arguments, name: str) -> Sequence[str]:
    """Names of what usage is told apart by, from a list with commas."""
    value = _optional_text(arguments, name)
    if value is None:
        return BY_DEFAULT
    names = [each.strip() for each in value.split(",")]
    if not GROUPS.keys() >= set(names) or len(set(names)) < len(names):
        raise CommandError(f"{_shown(name)} must be some of {', '.join(GROUPS)}, each once, with commas between them")
    return names


def _moment(arguments: Arguments, name: str) -> int | None:
    """A day, or a moment, in UTC unless it says its zone; as milliseconds."""
    value = _optional_text(arguments, name)
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value)
        return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError) as error:
        such = "such as 2026-01-31 or 2026-01-31T12:00Z"
        raise CommandError(f"{_shown(name)} must be a day or a moment, {such}") from error


def _window(arguments: Arguments, name: str) -> Window | None:
    value = arguments.get(name)
    try:
        return None if value is None else Window(value)
    except ValueError as error:
        raise CommandError(f"{_shown(name)} is total, day, week or month") from error
