"""GET /metrics: what it says after requests of every kind, to whom, and that it waits for nobody."""

import contextlib
import http.client
import signal
import socket
import sqlite3
import threading
import unittest
from collections import Counter

from gateway.keys import hash_key
from gateway.places import PlaceLimits
from gateway.rows import Exit
from gateway.server import FrontLimits
from tests.support.front import (
    CONTROL_SECRET,
    PROVIDER_KEY,
    USAGE_WANTED,
    Client,
    Front,
    FrontCase,
    LiveFront,
    either,
    words,
)
from tests.support.process import GatewayProcess
from tests.support.scrapes import Page
from tests.support.world import CONFIG

METRICS = "/metrics"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

EVERY_EXIT = """
[retry]
max_retries = 1
base_s = 0.001
[breaker]
threshold = 1000
"""
SCRIPTS = {
    "steady": '[{ text = "one two three" }]',
    "limping": '[{ status = 500 }, { text = "again" }]',
    "broken": "[{ status = 500 }]",
    "slow": '[{ text = "never", latency_s = 600 }]',
    "strong": '[{ text = "a better one" }]',
}
for _name, _script in SCRIPTS.items():
    EVERY_EXIT += f"""
[[providers]]
name = "{_name}"
dialect = "fake"
script = {_script}
[[deployments]]
name = "{_name}"
provider = "{_name}"
model = "gw-{_name}"
tier = "{"strong" if _name == "strong" else "cheap"}"
price = {{ input = 1, cached_input = 0.1, output = 4 }}
"""
EVERY_EXIT += """
[[aliases]]
name = "over"
deployments = ["broken", "steady"]
[[aliases]]
name = "climb"
deployments = ["broken", "strong"]
escalate = true
"""


def scrape(front: Front) -> Page:
    """The page as anybody gets it."""
    reply = front.ask("GET", METRICS, key=None)
    if (reply.status, reply.get("content-type")) != (200, CONTENT_TYPE):
        raise AssertionError(f"{reply.status} {reply.headers}")
    return Page(reply.body)


def watch(client: Client) -> Page:
    """The page once more on a connection that stays: what was on it before is over by then."""
    client.request("GET", METRICS)
    return Page(client.reply().body)


