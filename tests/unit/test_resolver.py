"""Name resolution off the caller's path."""

import select
import socket
import threading
import unittest
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

from llmkit.resolver import Address, Resolver, system_lookup

HERE: Sequence[Address] = [(socket.AF_INET, ("192.0.2.1", 80))]


class Clock:
    """Seconds that pass when told to."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class Lookups:
    """A name server: counts what it is asked, and answers when it may."""

    def __init__(self, *, failure: Exception | None = None) -> None:
        self.asked: list[tuple[str, int]] = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        self._failure = failure

    def __call__(self, host: str, port: int) -> Sequence[Address]:
        self.asked.append((host, port))
        if not self.may_answer.wait(10):
            raise AssertionError("nobody let the look-up go on")
        if self._failure is not None:
            raise self._failure
        return HERE


def until_readable(fd: int) -> None:
    """Wait as a patient caller does."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    if not poll.poll(10_000):
        raise AssertionError("the look-up never finished")


class ResolverTest(unittest.TestCase):
    """Resolver over a scripted name server."""

    def setUp(self) -> None:
        """A clock at 0 and a name server that answers at once."""
        self.clock = Clock()
        self.lookups = Lookups()
        self.resolver = Resolver("api.example", 443, clock=self.clock, ttl_s=60, lookup=self.lookups)

    def test_a_name_is_looked_up_once_a_minute(self) -> None:
        """The cache holds until its time is over, not longer."""
        for now_s, asked in ((0, 1), (59.9, 1), (60, 2), (119, 2), (121, 3)):
            with self.subTest(now_s=now_s):
                self.clock.now_s = now_s
                self.assertEqual(self.resolver.addresses(until_readable), HERE)
                self.assertEqual(len(self.lookups.asked), asked)

    def test_a_numeric_host_is_not_looked_up(self) -> None:
        """IPv4 and IPv6 literals need no name server."""
        for host, family in (("192.0.2.7", socket.AF_INET), ("2001:db8::7", socket.AF_INET6)):
            with self.subTest(host):
                ((found, address),) = Resolver(host, 1, clock=self.clock, lookup=self.lookups).addresses(until_readable)
                self.assertEqual((found, address[:2]), (family, (host, 1)))
        self.assertEqual(self.lookups.asked, [])

    def test_a_caller_can_leave_while_the_name_server_hangs(self) -> None:
        """What its wait raises passes through, and the next caller joins the look-up that still runs."""
        self.lookups.may_answer.clear()

        def leave(_: int) -> None:
            raise TimeoutError("enough")

        for _ in range(3):
            with self.assertRaises(TimeoutError):
                self.resolver.addresses(leave)

        def let_go_on(fd: int) -> None:
            self.lookups.may_answer.set()
            until_readable(fd)

        self.assertEqual(self.resolver.addresses(let_go_on), HERE)
        self.assertEqual(self.lookups.asked, [("api.example", 443)])

    def test_a_failure_reaches_everyone_and_is_not_remembered(self) -> None:
        """It is an OSError whatever the look-up raised; the next call asks again."""
        for failure in (socket.gaierror(-2, "Name or service not known"), UnicodeError("label too long")):
            with self.subTest(type(failure).__name__):
                lookups = Lookups(failure=failure)
                resolver = Resolver("api.example", 443, clock=self.clock, lookup=lookups)
                for asked in (1, 2):
                    with self.assertRaisesRegex(OSError, str(failure.args[-1])):
                        resolver.addresses(until_readable)
                    self.assertEqual(len(lookups.asked), asked)

    def test_a_name_without_addresses_is_a_failure(self) -> None:
        """An empty answer is not an address."""
        resolver = Resolver("api.example", 443, clock=self.clock, lookup=lambda _host, _port: [])
        with self.assertRaises(OSError):
            resolver.addresses(until_readable)

    def test_the_system_is_asked_in_bytes(self) -> None:
        """For a text, Python would load its tables for names in other scripts, which no base URL has."""
        with mock.patch.object(socket, "getaddrinfo", return_value=[]) as system:
            system_lookup("api.example", 443)
        self.assertEqual(system.call_args.args, (b"api.example", 443))

    def test_look_ups_leave_no_descriptor_open(self) -> None:
        """The pipe of each look-up is closed at both ends."""
        before = self._descriptors()
        for now_s in range(0, 60 * 20, 60):
            self.clock.now_s = now_s
            self.resolver.addresses(until_readable)
        self.assertEqual(len(self.lookups.asked), 20)
        self.assertLessEqual(self._descriptors(), before)

    def _descriptors(self) -> int:
        """How many are open, once no look-up runs."""
        for thread in threading.enumerate():
            if thread.name.startswith("resolve"):
                thread.join(10)
        return len(list(Path("/proc/self/fd").iterdir()))
