"""The load client and the mock upstream of the bench: what they call good, and that they agree with each other."""

import itertools
import os
import select
import socket
import tempfile
import unittest
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from bench import tools
from bench.tools import PORTS, Tools, call, free_port, running, wait_for
from tests.support.broken_disk import compile_into
from tests.support.scripted_upstream import Peer, ScriptedUpstream

WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT = b'data: {"x":1}\n\n'
DONE = b"data: [DONE]\n\n"


def chunks(*pieces: bytes, end: bool = True) -> bytes:
    """Chunked encoding of these pieces."""
    body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
    return body + (b"0\r\n\r\n" if end else b"")


class FreePortTest(unittest.TestCase):
    """Where processes are told to listen."""

    def test_a_port_that_somebody_has_is_passed_over(self) -> None:
        """The next one is told, and never the same one twice."""
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", first := free_port()))
            with mock.patch.object(tools, "_TRIED", itertools.count(PORTS.index(first))):
                told = [free_port(), free_port()]
        self.assertEqual(len({first, *told}), 3)
        self.assertLessEqual({*told}, {*PORTS})


class ToolsTest(unittest.TestCase):
    """Both programs, compiled once."""

    tools: Tools

    @classmethod
    def setUpClass(cls) -> None:
        """Skips where there is no compiler."""
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        compile_into(Path(folder.name))
        cls.tools = Tools(Path(folder.name))

    def ask(self, *scripts: Callable[[Peer], None], **options: Any) -> dict[str, Any]:
        """One caller against a scripted upstream."""
        upstream = ScriptedUpstream(*scripts)
        try:
            asked: dict[str, Any] = {"callers": 1, "requests": 1, "seconds": 5, "patience_s": 5, **options}
            return self.tools.load(upstream.port, "sk-a", **asked)
        finally:
            upstream.close()

    def answered(self, *pieces: bytes, stream: bool = False) -> dict[str, Any]:
        """One request that gets these bytes, after which the connection ends."""

        def script(peer: Peer) -> None:
            peer.request()
            peer.send(*pieces)

        return self.ask(script, body=call(stream=stream))

    def test_the_mock_answers_whole_and_in_events(self) -> None:
        """And the client finds nothing wrong, with one caller and with many, paced or not."""
        port = free_port()
        with running([str(self.tools.folder / "mock"), str(port)], self.tools.folder / "mock.log"):
            wait_for(port)
            for callers, body in (
                (1, call()),
                (8, call()),
                (8, call(stream=True)),
                (40, call("mock-paced", stream=True)),
            ):
                with self.subTest(callers=callers, body=body):
                    done = self.tools.load(port, "k", callers=callers, requests=200, seconds=30, body=body)
                    self.assertEqual((done["ok"], done["bad"], done["reconnects"]), (200, 0, 0))

    def test_the_mock_survives_those_who_leave_midway(self) -> None:
        """The others' streams go on. What is freed is overwritten, so that whoever looks there once more crashes."""
        port, env = free_port(), os.environ | {"MALLOC_PERTURB_": "90"}
        with running([str(self.tools.folder / "mock"), str(port)], self.tools.folder / "mock.log", env):
            wait_for(port)
            body = b'{"model":"mock-slow","stream":true}'
            request = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
            readers = [socket.create_connection(("127.0.0.1", port)) for _ in range(12)]
            for reader in readers:
                reader.sendall(request)
                reader.recv(10)
            for leaver in readers[::2]:
                leaver.close()
            done = self.tools.load(port, "k", callers=8, requests=16, seconds=30, body=call("mock-paced", stream=True))
            self.assertEqual((done["ok"], done["bad"]), (16, 0))
            for stayer in readers[1::2]:
                received = b""
                while received.count(b"data: ") < 3:
                    more = stayer.recv(65536)
                    self.assertTrue(more)
                    received += more
                stayer.close()

    def test_a_whole_answer_is_good_however_it_is_framed(self) -> None:
        """By length, in chunks, by the end of the connection; in one piece or byte by byte."""
        framed = {
            "length": WHOLE,
            "chunks": STREAM_HEAD + chunks(b"{", b"}"),
            "trailer": STREAM_HEAD + b"2;ext=1\r\n{}\r\n0\r\nx: y\r\n\r\n",
            "end": b"HTTP/1.1 200 OK\r\n\r\n{}",
        }
        for name, answer in framed.items():
            for pieces in ((answer,), tuple(bytes((byte,)) for byte in answer)):
                with self.subTest(name, pieces=len(pieces)):
                    done = self.answered(*pieces)
                    self.assertEqual((done["ok"], done["bad"]), (1, 0), done)

    def test_the_next_answer_begins_where_the_last_one_ended(self) -> None:
        """Over one connection; also after trailers that come in pieces."""

        def script(peer: Peer) -> None:
            for _ in range(3):
                peer.request()
                for piece in (STREAM_HEAD + b"2\r\n{}\r\n0\r\nx: y\r\n", b"z: 1\r\n"):
                    peer.send(piece)
                    self.assertEqual(select.select([peer.sock], [], [], 0.05)[0], [])
                peer.send(b"\r\n")

        done = self.ask(script, requests=3)
        self.assertEqual((done["ok"], done["bad"], done["reconnects"]), (3, 0, 0))

    def test_varied_heads_are_all_different(self) -> None:
        """Though the key and the body are the same; else they are all alike."""
        for varied, kinds in ((True, 3), (False, 1)):
            heads: set[tuple[tuple[str, str], ...]] = set()

            def script(peer: Peer, heads: set[tuple[tuple[str, str], ...]] = heads) -> None:
                for _ in range(3):
                    heads.add(tuple(peer.request().headers))
                    peer.send(STREAM_HEAD + chunks(b"{}"))

            with self.subTest(varied=varied):
                self.assertEqual(self.ask(script, requests=3, varied=varied)["ok"], 3)
                self.assertEqual(len(heads), kinds)

    def test_an_answer_that_is_cut_is_bad(self) -> None:
        """Wherever it is cut."""
        for cut in (b"", b"HTTP/1.1 200", WHOLE[:-1], STREAM_HEAD + b"5\r\n{}", STREAM_HEAD + chunks(b"{}", end=False)):
            with self.subTest(cut):
                done = self.answered(cut)
                self.assertEqual((done["ok"], done["bad"]), (0, 1), done)

    def test_a_refusal_is_bad_and_told(self) -> None:
        """Its status, and the start of what it said."""
        done = self.answered(b'HTTP/1.1 429 No\r\nContent-Length: 11\r\n\r\n{"no":"no"}')
        self.assertEqual((done["ok"], done["bad"], done["badstatus"]), (0, 1, 429))
        self.assertEqual(done["badbody"], "{'no':'no'}")

    def test_a_stream_is_good_with_all_its_events_and_its_end(self) -> None:
        """Across whatever borders its bytes come in."""
        whole = STREAM_HEAD + chunks(*[EVENT] * 20, DONE)
        borders = STREAM_HEAD + chunks(EVENT[:3], EVENT[3:] + b"".join([EVENT] * 19) + DONE[:9], DONE[9:])
        for name, answer, good in (
            ("whole", whole, 1),
            ("other borders", borders, 1),
            ("one event less", STREAM_HEAD + chunks(*[EVENT] * 19, DONE), 0),
            ("no end", STREAM_HEAD + chunks(*[EVENT] * 20), 0),
            ("cut", whole[:-5], 0),
        ):
            with self.subTest(name):
                self.assertEqual(self.answered(answer, stream=True)["ok"], good)

    def test_keys_are_taken_in_turn(self) -> None:
        """Over one connection, with the body that was asked for and its headers."""
        seen: list[tuple[str | None, str | None, int]] = []

        def script(peer: Peer) -> None:
            for _ in range(5):
                request = peer.request()
                seen.append((request.get("authorization"), request.get("x-more"), len(request.body)))
                peer.send(WHOLE)

        upstream = ScriptedUpstream(script)
        options: dict[str, Any] = {"callers": 1, "requests": 5, "seconds": 5, "headers": ["x-more: yes"]}
        done = self.tools.load(upstream.port, "a", "b", **options)
        upstream.close()
        self.assertEqual(done["ok"], 5)
        self.assertEqual([key for key, _, _ in seen], [f"Bearer {key}" for key in "ababa"])
        self.assertEqual({(more, size > 250) for _, more, size in seen}, {("yes", True)})

    def test_a_server_that_says_nothing_is_given_up(self) -> None:
        """The request counts as bad, and the client ends."""
        done = self.ask(lambda peer: peer.drip(b""), seconds=0.1, patience_s=0.1)
        self.assertEqual((done["issued"], done["ok"], done["bad"], done["hung"]), (1, 0, 1, 1))
