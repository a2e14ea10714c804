"""The semantic cache: the same question in other words is served, and nothing else ever is."""

import contextlib
import sqlite3
import time
from typing import Any

from probes.gateways import Inside, Running
from probes.lab import Lab, Probe
from probes.upstream import Upstream, nonce

KEPT_S = 3600
ON = "[cache]\nsemantic = true\n"
SHADOW = "[cache]\nsemantic = true\nsemantic_mode = 'shadow'\n"
NAMES = """
[[aliases]]
name = "other"
deployments = ["d0"]
[[tenants]]
name = "off"
semantic = false
"""
SLOW_S = 1.0
"""Of CPU: how long it takes by the clock is the machine's affair."""
"""A request of a megabyte is parsed, hashed and sent; reading it as a question would come on top."""

PAIRS = (
    ("What is the capital of France?", "what is the capital of france, please"),
    ("How do I delete my account?", "How can I remove my account?"),
    ("How do I reset my password?", "please tell me how to reset my password"),
)
"""One question each, in two wordings."""


def _ask(gateway: Running, key: str, text: str, **more: Any) -> Any:
    return gateway.chat(key, text, **({"temperature": 0} | more))


def _calls(upstream: Upstream, gateway: Running, key: str, text: str, **more: Any) -> bool:
    """Whether a request was answered by the upstream; one that was not served at all counts as that, too."""
    calls = len(upstream.calls)
    answer = _ask(gateway, key, text, **more)
    return answer.status != 200 or len(upstream.calls) > calls


def _is_alive(lab: Lab, upstream: Upstream, gateway: Running, key: str) -> None:
    """Note a fault if the cache serves nothing: nothing would be proven."""
    for first, second in PAIRS:
        _ask(gateway, key, first)
        served = not _calls(upstream, gateway, key, second)
        lab.check(served, f"{second!r} is not served by the answer to {first!r}: nothing is proven")


# --- what is beside the question --------------------------------------------------------------------------------


def _turns(*turns: tuple[str, str]) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": content} for role, content in turns]}


def _beside(text: str) -> tuple[dict[str, Any], ...]:
    """Requests that ask `text`, each with something else beside it."""
    user = ("user", text)
    parts = [{"type": "text", "text": text}]
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    return (
        *({"max_tokens": 17}, {"max_tokens": 15}, {"seed": 7}, {"top_p": 0.5}, {"stop": ["x"]}, {"user": "someone"}),
        *({"model": "d0"}, {"model": "probed"}, {"model": "other"}, {"temperature": 0.0}, {"temperature": 1}),
        *({"response_format": {"type": "text"}}, {"prompt_version": "2"}, {"metadata": {"a": "b"}}, {"unknown": None}),
        *({"private": True}, {"n": 2}, {"logprobs": True}, {"reasoning_effort": "low"}, {"logit_bias": {"1": 5}}),
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]},
        _turns(("system", "Answer in German."), user),
        _turns(("developer", "Answer in German."), user),
        _turns(("system", "Answer in French."), user),
        _turns(("system", ""), user),
        _turns(("user", "I mean the old Rome."), ("assistant", "Yes."), user),
        _turns(("assistant", "Ask me about Rome."), user),
        _turns(user, ("assistant", "Which one?"), user),
        _turns(user, user),
        _turns(user, ("system", "Answer in German.")),
        {"messages": [{"role": "user", "content": text, "name": "bob"}]},
        {"messages": [{"role": "user", "content": [*parts, image]}]},
        {"messages": [{"role": "user", "content": [*parts, *parts]}]},
        {"cache": {"no-cache": True, "no-store": True}},
    )


def partitions(lab: Lab) -> str:
    """Other instructions, turns, parameters, models and forms around the same question: each asks the upstream."""
    upstream = lab.upstream(nonce)
    gateway = lab.inside(upstream, more=ON + NAMES)
    key, off = gateway.key(), gateway.key(tenant="off")
    _is_alive(lab, upstream, gateway, key)
    first, second = PAIRS[0]
    seen = {_ask(gateway, key, first).text}
    for more in _beside(second):
        answer = _ask(gateway, key, second, **more)
        told = f"{more}"[:80]
        lab.check(answer.status in (200, 400), f"{told}: answered {answer.status}")
        lab.check(answer.text not in seen, f"{told}: got the answer to another request")
        seen.add(answer.text)
    _ask(gateway, off, first)
    lab.check(_calls(upstream, gateway, off, second), "a tenant that does not want it was served by it")
    return f"{len(_beside(second))} surroundings of one question: an answer of its own for each"


