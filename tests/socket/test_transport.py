"""The transport over real loopback sockets: what an upstream can do, every clock, every cancellation."""

import errno
import socket
import ssl
import struct
import threading
import time
import unittest
from collections.abc import Callable, Sequence
from contextlib import closing
from unittest.mock import patch

from llmkit.errors import ProviderError
from llmkit.resolver import Address, Lookup, system_lookup
from llmkit.transport import Exchange, Pool, Timeouts
from llmkit.types import Cancel
from tests.support.certificate import self_signed
from tests.support.scripted_upstream import Peer, PipeCancel, Script, ScriptedUpstream, answer, chunk, stream_head

PATIENCE_S = 30  # only a failing test waits so long
SOON_S = 0.05  # a clock that a test waits for; all others are patient
LATER_S = 0.3  # the same, where something has to happen before it fires
LARGE = b"x" * 30_000_000  # more than the kernel takes for a socket that nobody reads


class Gone(Exception):
    """A caller's own reason to stop."""


class StillClock:
    """Seconds that pass when told to."""

    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class TransportTest(unittest.TestCase):
    """What the tests below share."""

    def upstream(self, *scripts: Script, tls: ssl.SSLContext | None = None) -> ScriptedUpstream:
        """A server that runs the scripts until the test ends."""
        upstream = ScriptedUpstream(*scripts, tls=tls)
        self.addCleanup(upstream.close)
        return upstream

    def pool(
        self,
        target: ScriptedUpstream | str,
        timeouts: Timeouts | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        max_idle: int = 64,
        lookup: Lookup = system_lookup,
        ssl_context: ssl.SSLContext | None = None,
    ) -> Pool:
        """A pool that is closed when the test ends."""
        pool = Pool(
            target if isinstance(target, str) else target.url(),
            timeouts=timeouts or Timeouts(),
            clock=clock,
            max_idle=max_idle,
            lookup=lookup,
            ssl_context=ssl_context,
        )
        self.addCleanup(pool.close)
        return pool

    def cancel(self) -> PipeCancel:
        """A cancellation that is closed when the test ends."""
        cancel = PipeCancel()
        self.addCleanup(cancel.close)
        return cancel

    def fault(self, pool: Pool, body: bytes = b"{}") -> ProviderError:
        """The error of a call that fails."""
        with self.assertRaises(ProviderError) as caught:
            call(pool, body)
        return caught.exception


def post(pool: Pool, body: bytes = b"{}", cancel: Cancel | None = None, deadline_s: float | None = None) -> Exchange:
    """A call up to the head of its answer."""
    head = pool.head("POST", "/chat", [("authorization", "Bearer k")])
    return pool.request(head, body, cancel=cancel, deadline_s=deadline_s)


def call(pool: Pool, body: bytes = b"{}", cancel: Cancel | None = None, deadline_s: float | None = None) -> bytes:
    """A whole call."""
    with closing(post(pool, body, cancel, deadline_s)) as exchange:
        return drain(exchange)


def drain(exchange: Exchange) -> bytes:
    """The rest of a body."""
    return b"".join(iter(exchange.read, None))


def facts(error: BaseException | None) -> tuple[str, bool, bool, str | None]:
    """What decides about retry, failover and money: kind, sent, first byte seen, and the clock that fired."""
    assert isinstance(error, ProviderError), error
    return str(error.kind), error.sent, error.first_byte_seen, error.clock


def replies(*answers: bytes) -> Script:
    """One answer per request; then wait for the client to close."""

    def script(peer: Peer) -> None:
        for data in answers:
            peer.request()
            peer.send(data)
        if peer.sock.recv(1):
            raise AssertionError("one request more than expected")

    return script


def then_hang_up(*answers: bytes) -> Script:
    """One answer per request; then read one more and close without a word."""

    def script(peer: Peer) -> None:
        for data in answers:
            peer.request()
            peer.send(data)
        peer.request()

    return script


def sends_and_stalls(*pieces: bytes) -> Script:
    """Send pieces, then nothing, until the client closes."""

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(*pieces)
        if not peer.closed_within(10):
            raise AssertionError("the client never closed")

    return script


def sends_and_ends(*pieces: bytes) -> Script:
    """Send pieces and close."""

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(*pieces)

    return script


def sends_and_resets(*pieces: bytes) -> Script:
    """Send pieces and reset the connection."""

    def script(peer: Peer) -> None:
        peer.request()
        peer.send(*pieces)
        peer.reset()

    return script


