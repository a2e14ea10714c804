"""The gateway as people start it: a process, its command line, its signals."""

import contextlib
import errno
import io
import json
import os
import shlex
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import unittest
from pathlib import Path
from typing import Any

from gateway import __version__
from gateway.cli import main
from tests.support import scripted_upstream
from tests.support.front import completion
from tests.support.judged import ASKED, JUDGE, NEAR
from tests.support.process import WAIT_S, GatewayProcess, call_cli, environment, run_cli
from tests.support.scripted_upstream import Peer, ScriptedUpstream
from tests.support.world import CONFIG, UNPRICED, USD

QUICK = "[server]\nannounce_s = 0\ndrain_s = 5\n"
STUCK = QUICK + CONFIG.replace('text = "hello there friend"', 'text = "never", latency_s = 600')


class DemoTest(unittest.TestCase):
    """Without any configuration."""

    def test_the_printed_curl_line_works_when_pasted(self) -> None:
        """It is a whole shell command that gets an answer."""
        with GatewayProcess() as gateway:
            line = gateway.read_line("curl ")
            done = subprocess.run(
                [*shlex.split(line), "-sS", "--noproxy", "*"],
                env=environment(),
                capture_output=True,
                text=True,
                timeout=WAIT_S,
                check=True,
            )
            answer = json.loads(done.stdout)
            self.assertTrue(answer["choices"][0]["message"]["content"])

    def test_auto_shows_three_tiers(self) -> None:
        """Short text is cheap, long text standard, tools strong."""
        with GatewayProcess() as gateway:
            key = gateway.read_line("demo key").rpartition(" ")[2]
            tiers = [
                gateway.chat(key, **fields)[1]["x-gateway-tier"]
                for fields in (
                    {},
                    {"messages": [{"role": "user", "content": "long " * 200}]},
                    {"tools": [{"type": "function", "function": {"name": "f"}}]},
                )
            ]
            self.assertEqual(tiers, ["cheap", "standard", "strong"])

    def test_each_start_replaces_the_demo_key(self) -> None:
        """The former key stops working, and its budget is half a dollar."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "none").touch()
            with GatewayProcess(folder=folder) as gateway:
                old = gateway.read_line("demo key").rpartition(" ")[2]
                gateway.signal(signal.SIGKILL)
                gateway.wait()
            with GatewayProcess(folder=folder) as gateway:
                new = gateway.read_line("demo key").rpartition(" ")[2]
                self.assertEqual([gateway.chat(old)[0], gateway.chat(new)[0]], [401, 200])
                (key,) = gateway.command("keys.list")
                self.assertEqual(key["limit_nanousd"], 500_000_000)

    def test_the_demo_key_does_not_outlive_the_demo(self) -> None:
        """A start with a configuration in the same directory takes it away."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            with GatewayProcess(folder=folder) as gateway:
                key = gateway.read_line("demo key").rpartition(" ")[2]
                gateway.signal(signal.SIGKILL)
                gateway.wait()
            with GatewayProcess(QUICK + CONFIG, folder=folder) as gateway:
                self.assertEqual(gateway.chat(key)[0], 401)