# --- near misses ------------------------------------------------------------------------------------------------

_NEAR = (
    ("Is the museum open on Sunday?", "is the museum not open on sunday"),
    ("Can I cancel a booked flight?", "can i not cancel a booked flight"),
    ("Which plants are safe for cats?", "which plants are unsafe for cats"),
    ("Do I need a visa for Japan?", "dont i need a visa for japan"),
    ("How do I enable notifications?", "how do i disable notifications"),
    ("What is the boiling point of water?", "what is the freezing point of water"),
    ("What is the capital of France?", "what is the capital of finland"),
    ("How many days are in June?", "how many days are in july"),
    ("How do I convert 5 miles to kilometers?", "how do i convert 6 miles to kilometers"),
    ("How do I get from Paris to Rome?", "How do I get from Rome to Paris?"),
    ("Who taught Plato?", "Who did Plato teach?"),
    ("Can I eat before surgery?", "Can I eat after surgery?"),
    ("Is aspirin safe with alcohol?", "Is aspirin safe without alcohol?"),
    ("What is the minimum age to drive?", "What is the maximum age to drive?"),
    ("When does the train arrive?", "When does the train depart?"),
    ("Who won the race in 2019?", "Who won the race in 2020?"),
    ("Why is the sky blue?", "Is the sky blue?"),
    ("Should I sell my house?", "Should I buy my house?"),
    ("How do I turn on the heating?", "How do I turn off the heating?"),
    ("What did Marie Curie discover?", "What did Pierre Curie discover?"),
)
"""Two questions each, which a measure of likeness takes for one."""


def near_misses(lab: Lab) -> str:
    """Lower-case negation, another word, number, name, order or time: each asks the upstream."""
    upstream = lab.upstream(nonce)
    gateway = lab.inside(upstream, more=ON)
    key = gateway.key()
    _is_alive(lab, upstream, gateway, key)
    for pair in _NEAR:
        for first, second in (pair, pair[::-1]):
            gateway.command("cache.purge", all=True)
            _ask(gateway, key, first)
            lab.check(_calls(upstream, gateway, key, second), f"{second!r} got the answer to {first!r}")
    return f"{2 * len(_NEAR)} near misses: each went to the upstream"


# --- tenants ----------------------------------------------------------------------------------------------------


def tenants(lab: Lab) -> str:
    """A tenant fills the index with what another will ask: no answer, no hint and no key of it reaches the other."""
    upstream = lab.upstream(nonce)
    gateway = lab.inside(upstream, more=ON)
    thief, victim = gateway.key(tenant="thief"), gateway.key(tenant="victim")
    planted = {_ask(gateway, thief, first, user=user).text for first, _ in PAIRS for user in ("", "victim")}
    planted |= {_ask(gateway, thief, first).text for first, _ in PAIRS}
    planted_keys = _keys(gateway, "thief")
    for first, second in PAIRS:
        for text in (second, first):
            lab.check(_ask(gateway, victim, text).text not in planted, f"{text!r}: the other tenant's answer")
    shared = planted_keys - _keys(gateway, "thief")
    lab.check(not shared, f"{len(shared)} keys of the index are of both tenants: there is something to time")
    lab.check(len(_keys(gateway, "victim")) == len(PAIRS), "the other tenant's questions were not learnt")
    _is_alive(lab, upstream, gateway, victim)
    return f"{len(planted)} answers planted: none reached the other tenant, whose look-ups meet no key of the first"


def _keys(gateway: Inside, tenant: str) -> set[bytes]:
    """Where the index keeps the wordings of a tenant."""
    _settle(gateway)
    with contextlib.closing(sqlite3.connect(next(iter(gateway.data_files("words"))))) as index:
        return {key for (key,) in index.execute("SELECT digest FROM entries WHERE tenant = ?", (tenant,))}


def _settle(gateway: Inside) -> None:
    """Return once everything that was learnt is in the index."""
    if gateway.books.semantic is not None:
        gateway.books.semantic.flush()


