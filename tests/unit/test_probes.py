"""`python -m probes`: what it prints, what it exits with, and what a verdict is."""

import ast
import contextlib
import io
import json
import socket
import threading
import unittest
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from probes import wire
from probes.__main__ import main
from probes.catalog import PROBES
from probes.lab import Enough, Lab, Probe, run
from probes.rates import most_over, most_spare
from probes.target import Target, shares
from probes.wire import JUNK, Ending, Heard, Wire, say
from tests import _paths


def harmless(lab: Lab) -> str:
    """Finds nothing.

    And says so.
    """
    lab.check(True, "never told")
    return f"waited {lab.seconds:g} s"


def alarmed(lab: Lab) -> str:
    """Finds six faults."""
    for number in range(6):
        lab.check(False, f"fault {number}")
    return "never told"


def broken(lab: Lab) -> str:
    """Cannot do its work."""
    raise ConnectionError("nobody\nthere")


HARMLESS, ALARMED, BROKEN = (
    Probe("harmless", "calm", harmless),
    Probe("alarmed", "loud", alarmed),
    Probe("broken", "loud", broken),
)


class MainTest(unittest.TestCase):
    """The command line, with probes that need no gateway."""

    def output(self, *arguments: str, probes: tuple[Probe, ...] = (HARMLESS, ALARMED, BROKEN)) -> tuple[int, list[str]]:
        """Exit status and lines of a run."""
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            status = main(arguments, probes)
        return status, printed.getvalue().splitlines()

    def test_a_line_for_each_probe_and_a_status(self) -> None:
        """1 as soon as one has found something."""
        status, lines = self.output()
        self.assertEqual(status, 1)
        self.assertEqual(
            lines,
            [
                "not found  harmless: waited 6 s",
                "FOUND      alarmed: fault 0; fault 1; fault 2; fault 3; and 2 more",
                "FOUND      broken: the probe could not go on: ConnectionError: nobody there",
                "3 probes, 2 found something",
            ],
        )
        status, lines = self.output("--seconds", "2", probes=(HARMLESS,))
        self.assertEqual((status, lines), (0, ["not found  harmless: waited 2 s", "1 probes, 0 found something"]))

    def test_some_are_chosen_by_name_or_area(self) -> None:
        """More than one of either; a name that nobody has is an error, so that a typing error is no success."""
        self.assertEqual(len(self.output("--only", "loud")[1]), 3)
        self.assertEqual(len(self.output("--only", "loud", "--only", "harmless")[1]), 4)
        self.assertEqual(self.output("--only", "harmless")[0], 0)
        with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()) as told:
            self.output("--only", "harmles")
        self.assertIn("harmles", told.getvalue())

    def test_what_there_is_can_be_listed(self) -> None:
        """Area, name and aim; nothing runs."""
        status, lines = self.output("--list")
        self.assertEqual((status, len(lines)), (0, 3))
        self.assertEqual(lines[0].split(maxsplit=2), ["calm", "harmless", "Finds nothing."])

    def test_verdicts_as_json(self) -> None:
        """One object per line and nothing else."""
        _, lines = self.output("--json", "--only", "calm")
        self.assertEqual(
            [json.loads(line) for line in lines],
            [{"name": "harmless", "area": "calm", "verdict": "not found", "seen": "waited 6 s"}],
        )


class CatalogTest(unittest.TestCase):
    """The probes that there are."""

    def test_each_has_a_name_of_its_own_and_an_aim(self) -> None:
        """One line that says what it tries."""
        self.assertEqual(len({probe.name for probe in PROBES}), len(PROBES))
        for probe in PROBES:
            self.assertRegex(probe.aim, r"^[A-Z0-9].*[.]$", probe.name)

    def test_probes_do_not_lean_on_the_tests(self) -> None:
        """What both need is written twice rather than believed once."""
        for file in (_paths.ROOT / "probes").glob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                self.assertFalse([name for name in names if name.partition(".")[0] == "tests"], file.name)


class BooksTest(unittest.TestCase):
    """What the lab looks at by itself, once a probe is done."""

    def test_a_gateway_that_reported_an_error_is_found(self) -> None:
        """Whatever the probe itself has seen."""

        def careless(lab: Lab) -> str:
            lab.inside(lab.upstream()).errors.append(ValueError("nobody asked"))
            return "all is well"

        verdict = run(Probe("careless", "calm", careless), Lab())
        self.assertTrue(verdict.found)
        self.assertIn("nobody asked", verdict.seen)

    def test_a_limit_that_nobody_was_told_of_is_found(self) -> None:
        """A probe may set it; a user would not know that it is there."""

        def trusting(lab: Lab) -> str:
            lab.server(header_timeout_s=1, a_limit_of_ours=2)
            return "all is well"

        verdict = run(Probe("trusting", "calm", trusting), Lab())
        self.assertEqual(verdict.seen, "the limit a_limit_of_ours is not documented")


