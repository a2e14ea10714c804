"""A virtual key that wants more than it was given: another's money, models it may not use, operators' commands."""

import json
from collections.abc import Iterator
from typing import Any

from probes import client
from probes.client import CHAT_BODY
from probes.framing import target_of_bytes
from probes.gateways import Outside
from probes.hands import side_by_side
from probes.lab import Lab, Probe
from probes.target import Target, shares
from probes.wire import CLOSE, Heard, get, head, post, say, sized

ADMIN_SECRET = "operators-secret-ADMINCANARY0001"
_COMMANDS = [
    {"command": "keys.list", "arguments": {}},
    {"command": "keys.create", "arguments": {"tenant": "acme", "name": "made-by-a-probe"}},
]
ADMIN_PATHS = (
    *("/admin", "/admin/", "/admin/keys", "/admin/keys/", "/admin/usage", "/admin/usage.csv", "/admin/config"),
    *(
        "/admin/reload",
        "/ADMIN/keys",
        "/Admin/Keys",
        "/v1/admin/keys",
        "/admin//keys",
        "/admin/%6beys",
        "/%61dmin/keys",
    ),
    *("/admin/../control", "/console", "/key/generate", "/key/update", "/keys", "/v1/keys", "/config", "/debug"),
    *("/.env", "/gateway.toml", "/control/keys.list", "/controls"),
)


def self_widening(lab: Lab) -> str:
    """Fields and headers that only an operator may set: no identity, budget or role comes of them, none else pays."""
    target = target_of_bytes(lab)
    gateway = target.gateway
    low, victim = gateway.key(10**9), gateway.key(tenant="globex")
    low_id, victim_id = low.split("-")[2], victim.split("-")[2]
    before = {key: gateway.shown(key) for key in (low, victim, target.key)}
    steering = {"tenant": "globex", "key_id": victim_id, "user_role": "proxy_admin", "max_budget": 1_000_000}
    fields: dict[str, dict[str, Any]] = {
        "in the chat": steering | {"api_key": victim, "user": "globex", "metadata": steering},
        "a budget": {"budget_usd": 1000, "limit_nanousd": 10**12, "allowed_routes": ["/*"], "models": False},
        "as gateway fields": {"tags": ["tenant:globex"], "prompt_version": victim_id, "user": victim_id},
    }
    headers = {
        "X-Tenant": "globex",
        "X-Forwarded-User": "admin",
        "X-Api-Key-Id": victim_id,
        "x-gateway-tenant": "globex",
    }
    headers |= {"x-gateway-key-id": victim_id, "x-gateway-cost-usd": "0", "X-Forwarded-For": "127.0.0.1"}
    statuses = [gateway.ask(low, client.chat(**more), headers=headers).status for more in fields.values()]
    lab.check(set(statuses) <= {200, 400, 402, 429}, f"widened requests were answered {statuses}")
    gateway.wait_quiet()
    _check_unwidened(lab, gateway, before, low_id)
    narrow = gateway.key(tenant="narrow")
    for model in ("m", "M", "auto", " d0", "d0 ", "d0\u0000", "m#d0", "*", "d?", "probed"):
        status = gateway.chat(narrow, model=model).status
        lab.check(status in (400, 403, 404), f"a tenant that may use d0 only was served {model!r}: {status}")
    allowed = gateway.chat(narrow, model="d0").status
    lab.check(allowed == 200, f"what it may use was answered {allowed}")
    for budget in ("-5", "1e3", "NaN", "Infinity", "0x10", "1_000", ""):
        answer = _control(gateway, {"command": "keys.create", "arguments": {"tenant": "acme", "budget_usd": budget}})
        lab.check(answer.status == 400, f"an operator's budget of {budget!r} was answered {answer.status}")
    return f"{len(fields)} widened chats: {shares(statuses)}; another tenant's money, keys and models stay out of reach"


def _check_unwidened(lab: Lab, gateway: Outside, before: dict[str, dict[str, Any]], payer_id: str) -> None:
    """Nobody but the payer has paid, and nothing but its money has changed."""
    for key, shown in before.items():
        after, is_payer = gateway.shown(key), key.split("-")[2] == payer_id
        changed = {name for name in after if after[name] != shown[name]}
        lab.check(changed <= ({"spent_nanousd"} if is_payer else set()), f"{changed} of a key changed")
        tenants = {row["tenant"] for row in gateway.rows(key)}
        lab.check(tenants <= {shown["tenant"]}, f"rows of a key are of {tenants}")


def _control(gateway: Outside, body: object, secret: str | None = None) -> client.Answer:
    control = json.loads((gateway.folder / "gateway-data" / "control").read_text())
    return gateway.ask(secret or control["secret"], body, path="/control")


