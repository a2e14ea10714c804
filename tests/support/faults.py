"""Gateways that are wrong on purpose, each by one mistake, named by the probe that must find it.

A mistake is a list of patches of the gateway in this process; those of a gateway in a process of its own stand in
`broken_serve`. Each leaves as much as possible in order, and several are the twins of other tests.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any
from unittest import mock

from msgspec.structs import replace

from gateway import (
    admission,
    aliases,
    attempt,
    books,
    caching,
    chat,
    dispatch,
    health,
    judging,
    other_words,
    relay_stream,
    relay_whole,
    semantic_cache,
    settlement,
    verdict,
)
from gateway.api import _HttpCaller
from gateway.breaker import Breaker
from gateway.cache_entry import Record
from gateway.cache_key import KeyOf, cache_keys
from gateway.engines.threads import pause
from gateway.errors import ClientGone, GatewayError
from gateway.evidence import Charge, Evidence
from gateway.exact_cache import ExactCache
from gateway.gateway import Gateway
from gateway.health import Fleet
from gateway.holds import Purpose
from gateway.judging import Judging
from gateway.limits import TokenBucket
from gateway.oplog import OpLog
from gateway.retry import RetryBudget
from gateway.semantic.eligible import Ineligible, read_eligible
from gateway.semantic.judgement import Verdict
from gateway.semantic.verifier import Question, read
from gateway.settlement import Settlement, _Held
from llmkit import client, transport
from llmkit.openai import Completion, Malformed, WireError, from_wire
from llmkit.prices import PriceEntry
from llmkit.types import Usage
from tests.support import breakers, buckets, twins

_GOOD = json.dumps({"choices": [{"index": 0, "message": {"role": "assistant", "content": "?"}}]}).encode()


async def _shares_the_hold(
    self: Settlement, purpose: Purpose, bound: int, evidence: Evidence, price: PriceEntry, *, former: str = ""
) -> None:
    """A retry goes on with the hold of the attempt before it, however that ended."""
    reservation = self._held.reservation if self._held else None
    if reservation is None:
        reservation = await self.ledger.reserve(self.context.principal.account, bound, purpose)
    else:
        self.ledger.carry(reservation, purpose)
    self._held = _Held(reservation, purpose, evidence, price)


def _believes_usage(evidence: Evidence, price: PriceEntry, *, streamed: bool) -> Charge:
    usage = evidence.usage or Usage()
    return Charge(price.price.cost_nanousd(usage), usage, estimated=False)


def _tells_the_exception(self: Gateway, error: BaseException, context: object) -> BaseException:
    return error if isinstance(error, GatewayError | ClientGone) else GatewayError(str(error))


def _accepts_junk(raw: bytes, **facts: Any) -> Completion:
    try:
        return from_wire(raw, **facts)
    except (Malformed, WireError):
        return from_wire(_GOOD, **facts)


def _key_of_texts(**_: Any) -> KeyOf:
    """A key of the prompt alone: no tenant, no system prompt, no parameters."""
    return lambda message: json.dumps(message["content"]).encode()


def _key_of_named_tenant(*, tenant: str, body: Mapping[str, Any], **facts: Any) -> KeyOf:
    named = str(body.get("user", tenant))
    return cache_keys(tenant=named, body={name: body[name] for name in body if name != "user"}, **facts)


async def _breaks_with_its_file(self: ExactCache, digest: bytes, tenant: str) -> None:
    raise OSError("the file is damaged")


async def _waits_unseeing(self: _HttpCaller, seconds: float) -> None:
    pause(0.2)


_Exchange = transport.Exchange


def _takes_it_for_fresh(*facts: Any, reused: bool) -> transport.Exchange:
    return _Exchange(*facts, reused=False)


def _one_key_for_all(text: str) -> Question | Ineligible:
    question = read_eligible(text)
    return replace(question, key=b"") if isinstance(question, Question) else question


def _hears_a_yes(document: Mapping[str, Any]) -> Verdict:
    return Verdict.SAME if "SAME" in str(document) else Verdict.DIFFERENT


async def _purges_nothing(self: ExactCache, tenant: str | None) -> int:
    return 0


def _works_at_once(self: Judging, job: Callable[[], None]) -> bool:
    """On the thread of the request."""
    job()
    return True


_NEVER_LEAVES = mock.patch.object(_HttpCaller, "cancel", property(lambda caller: None, lambda caller, cancel: None))
_ANY_TENANT = mock.patch.object(Record, "may_be_served", lambda self, digest, **facts: True)

FAULTS: dict[str, list[Any]] = {
    "malformed-requests": [mock.patch.object(chat, "loads_object", json.loads)],
    "unexpected-errors": [mock.patch.object(Gateway, "_told", _tells_the_exception)],
    "one-slot-race": [mock.patch.object(books, "Ledger", twins.ReadsThenAdds)],
    "tenant-slot-race": [mock.patch.object(books, "apply_budgets", lambda config, books: None)],
    "dearer-backup": [mock.patch.object(dispatch, "max", min, create=True)],
    "overage-whole": [mock.patch.object(books, "Ledger", twins.ClampsToTheHold)],
    "overage-stream": [mock.patch.object(books, "Ledger", twins.ClampsToTheHold)],
    "quarantine": [mock.patch.object(Fleet, "flag", lambda self, deployment: None)],
    "overrun-stream": [mock.patch.object(relay_stream._Stream, "_passes_cap", lambda self: False)],
    "multipliers": [mock.patch.object(attempt, "predicted_bytes", lambda request: 0)],
    "lying-usage": [mock.patch.object(settlement, "assess", _believes_usage)],
    "failed-call-with-usage": [mock.patch.object(Settlement, "_charge_of", lambda self, held, left=False: None)],
    "attempts-share-no-hold": [mock.patch.object(Settlement, "cover", _shares_the_hold)],
    "stale-connection": [mock.patch.object(transport, "Exchange", _takes_it_for_fresh)],
    "client-leaves": [_NEVER_LEAVES],
    "cache-across-tenants": [mock.patch.object(caching, "cache_keys", _key_of_texts), _ANY_TENANT],
    "cache-timing": [mock.patch.object(caching, "cache_keys", _key_of_texts), _ANY_TENANT],
    "cache-near-questions": [mock.patch.object(caching, "cache_keys", _key_of_texts)],
    "tenant-in-request": [mock.patch.object(caching, "cache_keys", _key_of_named_tenant), _ANY_TENANT],
    "cache-expiry": [_ANY_TENANT],
    "cache-unworthy-answers": [mock.patch.object(caching, "refusal", lambda document, response_format: None)],
    "cache-damage": [mock.patch.object(ExactCache, "lookup", _breaks_with_its_file)],
    "semantic-partitions": [mock.patch.object(caching, "cache_keys", _key_of_texts)],
    "semantic-near-misses": [
        mock.patch.object(semantic_cache, "read_eligible", _one_key_for_all),
        mock.patch.object(semantic_cache, "verify", lambda asked, stored: None),
    ],
    "semantic-tenants": [mock.patch.object(caching, "cache_keys", _key_of_texts), _ANY_TENANT],
    "semantic-expiry": [mock.patch.object(semantic_cache, "_living", lambda wordings, now_ms: wordings), _ANY_TENANT],
    "semantic-shadow": [mock.patch.object(other_words.Lead, "answer", property(lambda self: self.found))],
    "semantic-floods": [mock.patch.object(semantic_cache, "read_eligible", read)],
    "judged-settled": [
        mock.patch.object(judging, "bar", lambda one, other: None),
        mock.patch.object(judging, "mark", lambda question: ()),
        mock.patch.object(aliases, "bar", lambda one, other: None),
    ],
    "judged-injection": [mock.patch.object(judging, "verdict", _hears_a_yes)],
    "judged-tenants": [mock.patch.object(caching, "cache_keys", _key_of_texts), _ANY_TENANT],
    "judged-purge": [mock.patch.object(ExactCache, "purge", _purges_nothing)],
    "judged-off-path": [mock.patch.object(Judging, "_hand_over", _works_at_once)],
    "judged-runaway": [mock.patch.object(Judging, "_may_call", lambda self, per_minute: True)],
    "judged-audit": [mock.patch.object(Judging, "_audit", lambda self, pair, judge: None)],
    "rate-under-load": [mock.patch.object(admission, "TokenBucket", lambda rate, burst: TokenBucket(2 * rate, burst))],
    "rate-to-the-unit": [mock.patch.object(admission, "TokenBucket", lambda rate, burst: TokenBucket(rate, burst + 1))],
    "rate-refusals": [mock.patch.object(admission.Admitted, "give_back", lambda self, now_s, facts: None)],
    "callers-errors": [mock.patch.object(verdict, "_CLIENTS_FAULT", verdict._BUSY)],
    "callers-timeouts": [mock.patch.dict(verdict._TOO_LATE, dict.fromkeys(verdict._TOO_LATE, verdict._SILENT))],
    "upstream-limits": [mock.patch.object(dispatch.Dispatcher, "_pause", lambda self, *facts: None)],
    "odd-retry-after": [
        mock.patch.object(client, "_bounded", float),
        mock.patch.object(dispatch, "LONGEST_PAUSE_S", 1e12),
    ],
    "retry-storm": [mock.patch.object(RetryBudget, "take", lambda self, now_s: True)],
    "abandoned-wait": [
        mock.patch.object(_HttpCaller, "pause", _waits_unseeing),
        _NEVER_LEAVES,
    ],
    "outage": [mock.patch.object(Breaker, "_learn", lambda self, outcome, now_ns: None)],
    "abandoned-half-open": [mock.patch.object(health, "Breaker", breakers.ForgetsReleases)],
    "cut-after-content": [mock.patch.object(relay_stream._Stream, "_is_whole", lambda self: True)],
    "cut-before-content": [mock.patch.object(relay_stream._Stream, "_is_whole", lambda self: True)],
    "cut-whole": [mock.patch.object(relay_whole, "from_wire", _accepts_junk)],
}
"""By the probe that must say FOUND."""

OTHERS: tuple[tuple[str, Any], ...] = (
    ("retry-storm", mock.patch.object(dispatch, "backoff_s", lambda retry, **facts: 0.1)),
    ("abandoned-half-open", mock.patch.object(health, "Breaker", breakers.HalfOpenWithoutGate)),
    ("abandoned-half-open", mock.patch.object(health, "Breaker", breakers.WaitsForTheProbe)),
    ("callers-timeouts", mock.patch.object(health, "Breaker", breakers.CountsReleases)),
    (
        "unexpected-errors",
        mock.patch.object(OpLog, "error", lambda self, error, request_id=None: self.event("error", text=repr(error))),
    ),
    ("rate-to-the-unit", mock.patch.object(admission, "TokenBucket", buckets.NoLock)),
)
"""More mistakes that a probe must find; each is one patch."""

_CARELESS = "keys-by-id,forwards-everything,fetches,reads-leniently,takes-any-size"
_FORGETFUL = "remembers-keys,rounds-numbers"
_CREDULOUS = "follows-redirects,repeats-secrets,takes-any-name,logs-in-words"
_BOUNDLESS = "keeps-the-idle,waits-for-readers"
_HASTY = "accepts-everybody,cuts-at-once"

PROGRAMS = {
    "secrets-nowhere": "repeats-secrets",
    "kill-at-each-point": "forgets-the-dead",
    "stream-floods": "reads-without-end",
    "whole-floods": "reads-without-end",
    "two-framings": "sloppy-front",
    "coding-disguises": "sloppy-front",
    "early-errors": "sloppy-front",
    "repeated-lengths": "sloppy-front",
    "odd-lengths": "sloppy-front",
    "odd-chunks": "sloppy-front",
    "hidden-headers": "sloppy-front",
    "request-lines": "sloppy-front",
    "repeated-headers": "sloppy-front",
    "cut-heads": "sloppy-front",
    "cut-bodies": "sloppy-front",
    "expectations": "sloppy-front",
    "oversized-heads": "sloppy-front",
    "oversized-bodies": _CARELESS,
    "hostile-credentials": _CARELESS,
    "steering-fields": _CARELESS,
    "steering-names": _CARELESS,
    "duplicate-keys": _CARELESS,
    "odd-json": _CARELESS,
    "revoked-at-once": _FORGETFUL,
    "sent-as-read": _FORGETFUL,
    "keys-elsewhere": "obliging-front",
    "self-widening": "obliging-front",
    "path-confusion": "obliging-front",
    "admin-closed": "obliging-front",
    "injected-headers": "obliging-front",
    "redirects": _CREDULOUS,
    "error-bodies": _CREDULOUS,
    "hostile-names": _CREDULOUS,
    "log-lines": _CREDULOUS,
    "hostile-headers": "relays-headers",
    "split-answers": "does-not-look",
    "dripped-heads": "patient-front",
    "dripped-bodies": "patient-front",
    "idle-connections": _BOUNDLESS,
    "unread-answers": _BOUNDLESS,
    "full-queue": "admits-everybody",
    "greedy-tenant": "admits-everybody",
    "abandoned-queue": "admits-everybody",
    "crowded-health": "narrow-front",
    "connection-cap": _HASTY,
    "drained-streams": _HASTY,
    "drained-queue": _HASTY,
    "drained-oddities": "never-ends",
    "second-signal": "hears-once",
}
"""The same for gateways in processes of their own: the mistakes of broken_serve. Some share a process, since a start
takes longer than a probe; each is found by its probe also when it is the only one.
"""
