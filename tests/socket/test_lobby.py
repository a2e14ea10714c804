"""Connections that need no thread: idle ones, unfinished heads, refused ones; and the line for a place."""

import contextlib
import errno
import socket
import threading
import unittest
from collections.abc import Iterator
from typing import Any
from unittest import mock

from gateway.clock import RealClock
from gateway.connection import Connection
from gateway.errors import ClientGone, Draining, HttpRefusal
from gateway.exchange import Exchange
from gateway.http_head import HeadLimits, RequestHead
from gateway.lobby import Lobby
from gateway.places import PlaceLimits
from gateway.server import _SLOW_READERS, FrontLimits, FrontServer
from gateway.turnstile import Turnstile
from llmkit.room import FREE_BYTES, STEP_BYTES
from tests.socket.test_server import GET, PATIENCE_S, TEXT, Client, FrontCase, echo, post

LARGE = FREE_BYTES + STEP_BYTES
"""A body that takes one step of room."""


def begun(server: FrontServer) -> int:
    """Exchanges that have begun and not ended, wherever they are; at every moment exact."""
    return len(server._busy)


def in_line(server: FrontServer) -> int:
    """Requests that wait for their turns."""
    return sum(map(len, list(server._turnstile._line.parties.values())))


class ParkedTest(FrontCase):
    def parked(self, server: FrontServer, count: int) -> None:
        """Wait until so many connections are parked."""
        self.until(lambda: server.parked == count)

    def test_connections_that_say_nothing_cost_no_thread(self) -> None:
        """New ones, and those that wait for their next request."""
        with mock.patch("gateway.server.IDLE_S", 0.01):
            server = self.serve(echo)
        for _ in range(50):
            self.connect(server)
        self.parked(server, 50)
        self.assertEqual(server.threads, 0)
        served = [self.connect(server) for _ in range(20)]
        for client in served:
            client.send(GET)
            client.answer()
        self.parked(server, 70)
        self.until(lambda: server.threads == 0)
        self.assertEqual((server.connections, begun(server)), (70, 0))

    def test_heads_that_drip_cost_no_thread(self) -> None:
        """However many there are; each is served once it is whole."""
        server = self.serve(echo)
        clients = [self.connect(server) for _ in range(50)]
        for byte in GET[:-1]:
            for client in clients:
                client.send(bytes([byte]))
        self.parked(server, 50)
        self.assertEqual(server.threads, 0)
        for client in clients:
            client.send(GET[-1:])
        self.assertEqual([client.answer().status for client in clients], [200] * 50)

    def test_refused_heads_cost_no_thread(self) -> None:
        """Bad ones and late ones are answered by the lobby itself."""
        server = self.serve(echo, FrontLimits(header_timeout_s=0.1))
        bad, late = self.connect(server), self.connect(server)
        bad.send(b"get / HTTP/1.1\r\n")
        late.send(b"GET / HT")
        self.assert_refused(bad.answer(), 400, "invalid_request")
        self.assert_refused(late.answer(), 408, "request_timeout")
        self.assertEqual([bad.rest(), late.rest(), server.threads], [b"", b"", 0])

    def test_a_connection_that_was_parked_is_served_again(self) -> None:
        """As often as its client likes, also with a next request that comes in two parts."""
        server = self.serve(echo)
        client = self.connect(server)
        for _ in range(3):
            for part in (post(b"abc")[:30], post(b"abc")[30:]):
                self.parked(server, 1)
                client.send(part)
            self.assertEqual(client.answer().body, b"/hello abc")
        self.assertEqual(server.connections, 1)

    def test_the_rest_of_a_pipelined_head_is_waited_for_without_a_thread(self) -> None:
        """The first part came with the former request, and its deadline counts from the answer."""
        server = self.serve(echo, FrontLimits(header_timeout_s=0.2))
        client = self.connect(server)
        client.send(GET + GET[:10])
        self.assertEqual(client.answer().status, 200)
        self.parked(server, 1)
        self.assert_refused(client.answer(), 408, "request_timeout")
        client = self.connect(self.serve(echo))
        client.send(GET + GET[:10])
        client.answer()
        client.send(GET[10:])
        self.assertEqual(client.answer().status, 200)

    def test_a_pipelined_head_that_is_bad_is_refused_after_the_answer(self) -> None:
        """The first request is served, the second is not, the third is never read."""
        client = self.connect(self.serve(echo))
        client.send(GET + b"GET / HTTP/1.1\r\nHost : gw\r\n\r\n" + GET)
        self.assertEqual(client.answer().status, 200)
        self.assert_refused(client.answer(), 400, "invalid_request")
        self.assertEqual(client.rest(), b"")

    def test_what_a_dismissed_client_still_sends_is_thrown_away_up_to_a_bound(self) -> None:
        """It gets its answer; one that never stops sending is cut."""
        with mock.patch("gateway.connection._DISCARD_BYTES", 1_000_000), mock.patch("gateway.lobby.LEAVE_S", 1000):
            server = self.serve(echo, FrontLimits(max_body_bytes=1000))
            client = self.connect(server)
            client.send(b"POST / HTTP/1.1\r\nHost: gw\r\nContent-Length: 900000000\r\n\r\n")
            self.assert_refused(client.answer(), 413, "request_too_large")
            with self.assertRaises((BrokenPipeError, ConnectionResetError)):
                for _ in range(100):
                    client.send(b"x" * 1_000_000)
            self.until(lambda: server.connections == 0)

    def test_one_connection_that_breaks_the_lobby_is_closed_and_the_others_are_served(self) -> None:
        """Whatever is raised for one is reported."""
        server = self.serve(echo)
        other = self.connect(server)
        with mock.patch.object(server, "hand_on", side_effect=ZeroDivisionError):
            client = self.connect(server)
            client.send(GET)
            self.assertEqual(client.rest(), b"")
            self.assertIsInstance(self.next_error(), ZeroDivisionError)
        other.send(GET)
        self.assertEqual(other.answer().status, 200)
        self.assertEqual(server.connections, 1)

    def test_a_post_without_a_length_ends_its_connection(self) -> None:
        """A body that nobody framed would be the next request."""
        paths: list[str] = []

        def handle(exchange: Exchange) -> None:
            paths.append(exchange.head.path)
            exchange.respond(411, TEXT, b"")

        client = self.connect(self.serve(handle))
        client.send(b"POST /first HTTP/1.1\r\nHost: gw\r\n\r\n" + GET)
        answer = client.answer()
        self.assertEqual((answer.status, answer.headers["connection"]), (411, "close"))
        self.assertEqual((client.rest(), paths), (b"", ["/first"]))

    def test_a_post_of_nothing_keeps_its_connection(self) -> None:
        """Nothing can stand between it and the next request, whether its body was read or not."""
        client = self.connect(self.serve(lambda exchange: exchange.respond(404, TEXT, b"")))
        for _ in range(2):
            client.send(post(b""))
            answer = client.answer()
            self.assertNotIn("connection", answer.headers)

    def test_a_client_that_leaves_while_it_is_parked_frees_its_connection(self) -> None:
        """Idle, or with half a head."""
        server = self.serve(echo)
        for sent in (b"", GET[:10]):
            client = self.connect(server)
            if sent:
                client.send(sent)
            self.parked(server, 1)
            client.close()
            self.until(lambda: server.connections == 0)

    @mock.patch("gateway.lobby.LEAVE_S", 1000)
    def test_closing_the_server_closes_what_is_parked(self) -> None:
        """Idle connections, half heads, and those that had their last answer."""
        server = self.serve(lambda exchange: exchange.respond(401, TEXT, b""))
        clients = [self.connect(server) for _ in range(3)]
        clients[1].send(GET[:10])
        clients[2].send(post(b"abc"))
        clients[2].answer()
        self.parked(server, 3)
        server.close()
        for client in clients:
            with self.subTest(), self.assertRaises((ConnectionResetError, StopIteration)):
                if client.rest() == b"":
                    raise StopIteration
        self.assertEqual((server.connections, server.parked), (0, 0))


