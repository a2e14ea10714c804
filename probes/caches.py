"""The exact cache: nobody gets another's answer, no other question gets it, and only good answers are kept."""

import json
from typing import Any

from probes.gateways import Inside, Running
from probes.lab import Lab, Probe
from probes.upstream import (
    DONE,
    ROLE,
    STOP,
    Call,
    Reply,
    Upstream,
    chunk,
    completion,
    failing,
    good,
    nonce,
    report,
    word,
)

KEPT_S = 3600
TENANTS = """
[[aliases]]
name = "other"
deployments = ["d0"]
[[tenants]]
name = "scoped"
models = ["other"]
"""


def _ask(gateway: Running, key: str, text: str = "ping", **more: Any) -> Any:
    return gateway.chat(key, text, **({"temperature": 0} | more))


def _is_fresh(upstream: Upstream, ask: Any) -> tuple[bool, Any]:
    """Whether an answer came from the upstream, and the answer."""
    calls = len(upstream.calls)
    answer = ask()
    return len(upstream.calls) == calls + 1, answer


# --- tenants ----------------------------------------------------------------------------------------------------


def across_tenants(lab: Lab) -> str:
    """A tenant warms the cache: its other key is served for nothing, another tenant never is, nor a dead key."""
    upstream = lab.upstream(nonce)
    gateway = lab.inside(upstream, more=TENANTS)
    warm, sibling, other = gateway.key(), gateway.key(), gateway.key(tenant="other")
    scoped, blocked = gateway.key(tenant="scoped"), gateway.key()
    first = _ask(gateway, warm)
    fresh, second = _is_fresh(upstream, lambda: _ask(gateway, sibling))
    lab.check(not fresh and second.text == first.text, "the cache is off: nothing is proven")
    lab.check(second.headers["x-gateway-cache"] == "hit", f"a hit says {second.headers['x-gateway-cache']}")
    gateway.wait_quiet()
    lab.check(gateway.counted_nanousd(sibling) == 0, "a hit was charged")
    lab.check([row["exit"] for row in gateway.rows(sibling)] == ["cache_hit"], "a hit has no row of its own")
    fresh, foreign = _is_fresh(upstream, lambda: _ask(gateway, other))
    lab.check(fresh and foreign.text != first.text, "another tenant got the answer")
    lab.check(foreign.headers["x-gateway-cache"] == "miss", "another tenant is told of the entry")
    forbidden = _ask(gateway, scoped)
    lab.check(forbidden.status == 403, f"a tenant that may not ask for the model: {forbidden.status}")
    fresh, _ = _is_fresh(upstream, lambda: _ask(gateway, scoped, model="other"))
    lab.check(fresh, "a tenant with other permissions got the answer")
    gateway.command("keys.block", id=blocked.split("-")[2])
    refused = _ask(gateway, blocked)
    lab.check(refused.status == 401, f"a blocked key: {refused.status}")
    return f"own tenant: {first.text} again for nothing; another: {foreign.text}; not allowed: 403; blocked: 401"


_NAMES = ("tenant", "tenant_id", "team", "organization", "user", "namespace", "cache_key", "key_id")
_HEADERS = (
    *("x-tenant", "x-tenant-id", "x-gateway-tenant", "x-gateway-key-id", "x-forwarded-user", "x-remote-user"),
    *("openai-organization", "openai-project", "x-litellm-team", "x-portkey-metadata", "x-forwarded-for", "from"),
)


