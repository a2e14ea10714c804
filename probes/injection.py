"""Text that would be something else where it is shown: header lines, log lines, markup, a terminal's commands."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from urllib.parse import quote

from probes import client
from probes.answers import OUR_HEADERS, target_of_answers
from probes.gateways import SRC, Outside
from probes.hands import side_by_side
from probes.lab import Lab, Probe
from probes.target import shares
from probes.upstream import Call, Reply, good, wait_until
from probes.wire import CLOSE, get, head, post, sized

LINE_CHARS = 2001
"""The longest line of the operator's log, with its end."""

MARK = "INJECTED"
_PATIENCE_S = 20.0
_NOT_PLAIN = re.compile(r"[^\x20-\x7e]")
_COMMANDS_A_TERMINAL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
"""Control characters of both kinds, line and paragraph separators, and marks that turn the direction of writing."""

_MARKUP = (
    *("<img src=x onerror=alert(1)>", "'-alert(1)-'", '"><svg onload=alert(1)>', "</script><script>alert(1)</script>"),
    *("${7*7}{{7*7}}<%= 7*7 %>", "javascript:alert(1)", "&lt;b&gt;", "`;alert(1)//", "%s%n%x", "../../etc/passwd"),
    *("=cmd|' /C calc'!A0", "; rm -rf /", "$(reboot)", "a,b", "' OR 1=1; --"),
)
_COMMANDS = (
    *(
        f"a\r\n{MARK}: 1",
        f"a\n{MARK}: 1",
        f"a\r{MARK}: 1",
        f'a\n{{"event": "{MARK}"}}',
        "\x1b[31mred\x1b[0m",
        "\x1b]0;title\x07",
    ),
    *(
        "a\x00b",
        "a\x08\x08b",
        "\u202eevil",
        "\u2066evil\u2069",
        f"a\u2028{MARK}: 1",
        f"a\u2029{MARK}: 1",
        "\x9b31m",
        "\ufeffa",
    ),
    *(f"a\x85{MARK}: 1", f"a\x0b{MARK}: 1", f"a\x0c{MARK}: 1", "\u200eb", "t\u0000enant"),
)
_LONG = ("a" * 65_536, "A" * 300)
_TENANTS = ("ｔｅｎａｎｔ", "TENANT", "ténant", "-a", "a_b", "a.b", " a", "a ", "", "a/b", "аcme")
"""Names that are not plain; the last one begins with a Cyrillic letter."""


def hostile_names(lab: Lab) -> str:
    """Keys and tenants named with markup, commands for a terminal and look-alikes: refused, or shown as plain text."""
    target = target_of_answers(lab)
    made, refused = [], 0
    for name in (*_MARKUP, *_COMMANDS, *_LONG):
        answer = _create(target.gateway, name=name)
        made += [name] if answer.status == 200 else []
        refused += answer.status == 400
        lab.check(answer.status in (200, 400), f"a key named {name[:20]!r} was answered {answer.status}")
    for name in (*_MARKUP, *_COMMANDS, *_LONG, *_TENANTS):
        answer = _create(target.gateway, tenant=name)
        refused += answer.status == 400
        lab.check(answer.status == 400, f"a tenant named {name[:20]!r} was answered {answer.status}")
    lab.check(not {*made} & {*_COMMANDS, *_LONG}, f"names that command a terminal were taken: {made}")
    asked = (("keys", "list"), ("keys", "list", "--json"), ("keys", "show", f"x\x1b[31m{MARK}"))
    told = dict(zip(asked, side_by_side(lambda words: _printed(target.gateway, words), asked), strict=True))
    for words, printed in told.items():
        lab.check(not _COMMANDS_A_TERMINAL.search(printed), f"`{' '.join(words)[:40]}` prints what commands a terminal")
    listed = told[asked[1]]
    lab.check(_is_one_line_of_json(listed), f"`{' '.join(asked[1])}` prints no plain JSON: {listed[:80]!r}")
    shown = {key["name"] for key in json.loads(listed)}
    lab.check(shown >= set(made), f"names are not shown as they are: {[name for name in made if name not in shown]}")
    return f"{len(made)} names of markup shown as text, {refused} names refused"


def _create(gateway: Outside, **arguments: str) -> client.Answer:
    """Ask for a key; of the tenant acme unless told otherwise."""
    secret = json.loads((gateway.folder / "gateway-data" / "control").read_text())["secret"]
    command = {"command": "keys.create", "arguments": {"tenant": "acme"} | arguments}
    return gateway.ask(secret, command, path="/control")


