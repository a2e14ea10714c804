"""Virtual keys: `sk-gw-<public id>-<secret>`, of which only a SHA-256 digest is ever stored.

The ring is the living owner's copy of the key table: a key that was blocked, rotated or deleted stops working at the
next look-up. The public id survives rotation, so usage and budgets do too. Budgets are the ledger's; names of models,
the tenant's configuration.
"""

import hashlib
import hmac
from collections.abc import Callable, Collection, Iterable

from msgspec import Struct
from msgspec.structs import replace

from gateway.clock import Clock
from gateway.config_schema import tenant_name
from gateway.errors import InvalidApiKey
from gateway.store import Store, Transaction

PREFIX = "sk-gw-"
ID_CHARS = 12
SECRET_CHARS = 43
"""62**43 is just above 2**256."""

_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def hash_key(raw: str) -> str:
    """What is stored of a key: its SHA-256, in lower-case hex."""
    return hashlib.sha256(raw.encode("utf-8", "surrogatepass")).hexdigest()


def base62(number: int, width: int) -> str:
    """`number` >= 0 in base 62, at least `width` digits."""
    digits = ""
    while number or len(digits) < width:
        number, digit = divmod(number, 62)
        digits = _ALPHABET[digit] + digits
    return digits


class Key(Struct, frozen=True):
    """One virtual key; `expires_ms` is UTC milliseconds or None for never."""

    id: str
    tenant: str
    digest: str
    name: str | None
    created_ms: int
    expires_ms: int | None = None
    blocked: bool = False


class ShownKey(Struct, frozen=True):
    """What is kept of a key that somebody shows: the public id that it claims to have, and its digest."""

    id: str
    digest: str

    @classmethod
    def of(cls, raw: str | None) -> "ShownKey":
        """What was shown, whatever it is; None is no key."""
        raw = raw or ""
        return cls(raw.removeprefix(PREFIX).partition("-")[0], hash_key(raw))


class UnknownKey(Exception):
    """There is no key with this public id."""


class KeyChanged(Exception):
    """Another command changed the key at the same time; nothing was changed by this one."""


class InvalidTenant(ValueError):
    """A tenant's name breaks the rule for names."""


def unlisted(tenants: Iterable[str], listed: Collection[str]) -> str | None:
    """What an operator must know of `tenants` that have keys while the configuration lists only others: a slip in a
    name opens everything. None if there are none, or nothing is listed at all.
    """
    names = sorted(set(tenants).difference(listed)) if listed else []
    if not names:
        return None
    return (
        "a tenant that the configuration does not list has every model, and no budget or rate limit of its own: "
        + ", ".join(names)
    )