class ExchangeTest(TransportTest):
    """Requests and answers when nothing goes wrong."""

    def test_a_request_is_written_as_it_must_be(self) -> None:
        """Target, Host, identity encoding, length, the caller's headers, the body: nothing else."""
        seen = []

        def script(peer: Peer) -> None:
            seen.append(peer.request())
            peer.send(answer())

        upstream = self.upstream(script)
        call(self.pool(upstream.url("/v1/")), b'{"a":1}')
        (request,) = seen
        self.assertEqual((request.line, request.body), ("POST /v1/chat HTTP/1.1", b'{"a":1}'))
        expected = {
            "host": f"127.0.0.1:{upstream.port}",
            "accept-encoding": "identity",
            "authorization": "Bearer k",
            "content-length": "7",
        }
        self.assertEqual(request.headers, list(expected.items()))

    def test_an_ipv6_upstream_is_called(self) -> None:
        """With its address in brackets in the Host header."""
        seen = []

        def script(peer: Peer) -> None:
            seen.append(peer.request().get("host"))
            peer.send(answer())

        try:
            upstream = ScriptedUpstream(script, host="::1")
        except OSError:
            self.skipTest("no IPv6 loopback")
        self.addCleanup(upstream.close)
        call(self.pool(f"http://[::1]:{upstream.port}"))
        self.assertEqual(seen, [f"[::1]:{upstream.port}"])

    def test_a_small_request_leaves_in_one_packet(self) -> None:
        """Head and body together, so that the upstream wakes up once."""
        packets: list[int] = []

        def script(peer: Peer) -> None:
            peer.request()
            facts = peer.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
            packets.extend(struct.unpack_from("I", facts.ljust(256, b"\0"), 152))  # tcpi_data_segs_in
            peer.send(answer())

        call(self.pool(self.upstream(script)), b'{"a":1}')
        if packets == [0]:
            self.skipTest("this kernel does not count packets")
        self.assertEqual(packets, [1])

    def test_a_large_request_and_a_large_answer_pass_whole(self) -> None:
        """Writes and reads that block are taken up where they stopped."""

        def script(peer: Peer) -> None:
            peer.send(answer(peer.request().body))

        self.assertEqual(call(self.pool(self.upstream(script)), LARGE), LARGE)

    def test_an_answer_in_single_bytes_is_whole(self) -> None:
        """However small its pieces are."""
        data = stream_head() + chunk(b"hello") + chunk(b" world") + chunk(b"")
        script = sends_and_stalls(*(data[at : at + 1] for at in range(len(data))))
        self.assertEqual(call(self.pool(self.upstream(script))), b"hello world")

    def test_a_chunk_is_read_before_the_next_is_sent(self) -> None:
        """Nothing waits for a buffer to fill."""
        read_first = threading.Event()

        def script(peer: Peer) -> None:
            peer.request()
            peer.send(stream_head(), chunk(b"first"))
            if not read_first.wait(10):
                raise AssertionError("the first chunk was not read")
            peer.send(chunk(b"second"), chunk(b""))

        with closing(post(self.pool(self.upstream(script)))) as exchange:
            self.assertEqual(exchange.read(), b"first")
            read_first.set()
            self.assertEqual(drain(exchange), b"second")

    def test_an_answer_that_ends_with_the_connection_is_whole(self) -> None:
        """Its connection is not pooled."""
        pool = self.pool(self.upstream(sends_and_ends(b"HTTP/1.1 200 OK\r\n\r\nto the end")))
        self.assertEqual(call(pool), b"to the end")
        self.assertEqual(pool.idle, 0)

    def test_an_error_status_is_an_answer_here(self) -> None:
        """What it means is decided elsewhere; its connection is used again."""
        pool = self.pool(self.upstream(replies(answer(b"no", status="429 Too Many"), answer(b"yes"))))
        with closing(post(pool)) as exchange:
            self.assertEqual((exchange.head.status, drain(exchange)), (429, b"no"))
        self.assertEqual(call(pool), b"yes")

    def test_an_early_answer_to_a_body_that_is_not_taken_is_read(self) -> None:
        """413 before the upload is over: the answer counts, the connection is not used again."""
        answer_was_read = threading.Event()

        def script(peer: Peer) -> None:
            peer.sock.recv(1000)
            peer.send(answer(b"too large", status="413 Content Too Large"))
            if not answer_was_read.wait(5):
                raise AssertionError("the answer was not read")

        pool = self.pool(self.upstream(script))
        with closing(post(pool, LARGE)) as exchange:
            self.assertEqual((exchange.head.status, drain(exchange)), (413, b"too large"))
        answer_was_read.set()
        self.assertEqual(pool.idle, 0)

    def test_an_interim_answer_does_not_stop_a_request(self) -> None:
        """100 before the upload is over: the rest of it is still sent."""

        def script(peer: Peer) -> None:
            peer.send(b"HTTP/1.1 100 Continue\r\n\r\n")
            peer.send(answer(b"%d" % len(peer.request().body)))
            peer.closed_within(10)

        pool = self.pool(self.upstream(script))
        self.assertEqual(call(pool, LARGE), b"%d" % len(LARGE))
        self.assertEqual(pool.idle, 1)

    def test_a_closed_exchange_cannot_be_read(self) -> None:
        """Its connection may already carry another call; closing twice pools it once."""
        pool = self.pool(self.upstream(replies(answer(), answer(b"2"))))
        exchange = post(pool)
        exchange.close()
        exchange.close()
        self.assertEqual(pool.idle, 1)
        with self.assertRaises(ValueError):
            exchange.read()
        self.assertEqual(call(pool), b"2")