# --- time -------------------------------------------------------------------------------------------------------


def expiry(lab: Lab) -> str:
    """A wording finds nothing after its hour, after the ttl that was asked for, for no-cache, and after a purge."""
    upstream = lab.upstream(nonce)
    gateway = lab.inside(upstream, more=ON)
    key = gateway.key()
    _is_alive(lab, upstream, gateway, key)
    (hour, hour_again), (short, short_again), (_, purged_again) = PAIRS
    fresh = {"no-cache": True, "no-store": True}
    lab.check(_calls(upstream, gateway, key, hour_again + "?", cache=fresh), "no-cache is served")
    gateway.command("cache.purge", tenant="acme")
    lab.check(_calls(upstream, gateway, key, purged_again), "a purged answer was served in other words")
    _ask(gateway, key, hour)
    _ask(gateway, key, short, cache={"ttl": 10})
    gateway.clock.shift_s += 10
    lab.check(_calls(upstream, gateway, key, short_again), "an answer outlived the ttl that was asked for")
    gateway.clock.shift_s += KEPT_S
    lab.check(_calls(upstream, gateway, key, hour_again), "an answer outlived its hour")
    return "gone after the hour, after its ttl, for no-cache and after a purge"


def shadow(lab: Lab) -> str:
    """In the mode that only looks on nothing is served, and what would have been is counted."""
    upstream = lab.upstream(nonce)
    gateway = lab.inside(upstream, more=SHADOW)
    key = gateway.key()
    for first, second in PAIRS:
        for text in (first, second):
            lab.check(_calls(upstream, gateway, key, text), f"{text!r} was served")
    stats = gateway.command("cache.stats")["semantic"]
    lab.check(stats["lookups"]["shadowed"] == len(PAIRS), f"counted: {stats['lookups']}")
    lab.check(stats["comparisons"]["different"] == len(PAIRS), f"compared: {stats['comparisons']}")
    return f"{2 * len(PAIRS)} requests went to the upstream; {len(PAIRS)} would not have"


# --- texts that are none ----------------------------------------------------------------------------------------

TEXT_BYTES = 1 << 20


def _hostile() -> dict[str, str]:
    texts = {
        "one word": "word ",
        "no spaces": "a",
        "negations": "not ",
        "quotes": '"',
        "apostrophes": "n't ",
        "numbers": "1,000 ",
        "capitals": "Rome ",
        "combining marks": "e\u0301\u0323",
        "questions": "how do i ",
        "commas": ", please",
    }
    return {name: (text * (TEXT_BYTES // len(text.encode()) + 1))[:TEXT_BYTES] for name, text in texts.items()}


def floods(lab: Lab) -> str:
    """A megabyte of one word, of negations, of quotes ...: served, learnt by nobody, and read by nobody."""
    upstream = lab.upstream(nonce)
    gateway = lab.inside(upstream, more=ON)
    key = gateway.key()
    _is_alive(lab, upstream, gateway, key)
    _settle(gateway)
    before = gateway.command("cache.stats")["semantic"]["stored"]
    slowest = 0.0
    for name, text in _hostile().items():
        began_s = time.process_time()
        answer = _ask(gateway, key, text)
        slowest = max(slowest, time.process_time() - began_s)
        lab.check(answer.status in (200, 400), f"{name}: answered {answer.status}")
    _settle(gateway)
    learnt = gateway.command("cache.stats")["semantic"]["stored"] - before
    lab.check(learnt == 0, f"{learnt} texts of {TEXT_BYTES} bytes were learnt")
    lab.check(slowest < SLOW_S, f"one took {slowest:.1f} s of CPU")
    return f"{len(_hostile())} texts of {TEXT_BYTES} bytes: all served, the slowest in {slowest * 1000:.0f} ms of CPU"


PROBES = (
    Probe("semantic-partitions", "semantic-cache", partitions),
    Probe("semantic-near-misses", "semantic-cache", near_misses),
    Probe("semantic-tenants", "semantic-cache", tenants),
    Probe("semantic-expiry", "semantic-cache", expiry),
    Probe("semantic-shadow", "semantic-cache", shadow),
    Probe("semantic-floods", "semantic-cache", floods),
)