class TrafficTest(FrontCase):
    """Requests, and the page after them."""

    def test_the_page_says_what_the_rows_say(self) -> None:
        """One request of every exit, and a stream: counts, calls, tokens and money are those of the rows."""
        front = self.front(EVERY_EXIT)
        before = scrape(front)
        self.assertEqual(before.total("gateway_requests_total"), 0)
        for model in ("steady", "limping", "over", "climb", "broken", "nobody"):
            front.chat(model=model)
        front.chat(model="steady", temperature=0, text="again")
        front.chat(model="steady", temperature=0, text="again")
        front.chat(model="steady", **USAGE_WANTED)
        client = self.client(front)
        client.chat(model="slow")
        client.close()
        front.wait_ended(11)
        rows = front.world.rows()
        page = scrape(front)
        self.assertEqual({row["exit"] for row in rows}, {str(exit_) for exit_ in Exit})
        counted = {
            (labels["exit"], labels["status"], labels["code"]): value
            for labels, value in page.series("gateway_requests_total")
        }
        self.assertEqual(counted, Counter((row["exit"], str(row["status"]), row["code"] or "") for row in rows))
        self.assertEqual(page.total("gateway_request_seconds_count"), len(rows))
        self.assertEqual(page.total("gateway_upstream_calls_total"), sum(row["attempts"] for row in rows))
        self.assertEqual(page.value("gateway_upstream_calls_total", deployment="broken", outcome="server"), 6)
        self.assertEqual(page.value("gateway_upstream_calls_total", deployment="slow", outcome="client_gone"), 1)
        self.assertEqual(page.value("gateway_overhead_seconds_count"), sum(row["attempts"] > 0 for row in rows))
        self.assertEqual(page.value("gateway_ttft_seconds_count"), 1)
        tokens = sum(row["prompt_tokens"] + row["completion_tokens"] for row in rows)
        self.assertEqual(page.total("gateway_tokens_total"), tokens)
        self.assertEqual(page.value("gateway_cost_nanousd_total"), sum(row["cost_nanousd"] for row in rows))
        self.assertEqual(page.value("gateway_cache_lookups_total", result="hit"), 1)
        self.assertEqual(page.value("gateway_held_nanousd"), 0)

    def test_a_call_that_broke_did_not_go_well(self) -> None:
        """Its stream had begun: the request failed with status 200, and the call is told by how it broke."""
        front = self.front(CONFIG.replace("friend", "friend of mine").replace('mine" }', 'mine", cut_after = 2 }'))
        client = self.client(front)
        client.chat(stream=True)
        client.cut_reply()
        front.wait_ended(1)
        page = scrape(front)
        self.assertEqual(
            list(page.series("gateway_requests_total")),
            [({"exit": "failed", "status": "200", "code": "stream_truncated"}, 1)],
        )
        ((labels, count),) = page.series("gateway_upstream_calls_total")
        self.assertEqual((labels["deployment"], count), ("mini", 1))
        self.assertNotEqual(labels["outcome"], "ok")

    def test_a_request_without_a_row_is_a_refusal(self) -> None:
        """Each once, by its code; one that has a row is none."""
        front = self.front()
        front.chat(key=None)
        front.ask("GET", "/v1/models", key="sk-gw-nobody")
        front.ask("GET", "/v1/models/nothing")
        front.ask("GET", "/v1/nothing")
        front.ask("GET", "/nothing")
        front.ask("DELETE", "/v1/models")
        front.chat(model="nothing")
        front.chat()
        page = scrape(front)
        self.assertEqual(
            {labels["code"]: value for labels, value in page.series("gateway_refusals_total")},
            {"invalid_api_key": 2, "model_not_found": 1, "unknown_url": 2, "method_not_allowed": 1},
        )
        self.assertEqual(page.total("gateway_requests_total"), 2)

    def test_the_page_can_be_asked_for_in_two_ways(self) -> None:
        """GET and HEAD, without a key; the head is that of the page."""
        front = self.front()
        head = front.ask("HEAD", METRICS, key=None)
        self.assertEqual((head.status, head.get("content-type"), head.body), (200, CONTENT_TYPE, b""))
        self.assertGreater(int(head.get("content-length") or 0), 1000)
        refused = front.ask("POST", METRICS, {}, key=None)
        self.assert_error(refused, 405, "method_not_allowed")
        self.assertEqual(refused.get("allow"), "GET, HEAD")

    def test_the_page_waits_for_no_place(self) -> None:
        """The last place is taken: a request is refused, the page is there, also while the process drains."""
        front = self.front(EVERY_EXIT, limits=FrontLimits(places=PlaceLimits(places=1, queue=0)))
        client = self.client(front)
        client.chat(model="slow")
        while not front.money()[1]:
            continue  # a page would take the one place meanwhile
        watcher = self.client(front)
        page = watch(watcher)
        self.assertEqual((page.value("gateway_in_flight"), page.value("gateway_connections")), (2, 2))
        self.assert_error(front.chat(model="steady"), 503, "overloaded")
        self.assertGreater(watch(watcher).value("gateway_held_nanousd") or 0, 0)
        front.server.stop_admitting()
        self.assertGreaterEqual(scrape(front).value("gateway_in_flight") or 0, 2)
        client.close()
        front.wait_ended(1)

    def test_nothing_of_a_client_or_a_tenant_is_in_it(self) -> None:
        """No key, no prompt, no answer, no name that a client or an operator gave to anybody, no address."""
        config = '[[tenants]]\nname = "tenantcanary"\nrate_per_s = 100\nburst = 100\n'
        upstream = self.upstream(either(None, *words("ANSWERCANARY")))
        front = LiveFront(upstream, more=config)
        self.addCleanup(front.stop)
        key = front.world.key(tenant="tenantcanary")
        front.chat([("x-gateway-tags", "tagcanary")], key=key, text="PROMPTCANARY")
        front.chat(key=key, model="MODELCANARY", text="PROMPTCANARY")
        front.chat(key="sk-KEYCANARY")
        page = scrape(front)
        self.assertEqual((page.total("gateway_requests_total"), page.total("gateway_refusals_total")), (2, 1))
        text = page.text.lower()
        secrets = [front.key, key, hash_key(key), PROVIDER_KEY, CONTROL_SECRET, upstream.url, "127.0.0.1"]
        for secret in ("canary", "tenant", "acme", *secrets, *(key.split("-")[2] for key in (key, front.key))):
            self.assertNotIn(secret.lower(), text)