class PoolTest(TransportTest):
    """Which connections are used again."""

    def test_a_connection_carries_one_call_after_another(self) -> None:
        """By length and chunked, also when its reader stopped before the very end, which had arrived."""
        upstream = self.upstream(replies(answer(b"1"), stream_head() + chunk(b"2") + chunk(b""), answer(b"3")))
        pool = self.pool(upstream)
        self.assertEqual(call(pool), b"1")
        exchange = post(pool)
        self.assertEqual(exchange.read(), b"2")
        exchange.close()
        self.assertEqual(call(pool), b"3")
        self.assertEqual(upstream.connections, 1)

    def test_an_end_that_arrives_before_the_close_is_taken(self) -> None:
        """A reader that stopped at the last event does not cost a connection."""
        seen, ended = threading.Event(), threading.Event()

        def script(peer: Peer) -> None:
            peer.request()
            peer.send(stream_head(), chunk(b"1"))
            seen.wait(10)
            peer.send(chunk(b""))
            ended.set()
            peer.closed_within(10)

        pool = self.pool(self.upstream(script))
        exchange = post(pool)
        self.assertEqual(exchange.read(), b"1")
        seen.set()
        ended.wait(10)
        exchange.close()
        self.assertEqual(pool.idle, 1)

    def test_an_end_that_is_known_to_come_is_awaited(self) -> None:
        """Some servers send it apart from the last event; one that does not come costs its connection, no more."""
        seen = threading.Event()

        def script(peer: Peer) -> None:
            peer.request()
            peer.send(stream_head(), chunk(b"1"))
            if not seen.wait(10):
                raise AssertionError("nobody waited for the end")
            peer.send(chunk(b""))
            peer.closed_within(10)

        pool = self.pool(self.upstream(script, sends_and_stalls(stream_head(), chunk(b"1"))))
        exchange, stalled = post(pool), post(pool)
        self.assertEqual((exchange.read(), stalled.read()), (b"1", b"1"))
        with patch("llmkit.transport.END_S", 10.0):
            threading.Timer(0.05, seen.set).start()
            exchange.close(awaiting_end=True)
        self.assertEqual(pool.idle, 1)
        stalled.close(awaiting_end=True)
        self.assertEqual(pool.idle, 1)

    def test_an_unfinished_answer_closes_its_connection(self) -> None:
        """Whoever stops reading in the middle stops the upstream."""
        pool = self.pool(self.upstream(sends_and_stalls(stream_head(), chunk(b"one"))))
        exchange = post(pool)
        self.assertEqual(exchange.read(), b"one")
        exchange.close()
        self.assertEqual(pool.idle, 0)

    def test_a_server_that_ends_a_connection_is_believed(self) -> None:
        """`Connection: close`, and bytes behind the end of an answer."""
        for data in (answer(headers="connection: close"), answer() + b"HTTP/1.1 200 OK\r\n\r\n"):
            with self.subTest(data):
                pool = self.pool(self.upstream(replies(data)))
                call(pool)
                self.assertEqual(pool.idle, 0)

    def test_a_connection_idles_four_seconds_at_most(self) -> None:
        """At 4 s it is used again; after that it is closed."""
        upstream = self.upstream(replies(answer(b"1"), answer(b"2")), replies(answer(b"3")))
        clock = StillClock()
        pool = self.pool(upstream, clock=clock)
        for wait_s, body, connections in ((0, b"1", 1), (4, b"2", 1), (4.1, b"3", 2)):
            with self.subTest(wait_s=wait_s):
                clock.now_s += wait_s
                self.assertEqual(call(pool), body)
                self.assertEqual(upstream.connections, connections)

    def test_old_connections_are_closed_when_another_comes_back(self) -> None:
        """What nobody took in time does not stay."""
        clock = StillClock()
        pool = self.pool(self.upstream(*[replies(answer())] * 3), clock=clock)
        exchanges = [post(pool) for _ in range(3)]
        for wait_s, idle in ((0, 1), (4, 2), (0.1, 2)):
            clock.now_s += wait_s
            exchanges.pop().close()
            self.assertEqual(pool.idle, idle)

    def test_the_pool_is_bounded(self) -> None:
        """The connections used last are the ones that stay, and the very last is used first."""
        upstream = self.upstream(
            replies(answer()), replies(answer(), answer(b"second")), replies(answer(), answer(b"third"))
        )
        pool = self.pool(upstream, max_idle=2)
        exchanges = [post(pool) for _ in range(3)]
        for exchange in exchanges:
            exchange.close()
        self.assertEqual(pool.idle, 2)
        self.assertEqual(call(pool), b"third")

    def test_a_closed_pool_keeps_nothing(self) -> None:
        """What waits is closed, and so is what comes back later."""
        pool = self.pool(self.upstream(replies(answer()), replies(answer())))
        first, second = post(pool), post(pool)
        first.close()
        pool.close()
        second.close()
        self.assertEqual(pool.idle, 0)

    def test_a_connection_that_ended_while_idle_is_not_used(self) -> None:
        """It is noticed before anything is sent."""
        ended = threading.Event()

        def script(peer: Peer) -> None:
            peer.request()
            peer.send(answer(b"1"))
            peer.sock.shutdown(socket.SHUT_WR)
            ended.set()
            self.assertEqual(peer.sock.recv(1000), b"")

        upstream = self.upstream(script, replies(answer(b"2")))
        pool = self.pool(upstream)
        with closing(post(pool)) as exchange:
            self.assertEqual(drain(exchange), b"1")
            exchange.close()
            self.assertEqual(pool.idle, 1)
            self.assertTrue(ended.wait(10))
        self.assertEqual(call(pool), b"2")
        self.assertEqual(upstream.connections, 2)

    def test_a_reused_connection_that_ends_without_a_byte_is_replaced(self) -> None:
        """By a close or by a reset: the call goes out again, on a fresh connection."""

        def reset_at_the_second(peer: Peer) -> None:
            peer.request()
            peer.send(answer(b"1"))
            peer.request()
            peer.reset()

        for script in (then_hang_up(answer(b"1")), reset_at_the_second):
            with self.subTest(script.__name__):
                upstream = self.upstream(script, replies(answer(b"2")))
                pool = self.pool(upstream)
                self.assertEqual((call(pool), call(pool)), (b"1", b"2"))
                self.assertEqual(upstream.connections, 2)

    def test_a_call_is_sent_again_once_and_not_on_another_pooled_connection(self) -> None:
        """The second ending is an error, and a fresh connection was tried."""
        upstream = self.upstream(then_hang_up(answer()), then_hang_up(answer()), then_hang_up())
        pool = self.pool(upstream)
        for exchange in [post(pool), post(pool)]:
            exchange.close()
        error = self.fault(pool)
        self.assertEqual(facts(error), ("server", True, False, None))
        self.assertFalse(error.reused_connection)
        self.assertEqual((upstream.connections, pool.idle), (3, 1))

    def test_a_reused_connection_that_began_to_answer_is_not_replaced(self) -> None:
        """One byte is enough for the call to count."""

        def script(peer: Peer) -> None:
            peer.request()
            peer.send(answer())
            peer.request()
            peer.send(b"H")

        pool = self.pool(self.upstream(script))
        call(pool)
        error = self.fault(pool)
        self.assertEqual(facts(error), ("malformed", True, True, None))
        self.assertTrue(error.reused_connection)

    def test_a_reused_connection_that_is_reset_after_its_head_is_not_replaced(self) -> None:
        """The upstream had begun to work."""
        head_seen = threading.Event()

        def script(peer: Peer) -> None:
            peer.request()
            peer.send(answer())
            peer.request()
            peer.send(stream_head())
            head_seen.wait(10)
            peer.reset()

        pool = self.pool(self.upstream(script))
        call(pool)
        exchange = post(pool)
        head_seen.set()
        with self.assertRaises(ProviderError) as caught:
            exchange.read()
        self.assertEqual(facts(caught.exception), ("malformed", True, True, None))

    def test_many_threads_share_a_pool(self) -> None:
        """Every caller gets the answer to its own request."""

        def echo(peer: Peer) -> None:
            while True:
                peer.send(answer(peer.request().body))

        upstream = self.upstream(*[echo] * 8)
        pool = self.pool(upstream)
        barrier = threading.Barrier(8)
        wrong: list[bytes] = []

        def work(name: int) -> None:
            barrier.wait(10)
            for number in range(50):
                body = f"{name}/{number}".encode()
                if (got := call(pool, body)) != body:
                    wrong.append(got)

        threads = [threading.Thread(target=work, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        self.assertLessEqual(pool.idle, upstream.connections)


class FailureTest(TransportTest):
    """What an upstream can do wrong, and the facts that come of it."""

    def test_a_refused_connection_was_not_sent(self) -> None:
        """Nobody listens: a server error that cost nothing."""
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            error = self.fault(self.pool(f"http://127.0.0.1:{nobody.getsockname()[1]}"))
        self.assertEqual(facts(error), ("server", False, False, None))
        self.assertEqual(error.failure, "ConnectionRefusedError")

    def test_a_name_that_does_not_resolve_was_not_sent(self) -> None:
        """A server error that cost nothing."""

        def lookup(_host: str, _port: int) -> Sequence[Address]:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

        error = self.fault(self.pool("http://api.example", lookup=lookup))
        self.assertEqual(facts(error), ("server", False, False, None))
        self.assertEqual(error.failure, "gaierror EAI_NONAME")

    def test_an_error_without_a_class_of_its_own_is_named(self) -> None:
        """By the system's name for it; what has none by its class."""
        for number, name in ((errno.EHOSTUNREACH, "OSError EHOSTUNREACH"), (123456, "OSError")):

            def lookup(_host: str, _port: int, number: int = number) -> Sequence[Address]:
                raise OSError(number, "words that may be anybody's")

            with self.subTest(name):
                self.assertEqual(self.fault(self.pool("http://api.example", lookup=lookup)).failure, name)

    def test_the_next_address_is_tried(self) -> None:
        """One that refuses does not stop the call."""
        upstream = self.upstream(replies(answer()))
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            addresses = [(socket.AF_INET, nobody.getsockname()), (socket.AF_INET, ("127.0.0.1", upstream.port))]
            pool = self.pool("http://api.example", lookup=lambda _host, _port: addresses)
            self.assertEqual(call(pool), b"{}")

    def test_a_fresh_connection_that_ends_without_a_byte_is_not_tried_again(self) -> None:
        """By a close or by a reset: it may have been billed."""
        table = {"NoAnswerError": sends_and_ends(), "ConnectionResetError": sends_and_resets()}
        for name, script in table.items():
            with self.subTest(name):
                upstream = self.upstream(script)
                error = self.fault(self.pool(upstream))
                self.assertEqual((facts(error), error.failure), (("server", True, False, None), name))
                self.assertEqual(upstream.connections, 1)

    def test_a_request_that_was_cut_off_counts_as_sent(self) -> None:
        """Some of it had left."""

        def script(peer: Peer) -> None:
            peer.sock.recv(1000)
            peer.reset()

        error = self.fault(self.pool(self.upstream(script)), LARGE)
        self.assertEqual(facts(error), ("server", True, False, None))

    def test_a_cut_answer_is_an_error_after_what_came(self) -> None:
        """Less than its length, no last chunk, half a chunk, a reset: never a whole answer."""
        length = b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhello"
        for script in (
            sends_and_ends(length),
            sends_and_ends(stream_head(), chunk(b"hello")),
            sends_and_ends(stream_head(), b"a\r\nhello"),
            sends_and_resets(stream_head(), chunk(b"hello")),
        ):
            with self.subTest(script.__qualname__):
                exchange = post(self.pool(self.upstream(script)))
                self.assertEqual(exchange.read(), b"hello")
                with self.assertRaises(ProviderError) as caught:
                    exchange.read()
                self.assertEqual(facts(caught.exception), ("malformed", True, True, None))
                self.assertEqual(caught.exception.status, 200)

    def test_what_came_with_a_fault_is_read_before_it(self) -> None:
        """A chunk and junk in one packet give the chunk, then the error."""
        exchange = post(self.pool(self.upstream(sends_and_stalls(stream_head() + chunk(b"hello") + b"junk\r\n"))))
        self.assertEqual(exchange.read(), b"hello")
        with self.assertRaises(ProviderError):
            exchange.read()

    def test_garbage_is_refused_at_once(self) -> None:
        """Another protocol, half a head, two lengths: no clock has to fire."""
        table = {
            b"SSH-2.0-OpenSSH_9.2\r\n": sends_and_stalls,
            b"HTTP/1.1 200 OK\r\ncontent-le": sends_and_ends,
            b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n": sends_and_stalls,
        }
        for data, script in table.items():
            with self.subTest(data):
                error = self.fault(self.pool(self.upstream(script(data))))
                self.assertEqual((facts(error), error.failure), (("malformed", True, True, None), "BadResponse"))

    def test_a_redirect_is_never_followed(self) -> None:
        """No request, and no Authorization, goes to where it points."""
        elsewhere = self.upstream()
        for status in (300, 301, 302, 303, 304, 307, 308):
            with self.subTest(status):
                location = f"location: {elsewhere.url('/v1/chat')}"
                upstream = self.upstream(sends_and_stalls(answer(status=f"{status} Elsewhere", headers=location)))
                error = self.fault(self.pool(upstream))
                self.assertEqual(facts(error), ("malformed", True, True, None))
                self.assertEqual((error.status, upstream.connections), (status, 1))
        self.assertEqual(elsewhere.connections, 0)


class ClockTest(TransportTest):
    """Each clock fires, is named, and leaves no open connection behind."""

    def test_ttft_fires_on_silence(self) -> None:
        """Sent, and not a byte came."""
        error = self.fault(self.pool(self.upstream(sends_and_stalls()), Timeouts(ttft_s=SOON_S)))
        self.assertEqual((facts(error), error.failure), (("timeout", True, False, "ttft"), "timeout ttft"))

    def test_ttft_fires_on_a_head_that_drips(self) -> None:
        """Bytes that never become an answer do not hold the call."""

        def script(peer: Peer) -> None:
            peer.request()
            peer.send(b"HTTP/1.1 200 OK\r\nx-a: ")
            peer.drip(b"a")

        error = self.fault(self.pool(self.upstream(script), Timeouts(ttft_s=LATER_S)))
        self.assertEqual(facts(error), ("timeout", True, True, "ttft"))

    def test_ttft_fires_on_a_head_alone(self) -> None:
        """The idle clock runs between body bytes only, however short it is."""
        clock = StillClock()
        upstream = self.upstream(sends_and_stalls(stream_head()))
        exchange = post(self.pool(upstream, Timeouts(ttft_s=120, idle_s=0.001), clock=clock))
        clock.now_s += 120
        with self.assertRaises(ProviderError) as caught:
            exchange.read()
        self.assertEqual(facts(caught.exception), ("timeout", True, True, "ttft"))

    def test_ttft_fires_on_signs_of_life_only_for_a_reader_that_still_waits(self) -> None:
        """Body bytes stop the clock, unless the reader says that they were no answer yet."""
        for awaiting_first in (False, True):
            with self.subTest(awaiting_first=awaiting_first):
                clock = StillClock()
                upstream = self.upstream(
                    sends_and_stalls(stream_head(), chunk(b": comment\n\n"), chunk(b"data: 1\n\n"))
                )
                exchange = post(self.pool(upstream, Timeouts(ttft_s=120), clock=clock))
                received = exchange.read() or b""
                clock.now_s += 120
                if awaiting_first:
                    with self.assertRaises(ProviderError) as caught:
                        while exchange.read(awaiting_first=True):
                            pass
                    self.assertEqual(facts(caught.exception), ("timeout", True, True, "ttft"))
                else:
                    while not received.endswith(b"data: 1\n\n"):
                        received += exchange.read() or b""
                    exchange.close()

    def test_ttft_fires_on_a_request_that_is_not_taken(self) -> None:
        """An upstream that does not read does not hold the call."""

        def script(peer: Peer) -> None:
            peer.closed_within(10)

        error = self.fault(self.pool(self.upstream(script), Timeouts(ttft_s=SOON_S)), LARGE)
        self.assertEqual(facts(error), ("timeout", True, False, "ttft"))

    def test_idle_fires_between_chunks(self) -> None:
        """The first chunk was read, the second does not come."""
        upstream = self.upstream(sends_and_stalls(stream_head() + chunk(b"one")))
        exchange = post(self.pool(upstream, Timeouts(idle_s=SOON_S)))
        self.assertEqual(exchange.read(), b"one")
        with self.assertRaises(ProviderError) as caught:
            exchange.read()
        self.assertEqual(facts(caught.exception), ("timeout", True, True, "idle"))

    def test_total_fires_on_a_drip(self) -> None:
        """No gap is long enough for the idle clock."""

        def script(peer: Peer) -> None:
            peer.request()
            peer.send(stream_head())
            peer.drip(chunk(b"x"))

        error = self.fault(self.pool(self.upstream(script), Timeouts(total_s=LATER_S)))
        self.assertEqual(facts(error), ("timeout", True, True, "total"))

    def test_the_callers_deadline_fires(self) -> None:
        """It is a point on the pool's clock, and named as the client's."""
        pool = self.pool(self.upstream(sends_and_stalls()))
        with self.assertRaises(ProviderError) as caught:
            call(pool, deadline_s=time.monotonic() + SOON_S)
        self.assertEqual(facts(caught.exception), ("timeout", True, False, "client"))

    def test_a_deadline_that_is_over_starts_nothing(self) -> None:
        """Not even the look-up of a name."""

        def lookup(_host: str, _port: int) -> Sequence[Address]:
            looked_up.append(True)
            return []

        looked_up: list[bool] = []
        clock = StillClock()
        with self.assertRaises(ProviderError) as caught:
            call(self.pool("http://api.example", clock=clock, lookup=lookup), deadline_s=clock.now_s)
        self.assertEqual(facts(caught.exception), ("timeout", False, False, "client"))
        self.assertEqual(looked_up, [])

    def test_a_deadline_that_is_over_sends_nothing_on_a_pooled_connection(self) -> None:
        """Although sending would not block."""
        seen = []

        def script(peer: Peer) -> None:
            peer.request()
            peer.send(answer())
            seen.append(peer.sock.recv(1000))

        clock, upstream = StillClock(), self.upstream(script)
        pool = self.pool(upstream, clock=clock)
        call(pool)
        with self.assertRaises(ProviderError) as caught:
            call(pool, deadline_s=clock.now_s)
        self.assertEqual(facts(caught.exception), ("timeout", False, False, "client"))
        upstream.join()
        self.assertEqual(seen, [b""])

    def test_connect_fires_while_a_name_is_looked_up(self) -> None:
        """A name server that hangs costs no more than the clock says."""
        may_answer = threading.Event()
        self.addCleanup(may_answer.set)

        def lookup(_host: str, _port: int) -> Sequence[Address]:
            may_answer.wait(10)
            return []

        error = self.fault(self.pool("http://api.example", Timeouts(connect_s=SOON_S), lookup=lookup))
        self.assertEqual(facts(error), ("timeout", False, False, "connect"))

    def test_connect_fires_on_an_address_that_does_not_answer(self) -> None:
        """And a second address still gets its share of the time."""
        silent = self._full_listener()
        pool = self.pool(f"http://127.0.0.1:{silent[1]}", Timeouts(connect_s=SOON_S))
        self.assertEqual(facts(self.fault(pool)), ("timeout", False, False, "connect"))
        upstream = self.upstream(replies(answer()))
        addresses = [(socket.AF_INET, silent), (socket.AF_INET, ("127.0.0.1", upstream.port))]
        pool = self.pool("http://api.example", Timeouts(connect_s=1), lookup=lambda _host, _port: addresses)
        self.assertEqual(call(pool), b"{}")

    def test_connect_fires_while_tls_is_negotiated(self) -> None:
        """A server that accepts and says nothing."""

        def script(peer: Peer) -> None:
            peer.closed_within(10)

        port = self.upstream(script).port
        error = self.fault(self.pool(f"https://127.0.0.1:{port}", Timeouts(connect_s=SOON_S)))
        self.assertEqual(facts(error), ("timeout", False, False, "connect"))

    def _full_listener(self) -> tuple[str, int]:
        """The address of a listener whose queue is full: whoever connects hears nothing."""
        listener = socket.create_server(("127.0.0.1", 0), backlog=0)
        self.addCleanup(listener.close)
        for _ in range(4):
            sock = socket.socket()
            self.addCleanup(sock.close)
            sock.setblocking(False)
            sock.connect_ex(listener.getsockname())
        address: tuple[str, int] = listener.getsockname()
        return address


class CancelTest(TransportTest):
    """A caller that leaves takes its upstream connection with it."""

    def left(self, script: Callable[[Peer, PipeCancel], None], *, body: bytes = b"{}", reads: int = 0) -> ProviderError:
        """Call with a cancellation that the script fires; return the facts, once the server saw the close."""
        cancel, closed = self.cancel(), threading.Event()

        def until_closed(peer: Peer) -> None:
            script(peer, cancel)
            if peer.closed_within(PATIENCE_S):
                closed.set()

        pool = self.pool(self.upstream(until_closed))
        with self.assertRaises(Gone) as caught:
            exchange = post(pool, body, cancel)
            for _ in range(reads):
                exchange.read()
        self.assertTrue(closed.wait(PATIENCE_S))
        cause = caught.exception.__cause__
        assert isinstance(cause, ProviderError)
        return cause

    def test_it_can_leave_while_it_waits_for_the_head(self) -> None:
        """Sent, and nothing came."""

        def script(peer: Peer, cancel: PipeCancel) -> None:
            peer.request()
            cancel.fire(Gone())

        self.assertEqual(facts(self.left(script))[1:3], (True, False))

    def test_it_can_leave_between_chunks(self) -> None:
        """Bytes were seen."""

        def script(peer: Peer, cancel: PipeCancel) -> None:
            peer.request()
            peer.send(stream_head(), chunk(b"one"))
            cancel.fire(Gone())

        self.assertEqual(facts(self.left(script, reads=2))[1], True)

    def test_it_can_leave_while_it_writes(self) -> None:
        """The upstream does not read, and the call does not wait for it; it sees the end all the same, at once."""

        def script(peer: Peer, cancel: PipeCancel) -> None:
            peer.sock.recv(1)
            cancel.fire(Gone())

        self.assertEqual(facts(self.left(script, body=LARGE))[1:3], (True, False))

    def test_it_can_leave_while_a_name_is_looked_up(self) -> None:
        """Nothing was sent."""
        cancel, may_answer = self.cancel(), threading.Event()
        self.addCleanup(may_answer.set)

        def lookup(_host: str, _port: int) -> Sequence[Address]:
            cancel.fire(Gone())
            may_answer.wait(10)
            return []

        with self.assertRaises(Gone) as caught:
            post(self.pool("http://api.example", lookup=lookup), cancel=cancel)
        self.assertEqual(facts(caught.exception.__cause__)[1:3], (False, False))

    def test_it_can_have_left_before_a_pooled_connection_is_used(self) -> None:
        """Nothing is sent, although sending would not block."""
        seen = []

        def script(peer: Peer) -> None:
            peer.request()
            peer.send(answer())
            seen.append(peer.sock.recv(1000))

        upstream = self.upstream(script)
        pool = self.pool(upstream)
        call(pool)
        cancel = self.cancel()
        cancel.fire(Gone())
        with self.assertRaises(Gone) as caught:
            post(pool, cancel=cancel)
        self.assertEqual(facts(caught.exception.__cause__)[1:3], (False, False))
        upstream.join()
        self.assertEqual(seen, [b""])

    def test_a_false_alarm_changes_nothing(self) -> None:
        """The wait goes on."""
        cancel = self.cancel()

        def script(peer: Peer) -> None:
            peer.request()
            cancel.cry_wolf()
            while not cancel.false_alarms:
                if peer.closed_within(0.001):
                    raise AssertionError("the client left")
            peer.send(answer(b"here"))

        self.assertEqual(call(self.pool(self.upstream(script)), cancel=cancel), b"here")
        self.assertEqual(cancel.false_alarms, 1)


class TlsTest(TransportTest):
    """The same over TLS."""

    def setUp(self) -> None:
        """A certificate that only one client context trusts."""
        self.server, self.trusting = self_signed(self)

    def test_a_certificate_that_nobody_vouches_for_is_refused(self) -> None:
        """By default; and nothing was sent."""
        error = self.fault(self.pool(self.upstream(replies(answer()), tls=self.server)))
        self.assertEqual(facts(error), ("server", False, False, None))
        self.assertIn("certificate verify failed", error.message)
        self.assertEqual(error.failure, "SSLCertVerificationError CERTIFICATE_VERIFY_FAILED")

    def test_a_handed_context_decides(self) -> None:
        """Calls go through, one connection carries several, and a large body passes both ways."""

        def echo(peer: Peer) -> None:
            while True:
                peer.send(answer(peer.request().body))

        upstream = self.upstream(echo, tls=self.server)
        pool = self.pool(upstream, ssl_context=self.trusting)
        for body in (b"1", LARGE[:5_000_000], b"3"):
            self.assertEqual(call(pool, body), body)
        self.assertEqual(upstream.connections, 1)

    def test_a_certificate_for_another_name_is_refused(self) -> None:
        """Trusting it is not enough."""
        upstream = self.upstream(replies(answer()), tls=self.server)
        addresses = [(socket.AF_INET, ("127.0.0.1", upstream.port))]
        pool = self.pool("https://api.example", lookup=lambda _host, _port: addresses, ssl_context=self.trusting)
        self.assertEqual(facts(self.fault(pool)), ("server", False, False, None))

    def test_a_plain_server_is_not_talked_to(self) -> None:
        """No request leaves before TLS stands."""

        def script(peer: Peer) -> None:
            peer.sock.recv(65_536)
            peer.send(answer())

        port = self.upstream(script).port
        error = self.fault(self.pool(f"https://127.0.0.1:{port}"))
        self.assertEqual(facts(error), ("server", False, False, None))
        self.assertRegex(error.failure or "", "^SSLError [A-Z_]+$")

    def test_a_reused_connection_that_ends_without_a_byte_is_replaced(self) -> None:
        """As without TLS."""
        upstream = self.upstream(then_hang_up(answer(b"1")), replies(answer(b"2")), tls=self.server)
        pool = self.pool(upstream, ssl_context=self.trusting)
        self.assertEqual((call(pool), call(pool)), (b"1", b"2"))

    def test_what_tls_has_already_taken_is_read(self) -> None:
        """A record that is read in parts leaves nothing on the socket to wait for."""
        upstream = self.upstream(sends_and_stalls(answer(b"x" * 1000)), tls=self.server)
        pool = self.pool(upstream, Timeouts(ttft_s=5, idle_s=5), ssl_context=self.trusting)
        with patch("llmkit.transport.RECV_BYTES", 100):
            self.assertEqual(call(pool), b"x" * 1000)

    def test_clocks_and_cancellation_reach_through_tls(self) -> None:
        """Silence after the handshake, and a caller that leaves."""
        upstream = self.upstream(sends_and_stalls(), sends_and_stalls(stream_head()), tls=self.server)
        pool = self.pool(upstream, Timeouts(ttft_s=SOON_S), ssl_context=self.trusting)
        self.assertEqual(facts(self.fault(pool)), ("timeout", True, False, "ttft"))
        cancel = self.cancel()
        patient = self.pool(upstream, ssl_context=self.trusting)
        exchange = post(patient, cancel=cancel)
        cancel.fire(Gone())
        with self.assertRaises(Gone):
            exchange.read()