class DrainedLobbyTest(FrontCase):
    def test_a_new_connection_may_still_ask_while_the_process_ends(self) -> None:
        """It is told; one that says nothing is closed after a moment."""
        server = self.serve(lambda exchange: exchange.respond(200, TEXT, str(exchange.draining).encode()))
        server.begin_drain()
        early = self.connect(server)
        self.until(lambda: server.parked == 1)
        with mock.patch("gateway.lobby.HASTE_S", PATIENCE_S):
            server.stop_admitting()
        for client in (early, self.connect(server)):
            client.send(GET)
            self.assertEqual(client.answer().body, b"True")
        silent = self.connect(server)
        with mock.patch("gateway.lobby.HASTE_S", 0.01):
            server.stop_admitting()
        self.assertEqual(silent.rest(), b"")

    def test_a_request_that_arrives_with_the_end_is_still_told(self) -> None:
        """Its bytes were there before its idle connection was to be closed."""
        server = self.serve(lambda exchange: exchange.respond(200, TEXT, str(exchange.draining).encode()))
        client = self.connect(server)
        client.send(GET)
        client.answer()
        self.until(lambda: server.parked == 1)
        with server._lobby._lock:
            client.send(GET)
            emptying = threading.Thread(target=server.stop_admitting)
            emptying.start()
        emptying.join()
        self.assertEqual(client.answer().status, 200)
        self.assertEqual(client.rest(), b"")

    def test_a_drain_ends_soon_beside_clients_that_keep_their_connections(self) -> None:
        """They are told that nothing more comes, and are not waited for."""
        server = self.serve(echo, FrontLimits(announce_s=0))
        clients = [self.connect(server) for _ in range(3)]
        clients[0].send(GET)
        clients[0].answer()
        clients[1].send(GET[:5])
        self.assertEqual(server.drain(threading.Event()), 0)
        self.assertEqual(server.connections, 0)