# --- paths --------------------------------------------------------------------------------------------------------

_DISGUISED = (
    *("/v1/../v1/{}", "/v1/./{}", "//v1/{}", "/v1//{}", "///v1///{}", "/V1/{}", "/v1/{}/", "/v1/{}//", "/v1/{};x=y"),
    *("/v1;x=y/{}", "/v1/{}/.", "/v1/{}/..", "/v1/%2e%2e/v1/{}", "/v1/%2e/{}", "/v1%2f{}", "/%76%31/{}", "/v1/{}%00"),
    *("/v1/{}%20", "/v1/{}.json", "/v1/{}%3fx", "/v1/{}%23", "/v1/{}/%2e%2e/models", "/healthz/../v1/{}", "/\\v1/{}"),
    *(
        "/healthz;/../v1/{}",
        "/healthz/%2e%2e/v1/{}",
        "/readyz/..;/v1/{}",
        "/healthz/v1/{}",
        "/v1\\{}",
        "/v1/%252e%252e/{}",
    ),
    *("/healthz//v1/{}", "/v1/healthz/../{}", "/v1/{}?/healthz", "/v1/..%2fv1/{}", "/v1/%c0%ae%c0%ae/{}", "/.//v1/{}"),
)
_OPERATORS = (
    *(
        "/control",
        "/control/",
        "//control",
        "/v1/../control",
        "/v1/%2e%2e/control",
        "/healthz/../control",
        "/./control",
    ),
    *("/healthz/%2e%2e/control", "/CONTROL", "/control;x", "/control%20", "/control?x", "/%63ontrol", "/v1/control"),
    *("/v1/chat/completions/../../../control", "/v1/..;/control", "/v1/..%2fcontrol", "/\\control", "/control/."),
)
_FORGED = (
    "X-Original-URL: /control",
    "X-Rewrite-URL: /control",
    "X-Forwarded-Prefix: /control",
    "X-Forwarded-Path: /control",
    "X-HTTP-Method-Override: POST",
    "X-Forwarded-For: 127.0.0.1",
    "X-Real-IP: 127.0.0.1",
    "Forwarded: for=127.0.0.1;by=127.0.0.1",
    "X-Forwarded-User: admin",
    "X-Remote-User: admin",
    "x-gateway-admin: true",
    "x-gateway-control: true",
)


def path_confusion(lab: Lab) -> str:
    """Dots, slashes, escapes, semicolons, case and forged headers: no way around the key, the models or to /control."""
    target = target_of_bytes(lab)
    narrow = target.gateway.key(tenant="narrow")
    keyless = dict(_requests(None, _DISGUISED))
    keyless |= {f"keyless {name}": raw for name, raw in _commanding(None)}
    heard = target.hear(keyless)
    for name, said in heard.items():
        lab.check(set(said.statuses) <= {400, 401, 404, 405}, f"{name}: without a key answered {list(said.statuses)}")
    confined = target.hear({name: raw for name, raw in _requests(narrow, _DISGUISED) if raw.startswith(b"POST")})
    for name, said in confined.items():
        lab.check(200 not in said.statuses, f"{name}: a key that may not use m was served it")
    commanding = target.hear(dict(_commanding(target.key)))
    for name, said in commanding.items():
        lab.check(b'"result"' not in said.raw, f"{name}: a virtual key ran an operator's command")
        lab.check(set(said.statuses) <= {400, 401, 403, 404, 405}, f"{name}: answered {list(said.statuses)}")
    _check_nothing_made(lab, target)
    target.untouched()
    return (
        f"{len(keyless)} ways without a key, {len(confined)} to a forbidden model, {len(commanding)} to /control: none"
    )