class KeyRing:
    """All keys by public id. `_keys` is changed by single dict operations only, after the store has committed."""

    def __init__(self, store: Store, clock: Clock, random_bytes: Callable[[int], bytes]) -> None:
        self._store = store
        self._clock = clock
        self._random_bytes = random_bytes
        self._keys: dict[str, Key] = {}
        self._tenants: set[str] = set()

    async def load(self) -> None:
        """Read the table. Call once, before anything else."""
        records = await self._store.read(
            """SELECT id, tenant, digest, name, created_ms, expires_ms, blocked FROM keys
                WHERE deleted_ms IS NULL ORDER BY created_ms, id"""
        )
        for id_, tenant, digest, name, created_ms, expires_ms, blocked in records:
            self._keys[id_] = Key(id_, tenant, digest, name, created_ms, expires_ms, bool(blocked))
        self._tenants = {name for (name,) in await self._store.read("SELECT name FROM tenants")}

    def authenticate(self, shown: ShownKey) -> Key:
        """The key that was shown. Raises InvalidApiKey, with one message whatever is wrong.

        The digest is compared in constant time, also when there is no such key.
        """
        key = self._keys.get(shown.id)
        same = hmac.compare_digest(shown.digest, key.digest if key else _NO_DIGEST)
        if key is None or not same or key.blocked or self._is_expired(key):
            raise InvalidApiKey
        return key

    def _is_expired(self, key: Key) -> bool:
        return key.expires_ms is not None and self._clock.wall_ms() >= key.expires_ms

    def get(self, key_id: str) -> Key:
        """The key with this public id. Raises UnknownKey."""
        try:
            return self._keys[key_id]
        except KeyError:
            raise UnknownKey(key_id) from None

    def all(self) -> list[Key]:
        """Every key, oldest first."""
        return list(self._keys.values())

    def holders(self) -> set[str]:
        """The tenants that have a key."""
        return {key.tenant for key in self.all()}

    def tenants(self) -> list[str]:
        """Every tenant that was ever made, by name."""
        return sorted(self._tenants)

    async def make_tenant(self, name: str) -> None:
        """Make the tenant if it is not there. Raises InvalidTenant."""
        try:
            tenant_name(name)
        except ValueError as error:
            raise InvalidTenant(f"a tenant's name {error}") from error
        if name in self._tenants:
            return
        created_ms = self._clock.wall_ms()

        async def work(transaction: Transaction) -> None:
            await transaction.execute(
                "INSERT INTO tenants (name, created_ms) VALUES (?, ?) ON CONFLICT DO NOTHING", (name, created_ms)
            )

        await self._store.transact(work)
        self._tenants.add(name)

    def new_id(self) -> str:
        """A public id for a key that is to be made."""
        return base62(int.from_bytes(self._random_bytes(12), "big") % 62**ID_CHARS, ID_CHARS)

    async def create(self, key_id: str, tenant: str, *, name: str | None = None, expires_ms: int | None = None) -> str:
        """Make a key of an existing tenant and return it whole: the only time it is ever shown."""
        raw = self._new_secret(key_id)
        key = Key(key_id, tenant, hash_key(raw), name, self._clock.wall_ms(), expires_ms)

        async def work(transaction: Transaction) -> None:
            await transaction.execute(
                "INSERT INTO keys (id, tenant, digest, name, created_ms, expires_ms) VALUES (?, ?, ?, ?, ?, ?)",
                (key.id, key.tenant, key.digest, key.name, key.created_ms, key.expires_ms),
            )

        await self._store.transact(work)
        self._keys[key_id] = key
        return raw

    async def rotate(self, key_id: str) -> str:
        """Give the key a new secret and return it; the old one stops working at once. Raises UnknownKey, KeyChanged."""
        raw = self._new_secret(key_id)
        key = self.get(key_id)
        await self._replace(key, replace(key, digest=hash_key(raw)))
        return raw

    async def set_blocked(self, key_id: str, blocked: bool) -> None:
        """Refuse the key, or serve it again. Raises UnknownKey, KeyChanged."""
        key = self.get(key_id)
        await self._replace(key, replace(key, blocked=blocked))

    async def delete(self, key_id: str) -> None:
        """Take the key away for good; its rows and balances stay. Raises UnknownKey, KeyChanged."""
        await self._replace(self.get(key_id), None)

    async def _replace(self, old: Key, new: Key | None) -> None:
        """Write `new` (None: deleted) in the place of `old`, if the table still says `old`, and then in the ring.

        So of two commands at once neither undoes the other's work: a key that was blocked or deleted stays so.
        """
        kept, deleted_ms = new or old, None if new else self._clock.wall_ms()

        async def work(transaction: Transaction) -> None:
            changed = await transaction.execute(
                """UPDATE keys SET digest = ?, blocked = ?, deleted_ms = ?
                    WHERE id = ? AND digest = ? AND blocked = ? AND deleted_ms IS NULL""",
                (kept.digest, int(kept.blocked), deleted_ms, old.id, old.digest, int(old.blocked)),
            )
            if not changed.rowcount:
                raise KeyChanged(old.id)

        await self._store.transact(work)
        if new:
            self._keys[old.id] = new
        else:
            self._keys.pop(old.id, None)

    def _new_secret(self, key_id: str) -> str:
        secret = base62(int.from_bytes(self._random_bytes(32), "big"), SECRET_CHARS)
        return f"{PREFIX}{key_id}-{secret}"


_NO_DIGEST = hash_key("")