class SilentHost:
    """A host that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.leaves = True

    def hand_on(self, connection: Connection, head: RequestHead) -> None:
        self.told.append(head.path)

    def refuse(self, connection: Connection, refusal: HttpRefusal) -> None:
        self.told.append(refusal.code)

    def closed(self, connection: Connection) -> None:
        self.told.append("closed")

    def leaves_line(self, connection: Connection, *, late: bool) -> bool:
        self.told.append("late" if late else "left")
        return self.leaves

    def on_error(self, error: BaseException) -> None:
        raise error


class MomentTest(unittest.TestCase):
    """Single moments of a lobby whose thread does not run."""

    def setUp(self) -> None:
        self.host = SilentHost()
        self.lobby = Lobby(self.host, HeadLimits(), RealClock(), idle_timeout_s=75, header_timeout_s=10, queue_wait_s=1)
        self.addCleanup(self.lobby.close)

    def connection(self) -> tuple[Connection, socket.socket]:
        ours, theirs = socket.socketpair()
        self.addCleanup(theirs.close)
        self.addCleanup(ours.close)
        return Connection(ours), theirs

    def noticed(self) -> list[int]:
        """Descriptors of connections on which something happened that the lobby waits for."""
        return [fd for fd, _ in self.lobby._epoll.poll(0) if fd != self.lobby._wake]

    def test_a_request_that_arrives_as_its_connection_is_ended_is_handed_on(self) -> None:
        """The lobby looks once more before it says that nothing more comes."""
        for bench, sit in ((self.lobby._idle, self.lobby.park), (self.lobby._new, self.lobby.welcome)):
            connection, client = self.connection()
            sit(connection)
            self.lobby.empty_idle()
            client.sendall(GET)
            self.lobby._lose_patience(connection, bench)
            self.assertEqual(self.host.told.pop(), "/hello")

    def test_a_client_that_leaves_as_it_lines_up_is_noticed(self) -> None:
        """Its one event is kept until it has a turn that can be given up."""
        connection, client = self.connection()
        self.lobby.line_up(connection)
        client.close()
        self.assertEqual(self.noticed(), [])
        self.lobby.watch(connection)
        self.assertEqual(self.noticed(), [connection.fd])
        self.lobby.let_go(connection)

    def test_patience_ends_also_of_a_connection_that_cannot_be_watched(self) -> None:
        """The thread that looks at it is roused all the same."""
        connection, _ = self.connection()
        self.lobby.line_up(connection)
        no_more = OSError(errno.ENOSPC, "no more watches")
        with mock.patch.object(self.lobby, "_arm", side_effect=no_more), self.assertRaises(OSError):
            self.lobby.watch(connection)
        self.assertEqual([fd for fd, _ in self.lobby._epoll.poll(0)], [self.lobby._wake])

    def test_a_connection_whose_turn_has_come_is_not_watched(self) -> None:
        """Whoever took it out of the lobby meanwhile has it alone."""
        connection, client = self.connection()
        self.lobby.line_up(connection)
        self.lobby.take(connection)
        self.lobby.watch(connection)
        client.close()
        self.assertEqual((self.noticed(), self.lobby.parked), ([], 0))

    def test_a_turn_that_comes_with_the_end_of_patience_is_asked_about_once(self) -> None:
        """The lobby's thread does not ask again and again until a worker has taken the connection."""
        connection, _ = self.connection()
        self.host.leaves = False
        self.lobby.line_up(connection)
        self.lobby.watch(connection)
        connection.deadline_s = 0
        self.assertEqual([late for late, _ in self.lobby._overdue()], [connection])
        self.lobby._lose_patience(connection, self.lobby._in_line)
        self.assertEqual(self.lobby._overdue(), [])
        self.lobby.let_go(connection)

    def test_a_request_of_a_connection_that_rests_is_found_afterwards(self) -> None:
        """Whether it came before the rest, as a whole or in part, or meanwhile."""
        for before, meanwhile in ((b"", GET), (GET[:9], GET[9:]), (GET, b"")):
            with self.subTest(before=before):
                connection, client = self.connection()
                if before:
                    client.sendall(before)
                    connection.pull()
                self.lobby.rest(connection)
                client.sendall(meanwhile)
                self.assertEqual(self.noticed(), [])
                self.lobby._lose_patience(connection, self.lobby._resting)
                if meanwhile:
                    self.assertEqual(self.noticed(), [connection.fd])
                    self.lobby._look_at(*self.lobby._where[connection.fd])
                self.assertEqual(self.host.told.pop(), "/hello")

    def test_closing_twice_never_touches_who_has_the_descriptor_now(self) -> None:
        """Numbers of descriptors are given again at once."""
        first, _ = self.connection()
        self.lobby.park(first)
        self.lobby.let_go(first)
        second, client = self.connection()
        self.assertEqual(second.fd, first.fd)
        self.lobby.park(second)
        self.lobby.let_go(first)
        self.assertEqual(self.lobby.parked, 1)
        client.sendall(GET)
        self.lobby._look_at(second, self.lobby._idle)
        self.assertEqual(self.host.told, ["closed", "closed", "/hello"])


class HeldCase(FrontCase):
    """Requests that are worked on until the test lets them go on."""

    def setUp(self) -> None:
        super().setUp()
        self.go_on, self.began = threading.Event(), threading.Semaphore(0)
        self.addCleanup(self.go_on.set)

    def hold(self) -> None:
        """Wait until the test lets it go on, with more patience than a client has."""
        if not self.go_on.wait(2 * PATIENCE_S):
            raise TimeoutError

    def ask(self, client: Client, path: str) -> None:
        """Without waiting for the answer."""
        client.send(GET.replace(b"/hello", path.encode()))

    def begun(self) -> None:
        """Wait until one more is handled."""
        self.assertTrue(self.began.acquire(timeout=PATIENCE_S))