REFUSED = b'HTTP/1.1 400 Bad Request\r\ncontent-length: 23\r\n\r\n{"error":{"code":"no"}}'
SERVED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"


class HeardTest(unittest.TestCase):
    """What is made of the bytes that came back."""

    def test_each_answer_is_seen(self) -> None:
        """Interim ones, chunks, lengths, and none at all."""
        interim = b"HTTP/1.1 100 Continue\r\n\r\n"
        heard = Heard(interim + SERVED + REFUSED, True, 0.1)
        self.assertEqual(heard.statuses, (100, 200, 400))
        self.assertEqual([answer.body[:3] for answer in heard.answers], [b"", b"abc", b'{"e'])
        self.assertEqual(Heard(b"", True, 0).answers, [])

    def test_what_is_no_answer_is_junk(self) -> None:
        """HTML without a head, half a head, and bytes behind an answer."""
        for raw in (b"<html>", b"HTTP/1.1 200 OK\r\n", b"HTTP/0.9 200\r\n\r\n"):
            self.assertEqual(Heard(raw, True, 0).statuses, (JUNK,))
        self.assertEqual(Heard(SERVED + b"more", True, 0).statuses, (200, JUNK))

    def test_an_answer_that_is_cut_is_not_whole(self) -> None:
        """Wherever its body is cut."""
        for raw in (SERVED[:-1], SERVED[:-6], REFUSED[:-9]):
            [answer] = Heard(raw, True, 0).answers
            self.assertFalse(answer.whole, raw)


class RefusalTest(unittest.TestCase):
    """What the probes of bytes ask of each answer."""

    def faults(self, raw: bytes, *, closed: bool = True) -> list[str]:
        """What is wrong with these bytes as a refusal with 400."""
        found: list[str] = []
        target = Target.__new__(Target)
        target.check = lambda is_right, fault: None if is_right else found.append(fault)
        target.check_refusal("x", Heard(raw, closed, 0), 400)
        return found

    def test_one_refusal_and_then_the_end(self) -> None:
        """A second answer, another status, none, a connection that goes on, and no JSON are faults."""
        self.assertEqual(self.faults(REFUSED), [])
        self.assertEqual(self.faults(REFUSED, closed=False), ["x: the connection is left open"])
        self.assertEqual(self.faults(REFUSED + SERVED), ["x: answered [400, 200]"])
        self.assertEqual(self.faults(REFUSED.replace(b"400", b"401")), ["x: answered [401]"])
        self.assertEqual(self.faults(b""), ["x: answered nothing"])
        self.assertEqual(self.faults(REFUSED[:-23] + b"x" * 23), [f"x: no error in JSON: {b'x' * 23!r}"])

    def test_shares_are_counted(self) -> None:
        """By status, in order."""
        self.assertEqual(shares([404, 400, 404]), "1 x 400, 2 x 404")
        self.assertEqual(shares([]), "no answer")


class RatesTest(unittest.TestCase):
    """By how much admissions pass a rate of 20 a second and a burst of 10, each known to lie between two moments."""

    def test_a_burst_and_its_refill_are_no_more_than_may_be(self) -> None:
        """Ten at once, then one for each twentieth of a second."""
        exact = [(0.0, 0.0)] * 10 + [(at / 20, at / 20) for at in range(1, 9)]
        self.assertAlmostEqual(most_over(exact), 0)

    def test_one_more_is_over_by_one(self) -> None:
        """At once, or in an interval that does not begin with the first."""
        self.assertEqual(most_over([(0.0, 0.0)] * 11), 1)
        self.assertAlmostEqual(most_over([(0.0, 0.0), *[(5.0, 5.0)] * 11, (5.05, 5.05)]), 1)

    def test_what_takes_long_may_have_been_admitted_early_or_late(self) -> None:
        """An interval counts only those that surely lie in it."""
        self.assertLess(most_over([(0.0, 0.0)] * 10 + [(0.0, 0.5)] * 5), 0.001)
        self.assertLess(most_over([(0.0, 1.0)] * 5 + [(0.9, 0.9)] * 10), 0.001)

    def test_of_nothing_nothing_is_over(self) -> None:
        """Nor of one."""
        self.assertLess(most_over([]), 0)
        self.assertLess(most_over([(1.0, 2.0)]), 0)


