"""The HTTP front: who is accepted, which thread serves whom, and how the process stops.

It knows no routes, no keys and no JSON but its own refusals; what a request means is decided by the one function handed
in, which gets an Exchange for each. What is where:

    accept (a thread)   takes connections, or turns them away without ever waiting: listener.py
    lobby (a thread)    connections that wait for a request or read its head: lobby.py
    workers             each runs one exchange to its end, then stays with its connection for a moment: workers.py
    attendants          the same for exempt paths (health, operators), which never wait for a worker or a place, and
                        do not stay
    places              who of the requests may be worked on, and the line for it: places.py; who waits has no thread
    turnstile           which of those that never wait run: turnstile.py; who waits for that has no thread either
    refusals            whose connections rest, for they were refused too often: refusals.py

Whoever calls `drain` waits for them. TLS is not spoken here: put a terminating proxy in front.
"""

import functools
import socket
import threading
from collections.abc import Callable
from typing import Any

from msgspec import Struct, field

from gateway.answers import Headers, refusal_answer, told_of
from gateway.clock import Clock
from gateway.connection import Connection, prepare
from gateway.errors import ClientGone, GatewayError, HttpRefusal, Overloaded, ShuttingDown, forget
from gateway.exchange import Exchange, MustWait, Phase
from gateway.http_head import HeadLimits, RequestHead
from gateway.listener import Listener
from gateway.lobby import Lobby
from gateway.places import Admittance, PlaceLimits, Places
from gateway.refusals import Refusals
from gateway.turnstile import NoTurn, Turnstile
from gateway.workers import IDLE_S, Workers
from llmkit.room import STEP_BYTES, Claim, Room, Shares

_CUT_GRACE_S = 2.0  # for the last event of an exchange that is cut, and for the connections to end
_LOOK_S = 0.05  # how often a drain looks whether it should hurry
_UNPLACED = 64  # threads beyond those of places and line: for keys that are checked, and for what is refused
_ATTENDANTS = 64
_SLOW_READERS = 8  # an operator's long list, a scrape: what a socket does not take at once


class FrontLimits(Struct, frozen=True):
    """What clients may take of this process; seconds above 0 (the two of the drain 0 or more), counts above 0.

    places                who may be worked on, and the line for it
    request_memory_bytes   of all request bodies that are held, half for one party; but never less than one whole body
    """

    max_body_bytes: int = 20_000_000
    request_memory_bytes: int = 268_435_456
    max_connections: int = 2048
    places: PlaceLimits = field(default_factory=PlaceLimits)
    header_timeout_s: float = 10
    body_timeout_s: float = 30
    write_timeout_s: float = 30
    idle_timeout_s: float = 75
    announce_s: float = 5
    drain_s: float = 30
    head: HeadLimits = field(default_factory=HeadLimits)

    @property
    def room_of_one(self) -> int:
        """What the largest body takes: room is taken in steps."""
        return self.max_body_bytes + STEP_BYTES

    @property
    def max_threads(self) -> int:
        """Threads that serve requests, at most; those that wait in line need none."""
        return self.places.places + _UNPLACED