class CommandLineTest(unittest.TestCase):
    """`python -m gateway`, with and without a living owner."""

    gateway: GatewayProcess

    @classmethod
    def setUpClass(cls) -> None:
        cls.gateway = GatewayProcess(QUICK + CONFIG)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.gateway.__exit__()

    def test_a_new_key_works_at_once_and_is_shown_once(self) -> None:
        """create prints id, key and tenant; show never prints the key or its digest."""
        made = self.gateway.cli("keys", "create", "--tenant", "acme", "--budget-usd", "5")
        self.assertEqual(set(made), {"id", "key", "tenant"})
        self.assertEqual(self.gateway.chat(made["key"])[0], 200)
        shown = self.gateway.cli("keys", "show", made["id"])
        self.assertEqual((shown["limit_nanousd"], shown["tenant"], shown["blocked"]), (5_000_000_000, "acme", False))
        self.assertGreater(shown["spent_nanousd"], 0)
        self.assertEqual((shown["held_nanousd"], shown["unresolved_nanousd"], shown["overage_nanousd"]), (0, 0, 0))
        self.assertNotIn(made["key"].rpartition("-")[2], json.dumps(shown))

    def test_block_rotate_and_delete_hold_at_the_next_request(self) -> None:
        """A revoked key is refused at once, and its id survives rotation."""
        made = self.gateway.create_key()
        self.gateway.command("keys.block", id=made["id"])
        self.assertEqual(self.gateway.chat(made["key"])[0], 401)
        self.gateway.command("keys.unblock", id=made["id"])
        self.assertEqual(self.gateway.chat(made["key"])[0], 200)
        rotated = self.gateway.command("keys.rotate", id=made["id"])
        self.assertEqual(rotated["id"], made["id"])
        self.assertEqual([self.gateway.chat(key)[0] for key in (made["key"], rotated["key"])], [401, 200])
        self.gateway.command("keys.delete", id=made["id"])
        self.assertEqual(self.gateway.chat(rotated["key"])[0], 401)

    def test_rows_are_listed_per_key_oldest_first(self) -> None:
        """The row of a request carries the id of its answer."""
        made = self.gateway.create_key()
        ids = [self.gateway.chat(made["key"])[1]["x-request-id"] for _ in range(2)]
        rows = self.gateway.cli("ledger", "rows", "--key", made["id"])
        self.assertEqual([row["request_id"] for row in rows], ids)
        self.assertEqual({row["state"] for row in rows}, {"settled"})
        self.assertTrue(self.gateway.command("ledger.verify")["ok"])

    def test_usage_sums_up_per_key(self) -> None:
        """Requests, tokens and cost."""
        made = self.gateway.create_key()
        self.gateway.chat(made["key"])
        (line,) = [entry for entry in self.gateway.command("usage") if entry["key_id"] == made["id"]]
        self.assertEqual((line["requests"], line["alias"]), (1, "auto"))

    def test_the_cache_is_purged_in_the_living_gateway(self) -> None:
        """What it remembered is asked for anew."""
        made = self.gateway.create_key()
        said = [self.gateway.chat(made["key"], temperature=0)[1]["x-gateway-cache"] for _ in range(2)]
        self.assertEqual(self.gateway.cli("cache", "purge", "--tenant", made["tenant"])["removed"], 1)
        said.append(self.gateway.chat(made["key"], temperature=0)[1]["x-gateway-cache"])
        self.assertEqual(said, ["miss", "hit", "miss"])
        self.assertEqual(self.gateway.cli("cache", "stats")["hits"], 1)

    def test_a_bad_command_says_why_and_changes_nothing(self) -> None:
        """Exit 1 with a sentence on stderr."""
        for arguments, words in (
            (("keys", "show", "nobody"), "no key"),
            (("keys", "create", "--tenant", "Not A Tenant"), "tenant"),
            (("keys", "create", "--tenant", "acme", "--budget-usd", "-1"), "--budget-usd"),
            (("ledger", "void", "999999"), "hold"),
        ):
            with self.subTest(arguments=arguments):
                done = call_cli(*arguments, "--data-dir", str(self.gateway.data_dir))
                self.assertEqual(done.returncode, 1)
                self.assertIn(words, done.stderr)
                self.assertNotIn("Traceback", done.stderr)

    def test_the_control_file_is_for_its_owner_alone(self) -> None:
        """Mode 0600; without its token the control path does not exist."""
        control = self.gateway.data_dir / "control"
        self.assertEqual(stat.S_IMODE(control.stat().st_mode), 0o600)
        status, _, body = self.gateway.call("POST", "/control", {"command": "keys.list", "arguments": {}}, key="x" * 64)
        self.assertEqual((status, json.loads(body)["error"]["code"]), (404, "unknown_url"))

    def test_a_port_that_is_taken_is_named(self) -> None:
        """With what to do about it."""
        with tempfile.TemporaryDirectory() as name:
            done = run_cli("serve", "--port", str(self.gateway.address[1]), "--data-dir", name)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"127.0.0.1:{self.gateway.address[1]}", done.stderr)
        self.assertIn("--port", done.stderr)

    def test_a_file_for_spans_that_cannot_be_written_is_named(self) -> None:
        """At the start: while it serves, spans that are lost are only counted."""
        with tempfile.TemporaryDirectory() as name:
            for path in (name, f"{name}/missing/spans.jsonl"):
                done = run_cli("serve", "--port", "0", "--data-dir", f"{name}/data", "--trace-file", path)
                self.assertEqual(done.returncode, 1)
                self.assertRegex(done.stderr, rf"(?m)^cannot write {path}: .* \(--trace-file\)$")

    def test_a_second_owner_is_refused(self) -> None:
        """One process owns a data directory."""
        done = run_cli("serve", "--port", "0", "--data-dir", str(self.gateway.data_dir))
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"running (pid {self.gateway.child.pid})", done.stderr)
        self.assertIn("--data-dir", done.stderr)

    def test_the_id_of_an_answer_leads_to_its_row(self) -> None:
        """Whoever has a client's complaint has x-request-id."""
        made = self.gateway.create_key()
        request_id = self.gateway.chat(made["key"])[1]["x-request-id"]
        (row,) = self.gateway.cli("ledger", "rows", "--request", request_id)
        self.assertEqual((row["request_id"], row["key_id"]), (request_id, made["id"]))

    def test_balances_are_told_to_people_and_to_programs(self) -> None:
        """The level of the whole gateway has no name."""
        made = self.gateway.create_key(budget_usd="5")
        balances = self.gateway.cli("ledger", "balances")
        self.assertIn(("key", made["id"], 5 * USD), [(b["scope"], b["name"], b["limit_nanousd"]) for b in balances])
        told = call_cli("ledger", "balances", "--data-dir", str(self.gateway.data_dir)).stdout.splitlines()
        self.assertEqual([line.split()[:2] for line in told[:2]], [["scope", "name"], ["global", "-"]])