class SpareTest(unittest.TestCase):
    """Units of a rate of 20 a second and a burst of 10 that were there at a refusal, which lies between two moments."""

    def test_a_bucket_that_is_empty_has_none(self) -> None:
        """After a burst, and until a whole unit is there again."""
        burst = [(0.0, 0.0)] * 10
        self.assertEqual(most_spare(burst, [(0.0, 0.0)]), 0)
        self.assertAlmostEqual(most_spare(burst, [(0.049, 0.049)]), 0.98)

    def test_a_unit_that_was_there_is_told(self) -> None:
        """Of a full bucket, of one that has refilled, and not more than it holds."""
        self.assertEqual(most_spare([], [(1.0, 2.0)]), 10)
        self.assertAlmostEqual(most_spare([(0.0, 0.0)] * 10, [(0.1, 0.2)]), 2)
        self.assertAlmostEqual(most_spare([(0.0, 0.0)] * 10, [(9.0, 9.0)]), 10)
        self.assertAlmostEqual(most_spare([(0.0, 0.0)] * 9, [(0.0, 0.0), (0.0, 0.1)]), 1)

    def test_what_may_have_been_taken_before_was(self) -> None:
        """By a request that was admitted at some moment before the end of the refusal."""
        self.assertAlmostEqual(most_spare([(0.0, 0.0)] * 5 + [(0.0, 0.5)] * 5, [(0.2, 0.2)]), 4)
        self.assertAlmostEqual(most_spare([(0.0, 0.0)] * 5 + [(0.3, 0.5)] * 5, [(0.2, 0.2)]), 9)
        self.assertAlmostEqual(most_spare([(0.3, 0.5)] * 10, [(0.2, 0.4)]), 0)

    def test_of_no_refusal_nothing_is_told(self) -> None:
        """Whatever was admitted."""
        self.assertEqual(most_spare([(0.0, 1.0)], []), 0)


class OneFaultTest(unittest.TestCase):
    """A lab that looks for one fault."""

    def test_it_ends_with_the_first(self) -> None:
        """And says no more than that one."""
        verdict = run(ALARMED, Lab(one_fault=True))
        self.assertEqual((verdict.found, verdict.seen), (True, "fault 0"))

    def test_a_fault_of_another_thread_ends_nothing_there(self) -> None:
        """The probe's own thread stops at its next one."""
        with Lab(one_fault=True) as lab:
            with ThreadPoolExecutor(1) as elsewhere:
                elsewhere.submit(lab.check, False, "there").result()
            self.assertRaises(Enough, lab.check, False, "here")
        self.assertEqual(lab.faults, ["there", "here"])

    def test_what_never_happens_is_its_fault(self) -> None:
        """Waiting for it ends the probe as a check does; another lab goes on."""
        with Lab(one_fault=True) as lab:
            self.assertRaises(Enough, lab.must, lambda: False, "late", 0)
        with Lab() as lab:
            self.assertFalse(lab.must(lambda: False, "late", 0))
            self.assertTrue(lab.must(lambda: True, "never told", 0))
        self.assertEqual(lab.faults, ["late"])


class WireTest(unittest.TestCase):
    """The client that says every byte, against a peer that does as told."""

    def peer(self, act: Callable[[socket.socket], None]) -> tuple[str, int]:
        """An address where one connection is treated so."""
        listener = socket.create_server(("127.0.0.1", 0))

        def serve() -> None:
            with listener, listener.accept()[0] as sock:
                act(sock)

        thread = threading.Thread(target=serve)
        thread.start()
        self.addCleanup(thread.join)
        host, port = listener.getsockname()
        return host, port

    def test_a_closed_and_an_open_connection_are_told_apart(self) -> None:
        """An end is heard at once; silence only after the patience."""
        self.assertTrue(say(self.peer(lambda sock: sock.sendall(SERVED)), b"x").closed)
        done = threading.Event()

        def linger(sock: socket.socket) -> None:
            sock.sendall(SERVED)
            done.wait(5)

        heard = say(self.peer(linger), b"x", patience_s=0.05)
        done.set()
        self.assertEqual((heard.closed, heard.statuses), (False, (200,)))

    def test_a_client_ends_as_told(self) -> None:
        """A FIN is read as the end; a reset as an error."""
        for ending, end in ((Ending.HALF_CLOSES, b""), (Ending.RESETS, ConnectionResetError)):
            seen: list[object] = []

            def read(sock: socket.socket, seen: list[object] = seen) -> None:
                try:
                    while data := sock.recv(100):
                        seen.append(data)
                    seen.append(b"")
                except OSError as error:
                    seen.append(type(error))

            address = self.peer(read)
            say(address, b"abc", ending=ending)
            self.doCleanups()
            self.assertEqual(seen[-1], end)

    def test_a_refused_connection_is_an_error(self) -> None:
        """And leaves no socket behind."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            address = listener.getsockname()
        self.assertRaises(ConnectionRefusedError, Wire, address)

    def test_requests_are_written_as_given(self) -> None:
        """Each character is a byte, whatever it is."""
        self.assertEqual(wire.head("GET / HTTP/1.1", "A: \xe9"), b"GET / HTTP/1.1\r\nA: \xe9\r\n\r\n")
        self.assertEqual(wire.chunks(b"abc"), b"3\r\nabc\r\n0\r\n\r\n")
        self.assertTrue(wire.post("k", wire.sized(b"ab"), body=b"ab").endswith(b"Content-Length: 2\r\n\r\nab"))