class FrontServer(Listener):
    """Accepts connections, runs `handle` once per request, and drains.

    handle    called on a thread of its own; may raise GatewayError, ClientGone, Draining or anything else, which is
              answered, if nothing was sent yet, and closes the connection. If it lets MustWait pass, it is called again
              for the same request once there is a place for it
    exempt    whether a path (health) is served however many requests there are
    on_error  told of every exception that ended an exchange or a head, with the request's id if it has one, and of a
              lack of descriptors or threads; sorts by type, writes no secrets, never raises
    stamp     headers of each answer that the front makes by itself: what is known of a request, by its id if it has
              one, of which the client is told this error
    pause     waits for so many seconds, where no connection can be accepted

    What an exchange reads for each request is a plain attribute, also where it follows from `limits` or `phase`.
    `_lock` guards `_connections`; it is held for no call of a caller's function and for no I/O. `phase` only grows, and
    `_busy` and `_in_line` change, in single steps: whoever ends the last exchange looks at `phase` after that, and
    whoever drains at `_busy` after `phase`, so one sees the other. `turned_away` is written by the accept thread alone.
    """

    def __init__(
        self,
        address: tuple[str, int],
        handle: Callable[[Exchange], None],
        limits: FrontLimits,
        clock: Clock,
        *,
        exempt: Callable[[str], bool] = lambda path: False,
        on_error: Callable[[BaseException, str | None], None] = lambda error, request_id: None,
        stamp: Callable[[GatewayError, str | None], Headers] = lambda error, request_id: b"",
        pause: Callable[[float], object] | None = None,
    ) -> None:
        """Bind and listen; OSError if the address is taken. Connections are accepted after `start`."""
        super().__init__(address, self.on_error, pause)
        prepare(self.socket, limits.write_timeout_s)
        self.limits = limits
        self.clock = clock
        self._on_error = on_error
        self.phase = Phase.SERVING
        self.draining = False
        self.turned_away = 0
        self.places: Places[Exchange] = Places(limits.places)
        self.max_body_bytes = limits.max_body_bytes
        self.body_timeout_s = limits.body_timeout_s
        self.room = Room(max(limits.request_memory_bytes, limits.room_of_one))
        self.slow_readers: threading.Semaphore = threading.BoundedSemaphore(_SLOW_READERS)
        self.shares = Shares(max(limits.request_memory_bytes // 2, limits.room_of_one), within=self.room)
        self._handle = handle
        self._exempt = exempt
        self._stamp = stamp
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._connections: set[Connection] = set()
        self._busy: set[Connection] = set()
        self._in_line: dict[Connection, Exchange] = {}
        self._refusals = Refusals()
        self._turnstile = Turnstile()
        self._workers = Workers(limits.max_threads, "worker", self.on_error, idle_s=IDLE_S)
        self._attendants = Workers(_ATTENDANTS, "attendant", self.on_error, idle_s=IDLE_S)
        self._lobby = Lobby(
            self,
            limits.head,
            clock,
            idle_timeout_s=limits.idle_timeout_s,
            header_timeout_s=limits.header_timeout_s,
            queue_wait_s=limits.places.queue_wait_s,
        )

    @property
    def in_flight(self) -> int:
        """Exchanges that are being worked on: begun, not ended, and not in line for a place."""
        return sum(connection not in self._in_line for connection in list(self._busy))

    @property
    def queued(self) -> int:
        """Requests that wait for a place."""
        return self.places.waiting

    @property
    def connections(self) -> int:
        """Open connections within the limit."""
        return len(self._connections)

    @property
    def parked(self) -> int:
        """Connections that take no thread."""
        return self._lobby.parked

    @property
    def threads(self) -> int:
        """Threads that serve requests, idle ones included."""
        return self._workers.count + self._attendants.count

    # --- life ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Accept connections, and look after them."""
        self._lobby.start()
        self.start_accepting()

    def drain(self, stop_now: threading.Event) -> int:
        """Stop gently and return how many exchanges were left behind.

        Announces for announce_s, then finishes what is in flight within drain_s, then closes everything. `stop_now`
        cuts every wait short. Blocks; call it on no thread of this server.
        """
        self.begin_drain()
        stop_now.wait(self.limits.announce_s)
        self.stop_admitting()
        return self.finish(self.clock.now_s() + self.limits.drain_s, stop_now)

    def begin_drain(self) -> None:
        """From now on every answer closes its connection; requests are still served."""
        self._advance(Phase.ANNOUNCING)

    def stop_admitting(self) -> None:
        """Close idle connections, and let `draining` tell the function handed in to refuse what arrives."""
        self._advance(Phase.DRAINING)
        self._lobby.empty_idle()

    def finish(self, deadline_s: float, stop_now: threading.Event) -> int:
        """Wait for the exchanges in flight until `deadline_s` of the clock, cut the others, and close.

        A cut exchange's `cancel` gives Draining; it has two seconds to tell its client. Returns how many were left.
        """
        if not self._wait_until(self._is_quiet, deadline_s, stop_now):
            for connection in list(self._busy):
                connection.cut()
            self._wait_until(self._is_quiet, self.clock.now_s() + _CUT_GRACE_S, stop_now)
        left = len(self._busy)
        self.stop_accepting()
        self._wait_until(self._is_deserted, self.clock.now_s() + _CUT_GRACE_S, stop_now)
        self.close()
        return left

    def close(self) -> None:
        """Stop accepting and cut every connection at once."""
        self._advance(Phase.CLOSED)
        self.stop_accepting()
        for connection in list(self._busy):
            connection.shut(socket.SHUT_RDWR)
        self._lobby.close()

    # --- requests -----------------------------------------------------------------------------------------------

    def hand_on(self, connection: Connection, head: RequestHead) -> None:
        """Called by the lobby: give the request a thread, unless there can be no place for it, not even in line."""
        exchange = self._admit(connection, head)
        if exchange is not None:
            self._start(exchange)

    def refuse(self, connection: Connection, refusal: GatewayError) -> None:
        """Answer without waiting, and let the client hang up."""
        connection.write_at_once(self.refusal(refusal))
        connection.say_end()
        self._lobby.dismiss(connection)
        self.on_error(refusal)

    def closed(self, connection: Connection) -> None:
        """Called once a connection is closed."""
        with self._lock:
            self._connections.discard(connection)
            if not self._connections:
                self._changed.notify_all()

    def on_error(self, error: BaseException, request_id: str | None = None) -> None:
        """Report what ended an exchange, a head or a connection."""
        self._on_error(error, request_id)

    def claim(self, party: str | None) -> Claim:
        """A claim on the memory for bodies, within the share of its party."""
        return Claim(self.shares.of(party))

    def refusal(
        self, error: BaseException, request_id: str | None = None, *, with_body: bool = True, closes: bool = True
    ) -> bytes:
        """The front's own answer to a request that `error` ends, whole; it announces the close if the connection
        `closes` after it.
        """
        told = told_of(error, request_id)
        return refusal_answer(told, self._stamp(told, request_id), with_body=with_body, closes=closes)

    def _admit(self, connection: Connection, head: RequestHead) -> Exchange | None:
        """Begin to work on a request; None if it was turned down since no more may even ask for a place."""
        exchange = Exchange(self, connection, head, self._exempt(head.path))
        self._busy.add(connection)
        if exchange.is_exempt or self.places.expect():
            return exchange
        self._turn_down(exchange)
        return None

    def _start(self, exchange: Exchange) -> bool:
        """Give a request a thread, or turn it down; whether it has one."""
        workers = self._attendants if exchange.is_exempt else self._workers
        if workers.submit(functools.partial(self._work, exchange)):
            return True
        if not exchange.is_exempt:
            self.places.turn_back()
        self._turn_down(exchange)
        return False

    def _work(self, exchange: Exchange | None) -> None:
        """A worker's work: a request, then the one that has its place now, or what the same client asks for next."""
        while exchange is not None:
            exchange = self._serve(exchange)

    def _serve(self, exchange: Exchange) -> Exchange | None:
        """Run one exchange to its end, whatever happens; what this worker is to do next, if anything."""
        connection = exchange.connection
        try:
            if connection.is_quick and not exchange.is_exempt and not exchange.has_waited:
                exchange.take_turn(self._turnstile)
            self._handle(exchange)
            if not exchange.ended:
                raise RuntimeError("a request was left without an end of its answer")
        except NoTurn:
            return self._await_turn(exchange)
        except MustWait as must_wait:
            return self._line_up(exchange, must_wait.party)
        except BaseException as error:  # noqa: BLE001 - nothing may leave an exchange open
            exchange.fail(error)
            self.on_error(error, exchange.request_id)
            forget(error)
        heir = exchange.release()
        connection.is_quick, connection.party = not exchange.has_waited, exchange.party
        self._end(connection)
        if heir is not None:
            self._take_out(heir)
        if self._must_rest(exchange):
            self._lobby.rest(connection)
            return heir
        if heir is not None:
            self._set_aside(connection, exchange)
            return heir
        lingers = not exchange.is_exempt and not self._workers.crowded
        head = self._go_on(connection, exchange, lingers=lingers)
        following = self._admit(connection, head) if head is not None else None
        if following is not None and following.is_exempt is not exchange.is_exempt:
            self._start(following)
            return None
        return following

    def _must_rest(self, exchange: Exchange) -> bool:
        """Whether the client of an exchange that was answered is to be read later: it was refused too often."""
        is_refused = exchange.is_refused and exchange.keep
        return is_refused and self._refusals.are_too_many(exchange.party, self.clock.now_s())

    def _set_aside(self, connection: Connection, exchange: Exchange) -> None:
        """After an exchange whose place somebody waits for: what its client asks for next is for another worker."""
        if exchange.keep and not connection.has_unread:
            self._lobby.park(connection)
        elif (head := self._go_on(connection, exchange, lingers=False)) is not None:
            self.hand_on(connection, head)

    def _go_on(self, connection: Connection, exchange: Exchange, *, lingers: bool) -> RequestHead | None:
        """After an exchange: the client's next request, if it is there; else let the connection go, or wait."""
        if not exchange.keep:
            self._part(connection, is_whole=exchange.has_body and connection.is_silent())
            return None
        try:
            head = self._next_head(connection, lingers=lingers)
        except HttpRefusal as refusal:
            self.refuse(connection, refusal)
            return None
        if head is None and connection.gone:
            self._lobby.let_go(connection)
        elif head is None:
            self._lobby.park(connection)
        return head

    # --- the turn -----------------------------------------------------------------------------------------------

    def _await_turn(self, exchange: Exchange) -> Exchange | None:
        """Let a request wait for its turn, neither with a thread nor expected; itself, if there is a turn by now."""
        if not self._turnstile.join(exchange.connection.party, functools.partial(self._begin_turn, exchange)):
            return exchange
        self.places.turn_back()
        return None

    def _begin_turn(self, exchange: Exchange) -> bool:
        """Give a request whose turn has come a thread, or turn it down; whether it has one, and so has the turn."""
        self.places.expect_again()
        exchange.have_turn(self._turnstile)
        exchange.connection.is_quick = False
        return self._start(exchange)

    # --- the line -----------------------------------------------------------------------------------------------

    def _line_up(self, exchange: Exchange, party: str) -> Exchange | None:
        """Let a request wait without a thread; itself, if it may be worked on after all."""
        connection = exchange.connection
        exchange.stand_in_line(party)
        connection.party = party
        self._in_line[connection] = exchange
        self._lobby.line_up(connection)
        admittance = self.places.join(party, exchange)
        if admittance is Admittance.IN_LINE:
            self._lobby.watch(connection)
            return None
        self._take_out(exchange)
        if admittance is Admittance.SEATED:
            return exchange
        self._turn_down(exchange)
        return None

    def _take_out(self, exchange: Exchange) -> None:
        """Its wait is over: the connection belongs to whoever calls this."""
        self._in_line.pop(exchange.connection, None)
        self._lobby.take(exchange.connection)

    def leaves_line(self, connection: Connection, *, late: bool) -> bool:
        """Called by the lobby: the request has waited for too long, or its client has left. False if it has a place."""
        exchange = self._in_line.get(connection)
        if exchange is None or not self.places.quit(exchange):
            return False
        self._take_out(exchange)
        if late:
            self._turn_down(exchange)
            return True
        self._end(connection)
        if connection.watch.drained:
            self.refuse(connection, ShuttingDown())
        else:
            self._lobby.let_go(connection)
            self.on_error(ClientGone())
        return True

    def _turn_down(self, exchange: Exchange) -> None:
        """Answer that there is no place, without waiting; the client keeps its connection if all of it was read."""
        connection, head = exchange.connection, exchange.head
        self._end(connection)
        is_whole = connection.drop_body(head)
        keeps = is_whole and head.keep_alive and head.takes_chunks and not self.phase
        refusal = Overloaded()
        answer = self.refusal(refusal, with_body=head.method != "HEAD", closes=not keeps)
        if connection.write_at_once(answer) == len(answer) and keeps:
            self._lobby.park(connection)
        else:
            self._part(connection, is_whole=is_whole)
        self.on_error(refusal)

    # --- what is in flight ----------------------------------------------------------------------------------------

    def _end(self, connection: Connection) -> None:
        self._busy.discard(connection)
        if self.phase and not self._busy:
            with self._lock:
                self._changed.notify_all()

    def _next_head(self, connection: Connection, *, lingers: bool) -> RequestHead | None:
        """The next request of the same client, if its head is there, or within a moment. Raises HttpRefusal."""
        if connection.has_unread and (head := connection.take_head(self.limits.head)) is not None:
            return head
        if self.draining:
            arrived = connection.pull()
            connection.gone = connection.gone or not arrived
        else:
            arrived = connection.linger() if lingers else connection.pull()
        return connection.take_head(self.limits.head) if arrived else None

    def _part(self, connection: Connection, *, is_whole: bool) -> None:
        """End a connection after its last answer: at once if all was read that its client has to send."""
        if connection.gone or is_whole:
            self._lobby.let_go(connection)
        else:
            connection.say_end()
            self._lobby.dismiss(connection)

    # --- connections --------------------------------------------------------------------------------------------

    def process_request(self, request: Any, client_address: Any) -> None:
        """Let the connection wait for its first request, if there is room for it."""
        connection = Connection(request)
        with self._lock:
            is_within = len(self._connections) < self.limits.max_connections
            if is_within:
                self._connections.add(connection)
        if is_within:
            self._lobby.welcome(connection)
        else:
            self.turned_away += 1
            connection.write_at_once(self.refusal(Overloaded("Too many connections are open.")))
            connection.say_end()
            self._lobby.turn_away(connection)

    # --- the drain ------------------------------------------------------------------------------------------------

    def _advance(self, phase: Phase) -> None:
        self.phase = max(self.phase, phase)
        self.draining = self.phase >= Phase.DRAINING

    def _is_quiet(self) -> bool:
        return not self._busy

    def _is_deserted(self) -> bool:
        return not self._connections

    def _wait_until(self, condition: Callable[[], bool], deadline_s: float, stop_now: threading.Event) -> bool:
        """Wait for `condition` until the deadline or until told to hurry; whether it holds."""
        with self._lock:
            while not condition() and not stop_now.is_set():
                left_s = deadline_s - self.clock.now_s()
                if left_s <= 0:
                    break
                self._changed.wait(min(left_s, _LOOK_S))
            return condition()