def _printed(gateway: Outside, words: tuple[str, ...]) -> str:
    """What the command line prints, of both kinds."""
    done = subprocess.run(
        [sys.executable, "-m", "gateway", *words, "--data-dir", gateway.folder / "gateway-data"],
        env={"PYTHONPATH": str(SRC), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        timeout=_PATIENCE_S,
        check=False,
    )
    return (done.stdout + done.stderr).decode("utf-8")


def _is_one_line_of_json(printed: str) -> bool:
    try:
        json.loads(printed)
    except ValueError:
        return False
    return printed.endswith("\n") and printed.count("\n") == 1 and not _NOT_PLAIN.search(printed[:-1])


# --- headers ----------------------------------------------------------------------------------------------------


def injected_headers(lab: Lab) -> str:
    """Line ends and commands in models, tags, versions, ids, paths, traces: no header line that we did not write."""
    target = target_of_answers(lab)
    attacks = dict(_attacks(target.key))
    heard = target.hear(attacks)
    for name, said in heard.items():
        for answer in said.answers:
            foreign = [field for field in answer.headers if not (OUR_HEADERS.fullmatch(field) or field == "allow")]
            lab.check(not foreign, f"{name}: {foreign} in the answer's head")
            values = " ".join(answer.headers.values())
            lab.check(
                MARK not in values and not _NOT_PLAIN.search(values), f"{name}: {values[:80]!r} in the answer's head"
            )
            lab.check(answer.headers.get("content-type") == "application/json", f"{name}: the answer is no JSON")
            lab.check(_is_plain_json(answer.body), f"{name}: {answer.body[:80]!r}")
        lab.check(len(said.answers) == 1, f"{name}: answered {list(said.statuses)}")
    for call in target.upstream.calls:
        fields = json.dumps(dict(call.headers))
        lab.check(MARK not in fields and MARK.lower() not in fields, f"a header went to the upstream: {fields[:200]}")
    statuses = [status for said in heard.values() for status in said.statuses]
    target.untouched(calls=len(target.upstream.calls))
    return f"{len(attacks)} values with line ends and commands: {shares(statuses)}"


def _is_plain_json(body: bytes) -> bool:
    try:
        return isinstance(json.loads(body), dict) and b"\n" not in body and b"\x1b" not in body
    except ValueError:
        return False


def _attacks(key: str) -> Iterator[tuple[str, bytes]]:
    """Each command in each place that a client fills; in headers as far as HTTP lets it pass."""
    for number, text in enumerate((*_COMMANDS, *_MARKUP)):
        fields = {"model": text, "tags": [text], "prompt_version": text, "user": text, "stop": [text], text: text}
        for name, value in fields.items():
            body = client.chat() | ({"metadata": {text: text}} if name == text else {name: value})
            raw = json.dumps(body).encode()
            yield f"{name if name != text else 'a name'} {number}", post(key, sized(raw), CLOSE, body=raw)
        escaped = quote(text, safe="")
        for path in (f"/v1/models/{escaped}", f"/v1/{escaped}", f"/{escaped}", f"/v1/models?{escaped}"):
            yield f"{path[:9]} {number}", get(path, key)
        plain = text.encode().decode("latin-1").translate(dict.fromkeys((*range(32), 127)))
        for name in (
            "x-request-id",
            "x-gateway-tags",
            "x-gateway-prompt-version",
            "traceparent",
            "tracestate",
            "User-Agent",
        ):
            line = f"{name}: {plain}"
            yield f"{name} {number}", post(key, sized(client.CHAT_BODY), CLOSE, line, body=client.CHAT_BODY)
    yield "a method", head(f"{'<B>' * 3} / HTTP/1.1", "Host: gw")


# --- logs -------------------------------------------------------------------------------------------------------


def log_lines(lab: Lab) -> str:
    """Commands in all that ends in a log, of clients, upstreams, a bad file: one plain JSON object a line, bounded."""
    target = target_of_answers(lab)
    gateway = target.gateway
    first = len(gateway.lines)
    for number, text in enumerate((*_COMMANDS, *_MARKUP[:4], "z" * 70_000)):
        status = (401, 403, 404, 429, 500)[number % 5]
        target.upstream.script(_quoting(text, status))
        gateway.ask(target.key, client.chat(model=f"x{number + 20}", user=text, metadata={text[:64]: text}))
        gateway.chat(target.key, model=text[:256])
        gateway.ask(target.key, client.chat(text), headers={"User-Agent": quote(text)[:200], "traceparent": "00-x"})
    file = gateway.folder / "gateway.toml"
    kept = file.read_text()
    hostile = json.dumps(f"\x1b[31m\u202e\u2028{MARK}")
    file.write_text(
        kept + f"[[tenants]]\nname = {hostile}\n{hostile} = 1\n[[aliases]]\nname = {hostile}\ndeployments = []\n"
    )
    gateway.signal(signal.SIGHUP)
    wait_until(lambda: any("reload_refused" in line for line in gateway.lines[first:]), "a bad file was not refused")
    file.write_text(kept)
    target.upstream.script(good())
    last = gateway.chat(target.key).headers["x-request-id"].encode()
    trace = gateway.folder / "trace.jsonl"
    wait_until(lambda: last in trace.read_bytes(), "there is no trace to look into")
    logged, traced = gateway.lines[first:], trace.read_text(encoding="utf-8", errors="surrogateescape").split("\n")[:-1]
    for line in (*logged, *traced):
        lab.check(_is_one_line_of_json(f"{line}\n"), f"no plain line of JSON: {line[:120]!r}")
        lab.check(not line.startswith(f'{{"event": "{MARK}'), "a line that we did not write")
    longest = max(map(len, logged))
    lab.check(longest < LINE_CHARS, f"a line of {longest} characters in the log")
    return f"{len(logged)} lines logged, {len(traced)} traced: each one plain JSON object, {longest} characters at most"


def _quoting(text: str, status: int) -> Reply:
    """An error that says this text in all its parts, and in headers as far as a head may hold it."""
    error = {"message": text, "type": text, "code": text, "param": text}
    headers = [("x-request-id", quote(text)[:4000]), ("retry-after", quote(text)[:99])]

    def reply(call: Call) -> None:
        call.close()
        call.answer({"error": error}, status=status, headers=headers)

    return reply


PROBES = (
    Probe("hostile-names", "output-injection", hostile_names),
    Probe("injected-headers", "output-injection", injected_headers),
    Probe("log-lines", "output-injection", log_lines),
)