@mock.patch("gateway.refusals.PER_S", 2)
class RestTest(HeldCase):
    """A client that is refused again and again is answered at once, and then read later."""

    def setUp(self) -> None:
        super().setUp()
        self.asked: list[str] = []
        self.go_on.set()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Whoever has a place is not answered while this lasts."""
        self.go_on.clear()
        yield
        self.go_on.set()

    def handle(self, exchange: Exchange) -> None:
        """The path says whose request it is, and what it is answered: `/party/429`."""
        _, party, status = exchange.head.path.split("/")
        if party:
            exchange.enter(party)
        self.asked.append(exchange.head.path)
        self.hold()
        exchange.respond(int(status), TEXT, exchange.read_body())

    def ask(self, client: Client, path: str) -> None:
        """With a body; without waiting for the answer."""
        client.send(post(b"abc").replace(b"/hello", path.encode()))

    def answered(self, server: FrontServer, *paths: str) -> Client:
        """A client whose requests were all answered, one after the other."""
        client = self.connect(server)
        for path in paths:
            self.ask(client, path)
            self.assertEqual(client.answer().status, int(path[-3:]))
        return client

    @mock.patch("gateway.lobby.REST_S", 1000)
    def test_the_next_request_of_a_loop_waits_and_nobody_elses_does(self) -> None:
        """It takes no thread meanwhile. Others of the same party are not refused, and so do not rest."""
        server = self.serve(self.handle)
        looping = self.answered(server, "/a/429", "/a/402", "/a/400")
        self.until(lambda: server.parked == 1)
        self.ask(looping, "/a/200")
        for path in ("/a/200", "/b/429", "//401"):
            self.answered(server, path, path)
        self.assertEqual(
            self.asked, ["/a/429", "/a/402", "/a/400", "/a/200", "/a/200", "/b/429", "/b/429"] + ["//401"] * 2
        )
        self.answered(server, "//401")
        self.until(lambda: server.parked == 5)
        self.assertEqual(begun(server), 0)

    @mock.patch("gateway.lobby.REST_S", 1000)
    def test_a_loop_rests_also_where_others_wait_for_its_place(self) -> None:
        """Whose turn it is gets the place; the next request of the loop is none of those who wait."""
        server = self.serve(self.handle, FrontLimits(places=PlaceLimits(places=1, per_party=1, queue=8)))
        looping = self.answered(server, "/a/429", "/a/429")
        with self.paused():
            self.ask(looping, "/a/429")
            self.until(lambda: server.places.taken == 1)
            other = self.connect(server)
            self.ask(other, "/b/200")
            self.until(lambda: server.places.waiting == 1)
        self.assertEqual((looping.answer().status, other.answer().status), (429, 200))
        self.ask(looping, "/a/200")
        self.answered(server, "/b/200", "/b/200")
        self.assertEqual(self.asked.count("/a/200"), 0)

    @mock.patch("gateway.lobby.REST_S", 0.01)
    def test_every_request_of_a_loop_is_answered(self) -> None:
        """In order, also if they come all at once."""
        server = self.serve(self.handle)
        client = self.answered(server, *["/a/429"] * 5)
        for number in range(400, 410):
            self.ask(client, f"/a/{number}")
        self.assertEqual([client.answer().status for _ in range(10)], list(range(400, 410)))

    @mock.patch("gateway.lobby.REST_S", 1000)
    def test_what_is_no_refusal_makes_nobody_rest(self) -> None:
        """Neither what was served nor what went wrong."""
        server = self.serve(self.handle)
        self.answered(server, *["/a/200", "/a/503"] * 5, "/a/429", "/a/429")

    @mock.patch("gateway.lobby.REST_S", 1000)
    def test_a_client_that_leaves_while_it_rests_frees_its_connection(self) -> None:
        """At once."""
        server = self.serve(self.handle)
        client = self.answered(server, *["/a/429"] * 3)
        self.until(lambda: server.parked == 1)
        client.close()
        self.until(lambda: server.connections == 0)

    @mock.patch("gateway.lobby.REST_S", 1000)
    def test_a_drain_waits_for_nobody_who_rests(self) -> None:
        """The connection is ended like any other that waits for its next request."""
        server = self.serve(self.handle, FrontLimits(announce_s=0))
        client = self.answered(server, *["/a/429"] * 3)
        self.until(lambda: server.parked == 1)
        server.begin_drain()
        server.stop_admitting()
        self.assertEqual(client.rest(), b"")
        self.until(lambda: server.connections == 0)


class CrowdTest(HeldCase):
    """More connections have something to say than are looked at in one go."""

    def handle(self, exchange: Exchange) -> None:
        """The path says whose it is."""
        exchange.enter(exchange.head.path)
        exchange.respond(200, TEXT, exchange.read_body())

    def test_one_party_is_heard_after_the_other(self) -> None:
        """Nobody waits until all those of another party were heard that came before; and all are heard."""
        server = self.serve(self.handle)
        paths = ["/busy"] * 40 + ["/calm"]
        clients = [self.connect(server) for _ in paths]
        for client, path in zip(clients, paths, strict=True):
            self.ask(client, path)
            self.assertEqual(client.answer().status, 200)
        self.until(lambda: server.parked == len(clients))
        heard: list[str] = []
        hand_on = server.hand_on

        def slow(connection: Connection, head: RequestHead) -> None:
            heard.append(head.path)
            self.began.release()
            self.hold()
            hand_on(connection, head)

        with mock.patch.object(server, "hand_on", slow):
            self.ask(clients[0], "/busy")
            self.begun()
            for client, path in list(zip(clients, paths, strict=True))[1:]:
                self.ask(client, path)
            self.go_on.set()
            self.assertEqual([client.answer().status for client in clients], [200] * len(clients))
        self.assertLessEqual(heard.index("/calm"), 2)


@mock.patch.object(Turnstile.__init__, "__defaults__", (1,))
class TurnTest(HeldCase):
    """Whoever asks again after an answer that waited for nothing takes turns with others of that kind."""

    def setUp(self) -> None:
        super().setUp()
        self.order: list[str] = []

    def handle(self, exchange: Exchange) -> None:
        """The path says for whom, and what is done; `/wait` is done only once it may go on."""
        party, _, path = exchange.head.path.rpartition("/")
        exchange.enter(party)
        self.order.append(party)
        self.began.release()
        if path == "called":
            exchange.will_wait()
        if path in ("wait", "called"):
            self.hold()
        exchange.respond(200, TEXT, b"x" * 20_000_000 if path == "large" else exchange.read_body())

    def quick(self, server: FrontServer, path: str = "/hello") -> Client:
        """A client that was answered at once."""
        client = self.connect(server)
        self.ask(client, path)
        self.begun()
        self.assertEqual(client.answer().status, 200)
        return client

    def has_turn(self, server: FrontServer, client: Client) -> None:
        """A client of that kind is answered."""
        self.ask(client, "/hello")
        self.assertEqual(client.answer().status, 200)

    def test_they_wait_for_each_other_and_nobody_else_for_them(self) -> None:
        """In the order in which they came."""
        server = self.serve(self.handle)
        first, second, third = (self.quick(server) for _ in range(3))
        self.ask(first, "/wait")
        self.begun()
        for number, client in enumerate((second, third), 1):
            self.ask(client, "/hello")
            self.until(lambda number=number: in_line(server) == number)  # type: ignore[misc]
        self.has_turn(server, self.connect(server))
        self.begun()
        self.assertFalse(self.began.acquire(blocking=False))
        self.go_on.set()
        self.assertEqual([client.answer().status for client in (first, second, third)], [200] * 3)

    def lined_up(self, server: FrontServer, clients: list[Client], path: str = "/hello") -> None:
        """Let them ask, and stand in line for their turns, in this order."""
        for client in clients:
            ahead = in_line(server)
            self.ask(client, path)
            self.until(lambda ahead=ahead: in_line(server) > ahead)  # type: ignore[misc]

    def test_who_waits_for_a_turn_takes_nothing_that_others_need(self) -> None:
        """No place, nor that of somebody expected, and no thread: more may wait than there may be of those together."""
        limits = FrontLimits(places=PlaceLimits(places=32, per_party=32, queue=0))
        server = self.serve(self.handle, limits)
        inside, *waiting = (self.quick(server) for _ in range(limits.max_threads + 4))
        self.ask(inside, "/wait")
        self.begun()
        self.lined_up(server, waiting)
        self.until(lambda: len(server._workers._idle) == server._workers.count - 1)
        self.has_turn(server, self.connect(server))
        self.go_on.set()
        self.assertEqual([client.answer().status for client in (inside, *waiting)], [200] * (len(waiting) + 1))
        self.until(lambda: (server.places.taken, server.places._expected, server._turnstile._inside) == (0, 0, 0))

    def test_nobody_waits_behind_a_second_one_of_another_party(self) -> None:
        """Whose connection it is shows what it was answered for last."""
        server = self.serve(self.handle)
        inside, *busy = (self.quick(server, "/busy/hello") for _ in range(4))
        calm = self.quick(server, "/calm/hello")
        self.ask(inside, "/busy/wait")
        self.begun()
        self.order.clear()
        self.lined_up(server, busy, "/busy/hello")
        self.lined_up(server, [calm], "/calm/hello")
        self.go_on.set()
        self.assertEqual([client.answer().status for client in (inside, *busy, calm)], [200] * 5)
        self.assertEqual(self.order, ["/busy", "/calm", "/busy", "/busy"])

    def test_a_turn_for_which_there_is_no_thread_is_that_of_the_next(self) -> None:
        """The other one is refused as one that comes while none is free, and keeps its connection."""
        server = self.serve(self.handle)
        inside, refused, other = (self.quick(server) for _ in range(3))
        self.ask(inside, "/wait")
        self.begun()
        self.lined_up(server, [refused, other])
        workers = server._workers
        with mock.patch.object(workers, "submit", wraps=workers.submit, side_effect=[False, mock.DEFAULT]):
            self.go_on.set()
            self.assert_refused(refused.answer(), 503, "overloaded", closes=False)
            self.assertEqual([client.answer().status for client in (inside, other)], [200, 200])
        self.until(lambda: (server.places._expected, server._turnstile._inside) == (0, 0))
        self.has_turn(server, refused)

    def test_a_drain_waits_for_those_that_wait_for_their_turns(self) -> None:
        """They are in flight: each is answered, and its connection closed."""
        server = self.serve(self.handle, FrontLimits(announce_s=0))
        inside, *waiting = (self.quick(server) for _ in range(3))
        self.ask(inside, "/wait")
        self.begun()
        self.lined_up(server, waiting)
        server.begin_drain()
        server.stop_admitting()
        self.assertEqual(begun(server), 3)
        self.go_on.set()
        self.assertEqual([client.answer().status for client in (inside, *waiting)], [200] * 3)
        self.assertEqual([client.rest() for client in (inside, *waiting)], [b""] * 3)
        self.until(lambda: begun(server) == 0)

    def test_who_waits_for_something_has_no_turn(self) -> None:
        """An upstream, the rest of a body, a client that does not read, a place."""
        server = self.serve(self.handle, FrontLimits(places=PlaceLimits(places=2, per_party=2, queue=8)))
        waiting, other = self.quick(server), self.quick(server)
        self.ask(waiting, "/called")
        self.begun()
        self.has_turn(server, other)
        self.go_on.set()
        self.assertEqual(waiting.answer().status, 200)
        for request in (post(b"abc")[:-1], b"POST / HTTP/1.1\r\nHost: gw\r\nTransfer-Encoding: chunked\r\n\r\n"):
            waiting = self.quick(server)
            waiting.send(request)
            self.begun()
            self.begun()
            self.has_turn(server, other)
            waiting.close()
        waiting = self.quick(server)
        self.ask(waiting, "/large")
        self.begun()
        self.begun()
        self.has_turn(server, other)

    def test_who_waits_for_a_place_has_no_turn(self) -> None:
        """A new client has the only place; of those that wait for it none keeps another from the line."""
        server = self.serve(self.handle, FrontLimits(places=PlaceLimits(places=1, per_party=1, queue=8)))
        first, second = self.quick(server), self.quick(server)
        seated = self.connect(server)
        self.ask(seated, "/wait")
        self.begun()
        for number, client in enumerate((first, second), 1):
            self.ask(client, "/hello")
            self.until(lambda number=number: server.queued == number)  # type: ignore[misc]
        self.go_on.set()
        self.assertEqual([client.answer().status for client in (seated, first, second)], [200] * 3)

    def test_a_turn_ends_with_its_exchange_however_that_ends(self) -> None:
        """Also by an error."""
        server = self.serve(self.handle)
        failing, other = self.quick(server), self.quick(server)
        with mock.patch.object(self, "hold", side_effect=ZeroDivisionError):
            self.ask(failing, "/wait")
            self.assertEqual(failing.answer().status, 500)
        self.assertIsInstance(self.next_error(), ZeroDivisionError)
        self.has_turn(server, other)

    def test_who_had_to_wait_is_of_the_kind_no_more(self) -> None:
        """Until it is answered at once again."""
        server = self.serve(self.handle)
        changed, inside = self.quick(server), self.quick(server)
        self.go_on.set()
        self.ask(changed, "/called")
        self.assertEqual(changed.answer().status, 200)
        self.go_on.clear()
        self.ask(inside, "/wait")
        self.until(lambda: server._turnstile._inside == 1)
        self.has_turn(server, changed)


class PlaceTest(HeldCase):
    """What happens where requests must wait for their turn."""

    def handle(self, exchange: Exchange) -> None:
        """Work on a request of the party that its path names, until told to go on."""
        exchange.enter(exchange.head.path)
        self.began.release()
        self.hold()
        exchange.respond(200, TEXT, exchange.read_body())

    def crowd(self, server: FrontServer, *paths: str) -> list[Client]:
        """Clients that have asked, in this order: each has its place, or stands in line, before the next one asks."""
        clients, places = [], server.places
        for path in paths:
            client = self.connect(server)
            before = places.taken + places.waiting
            self.ask(client, path)
            self.until(lambda before=before: places.taken + places.waiting > before)  # type: ignore[misc]
            clients.append(client)
        return clients

    def test_a_request_waits_for_its_place_and_is_served(self) -> None:
        """In the line it holds neither a place nor a thread."""
        server = self.serve(self.handle, FrontLimits(places=PlaceLimits(1, 1, 1, PATIENCE_S)))
        clients = self.crowd(server, "/a", "/b")
        self.until(lambda: server.places.waiting == 1 and server.parked == 1)
        self.until(lambda: len(server._workers._idle) == server.threads - 1)
        self.go_on.set()
        self.assertEqual([client.answer().status for client in clients], [200, 200])
        self.until(lambda: (server.places.taken, server.places.waiting) == (0, 0))

    def test_a_request_that_waited_for_too_long_is_refused(self) -> None:
        """503 with a hint; its connection stays."""
        server = self.serve(self.handle, FrontLimits(places=PlaceLimits(1, 1, 1, 0.01)))
        self.crowd(server, "/a")
        refused = self.connect(server)
        refused.send(GET)
        answer = refused.answer()
        self.assert_refused(answer, 503, "overloaded", closes=False)
        self.assertEqual(answer.headers["retry-after"], "1")

    def test_one_party_leaves_places_for_the_others(self) -> None:
        """Its third request waits while the other's first is worked on."""
        server = self.serve(self.handle, FrontLimits(places=PlaceLimits(3, 2, 3, PATIENCE_S)))
        clients = self.crowd(server, "/a", "/a", "/a", "/b")
        for _ in range(3):
            self.begun()
        self.assertEqual((server.places.taken, server.places.waiting), (3, 1))
        self.go_on.set()
        self.assertEqual([client.answer().status for client in clients], [200] * 4)

    def test_a_client_that_leaves_the_line_frees_its_turn_at_once(self) -> None:
        """Closed, reset, or closed on one side only; another may wait in its stead, and nothing is worked on for it."""
        server = self.serve(self.handle, FrontLimits(places=PlaceLimits(1, 1, 1, PATIENCE_S)))
        (staying,) = self.crowd(server, "/a")
        for leave in (Client.close, Client.half_close, Client.reset):
            (leaving,) = self.crowd(server, "/b")
            self.until(lambda: server.places.waiting == 1)
            leave(leaving)
            self.assertIsInstance(self.next_error(), ClientGone)
            self.assertEqual((server.places.waiting, begun(server)), (0, 1))
        (patient,) = self.crowd(server, "/c")
        self.go_on.set()
        self.assertEqual([staying.answer().status, patient.answer().status], [200, 200])
        self.until(lambda: server.places.taken == 0)
        for _ in range(2):
            self.assertTrue(self.began.acquire(timeout=0))
        self.assertFalse(self.began.acquire(timeout=0))

    def test_a_client_that_left_as_its_turn_came_is_not_worked_on(self) -> None:
        """The watch is asked once more before anything is done."""
        server = self.serve(self.handle, FrontLimits(places=PlaceLimits(1, 1, 1, PATIENCE_S)))
        staying, leaving = self.crowd(server, "/a", "/b")
        self.until(lambda: server.places.waiting == 1)
        with mock.patch.object(server, "leaves_line"):
            leaving.half_close()
            self.go_on.set()
            self.assertEqual(staying.answer().status, 200)
            self.assertIsInstance(self.next_error(), ClientGone)
        self.until(lambda: (server.places.taken, begun(server)) == (0, 0))

    def test_a_request_in_line_loses_no_byte(self) -> None:
        """A body that came with it, one that comes while it waits, and a pipelined request behind it."""
        server = self.serve(self.handle, FrontLimits(places=PlaceLimits(1, 1, 3, PATIENCE_S)))
        (first,) = self.crowd(server, "/a")
        whole, split = self.connect(server), self.connect(server)
        whole.send(post(b"abc") + post(b"def"))
        split.send(post(b"ghi")[:-2])
        self.until(lambda: server.places.waiting == 2)
        split.send(b"hi")
        self.go_on.set()
        self.assertEqual(first.answer().status, 200)
        self.assertEqual([whole.answer().body, whole.answer().body, split.answer().body], [b"abc", b"def", b"ghi"])

    @mock.patch("gateway.server._CUT_GRACE_S", PATIENCE_S)
    def test_a_drain_serves_the_line_and_cuts_what_is_left_of_it(self) -> None:
        """Who waits is answered within the grace; after it, it is told 503."""
        server = self.serve(
            self.handle, FrontLimits(places=PlaceLimits(1, 1, 2, PATIENCE_S), announce_s=0, drain_s=0.05)
        )
        self.crowd(server, "/a")
        (waiting,) = self.crowd(server, "/b")
        self.until(lambda: server.places.waiting == 1)
        draining = threading.Thread(target=server.drain, args=(threading.Event(),))
        draining.start()
        self.assert_refused(waiting.answer(), 503, "draining")
        self.go_on.set()
        draining.join()
        self.assertEqual((begun(server), server.places.waiting), (0, 0))

    def test_a_long_line_is_served_by_few_threads_in_its_order(self) -> None:
        """Each that leaves its place hands it to the next in line, on the same thread."""
        seen: list[str] = []
        started, go_on = threading.Event(), threading.Event()

        def handle(exchange: Exchange) -> None:
            exchange.enter("one party")
            started.set()
            go_on.wait(PATIENCE_S)
            seen.append(exchange.head.path)
            exchange.respond(200, TEXT, b"")

        server = self.serve(handle, FrontLimits(places=PlaceLimits(1, 1, 80, PATIENCE_S)))
        clients = self.crowd(server, "/0")
        self.assertTrue(started.wait(PATIENCE_S))
        for number in range(1, 41):
            clients += self.crowd(server, f"/{number}")
            self.until(lambda number=number: server.places.waiting == number)  # type: ignore[misc]
        go_on.set()
        self.assertEqual([client.answer().status for client in clients], [200] * 41)
        self.assertEqual(seen, [f"/{number}" for number in range(41)])
        self.assertLess(server.threads, 10)

    def test_places_come_back_whatever_ended_the_request(self) -> None:
        """An answer, an error, a client that left, a body that broke off."""
        server = self.serve(self.handle, FrontLimits(places=PlaceLimits(2, 2, 0, 0)))
        self.go_on.set()
        for raw in (GET, post(b"abc"), post(b"abc")[:-1], post(b"")[:-2] + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"):
            client = self.connect(server)
            client.send(raw)
            client.half_close()
            client.rest()
            self.until(lambda: (server.places.taken, begun(server)) == (0, 0))

    def test_a_connection_that_cannot_wait_is_closed_and_its_heir_is_served(self) -> None:
        """Once the kernel watches no more descriptors."""
        server = self.serve(self.handle, FrontLimits(places=PlaceLimits(1, 1, 1, PATIENCE_S)))
        first, second = self.crowd(server, "/a", "/b")
        with mock.patch.object(server._lobby, "_arm", side_effect=OSError(errno.ENOSPC, "no more watches")):
            self.go_on.set()
            self.assertEqual([first.answer().status, second.answer().status], [200, 200])
            self.assertEqual([first.rest(), second.rest()], [b"", b""])
            self.assertEqual([type(self.next_error()) for _ in range(2)], [OSError, OSError])
        self.until(lambda: (server.places.taken, begun(server), server.connections) == (0, 0, 0))

    def test_all_threads_at_work_is_an_overload(self) -> None:
        """Told without one; health has threads of its own."""
        with mock.patch("gateway.server._UNPLACED", 0):
            limits = FrontLimits(places=PlaceLimits(2, 2, 1, PATIENCE_S))
            server = self.serve(self.handle, limits, exempt=lambda path: path == "/healthz")
        clients = self.crowd(server, "/a", "/b")
        refused = self.connect(server)
        refused.send(GET)
        self.assert_refused(refused.answer(), 503, "overloaded", closes=False)
        self.assertEqual(server.threads, 2)
        self.go_on.set()
        health = self.connect(server)
        health.send(GET.replace(b"/hello", b"/healthz"))
        self.assertEqual([client.answer().status for client in (*clients, health)], [200] * 3)

    def test_a_full_house_is_told_without_a_thread(self) -> None:
        """Whoever asks, with whatever key."""
        server = self.serve(self.handle, FrontLimits(places=PlaceLimits(1, 1, 1, PATIENCE_S)))
        clients = self.crowd(server, "/a", "/b")
        self.until(lambda: server.places.waiting == 1)
        refused = self.connect(server)
        refused.send(GET)
        self.assert_refused(refused.answer(), 503, "overloaded", closes=False)
        self.assertEqual((begun(server), server.in_flight, server.queued), (2, 1, 1))
        self.go_on.set()
        self.assertEqual([client.answer().status for client in clients], [200, 200])

    def test_a_client_that_was_turned_down_asks_again_on_its_connection(self) -> None:
        """If all of its request was read: a body that is still to come would be taken for the next request."""
        server = self.serve(self.handle, FrontLimits(places=PlaceLimits(1, 1, 0, PATIENCE_S)))
        (staying,) = self.crowd(server, "/a")
        patient, partial, old, head = (self.connect(server) for _ in range(4))
        for raw in (GET, post(b"abc")):
            patient.send(raw)
            self.assert_refused(patient.answer(), 503, "overloaded", closes=False)
        partial.send(post(b"abc")[:-1])
        self.assert_refused(partial.answer(), 503, "overloaded")
        old.send(GET.replace(b"HTTP/1.1", b"HTTP/1.0"))
        self.assert_refused(old.answer(), 503, "overloaded")
        head.send(GET.replace(b"GET", b"HEAD") + GET)
        self.assertEqual(head.rest().count(b"overloaded"), 0)
        self.go_on.set()
        self.assertEqual(staying.answer().status, 200)
        self.until(lambda: server.places.taken == 0)
        patient.send(post(b"def"))
        self.assertEqual(patient.answer().body, b"def")

    def test_health_beside_those_who_may_not_even_ask(self) -> None:
        """A worker that goes on with a client whose turn is over tells it so, and serves its health."""
        server = self.serve(
            self.handle, FrontLimits(places=PlaceLimits(1, 1, 0, PATIENCE_S)), exempt=lambda path: path == "/healthz"
        )
        client = self.connect(server)
        client.send(post(b"a") + GET.replace(b"/hello", b"/healthz") + post(b"b"))
        self.go_on.set()
        self.assertEqual([client.answer().status for _ in range(3)], [200, 200, 200])
        self.until(lambda: server.in_flight == 0)
        self.assertTrue(server.places.expect())

    def test_a_crowd_that_does_not_read_keeps_few_threads(self) -> None:
        """Health, and what needs no place elsewhere: nobody without a key may hold the threads by taking no answer."""

        def handle(exchange: Exchange) -> None:
            exchange.respond(200, TEXT, b"x" * 8_000_000 if exchange.head.path.startswith("/long") else b"ok")

        with mock.patch("gateway.server._ATTENDANTS", 10), mock.patch("gateway.server._UNPLACED", 9):
            limits = FrontLimits(places=PlaceLimits(1, 1, 1, PATIENCE_S))
            server = self.serve(handle, limits, exempt=lambda path: path in ("/long-metrics", "/healthz"))
        kinds = ((b"/long-metrics", b"/healthz", server._attendants), (b"/long", b"/short", server._workers))
        for long, short, threads in kinds:
            crowd = [self.connect(server) for _ in range(12)]
            for deaf in crowd:
                deaf.send(GET.replace(b"/hello", long))
                deaf.sock.recv(1)
            self.until(lambda threads=threads: threads.count - len(threads._idle) <= _SLOW_READERS)  # type: ignore[misc]
            asking = self.connect(server)
            asking.send(GET.replace(b"/hello", short))
            self.assertEqual(asking.answer().status, 200)
            for deaf in crowd:
                deaf.close()
            self.until(lambda: begun(server) == 0)

    def test_a_slow_reader_of_health_gets_all_of_it(self) -> None:
        """What its socket does not take at once is waited for."""
        server = self.serve(lambda exchange: exchange.respond(200, TEXT, b"x" * 8_000_000))
        for _ in range(9):
            slow = self.connect(server)
            slow.send(GET)
            self.assertEqual(len(slow.answer().body), 8_000_000)

    def test_a_connection_may_change_between_health_and_requests(self) -> None:
        """Each is served by the threads that are meant for it."""
        names: list[str] = []

        def handle(exchange: Exchange) -> None:
            names.append(threading.current_thread().name.partition("-")[0])
            exchange.respond(200, TEXT, b"")

        client = self.connect(self.serve(handle, exempt=lambda path: path == "/healthz"))
        health = GET.replace(b"/hello", b"/healthz")
        client.send(GET + health + health + GET)
        self.assertEqual([client.answer().status for _ in range(4)], [200] * 4)
        self.assertEqual(names, ["worker", "attendant", "attendant", "worker"])


class RoomTest(FrontCase):
    """Bodies are bounded together, not only each."""

    def serve_bodies(self, **limits: Any) -> tuple[FrontServer, threading.Event, threading.Semaphore]:
        read, go_on = threading.Semaphore(0), threading.Event()
        self.addCleanup(go_on.set)

        def handle(exchange: Exchange) -> None:
            exchange.enter(exchange.head.path)
            exchange.read_body()
            read.release()
            go_on.wait(PATIENCE_S)
            exchange.respond(200, TEXT, b"")

        return self.serve(handle, FrontLimits(**limits)), go_on, read

    def body(self, path: bytes, count: int) -> bytes:
        return post(b"x" * count).replace(b"/hello", path)

    def test_a_body_without_room_is_refused_and_the_room_comes_back(self) -> None:
        """One party may have half; what another needs is there for it, and small bodies always fit."""
        server, go_on, read = self.serve_bodies(max_body_bytes=LARGE, request_memory_bytes=4 * STEP_BYTES)
        clients = []
        for path, count in ((b"/a", LARGE), (b"/a", LARGE), (b"/a", 60_000), (b"/b", LARGE), (b"/b", LARGE)):
            clients.append(self.connect(server))
            clients[-1].send(self.body(path, count))
            self.assertTrue(read.acquire(timeout=PATIENCE_S))
            if path == b"/a" and server.room.taken == 2 * STEP_BYTES:
                refused = self.connect(server)
                refused.send(self.body(path, LARGE))
                self.assert_refused(refused.answer(), 503, "overloaded")
        refused = self.connect(server)
        refused.send(self.body(b"/c", LARGE))
        answer = refused.answer()
        self.assert_refused(answer, 503, "overloaded")
        self.assertEqual(answer.headers["retry-after"], "1")
        go_on.set()
        self.assertEqual([client.answer().status for client in clients], [200] * 5)
        self.until(lambda: server.room.taken == 0)
        self.assertEqual(server.shares.parties, 0)

    def test_only_what_has_arrived_takes_room(self) -> None:
        """A body that was announced and does not come is nobody's loss."""
        server, go_on, read = self.serve_bodies(max_body_bytes=LARGE, request_memory_bytes=LARGE)
        dripping = self.connect(server)
        dripping.send(self.body(b"/a", LARGE)[: 100 - LARGE])
        self.until(lambda: begun(server) == 1)
        other = self.connect(server)
        other.send(self.body(b"/b", LARGE))
        self.assertTrue(read.acquire(timeout=PATIENCE_S))
        go_on.set()
        self.assertEqual(other.answer().status, 200)

    def test_one_whole_body_always_fits(self) -> None:
        """However small the room was made."""
        server, go_on, _ = self.serve_bodies(max_body_bytes=LARGE + 1, request_memory_bytes=10)
        go_on.set()
        client = self.connect(server)
        for _ in range(2):
            client.send(self.body(b"/a", LARGE + 1))
            self.assertEqual(client.answer().status, 200)

    def test_a_cut_body_gives_its_room_back(self) -> None:
        """Sized or chunked."""
        server, _, _ = self.serve_bodies()
        for head, part in (
            (b"Content-Length: %d" % LARGE, b"x" * (LARGE - 1)),
            (b"Transfer-Encoding: chunked", b"fffff\r\n" + b"x" * LARGE),
        ):
            client = self.connect(server)
            client.send(b"POST / HTTP/1.1\r\nHost: gw\r\n" + head + b"\r\n\r\n" + part)
            self.until(lambda: server.room.taken > 0)
            client.close()
            self.assertIsInstance(self.next_error(), ClientGone | Draining)
            self.until(lambda: server.room.taken == 0)


class DescriptorTest(FrontCase):
    def test_a_lack_of_descriptors_is_survived(self) -> None:
        """Connections wait in the backlog meanwhile, and are served afterwards."""
        pauses = threading.Semaphore(0)

        def pause(seconds: float) -> None:
            pauses.release()
            threading.Event().wait(0.001)

        server = self.serve(echo, pause=pause)
        accept, failing = server.socket.accept, threading.Event()
        failing.set()

        def limited() -> tuple[socket.socket, Any]:
            if failing.is_set():
                raise OSError(24, "Too many open files")
            return accept()

        with mock.patch.object(server, "socket", mock.Mock(wraps=server.socket, accept=limited)):
            client = self.connect(server)
            client.send(GET)
            for _ in range(3):
                self.assertTrue(pauses.acquire(timeout=PATIENCE_S))
            failing.clear()
            self.assertEqual(client.answer().status, 200)


if __name__ == "__main__":
    unittest.main()