def _requests(key: str | None, paths: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    for path in paths:
        models, chat = path.format("models"), path.format("chat/completions")
        yield f"GET {models}", get(models, key)
        yield f"POST {chat}", post(key, sized(CHAT_BODY), CLOSE, body=CHAT_BODY, first=f"POST {chat} HTTP/1.1")


def _commanding(key: str | None) -> Iterator[tuple[str, bytes]]:
    """Operators' commands to every disguise of their path, and with every forged header."""
    for command in _COMMANDS:
        raw = json.dumps(command).encode()
        for path in _OPERATORS:
            yield (
                f"{command['command']} to {path}",
                post(key, sized(raw), CLOSE, body=raw, first=f"POST {path} HTTP/1.1"),
            )
        for line in _FORGED:
            for path in ("/control", client.CHAT_PATH):
                first = f"POST {path} HTTP/1.1"
                yield f"{command['command']}, {line}, {path}", post(key, sized(raw), CLOSE, line, body=raw, first=first)
    yield "a GET of /control", get("/control", key)
    yield "a body in a GET", post(key, sized(raw), CLOSE, body=raw, first="GET /control HTTP/1.1")


def _check_nothing_made(lab: Lab, target: Target) -> None:
    made = [key for key in target.gateway.command("keys.list") if key["name"] == "made-by-a-probe"]
    lab.check(not made, f"{len(made)} keys were made by a client")


# --- the operators' own -----------------------------------------------------------------------------------------


def admin_closed(lab: Lab) -> str:
    """Nothing is at /admin without a configured secret; with one, and for /control, no other credential is let in."""
    target = target_of_bytes(lab)
    control = json.loads((target.gateway.folder / "gateway-data" / "control").read_text())["secret"]
    odd = ["", "None", "null", "undefined", "admin", target.key, control, control[:-1], f"{control} ", "\xe9", "*"]
    attacks = {f"{path}, {word!r}": get(path, word) for path in ADMIN_PATHS[:6] for word in odd if word != control}
    attacks |= {f"{path}, the secret of /control": get(path, control) for path in ADMIN_PATHS if "control" not in path}
    attacks |= {f"{path}, no credential": get(path, None) for path in ADMIN_PATHS}
    attacks |= {f"{path}, DELETE": get(path, target.key, method="DELETE") for path in ADMIN_PATHS}
    attacks |= {f"{path}, POST": _command_to(path, target.key) for path in ADMIN_PATHS}
    seen = target.refused(attacks, 404, 401)
    plain = target.hear({path: get(path, None) for path in ADMIN_PATHS if path.startswith("/admin")})
    for path, said in plain.items():
        lab.check(said.statuses == (404,), f"{path}: without a configured secret answered {list(said.statuses)}")
    target.refused(
        {f"/control, {word!r}": _command_to("/control", word) for word in odd if word.strip() != control}, 404, 401
    )
    target.refused({f"/control, {line}": _command_to("/control", None, line) for line in _elsewhere(control)}, 404, 401)
    target.refused({"the secret as a key": get("/v1/models", control)}, 401)
    tried = _with_a_secret(lab)
    _check_nothing_made(lab, target)
    target.untouched()
    return f"{len(attacks)} requests to operators' paths: {seen}; {tried} with a configured secret: none was let in"


def _command_to(path: str, key: str | None, *lines: str) -> bytes:
    raw = json.dumps(_COMMANDS[1]).encode()
    return post(key, sized(raw), CLOSE, *lines, body=raw, first=f"POST {path} HTTP/1.1")


def _elsewhere(secret: str) -> tuple[str, ...]:
    """A secret where none belongs."""
    return (
        f"x-api-key: {secret}",
        f"Cookie: secret={secret}",
        f"Proxy-Authorization: Bearer {secret}",
        f"api-key: {secret}",
    )


def _with_a_secret(lab: Lab) -> int:
    """The same of a gateway that has a secret; how many were tried."""
    gateway = lab.outside(lab.upstream(), env={"GATEWAY_ADMIN_SECRET": ADMIN_SECRET})
    key = gateway.key()
    wrong = [None, "", key, ADMIN_SECRET[:-1], f"{ADMIN_SECRET}x", ADMIN_SECRET.swapcase(), "\xe9", "None"]
    paths = [path for path in ADMIN_PATHS if "admin" in path.lower()][:6]
    attacks = [raw for path in paths for word in wrong for raw in (get(path, word), _command_to(path, word))]
    attacks += [get("/admin/keys", None, line) for line in _elsewhere(ADMIN_SECRET) if "api-key" not in line]
    attacks += [get(f"/admin/keys?secret={ADMIN_SECRET}&key={ADMIN_SECRET}", None)]
    attacks += [_command_to("/control", ADMIN_SECRET), get("/v1/models", ADMIN_SECRET)]
    attacks += [head("GET /admin/keys HTTP/1.1", "Host: gw", f"Authorization: Basic {ADMIN_SECRET}", CLOSE)]

    def one(raw: bytes) -> Heard:
        return say(gateway.address, raw)

    for raw, said in zip(attacks, side_by_side(one, attacks), strict=True):
        told = raw.partition(b"\r\n")[0].decode("latin-1")
        lab.check(set(said.statuses) <= {400, 401, 403, 404}, f"{told}: answered {list(said.statuses)}")
        lab.check(ADMIN_SECRET.encode() not in said.raw, f"{told}: the secret is in the answer")
    lab.check(ADMIN_SECRET.encode() not in gateway.everything_written(), "the secret was written")
    return len(attacks)


PROBES = (
    Probe("self-widening", "authorisation", self_widening),
    Probe("path-confusion", "authorisation", path_confusion),
    Probe("admin-closed", "authorisation", admin_closed),
)
