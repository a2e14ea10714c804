"""The command line: `python -m gateway COMMAND`, and `gateway`.

A command that works on a data directory opens it when nobody owns it, and otherwise asks the living owner over its own
listener, with the secret of the control file. What it prints is for people, or JSON with --json. What must be known
beside a result is a line on stderr, and with --json in its field `notes`, too, if the result is one object; a new key
alone has no such field.
"""

import argparse
import contextlib
import http.client
import json
import os
import signal
import sqlite3
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gateway import __version__
from gateway.books import open_books
from gateway.clock import RealClock
from gateway.commands import CommandError
from gateway.config import ConfigError
from gateway.data_dir import Control, DataDir, DataDirInUse, DataDirRefused, data_dir_path, read_control
from gateway.demo import DEMO_KEY_NAME, DEMO_TENANT
from gateway.errors import StoreUnavailable
from gateway.keys import unlisted
from gateway.printout import render
from gateway.restore import RestoreRefused, refuse_no_file, restore
from gateway.serve import Process, find_config, load_config
from gateway.sqlite_file import StoreRefused, check_identity, connect_unchanged
from gateway.types import Window
from gateway.usage import BY_DEFAULT, GROUPS

_OWNER_WAIT_S = 5.0
"""An owner that is just starting or ending has this long to become reachable or to let go."""

_NO_TERMINAL = (1 << 16, 24)
"""Columns and lines of what a result is printed for into a file or a pipe: its reader may look for lines of a table."""

_ASK_TIMEOUT_S = 60.0
_BACKUP_TIMEOUT_S = 3600.0
"""A ledger of gigabytes is copied at some tens of megabytes a second, and then read whole."""

_PROVES = frozenset(("ledger.verify", "backup"))
"""Commands that fail if the books do not balance."""

_FIRST = "keys.create"
"""The only one of these commands that makes a data directory: a key may be made before the first start."""

_OF_A_PROCESS = frozenset(("cache.shadow",))
"""What only the memory of a running gateway knows."""

_LAST_PORT = 65535
_LONGEST_LABEL = 63

FAILED = 1
REFUSED = 2
UNREAD = 128 + signal.SIGPIPE


def main(argv: Sequence[str] | None = None, env: Mapping[str, str] | None = None) -> int:
    """Run one command; returns the exit status.

    0; 1 for one that failed; 2 for bad arguments or configuration; 141 without a word if what it prints has no reader
    (`| head`), which is how shells show an end by SIGPIPE. A gateway that loses its ledger ends with serve.STORE_LOST.
    """
    return _run(_parser(), argv, os.environ if env is None else env)


def serve_main(argv: Sequence[str] | None = None) -> int:
    """`python -m gateway.api`: the same as `gateway serve`, without the parsers of the other commands.

    To make those takes as long as all else between the imports and the first answer.
    """
    parser = argparse.ArgumentParser(prog="gateway serve", parents=[_shared()])
    _add_serve(parser)
    return _run(parser, argv, os.environ)