class ProcessTest(unittest.TestCase):
    """The page of a process, wired as people run it."""

    def page(self, gateway: GatewayProcess) -> Page:
        status, headers, body = gateway.call("GET", METRICS)
        self.assertEqual((status, headers["content-type"]), (200, CONTENT_TYPE))
        return Page(body)

    def test_a_reload_keeps_the_counts(self) -> None:
        """Refusals of the front among them; a deployment that is new begins beside those that were there."""
        with GatewayProcess(CONFIG) as gateway:
            key = gateway.create_key()["key"]
            gateway.chat(key, model="mini")
            with socket.create_connection(gateway.address) as connection:
                connection.sendall(b"GARBAGE\r\n\r\n")
                while connection.recv(4096):
                    continue
            self.check(self.page(gateway), "mini")
            (gateway.folder / "gateway.toml").write_text(CONFIG.replace('"mini"', '"maxi"'))
            gateway.signal(signal.SIGHUP)
            gateway.wait_for_event("reloaded")
            self.check(self.page(gateway), "maxi")

    def again(self, connection: http.client.HTTPConnection) -> Page:
        """The page on a connection that stays."""
        connection.request("GET", METRICS)
        return Page(connection.getresponse().read())

    def check(self, page: Page, deployment: str) -> None:
        self.assertEqual(page.value("gateway_requests_total", exit="routed", status="200", code=""), 1)
        self.assertEqual(page.value("gateway_upstream_calls_total", deployment="mini", outcome="ok"), 1)
        self.assertEqual(page.value("gateway_refusals_total", code="invalid_request"), 1)
        self.assertEqual(page.value("gateway_errors_total"), 0)
        self.assertEqual({labels["deployment"] for labels, _ in page.series("gateway_deployment_state")}, {deployment})

    def test_a_ledger_that_another_process_has_locked_is_not_waited_for(self) -> None:
        """A request waits for the lock meanwhile; the page says so, money included."""
        with GatewayProcess(CONFIG) as gateway:
            key = gateway.create_key()["key"]
            with contextlib.closing(sqlite3.connect(gateway.data_dir / "ledger.db", isolation_level=None)) as other:
                other.execute("BEGIN EXCLUSIVE")
                answers: list[int] = []
                asking = threading.Thread(target=lambda: answers.append(gateway.chat(key, model="mini")[0]))
                asking.start()
                watching = http.client.HTTPConnection(*gateway.address)
                with contextlib.closing(watching):
                    while (page := self.again(watching)).value("gateway_in_flight") != 2:
                        self.assertTrue(asking.is_alive())
                    self.assertEqual(page.value("gateway_unresolved_nanousd"), 0)
                    self.assertGreater(page.value("gateway_wal_bytes") or 0, 0)
                    self.assertEqual(answers, [])
                other.execute("ROLLBACK")
                asking.join()
            self.assertEqual(len(answers), 1)


if __name__ == "__main__":
    unittest.main()