class OfflineCommandLineTest(unittest.TestCase):
    """Nobody owns the directory."""

    def test_keys_can_be_made_before_the_first_start(self) -> None:
        """The command line opens the files itself, and the gateway finds the key."""
        with tempfile.TemporaryDirectory() as name:
            data = str(Path(name) / "gateway-data")
            made = json.loads(run_cli("keys", "create", "--tenant", "acme", "--data-dir", data, "--json").stdout)
            with GatewayProcess(QUICK + CONFIG, folder=Path(name)) as gateway:
                self.assertEqual(gateway.chat(made["key"])[0], 200)

    def test_only_a_key_makes_a_data_directory(self) -> None:
        """Every other command says which place it looked at, and leaves it alone."""
        with tempfile.TemporaryDirectory() as name:
            for command in ("keys list", "keys show x", "ledger verify", "ledger void 1", "usage", "cache purge --all"):
                with self.subTest(command), contextlib.redirect_stderr(io.StringIO()) as told:
                    self.assertEqual(main(command.split(), {"GATEWAY_DATA_DIR": f"{name}/none"}), 1)
                    for words in (f"{name}/none", "--data-dir", "GATEWAY_DATA_DIR"):
                        self.assertIn(words, told.getvalue())
            self.assertEqual(list(Path(name).iterdir()), [])

    def test_a_reader_that_left_ends_a_command_quietly(self) -> None:
        """As `| head` does; also one that only wanted the help."""
        with tempfile.TemporaryDirectory() as name:
            call_cli("keys", "create", "--tenant", "acme", "--data-dir", name)
            for arguments in (("keys", "list", "--data-dir", name), ("--help",), ("--version",)):
                with self.subTest(arguments):
                    self.assertEqual(_run_unread(*arguments), (141, b""))

    def test_the_version_is_the_packages(self) -> None:
        """One line."""
        self.assertEqual(run_cli("--version").stdout, f"gateway {__version__}\n")

    def test_an_unresolved_hold_is_settled_or_voided_by_hand(self) -> None:
        """After kill -9 the money counts until an operator decides; each hold once."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            with GatewayProcess(STUCK, folder=folder) as gateway:
                made = gateway.create_key()
                for _ in range(2):
                    _send_and_forget(gateway, made["key"])
                _wait_for_holds(gateway, 2)
                gateway.signal(signal.SIGKILL)
                gateway.wait()
            data = ("--data-dir", str(folder / "gateway-data"), "--json")
            holds = json.loads(call_cli("ledger", "holds", *data).stdout)
            self.assertEqual([hold["state"] for hold in holds], ["unresolved", "unresolved"])
            settle = ("ledger", "settle", str(holds[0]["id"]), "--usd", "99", *data)
            refused = call_cli(*settle)
            self.assertEqual(refused.returncode, 1)
            self.assertIn("--above-hold", refused.stderr)
            self.assertEqual(call_cli(*settle, "--above-hold").returncode, 0)
            call_cli("ledger", "void", str(holds[1]["id"]), *data)
            self.assertEqual(call_cli("ledger", "void", str(holds[0]["id"]), *data).returncode, 1)
            shown = json.loads(call_cli("keys", "show", made["id"], *data).stdout)
            self.assertEqual((shown["spent_nanousd"], shown["unresolved_nanousd"]), (99 * USD, 0))
            self.assertTrue(json.loads(call_cli("ledger", "verify", *data).stdout)["ok"])


class CheckTest(unittest.TestCase):
    """`--check` and `check`."""

    def test_every_fault_is_listed_and_the_exit_status_is_2(self) -> None:
        """0 for a right file."""
        with tempfile.TemporaryDirectory() as name:
            good, bad = Path(name) / "good.toml", Path(name) / "bad.toml"
            good.write_text(CONFIG)
            bad.write_text("[server]\nqueue = -1\nnonsense = 1\n[cache]\nsemantic = 1\n")
            self.assertEqual(run_cli("serve", "--check", "--config", str(good)).returncode, 0)
            done = run_cli("check", "--config", str(bad))
            self.assertEqual(done.returncode, 2)
            for words in ("server.queue", "server.nonsense", "cache.semantic", "deployments"):
                self.assertIn(words, done.stderr)


class ExplainTest(unittest.TestCase):
    """`cache explain`."""

    def test_two_texts_are_compared_without_a_data_directory(self) -> None:
        """Their verdict and its reason, for people or as JSON; a text may have lines."""
        texts = ("--a", "Where is the Louvre?", "--b", "where is the louvre")
        told = json.loads(run_cli("cache", "explain", *texts, "--json").stdout)
        self.assertEqual((told["same"], told["veto"], told["stored_ineligible"]), (True, None, None))
        done = run_cli("cache", "explain", "--a", "Where is it?\nNow", "--b", "Where is the Louvre?")
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"same +False\nveto +\w+")


class SignalTest(unittest.TestCase):
    """SIGTERM and SIGHUP."""

    def test_sigterm_finishes_what_runs_and_exits_0(self) -> None:
        """A request in flight gets its answer, new ones do not get in, and the books are closed."""
        asked, go_on = threading.Event(), threading.Event()

        def answer(peer: Peer) -> None:
            peer.request()
            asked.set()
            go_on.wait(WAIT_S)
            peer.send(scripted_upstream.answer(json.dumps(completion()).encode()))

        upstream = ScriptedUpstream(answer)
        self.addCleanup(upstream.close)
        live = CONFIG.replace('dialect = "fake"', f'base_url = "{upstream.url("/v1")}"')
        live = live.replace('script = [{ text = "hello there friend" }]\n', "")
        with GatewayProcess(f"[server]\nannounce_s = 0\ndrain_s = {WAIT_S}\n{live}") as gateway:
            made = gateway.create_key()
            waiting = _send(gateway, made["key"])
            self.addCleanup(waiting.close)
            self.assertTrue(asked.wait(WAIT_S))
            gateway.signal(signal.SIGTERM)
            gateway.wait_for_event("draining")
            go_on.set()
            self.assertIn(b"200 OK", _read_all(waiting))
            self.assertEqual(gateway.wait(), 0)
            self.assertFalse((gateway.data_dir / "control").exists())
            self.assertEqual([row["state"] for row in gateway.cli("ledger", "rows")], ["settled"])

    def test_a_second_signal_exits_at_once(self) -> None:
        """What was in flight is unresolved or settled, never lost."""
        with GatewayProcess(STUCK) as gateway:
            made = gateway.create_key()
            waiting = _send(gateway, made["key"])
            _wait_for_holds(gateway, 1)
            gateway.signal(signal.SIGTERM)
            gateway.wait_for_event("draining")
            gateway.signal(signal.SIGTERM)
            _read_all(waiting)
            self.assertEqual(gateway.wait(), 0)
            self.assertEqual(gateway.cli("ledger", "verify")["open_holds"], 0)

    def test_readiness_turns_503_at_the_signal(self) -> None:
        """Requests are still served for the announced time, each closing its connection."""
        with GatewayProcess(CONFIG + "\n[server]\nannounce_s = 600\n") as gateway:
            made = gateway.create_key()
            self.assertEqual(gateway.call("GET", "/readyz")[0], 200)
            gateway.signal(signal.SIGTERM)
            gateway.wait_for_event("draining")
            self.assertEqual([gateway.call("GET", "/readyz")[0], gateway.call("GET", "/healthz")[0]], [503, 200])
            status, headers, _ = gateway.chat(made["key"])
            self.assertEqual((status, headers["connection"]), (200, "close"))
            gateway.signal(signal.SIGTERM)
            self.assertEqual(gateway.wait(), 0)

    def test_sighup_reloads_all_or_nothing(self) -> None:
        """A bad file changes nothing and says why; a good one is in force at the next request."""
        with GatewayProcess(QUICK + CONFIG) as gateway:
            made = gateway.create_key()
            (gateway.folder / "gateway.toml").write_text("[nonsense]\n")
            gateway.signal(signal.SIGHUP)
            self.assertTrue(gateway.wait_for_event("reload_refused")["faults"])
            self.assertEqual(gateway.chat(made["key"], model="mini")[0], 200)
            (gateway.folder / "gateway.toml").write_text(QUICK + CONFIG.replace('"mini"', '"maxi"') + "[router]\n")
            gateway.signal(signal.SIGHUP)
            gateway.wait_for_event("reloaded")
            self.assertIn("router", gateway.wait_for_event("config_warning")["detail"])
            self.assertEqual([gateway.chat(made["key"], model=name)[0] for name in ("mini", "maxi")], [404, 200])

    def test_a_reload_that_hangs_holds_up_no_drain(self) -> None:
        """A configuration in a pipe that nobody writes into: the gateway serves on, and ends when it is told to."""
        with GatewayProcess(QUICK + CONFIG) as gateway:
            key = gateway.create_key()["key"]
            _reload_from_a_pipe(gateway)
            self.assertEqual(gateway.chat(key, model="mini")[0], 200)
            gateway.signal(signal.SIGTERM)
            gateway.wait_for_event("drained")
            self.assertEqual(gateway.wait(), 0)

    def test_a_reload_that_hung_goes_on_once_it_can(self) -> None:
        """Those that were asked for meanwhile are one more."""
        with GatewayProcess(QUICK + CONFIG) as gateway:
            key = gateway.create_key()["key"]
            config = _reload_from_a_pipe(gateway)
            writer = _open_once_read(config)
            config.unlink()
            config.write_text(QUICK + CONFIG.replace('"mini"', '"maxi"'))
            gateway.signal(signal.SIGHUP)
            os.write(writer, (QUICK + CONFIG.replace('"mini"', '"midi"')).encode())
            os.close(writer)
            gateway.wait_for_event("reloaded", 2)
            self.assertEqual([gateway.chat(key, model=name)[0] for name in ("midi", "maxi")], [404, 200])

    def test_what_is_open_by_a_slip_is_told(self) -> None:
        """A file that others may read, and a tenant that is not listed: at the start, at a reload, with its key."""
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "theirs").touch(0o644)
            (folder / "gateway-data").mkdir()
            (folder / "gateway-data" / "cache.db").symlink_to(folder / "theirs")
            listed = QUICK + CONFIG + '[[tenants]]\nname = "globex"\n'
            with GatewayProcess(listed, folder=folder) as gateway:
                (file,) = gateway.wait_for_event("files_open_to_others")["files"]
                self.assertIn(f"cache.db leads to {folder / 'theirs'}", file)
                made = call_cli("keys", "create", "--tenant", "acm", "--data-dir", str(gateway.data_dir), "--json")
                self.assertEqual(set(json.loads(made.stdout)), {"id", "key", "tenant"})
                self.assertTrue(made.stderr.endswith("no budget or rate limit of its own: acm\n"), made.stderr)
                gateway.signal(signal.SIGHUP)
                self.assertTrue(gateway.wait_for_event("config_warning")["detail"].endswith(": acm"))
                gateway.signal(signal.SIGKILL)
                gateway.wait()
            with GatewayProcess(folder=folder) as gateway:
                self.assertTrue(gateway.wait_for_event("config_warning")["detail"].endswith(": acm"))

    @unittest.skipUnless(hasattr(os, "sched_getaffinity"), "this system does not say where a process may run")
    def test_a_process_may_be_kept_on_one_cpu(self) -> None:
        """With all its threads."""
        with GatewayProcess(QUICK.replace("[server]", '[server]\ncpu = "one"') + CONFIG) as gateway:
            gateway.chat(gateway.create_key()["key"])
            threads = [int(task.name) for task in Path(f"/proc/{gateway.child.pid}/task").iterdir()]
            self.assertEqual(
                {max(os.sched_getaffinity(0))}, {cpu for at in threads for cpu in os.sched_getaffinity(at)}
            )

    def test_the_log_tells_how_deployments_stand(self) -> None:
        """When a breaker opens, and when an operator has to look at one, with the upstream's status."""
        sick = QUICK + CONFIG.replace('script = [{ text = "hello there friend" }]', "script = [{ status = 500 }]")
        with GatewayProcess(sick.replace("threshold = 1000", "threshold = 1")) as gateway:
            gateway.chat(gateway.create_key()["key"], model="mini")
            told = gateway.wait_for_event("deployment_state")
            self.assertEqual((told["deployment"], told["state"]), ("mini", "open"))
        with GatewayProcess(sick.replace("status = 500", "status = 401")) as gateway:
            gateway.chat(gateway.create_key()["key"], model="mini")
            told = gateway.wait_for_event("deployment_alarm")
            self.assertEqual((told["deployment"], told["why"], told["status"]), ("mini", "refused", 401))
        with GatewayProcess(sick.replace("status = 500", "status = 404")) as gateway:
            gateway.chat(gateway.create_key()["key"], model="mini")
            told = gateway.wait_for_event("call_failed")
            self.assertEqual((told["deployment"], told["outcome"], told["status"]), ("mini", "client", 404))
            self.assertIsNone(told["failure"])

    def test_the_log_says_what_failed(self) -> None:
        """Each kind once a minute: nobody listens, an end without a byte, TLS to one who speaks it not."""
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            refuses = f"http://127.0.0.1:{nobody.getsockname()[1]}"
            silent, plain = ScriptedUpstream(*[_hang_up] * 2), ScriptedUpstream(*[_speak_plainly] * 2)
            self.addCleanup(silent.close)
            self.addCleanup(plain.close)
            urls = {"refuses": refuses, "silent": silent.url(), "plain": plain.url().replace("http", "https")}
            deployments = "".join(_LIVE.format(name=name, url=url) for name, url in urls.items())
            with GatewayProcess(QUICK + "[retry]\nmax_retries = 0\n" + deployments) as gateway:
                key = gateway.create_key()["key"]
                for model in [*urls] * 2:
                    self.assertEqual(gateway.chat(key, model=model)[0], 503)
                told = [gateway.wait_for_event("call_failed", nth) for nth in (1, 2, 3)]
                gateway.signal(signal.SIGHUP)
                gateway.wait_for_event("reloaded")
                self.assertEqual(sum('"call_failed"' in line for line in gateway.errors), 3)
        failures = {line["deployment"]: line["failure"] for line in told}
        self.assertEqual((failures["refuses"], failures["silent"]), ("ConnectionRefusedError", "NoAnswerError"))
        self.assertRegex(failures["plain"], "^SSL[A-Za-z]*Error [A-Z_]+$")

    def test_the_log_has_an_alarm_of_a_deployment_that_bills_more_than_was_held(self) -> None:
        """With what was held and what was booked; once a minute, whatever the amounts."""
        usage = "usage = { prompt_tokens = 5, completion_tokens = 300000 }"
        overbills = CONFIG.replace('"hello there friend"', f'"hello", {usage}')
        with GatewayProcess(QUICK + overbills) as gateway:
            key = gateway.create_key()["key"]
            for cap in (10, 20):
                self.assertEqual(gateway.chat(key, max_tokens=cap)[0], 200)
            told = gateway.wait_for_event("deployment_alarm")
            self.assertEqual(
                (told["deployment"], told["why"], told["cost_nanousd"]), ("mini", "overage", 1_200_005_000)
            )
            self.assertTrue(0 < told["held_nanousd"] < 1_000_000, told)
            gateway.signal(signal.SIGHUP)
            gateway.wait_for_event("reloaded")
            self.assertEqual(sum('"deployment_alarm"' in line for line in gateway.errors), 1)

    def test_an_alarm_that_nothing_pauses_for_is_told_once_a_minute(self) -> None:
        """A firewall that dislikes prompts must not fill the log: other lines would be dropped for it."""
        forbids = CONFIG.replace('script = [{ text = "hello there friend" }]', "script = [{ status = 403 }]")
        with GatewayProcess(QUICK + forbids) as gateway:
            key = gateway.create_key()["key"]
            for _ in range(3):
                self.assertEqual(gateway.chat(key, model="mini")[0], 502)
            gateway.signal(signal.SIGHUP)
            gateway.wait_for_event("reloaded")
            alarms = [line for line in gateway.errors if '"event": "deployment_alarm"' in line]
            self.assertEqual(len(alarms), 1)

    def test_a_reload_turns_the_cache_off_and_on_again(self) -> None:
        """What it knew is still there."""
        with GatewayProcess(QUICK + CONFIG) as gateway:
            made = gateway.create_key()
            said = []
            for nth, config in enumerate(("", "[cache]\nexact_ttl_s = 0\n", ""), 1):
                (gateway.folder / "gateway.toml").write_text(config + QUICK + CONFIG)
                gateway.signal(signal.SIGHUP)
                gateway.wait_for_event("reloaded", nth)
                said += [gateway.chat(made["key"], temperature=0)[1]["x-gateway-cache"] for _ in range(2)]
            self.assertEqual(said, ["miss", "hit", "bypass", "bypass", "hit", "hit"])

    def test_a_reload_turns_the_semantic_cache_off_and_on_again(self) -> None:
        """For all, and into the mode that only looks on; what it would have served is in the log."""
        steps = (
            ("semantic = true", {"Where is the Louvre?": "miss", "where is the louvre": "semantic"}),
            ("semantic = false", {"where is the Louvre": "miss", "Where is the Louvre": "miss"}),
            ("semantic = true\nsemantic_mode = 'shadow'", {"WHERE IS THE LOUVRE": "miss"}),
        )
        with GatewayProcess(f"[cache]\n{steps[0][0]}\n{QUICK}{CONFIG}") as gateway:
            key = gateway.create_key()["key"]
            for nth, (mode, asked) in enumerate(steps, 1):
                (gateway.folder / "gateway.toml").write_text(f"[cache]\n{mode}\n{QUICK}{CONFIG}")
                gateway.signal(signal.SIGHUP)
                gateway.wait_for_event("reloaded", nth)
                for text, expected in asked.items():
                    _, headers, _ = gateway.chat(key, temperature=0, messages=[{"role": "user", "content": text}])
                    self.assertEqual(headers["x-gateway-cache"], expected, text)
            self.assertEqual(set(gateway.wait_for_event("semantic_shadow")), _SHADOW)
            self.assertEqual(gateway.cli("cache", "stats")["semantic"]["lookups"]["shadowed"], 1)
            (hit,) = gateway.cli("cache", "shadow", "--tenant", "acme")
            self.assertEqual((hit["asked"], hit["stored"]), ("WHERE IS THE LOUVRE", "Where is the Louvre?"))
            told = "".join(gateway.errors) + gateway.call("GET", "/metrics")[2].decode()
            self.assertNotIn("louvre", told.lower())

    def test_a_semantic_cache_that_was_not_opened_stays_closed(self) -> None:
        """Until the next start, and somebody is told."""
        with GatewayProcess(QUICK + CONFIG) as gateway:
            (gateway.folder / "gateway.toml").write_text("[cache]\nsemantic = true\n" + QUICK + CONFIG)
            gateway.signal(signal.SIGHUP)
            self.assertIn("only opened at the start", gateway.wait_for_event("config_warning")["detail"])
            gateway.wait_for_event("reloaded")
            key = gateway.create_key()["key"]
            self.assertEqual(gateway.chat(key, temperature=0)[1]["x-gateway-cache"], "miss")

    def test_a_judge_is_asked_by_the_process_that_serves(self) -> None:
        """With a key that was made before the start; what it says is served, told apart, and gone with a reload."""
        folder = self.enterContext(tempfile.TemporaryDirectory())
        made = call_cli("keys", "create", "--tenant", "operator", "--data-dir", f"{folder}/gateway-data", "--json")
        judged = QUICK + CONFIG + JUDGE.replace("DIFFERENT", "SAME")
        cache = '[cache]\nsemantic = true\njudge_key_env = "JUDGE_KEY"\njudge = "wise"\n'
        env = {"JUDGE_KEY": json.loads(made.stdout)["key"]}
        near: dict[str, Any] = {"temperature": 0, "messages": [{"role": "user", "content": NEAR}]}
        with GatewayProcess(cache + judged, folder=Path(folder), env=env) as gateway:
            key = gateway.create_key()["key"]
            gateway.chat(key, temperature=0, messages=[{"role": "user", "content": ASKED}])
            gateway.chat(key, **near, cache={"ttl": 0.2})
            asked = (gateway.chat(key, **near, cache={"no-store": True})[1] for _ in range(2000))
            self.assertIn("semantic", (headers["x-gateway-cache"] for headers in asked))
            self.assertEqual(gateway.cli("ledger", "rows")[-1]["cache"], "judged")
            self.assertEqual(gateway.cli("cache", "stats")["judge"]["verdicts"]["same"], 1)
            self.assertIn(b'gateway_judge_verdicts_total{verdict="same"} 1', gateway.call("GET", "/metrics")[2])
            (gateway.folder / "gateway.toml").write_text("[cache]\nsemantic = true\n" + judged)
            gateway.signal(signal.SIGHUP)
            gateway.wait_for_event("reloaded")
            self.assertEqual(gateway.chat(key, **near, cache={"no-store": True})[1]["x-gateway-cache"], "miss")

    def test_a_judge_that_was_not_there_at_the_start_is_told_of(self) -> None:
        """Nobody judges until the next start."""
        cache = '[cache]\nsemantic = true\njudge_key_env = "JUDGE_KEY"\njudge = "wise"\n'
        with GatewayProcess("[cache]\nsemantic = true\n" + QUICK + CONFIG + JUDGE, env={"JUDGE_KEY": "k"}) as gateway:
            (gateway.folder / "gateway.toml").write_text(cache + QUICK + CONFIG + JUDGE)
            gateway.signal(signal.SIGHUP)
            self.assertIn("judging is only opened at the start", gateway.wait_for_event("config_warning")["detail"])

    def test_a_reload_admits_no_second_burst(self) -> None:
        """A bucket whose numbers did not change goes on as it was."""
        limited = QUICK + CONFIG + '\n[[tenants]]\nname = "acme"\nrate_per_s = 0.001\nburst = 2\n'
        with GatewayProcess(limited) as gateway:
            made = gateway.create_key()
            self.assertEqual([gateway.chat(made["key"])[0] for _ in range(3)], [200, 200, 429])
            gateway.signal(signal.SIGHUP)
            gateway.wait_for_event("reloaded")
            self.assertEqual(gateway.chat(made["key"])[0], 429)

    def test_a_price_that_is_not_in_force_yet_is_told_of(self) -> None:
        """At the start: its deployment gets no call."""
        with GatewayProcess(QUICK + CONFIG + UNPRICED) as gateway:
            self.assertIn("later has no price before", gateway.wait_for_event("config_warning")["detail"])
            self.assertEqual(gateway.chat(gateway.create_key()["key"], model="later")[0], 503)

    def test_a_restart_admits_no_second_burst(self) -> None:
        """After a drain, after a crash: the rows say what was admitted. A request that was refused does not count."""
        limited = QUICK + CONFIG + '\n[[tenants]]\nname = "acme"\nrate_per_s = 0.001\nburst = 3\n'
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        with GatewayProcess(limited, folder=folder) as gateway:
            key, poor = gateway.create_key()["key"], gateway.create_key(budget_usd="0")["key"]
            self.assertEqual([gateway.chat(key)[0], gateway.chat(poor)[0]], [200, 402])
            gateway.signal(signal.SIGTERM)
            self.assertEqual(gateway.wait(), 0)
        with GatewayProcess(folder=folder) as gateway:
            self.assertEqual(gateway.chat(key)[0], 200)
        with GatewayProcess(folder=folder) as gateway:
            self.assertEqual([gateway.chat(key)[0] for _ in range(2)], [200, 429])