def tenant_in_request(lab: Lab) -> str:
    """Another tenant's name, or its key's id, in every field and header: its cache, budget and rows are untouched."""
    upstream = lab.upstream(nonce)
    gateway = lab.inside(upstream)
    victim, thief = gateway.key(tenant="victim"), gateway.key(tenant="thief")
    poor = gateway.key(0, tenant="thief")
    for _ in range(2):
        secret = _ask(gateway, victim).text
    gateway.wait_quiet()
    before, rows = gateway.counted_nanousd(victim), len(gateway.rows(victim))
    key_id = victim.split("-")[2]
    tried = 0
    for value in ("victim", key_id):
        bodies: list[dict[str, Any]] = [{name: value} for name in _NAMES]
        bodies += [{"metadata": {"tenant": value, "user": value}}, {"cache": {"namespace": value}}]
        asks: list[tuple[dict[str, Any], dict[str, str]]] = [(body, {}) for body in bodies]
        asks += [({}, {name: value}) for name in _HEADERS]
        for body, headers in asks:
            told, tried = f"{body or headers}", tried + 1
            full = {"model": "m", "messages": [{"role": "user", "content": "ping"}], "max_tokens": 16, "temperature": 0}
            answer = gateway.ask(thief, full | body, headers=headers)
            lab.check(answer.status in (200, 400), f"{told}: answered {answer.status}")
            lab.check(secret.encode() not in answer.body, f"{told}: gave the other tenant's answer")
            broke = gateway.ask(poor, full | body | {"temperature": 1}, headers=headers).status
            lab.check(broke in (402, 400), f"{told}: a key without money is served: {broke}")
    gateway.wait_quiet()
    lab.check(gateway.counted_nanousd(victim) == before, "the other tenant was charged")
    lab.check(len(gateway.rows(victim)) == rows, "the other tenant has rows that are not its own")
    lab.check({row["tenant"] for row in gateway.rows(thief)} == {"thief"}, "rows name another tenant")
    return f"{tried} ways to name another tenant: no answer, no money and no row of it"


def timing(lab: Lab) -> str:
    """30 prompts that another tenant has warmed: the upstream is called for each, so there is nothing to time."""
    upstream = lab.upstream(nonce)
    gateway = lab.inside(upstream)
    warm, other = gateway.key(), gateway.key(tenant="other")
    texts = [f"warm {number}" for number in range(30)]
    for text in texts:
        _ask(gateway, warm, text)
    missed = [text for text in texts if not _is_fresh(upstream, lambda text=text: _ask(gateway, other, text))[0]]
    lab.check(not missed, f"{len(missed)} of 30 prompts of another tenant were answered without a call")
    return "30 of 30 prompts that another tenant had warmed went to the upstream"


# --- other questions --------------------------------------------------------------------------------------------