def _run(parser: argparse.ArgumentParser, argv: Sequence[str] | None, env: Mapping[str, str]) -> int:
    try:
        try:
            arguments, unknown = parser.parse_known_args(argv)
            if unknown:
                arguments.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
            return int(arguments.run(arguments, env))
        finally:
            print(end="", flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNREAD
    except (CommandError, RestoreRefused, StoreRefused, DataDirInUse, DataDirRefused, OSError) as error:
        return _complain(str(error), FAILED)
    except StoreUnavailable:
        return _complain("the ledger cannot be written", FAILED)
    except ConfigError as error:
        named = find_config(getattr(arguments, "config", None), env)
        return _complain(f"{named or 'the demo configuration'} has faults:\n{error}", REFUSED)


# --- the commands -------------------------------------------------------------------------------------------------


def _serve(arguments: argparse.Namespace, env: Mapping[str, str]) -> int:
    if why := _no_address(arguments.host, arguments.port):
        return _complain(f"cannot listen on {arguments.host}:{arguments.port}: {why}", REFUSED)
    if arguments.check:
        return _check(arguments, env)
    path = find_config(arguments.config, env)
    config = load_config(path, env)
    owned = DataDir.own(data_dir_path(arguments.data_dir, env))
    try:
        process = Process(
            config,
            owned,
            host=arguments.host,
            port=arguments.port,
            reload=lambda: load_config(path, env),
            demo=path is None,
            trace_file=Path(arguments.trace_file) if arguments.trace_file else None,
        )
        return process.run()
    finally:
        owned.close()


def _no_address(host: str, port: int) -> str | None:
    """Why nothing can listen there, whatever else does; None if something may."""
    if not 0 <= port <= _LAST_PORT:
        return f"a port is a number from 0 to {_LAST_PORT} (--port)"
    return None if _may_be_a_name(host) else "that can be no host's name (--host)"


def _may_be_a_name(host: str) -> bool:
    """Whether a host may be called so. The tables of other scripts are loaded only for a name in one of them."""
    if host.isascii():
        *labels, last = host.split(".")
        return all(0 < len(label) <= _LONGEST_LABEL for label in labels) and len(last) <= _LONGEST_LABEL
    try:
        host.encode("idna")
    except UnicodeError:
        return False
    return True


def _check(arguments: argparse.Namespace, env: Mapping[str, str]) -> int:
    path = find_config(arguments.config, env)
    try:
        config = load_config(path, env)
    except ConfigError as error:
        if arguments.json:
            print(json.dumps({"ok": False, "faults": error.faults}))
            return REFUSED
        raise
    holders = _holders(data_dir_path(arguments.data_dir, env) / "ledger.db")
    warnings = [*config.warnings_at(RealClock().wall_ms()), *filter(None, [unlisted(holders, config.tenants)])]
    if arguments.json:
        print(json.dumps({"ok": True, "warnings": warnings}))
    else:
        subject = str(path) if path else "no gateway.toml: the demo"
        print("\n".join([f"{subject}: no faults", *warnings]))
    return 0


def _holders(ledger: Path) -> set[str]:
    """The tenants that have a key which outlives a demo, whoever owns the ledger; none if it cannot be read."""
    try:
        with contextlib.closing(connect_unchanged(ledger)) as connection:
            check_identity(connection, ledger)
            found = connection.execute(
                "SELECT DISTINCT tenant FROM keys WHERE deleted_ms IS NULL AND NOT (tenant = ? AND name IS ?)",
                (DEMO_TENANT, DEMO_KEY_NAME),
            )
            return {tenant for (tenant,) in found}
    except (sqlite3.Error, StoreRefused, OSError):
        return set()


def _command(arguments: argparse.Namespace, env: Mapping[str, str]) -> int:
    given = {name: getattr(arguments, name) for name in arguments.takes if getattr(arguments, name) is not None}
    if "file" in given:
        given["file"] = str(Path(given["file"]).absolute())
    notes: list[str] = []
    result = _run_anywhere(data_dir_path(arguments.data_dir, env), arguments.command_name, given, notes.append)
    for note in notes:
        print(note, file=sys.stderr)
    if notes and arguments.json and isinstance(result, dict) and arguments.command_name != _FIRST:
        result["notes"] = notes
    _print(result, as_json=arguments.json)
    return FAILED if arguments.command_name in _PROVES and not result["ok"] else 0


def _print(result: Any, *, as_json: bool) -> None:
    import shutil  # with what it imports for archives it would lengthen the start of a gateway by a fiftieth

    print(json.dumps(result) if as_json else render(result, shutil.get_terminal_size(_NO_TERMINAL).columns))


def _explain(arguments: argparse.Namespace, env: Mapping[str, str]) -> int:
    # late: its rules take as long to load as all else, and few gateways need them
    from gateway.semantic_cache import explain

    told = explain(arguments.a, arguments.b)
    _print(told, as_json=arguments.json)
    return 0


def _restore(arguments: argparse.Namespace, env: Mapping[str, str]) -> int:
    path, file = data_dir_path(arguments.data_dir, env), Path(arguments.file)
    refuse_no_file(file)
    try:
        owned = DataDir.own(path)
    except DataDirInUse as error:
        raise RestoreRefused(f"stop the gateway first: {path} belongs to {error.owner}") from error
    try:
        told = restore(owned, file.absolute(), RealClock(), replace=arguments.yes)
    except sqlite3.Error as error:
        raise RestoreRefused(f"nothing was restored: {error}") from error
    finally:
        owned.close()
    _print(told, as_json=arguments.json)
    if not told["restored"]:
        what = "there is a ledger" if told["replaced_is_readable"] else "there is a damaged ledger, or a part of one,"
        return _complain(f"nothing was changed: {what} in {path}; to replace it, say --yes (it is kept)", FAILED)
    print(f"nothing is sent until this is confirmed: gateway ledger confirm {told['epoch']}", file=sys.stderr)
    if earlier := told["unconfirmed_epochs"][:-1]:
        numbers = ", ".join(map(str, earlier))
        print(f"that confirms earlier restores, too, see gateway ledger epochs: {numbers}", file=sys.stderr)
    return 0


def _run_anywhere(path: Path, name: str, given: Mapping[str, Any], on_note: Callable[[str], None]) -> Any:
    """Run the command here if nobody owns the directory, else inside its owner."""
    pause = threading.Event()
    for _ in range(round(_OWNER_WAIT_S / 0.1)):
        try:
            owned = DataDir.own(path, make=name == _FIRST)
        except DataDirInUse:
            control = read_control(path)
            if control is not None:
                return _ask(control, name, given, on_note)
            pause.wait(0.1)
            continue
        try:
            if name in _OF_A_PROCESS:
                raise CommandError(f"only a running gateway remembers that, in its memory: none runs on {path}")
            books = open_books(owned, None)
            try:
                result = books.commands.run(name, given, on_note=on_note)
            finally:
                books.close()
            if owned.is_new:
                on_note(f"a new data directory was made: {path.absolute()}; another is named by --data-dir")
            return result
        finally:
            owned.close()
    raise CommandError(f"{path} belongs to a gateway, or to another command, that cannot be reached: try again")


def _ask(control: Control, name: str, given: Mapping[str, Any], on_note: Callable[[str], None]) -> Any:
    timeout_s = _BACKUP_TIMEOUT_S if name == "backup" else _ASK_TIMEOUT_S
    connection = http.client.HTTPConnection(control.host, control.port, timeout=timeout_s)
    headers = {"Authorization": f"Bearer {control.secret}", "Content-Type": "application/json"}
    try:
        connection.request("POST", "/control", json.dumps({"command": name, "arguments": given}), headers)
        response = connection.getresponse()
        answer = json.loads(response.read())
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise CommandError(f"the running gateway (pid {control.pid}) does not answer: {error}") from error
    finally:
        connection.close()
    if response.status != 200:
        said = answer["error"]
        raise CommandError(said["message"] if isinstance(said, dict) else said)
    for note in answer.get("notes", ()):
        on_note(note)
    return answer["result"]


def _complain(message: str, status: int) -> int:
    print(message, file=sys.stderr)
    return status


# --- the arguments ------------------------------------------------------------------------------------------------


_WINDOWS = [str(window) for window in Window]
_SERVES = "serve; the same as python -m gateway.api"


def _shared() -> argparse.ArgumentParser:
    """What every command takes."""
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument(
        "--data-dir",
        type=_not_empty,
        help="default: $GATEWAY_DATA_DIR, else ./gateway-data; serve, keys create and restore make it if need be",
    )
    shared.add_argument("--json", action="store_true", help="print JSON")
    return shared


def _parser() -> argparse.ArgumentParser:
    shared = _shared()
    parser = argparse.ArgumentParser(prog="gateway", description="One gateway in front of every LLM provider.")
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    _add_serve(commands.add_parser("serve", parents=[shared], help=_SERVES))
    check = commands.add_parser("check", parents=[shared], help="check the configuration and exit 0 or 2")
    _add_config(check)
    check.set_defaults(run=_check, parser=check)

    _add_keys(commands, shared)
    _add_ledger(commands, shared)
    _add_copies(commands, shared)
    _add_cache(commands, shared)
    _add_usage(commands, shared)
    return parser


def _add_keys(commands: Any, shared: argparse.ArgumentParser) -> None:
    words = "create, list, show, rotate, block, unblock, delete virtual keys; give them another budget"
    keys = commands.add_parser("keys", help=words)
    actions = keys.add_subparsers(required=True, metavar="ACTION")
    takes = ("tenant", "budget_usd", "budget_window", "name", "expires_in_s")
    create = _add(actions, shared, "keys.create", "make a key; the only time that it is shown", *takes)
    create.add_argument("--tenant", required=True, help="made if it is not there: every model, no budget of its own")
    words = "the most it may spend per window; default: no limit of its own"
    create.add_argument("--budget-usd", metavar="USD", help=words)
    create.add_argument("--budget-window", choices=_WINDOWS, help="UTC; default: total")
    create.add_argument("--name", help="a word for people")
    create.add_argument("--expires-in-s", type=int, help="seconds; default: never")
    _add(actions, shared, "keys.list", "every key with its budget")
    words = "another limit from the next request on; what was spent and what is held stays, and counts"
    budget = _add(actions, shared, "keys.budget", words, "id", "usd", "no_limit", "window")
    budget.add_argument("id", metavar="ID", help="its public id")
    limit = budget.add_mutually_exclusive_group(required=True)
    words = "the most it may spend per window; less than it has spent refuses its next request"
    limit.add_argument("--usd", metavar="USD", help=words)
    limit.add_argument("--no-limit", action="store_true", default=None, help="of its own; its tenant's still binds it")
    words = "another kind of window, UTC, in which nothing is spent yet; default: the one that it has"
    budget.add_argument("--window", choices=_WINDOWS, help=words)
    for action, words in {
        "show": "one key with its budget",
        "rotate": "give it a new secret; the old one stops working at once, id and budget stay",
        "block": "refuse it from the next request on",
        "unblock": "serve it again",
        "delete": "take it away for good; its rows stay",
    }.items():
        _add(actions, shared, f"keys.{action}", words, "id").add_argument("id", metavar="ID", help="its public id")


def _add_ledger(commands: Any, shared: argparse.ArgumentParser) -> None:
    ledger = commands.add_parser("ledger", help="verify the book; its balances, rows and holds; settle or void a hold")
    actions = ledger.add_subparsers(required=True, metavar="ACTION")
    _add(actions, shared, "ledger.verify", "recompute every balance from the holds; exit 1 if they differ")
    _add(actions, shared, "ledger.balances", "budgets of the gateway, tenants and keys in their present windows (UTC)")
    _add(actions, shared, "ledger.holds", "holds that are open or unresolved")
    rows = _add(actions, shared, "ledger.rows", "one row per request, oldest first", "key", "request", "limit")
    rows.add_argument("--key", metavar="ID", help="rows of this key only")
    rows.add_argument("--request", metavar="ID", help="the row of this request only; the x-request-id of its answer")
    rows.add_argument("--limit", type=int, help="the newest so many; default: 10,000")
    words = "book what an open or unresolved hold has cost"
    settle = _add(actions, shared, "ledger.settle", words, "hold", "usd", "above_hold")
    settle.add_argument("hold", type=int, metavar="HOLD", help="its id, see ledger holds")
    settle.add_argument("--usd", required=True, help="what the call cost")
    settle.add_argument(
        "--above-hold", action="store_true", default=None, help="though that is far more than was held for it"
    )
    void = _add(actions, shared, "ledger.void", "give an open or unresolved hold back", "hold")
    void.add_argument("hold", type=int, metavar="HOLD", help="its id, see ledger holds")
    _add(actions, shared, "ledger.epochs", "every restore: what it has replaced, and what it has forgotten")
    words = "admit requests again after a restore: what it has forgotten is taken note of"
    confirm = _add(actions, shared, "ledger.confirm", words, "epoch")
    confirm.add_argument("epoch", type=int, metavar="EPOCH", help="as restore, /readyz and ledger epochs tell it")


def _add_usage(commands: Any, shared: argparse.ArgumentParser) -> None:
    words = "requests, tokens and cost, per tenant, key and alias, or by whatever you want to tell apart"
    usage = _add(commands, shared, "usage", words, "by", "tenant", "key", "since", "until")
    usage.add_argument(
        "--by",
        metavar="NAMES",
        help=f"some of {', '.join(GROUPS)}, with commas; days and months are UTC; default: {','.join(BY_DEFAULT)}",
    )
    usage.add_argument("--tenant", help="of this tenant only")
    usage.add_argument("--key", metavar="ID", help="of this key only")
    usage.add_argument(
        "--since", metavar="TIME", help="requests that arrived then or later: 2026-01-31, 2026-01-31T12:00Z"
    )
    usage.add_argument(
        "--until", metavar="TIME", help="requests that arrived before; both are UTC unless they say a zone"
    )


def _add_copies(commands: Any, shared: argparse.ArgumentParser) -> None:
    words = "write a verified copy of the ledger to FILE, also while the gateway serves; exit 1 if its books differ"
    backup = _add(commands, shared, "backup", words, "file")
    backup.add_argument("file", metavar="FILE", help="must not be there yet")
    words = "make a backup the ledger of a stopped gateway; the replaced one is kept beside it"
    restoring = commands.add_parser("restore", parents=[shared], help=words, description=words)
    restoring.add_argument("file", metavar="FILE", help="what gateway backup has written, or any ledger that is whole")
    restoring.add_argument(
        "--yes", action="store_true", help="replace the ledger that is there; else say what would be"
    )
    restoring.set_defaults(run=_restore, parser=restoring)


def _add_cache(commands: Any, shared: argparse.ArgumentParser) -> None:
    cache = commands.add_parser("cache", help="the caches: their counts; forget what was remembered; compare questions")
    actions = cache.add_subparsers(required=True, metavar="ACTION")
    _add(actions, shared, "cache.stats", "entries and bytes; hits, misses and the like since the start")
    purge = _add(actions, shared, "cache.purge", "let nothing that was remembered until now be served", "tenant", "all")
    purge.add_argument("--tenant", help="of this tenant")
    purge.add_argument("--all", action="store_true", default=None, help="of every tenant")
    words = "the last answers that the shadow mode has withheld, oldest first: which two questions were taken for one"
    shadow = _add(actions, shared, "cache.shadow", words, "tenant")
    shadow.add_argument("--tenant", help="of this tenant; default: of all")
    words = "say whether the semantic cache takes two texts for one question, and why not"
    explain = actions.add_parser("explain", parents=[shared], help=words, description=words)
    explain.add_argument("--a", required=True, metavar="TEXT", help="what is asked")
    explain.add_argument("--b", required=True, metavar="TEXT", help="what was answered")
    explain.set_defaults(run=_explain, parser=explain)


def _add_serve(parser: argparse.ArgumentParser) -> None:
    _add_config(parser)
    parser.add_argument(
        "--host",
        type=_not_empty,
        default="127.0.0.1",
        help="address to listen on; default: 127.0.0.1, this machine only",
    )
    parser.add_argument("--port", type=int, default=8080, help="default: 8080; 0 takes a free one")
    parser.add_argument("--check", action="store_true", help="check the configuration and exit 0 or 2")
    parser.add_argument("--trace-file", type=_not_empty, help="append spans to this file as JSON lines")
    parser.set_defaults(run=_serve, parser=parser)


def _add_config(parser: argparse.ArgumentParser) -> None:
    words = "default: $GATEWAY_CONFIG, else gateway.toml if it is there, else a demo"
    parser.add_argument("--config", type=_not_empty, help=words)


def _not_empty(value: str) -> str:
    """What an option names. Empty, it is a variable of a script that was never set: the default would be another file,
    another ledger, or, for a host, every address of the machine.
    """
    if not value:
        raise argparse.ArgumentTypeError("must not be empty")
    return value


def _add(
    actions: Any, shared: argparse.ArgumentParser, command: str, words: str, *takes: str
) -> argparse.ArgumentParser:
    """A parser for one of gateway.commands; `takes` are the arguments that it is given."""
    name = command.rpartition(".")[2]
    parser: argparse.ArgumentParser = actions.add_parser(name, parents=[shared], help=words, description=words)
    parser.set_defaults(run=_command, parser=parser, command_name=command, takes=takes)
    return parser