_SHADOW = {"at_ms", "event", "request", "entry", "question", "judged"}


_LIVE = """
[[providers]]
name = "{name}"
base_url = "{url}"

[[deployments]]
name = "{name}"
provider = "{name}"
model = "{name}"
price = "free"
"""
"""A deployment at an address."""


def _hang_up(peer: Peer) -> None:
    """Read the request, and close."""
    peer.request()


def _speak_plainly(peer: Peer) -> None:
    """Answer what was to be the beginning of TLS."""
    peer.sock.recv(65_536)
    peer.send(scripted_upstream.answer())


def _reload_from_a_pipe(gateway: GatewayProcess) -> Path:
    """Let it reload a configuration that it cannot read before somebody writes into it; where that is."""
    config = gateway.folder / "gateway.toml"
    config.unlink()
    os.mkfifo(config)
    gateway.signal(signal.SIGHUP)
    return config


def _open_once_read(pipe: Path) -> int:
    """The writing end of a pipe that somebody is about to read."""
    pause = threading.Event()
    for _ in range(WAIT_S * 50):
        try:
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
        pause.wait(0.02)
    raise AssertionError("nobody reads the pipe")


def _run_unread(*arguments: str) -> tuple[int, bytes]:
    """The command line with nobody at the other end of its output: exit status and complaints."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as output:
        done = subprocess.run(
            [sys.executable, "-W", "error", "-m", "gateway", *arguments],
            env=environment({"PYTHONUNBUFFERED": ""}),
            stdout=output,
            stderr=subprocess.PIPE,
            timeout=WAIT_S,
            check=False,
        )
    return done.returncode, done.stderr


def _send(gateway: GatewayProcess, key: str) -> socket.socket:
    """One chat request whose answer is read later."""
    body = json.dumps({"model": "mini", "messages": [{"role": "user", "content": "hi"}]})
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\nContent-Length: {len(body)}"
    )
    connection = socket.create_connection(gateway.address, WAIT_S)
    connection.sendall(f"{head}\r\n\r\n{body}".encode())
    return connection


def _send_and_forget(gateway: GatewayProcess, key: str) -> None:
    """One chat request nobody reads the answer of; the connection stays open until the process of the gateway dies."""
    connection = _send(gateway, key)
    unittest.addModuleCleanup(connection.close)


def _read_all(connection: socket.socket) -> bytes:
    received = b""
    with connection:
        while piece := connection.recv(65_536):
            received += piece
    return received


def _wait_for_holds(gateway: GatewayProcess, count: int) -> None:
    """Until that many requests have reached the upstream."""
    pause = threading.Event()
    for _ in range(WAIT_S * 50):
        if len(gateway.command("ledger.holds")) == count:
            return
        pause.wait(0.02)
    raise AssertionError("the requests did not arrive")