def _user(content: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": content}]}


_NEAR: tuple[dict[str, Any], ...] = (
    *({"temperature": 1}, {"temperature": 0.0}, {"temperature": None}, {"temperature": ...}, {"top_p": 0.5}),
    *({"seed": 7}, {"max_tokens": 17}, {"max_tokens": ..., "max_completion_tokens": 16}, {"n": 2}),
    {"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]},
    *({"response_format": {"type": "json_object"}}, {"model": "d0"}, {"model": "probed"}, {"user": "someone"}),
    *({"logit_bias": {"1": 5}}, {"stop": ["x"]}, {"unknown_field": 1}, {"unknown_field": None}, {"logprobs": True}),
    *({"reasoning_effort": "low"}, {"presence_penalty": 1}, {"prompt_version": "2"}, {"metadata": {"a": "b"}}),
    {"messages": [{"role": "system", "content": "be rude"}, {"role": "user", "content": "ping"}]},
    {"messages": [{"role": "system", "content": "be kind"}, {"role": "user", "content": "ping"}]},
    {"messages": [{"role": "developer", "content": "be rude"}, {"role": "user", "content": "ping"}]},
    {"messages": [{"role": "user", "content": "be rude"}, {"role": "user", "content": "ping"}]},
    {"messages": [{"role": "user", "content": "ping"}, {"role": "user", "content": "be rude"}]},
    {"messages": [{"role": "system", "content": "ping"}]},
    {"messages": [{"role": "user", "content": "ping", "name": "bob"}]},
    {"messages": [{"role": "assistant", "content": "ping"}]},
    *map(_user, ("\uff50\uff49\uff4e\uff47", "PING", "ping!", "pi ng", "p\u0131ng", "ping\u200b", "\u00a0ping", "")),
    *map(_user, ("a  b\nc", "a b\nc", "a\tb", "a b", "`a  b`", "`a b`", '"a  b"', "'a  b'", "e\u0301", "\u00e9")),
    *map(_user, ([{"type": "text", "text": "ping"}], [{"type": "text", "text": "pi"}, {"type": "text", "text": "ng"}])),
)
_SAME: tuple[dict[str, Any], ...] = (_user("ping "), _user("\r\nping\n"), {"stream": True}, {"private": False})


def near_questions(lab: Lab) -> str:
    """More than fifty requests that differ a little: each gets its own answer, the documented twins do not."""
    upstream = lab.upstream(nonce)
    gateway = lab.inside(upstream)
    key = gateway.key()
    owner = {_ask(gateway, key).text: "the first question"}
    for more in _NEAR:
        body = {"model": "m", "max_tokens": 16, "temperature": 0} | _user("ping") | more
        answer = gateway.ask(key, {name: value for name, value in body.items() if value is not ...})
        told = json.dumps(more, default=str)[:80]
        lab.check(answer.status == 200, f"{told}: answered {answer.status}")
        lab.check(answer.text not in owner, f"{told}: got the answer to {owner.get(answer.text)}")
        owner[answer.text] = told
    hits = [_is_fresh(upstream, lambda more=more: _ask(gateway, key, **more)) for more in _SAME]
    lab.check(not any(fresh for fresh, _ in hits), "what is documented as the same question was asked again")
    lab.check(all(answer.text in owner for _, answer in hits), "a hit that nobody was given before")
    return f"{len(_NEAR)} near questions: {len(owner) - 1} answers of their own; {len(_SAME)} documented twins: hits"


def expiry(lab: Lab) -> str:
    """An answer is gone after its hour, after the ttl that was asked for, for no-cache, and after a purge."""
    upstream = lab.upstream(nonce)
    gateway = lab.inside(upstream)
    key = gateway.key()
    _ask(gateway, key, "hour")
    _ask(gateway, key, "short", cache={"ttl": 10})
    _ask(gateway, key, "purged")
    lab.check(not _is_fresh(upstream, lambda: _ask(gateway, key, "short"))[0], "a fresh entry is not served")
    fresh, _ = _is_fresh(upstream, lambda: _ask(gateway, key, "hour", cache={"no-cache": True}))
    lab.check(fresh, "no-cache was answered from the cache")
    gateway.command("cache.purge", tenant="acme")
    fresh, _ = _is_fresh(upstream, lambda: _ask(gateway, key, "purged"))
    lab.check(fresh, "a purged answer was served")
    _ask(gateway, key, "short", cache={"ttl": 10})
    _ask(gateway, key, "hour")
    gateway.clock.shift_s += 10
    fresh, _ = _is_fresh(upstream, lambda: _ask(gateway, key, "short"))
    lab.check(fresh, "an answer outlived the ttl that was asked for")
    gateway.clock.shift_s += KEPT_S
    fresh, _ = _is_fresh(upstream, lambda: _ask(gateway, key, "hour"))
    lab.check(fresh, "an answer outlived its hour")
    return "gone after the hour, after its ttl, for no-cache and after a purge"


# --- answers that are not worth it ------------------------------------------------------------------------------


def _says(text: str, *, finish: str = "stop", **message: Any) -> Reply:
    def reply(call: Call) -> None:
        used = call.bill()
        if call.body.get("stream"):
            call.begin_stream()
            call.event(ROLE, chunk({"content": text} | message), chunk(finish=finish), report(used), DONE)
            call.end_stream()
        else:
            call.answer(completion(text, used, finish=finish, **message))

    return reply


def _short(call: Call) -> None:
    call.bill()
    if call.body.get("stream"):
        call.begin_stream()
        call.event(ROLE, word(), word())
    else:
        call.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9999\r\n\r\n{")
    call.close()


def _unfinished(call: Call) -> None:
    if not call.body.get("stream"):
        return _short(call)
    call.bill()
    call.begin_stream()
    call.event(ROLE, word(), DONE)
    return call.end_stream()


def _error_after_content(call: Call) -> None:
    if not call.body.get("stream"):
        return failing(500)(call)
    call.bill()
    call.begin_stream()
    call.event(ROLE, word(), b'{"error": {"message": "no", "type": "server_error"}}', STOP, DONE)
    return call.end_stream()


_TOOL_CALL = [{"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
_JSON = {"response_format": {"type": "json_object"}}
_UNWORTHY: dict[str, tuple[Reply, dict[str, Any]]] = {
    "truncated": (_short, {}),
    "unfinished": (_unfinished, {}),
    "500": (failing(500), {}),
    "400": (failing(400), {}),
    "error after content": (_error_after_content, {}),
    "cut at its length": (_says("half an ans", finish="length"), {}),
    "filtered": (_says("no", finish="content_filter"), {}),
    "a tool call": (_says("", finish="tool_calls", tool_calls=_TOOL_CALL), {}),
    "empty": (_says(""), {}),
    "not the JSON asked for": (_says("not JSON"), _JSON),
    "no-store": (good(), {"cache": {"no-store": True}}),
    "private": (good(), {"private": True}),
    "hot": (good(), {"temperature": 1}),
    "two choices": (good(), {"n": 2}),
    "no temperature": (good(), {"temperature": None}),
}


def unworthy_answers(lab: Lab) -> str:
    """Truncated, failed, refused, length-cut, filtered, private answers, whole and streamed: never given again."""
    upstream = lab.upstream(good())
    gateway = lab.inside(upstream)
    key = gateway.key()
    for name, (reply, more) in _UNWORTHY.items():
        for stream in (False, True):
            upstream.script(reply)
            _ask(gateway, key, name, stream=stream, **more)
            upstream.script(good("good"))
            for again in (False, True):
                clean = {field: value for field, value in more.items() if field == "response_format"}
                fresh, answer = _is_fresh(upstream, lambda: _ask(gateway, key, name, stream=again, **clean))  # noqa: B023
                if again and answer.headers["x-gateway-cache"] == "hit" and name != "not the JSON asked for":
                    continue
                lab.check(fresh, f"{name}{' streamed' * stream}: was kept and served again")
            gateway.command("cache.purge", all=True)
    return f"{len(_UNWORTHY)} kinds, whole and streamed: each was asked again"


def unharmed(lab: Lab) -> str:
    """A damaged cache file changes nothing but the hits: every request is served, and no damaged answer is."""
    upstream = lab.upstream(nonce)
    gateway = lab.inside(upstream)
    key = gateway.key()
    served = _ask(gateway, key).text
    statuses = [200 if served else 0, *_damage(gateway, key)]
    lab.check(set(statuses) == {200}, f"with a damaged cache file: {statuses}")
    gateway.errors.clear()
    return f"{served} before; {len(statuses)} requests over a damaged file: all served"


def _damage(gateway: Inside, key: str) -> list[int]:
    """Overwrite the cache's file, but for its head, under a living gateway."""
    gateway.command("cache.stats")
    for file in gateway.data_files("cache"):
        size = file.stat().st_size
        with file.open("r+b") as raw:
            raw.seek(min(4096, size))
            raw.write(b"\xa5" * max(size - 4096, 0))
    return [_ask(gateway, key, f"after {number % 3}").status for number in range(9)]


PROBES = (
    Probe("cache-across-tenants", "cache-isolation", across_tenants),
    Probe("tenant-in-request", "cache-isolation", tenant_in_request),
    Probe("cache-timing", "cache-isolation", timing),
    Probe("cache-near-questions", "cache-isolation", near_questions),
    Probe("cache-expiry", "cache-isolation", expiry),
    Probe("cache-unworthy-answers", "cache-isolation", unworthy_answers),
    Probe("cache-damage", "cache-isolation", unharmed),
)
