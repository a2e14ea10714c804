"""What the request-head reader accepts, and the many things it does not."""

import contextlib
import itertools
import unittest

from gateway.errors import HttpRefusal
from gateway.http_head import (
    Chunked,
    HeadLimits,
    Heads,
    NoBody,
    RequestHead,
    Sized,
    find_head_end,
    parse_head,
)
from tests.support.raw_requests import GET, HOSTILE_HEADS, POST, full_head, post

LIMITS = HeadLimits()


def read(buffer: bytes) -> RequestHead | None:
    """What a server makes of these bytes; None if it would wait for more."""
    end = find_head_end(buffer, LIMITS)
    return None if end is None else parse_head(buffer[:end], LIMITS)


class HostileHeadTest(unittest.TestCase):
    def test_the_table_is_as_long_as_it_claims(self) -> None:
        """No row was lost: at least sixty, all named differently."""
        self.assertGreaterEqual(len({name for name, _, _ in HOSTILE_HEADS}), 60)
        self.assertEqual(len({name for name, _, _ in HOSTILE_HEADS}), len(HOSTILE_HEADS))

    def test_no_hostile_head_is_accepted_or_waited_for(self) -> None:
        """Each is refused at once, with its status, and without quoting it."""
        for name, raw, status in HOSTILE_HEADS:
            with self.subTest(name), self.assertRaises(HttpRefusal) as caught:
                read(raw)
            self.assertEqual(caught.exception.status, status, name)
            self.assertNotIn("evil", caught.exception.message)

    def test_no_hostile_head_is_accepted_however_it_arrives(self) -> None:
        """Byte by byte, each is refused too."""
        for name, raw, _ in HOSTILE_HEADS:
            with self.subTest(name), self.assertRaises(HttpRefusal):
                drip(raw)

    def test_every_status_has_its_code(self) -> None:
        """The codes are those of the HTTP contract."""
        codes: dict[int, set[str]] = {}
        for _, raw, status in HOSTILE_HEADS:
            with self.assertRaises(HttpRefusal) as caught:
                read(raw)
            codes.setdefault(status, set()).add(caught.exception.code)
        expected = {400: "invalid_request", 414: "uri_too_long", 417: "expectation_failed", 431: "headers_too_large"}
        self.assertEqual(codes, {status: {code} for status, code in expected.items()})


def drip(raw: bytes) -> RequestHead | None:
    """What a server makes of these bytes when they come one at a time."""
    for seen in range(len(raw)):
        end = find_head_end(raw[: seen + 1], LIMITS, seen)
        if end is not None:
            return parse_head(raw[:end], LIMITS)
    return None


class HonestHeadTest(unittest.TestCase):
    def test_a_client_librarys_request_is_read(self) -> None:
        """Everything the rest of the gateway asks for is there."""
        raw = (
            b"POST /v1/chat/completions?api-version=1&x HTTP/1.1\r\nHost: [::1]:8080\r\nAccept: */*\r\n"
            b"X-Stainless-Lang:python\r\nAuthorization:  Bearer sk-gw-a-b\t\r\nContent-Length: 57\r\n\r\n"
        )
        head = read(raw + b"body")
        assert head is not None
        self.assertEqual((head.method, head.version, head.body), ("POST", (1, 1), Sized(57)))
        self.assertEqual(head.target, "/v1/chat/completions?api-version=1&x")
        self.assertEqual((head.path, head.query), ("/v1/chat/completions", "api-version=1&x"))
        self.assertEqual(head.get("authorization"), "Bearer sk-gw-a-b")
        self.assertEqual(head.headers[2], ("x-stainless-lang", "python"))
        self.assertIsNone(head.get("x-api-key"))
        self.assertTrue(head.keep_alive)
        self.assertFalse(head.expects_continue)

    def test_repeated_headers_of_several_values_are_kept_in_order(self) -> None:
        """`get` gives the first, `get_all` all."""
        head = read(post(b"X-Gateway-Tags: a", b"Accept: */*", b"x-gateway-tags: b"))
        assert head is not None
        self.assertEqual(head.get("x-gateway-tags"), "a")
        self.assertEqual(head.get_all("x-gateway-tags"), ("a", "b"))
        self.assertEqual(head.get_all("x-none"), ())

    def test_a_printed_head_shows_no_credential(self) -> None:
        """Neither a header nor a query reaches a log by accident."""
        head = read(post(b"Authorization: Bearer secret").replace(b" HTTP", b"?key=secret HTTP", 1))
        self.assertEqual(repr(head), "RequestHead(POST /v1/chat/completions)")

    def test_two_kinds_of_key_may_stand_side_by_side(self) -> None:
        """Whether they agree is not a question of framing."""
        head = read(post(b"Authorization: Bearer a", b"x-api-key: a", b"api-key: a"))
        assert head is not None
        self.assertEqual(head.get("x-api-key"), "a")

    def test_bodies_are_framed_by_length_by_chunks_or_not_at_all(self) -> None:
        """The three framings, and the empty body that has a length."""
        cases = {
            GET + b"\r\n": NoBody(),
            post(b"Content-Length: 0"): Sized(0),
            post(b"Content-Length: 999999999999"): Sized(999_999_999_999),
            post(b"Content-Length: \t 7 \t"): Sized(7),
            post(b"Transfer-Encoding: chunked"): Chunked(),
            post(b"Transfer-Encoding: Chunked"): Chunked(),
            b"POST / HTTP/1.0\r\nContent-Length: 3\r\n\r\n": Sized(3),
        }
        for raw, body in cases.items():
            with self.subTest(raw):
                head = read(raw)
                assert head is not None
                self.assertEqual(head.body, body)

    def test_the_connection_goes_on_as_its_version_and_headers_say(self) -> None:
        """1.1 unless closed, 1.0 only when asked; options may be listed, repeated and in any case."""
        cases = {
            GET + b"\r\n": True,
            GET + b"Connection: close\r\n\r\n": False,
            GET + b"Connection: keep-alive, Close\r\n\r\n": False,
            GET + b"Connection: x\r\nConnection: close\r\n\r\n": False,
            GET + b"Connection: keep-alive\r\n\r\n": True,
            b"GET / HTTP/1.0\r\n\r\n": False,
            b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n": True,
            b"GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n": False,
        }
        for raw, keep_alive in cases.items():
            with self.subTest(raw):
                head = read(raw)
                assert head is not None
                self.assertEqual(head.keep_alive, keep_alive)

    def test_a_client_may_ask_to_be_told_to_go_on(self) -> None:
        """In HTTP/1.1; a 1.0 client would not understand the answer."""
        for raw, expected in (
            (post(b"Content-Length: 2", b"Expect: 100-Continue"), True),
            (b"POST / HTTP/1.0\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n", False),
        ):
            head = read(raw)
            assert head is not None
            self.assertEqual(head.expects_continue, expected)

    def test_values_may_hold_any_byte_that_is_no_control_character(self) -> None:
        """Tab, space, and bytes above 127 as Latin-1; a value may be empty."""
        head = read(post(b"X-A: a\tb \xe9\xff", b"X-B:", b"X-C:   "))
        assert head is not None
        self.assertEqual((head.get("x-a"), head.get("x-b"), head.get("x-c")), ("a\tb éÿ", "", ""))

    def test_a_head_as_large_as_the_limits_is_accepted(self) -> None:
        """64 fields, a request line of 8,192 bytes and 32,768 bytes in all are not too many."""
        raw = full_head()
        self.assertEqual(len(raw), LIMITS.head_bytes)
        head = read(raw)
        assert head is not None
        self.assertEqual(len(head.headers), 64)
        for longer in (raw.replace(b"/a", b"/aa"), raw.replace(b": bb", b": bbb"), raw.replace(b": cc", b": ccc")):
            with self.assertRaises(HttpRefusal):
                read(longer)


def said(head: RequestHead) -> tuple[RequestHead, tuple[tuple[str, str], ...]]:
    """All that a head says."""
    return head, head.headers


def taken(heads: Heads, buffer: bytes) -> RequestHead:
    """The head that stands at the beginning of the buffer, whole."""
    head = heads.take(buffer, LIMITS)
    assert head is not None
    return head


class HeadsTest(unittest.TestCase):
    """The heads of one connection, of which each is much like the one before."""

    def test_a_head_is_read_alike_whatever_came_before_it(self) -> None:
        """In every order of these: another length, another key, no length, two of them, none that is a number."""
        lines = [b"X-Content-Length: 5", b"CONTENT-length: \t%s ", b"Authorization: Bearer %s", b"X: content-length: 5"]
        lengths = (b"5", b"42", b"042", b"999999999999", b"1234567890123", b"", b"+5", b"5 5", b"5, 5", b"\xb2")
        raws = [post(*lines[:1], lines[1] % length, lines[2] % b"a", lines[3]) for length in lengths]
        raws += [
            post(*lines[:1], lines[1] % b"5", lines[2] % b"b", lines[3]),
            post(*lines[:1], lines[2] % b"a"),
            GET + b"\r\n",
        ]
        raws += [raws[0][:-2] + b"Content-Length: 5\r\n\r\n", post(lines[1] % (b"1" + b" " * 9000))]
        for first, second in itertools.product(raws, raws):
            heads = Heads()
            with contextlib.suppress(HttpRefusal):
                heads.take(first, LIMITS)
            try:
                alone = parse_head(second, LIMITS)
            except HttpRefusal as refusal:
                with self.subTest(first=first, second=second), self.assertRaisesRegex(HttpRefusal, str(refusal)):
                    heads.take(second, LIMITS)
            else:
                for behind in (b"", b"5", b"\r\n\r\n"):
                    self.assertEqual(said(taken(heads, second + behind)), said(alone))

    def test_the_same_head_again_is_not_read_again(self) -> None:
        """Nor is one with another length: what it says of all else is the same."""
        heads = Heads()
        first, again, longer = (taken(heads, post(b"Content-Length: %d" % length)) for length in (5, 5, 6))
        self.assertIs(first, again)
        self.assertIs(first.method, longer.method)
        self.assertEqual((longer.body, longer.get("content-length")), (Sized(6), "6"))

    def test_a_longer_number_may_make_a_line_too_long(self) -> None:
        """The limits hold for a head that is known, too."""
        heads, limits = Heads(), HeadLimits(line_bytes=40)
        line = b"Content-Length:" + b" " * 24
        heads.take(post(line + b"5"), limits)
        with self.assertRaises(HttpRefusal):
            heads.take(post(line + b"55"), limits)

    def test_a_large_head_is_not_kept(self) -> None:
        """Thousands of idle connections would hold them for nothing."""
        heads = Heads()
        raw = post(b"Content-Length: 5", b"X: " + b"x" * 3000)
        self.assertIsNot(taken(heads, raw), taken(heads, raw))


class HeadEndTest(unittest.TestCase):
    def test_the_end_is_behind_the_first_blank_line(self) -> None:
        """What follows belongs to the body or to the next request."""
        raw = GET + b"\r\n"
        self.assertEqual(find_head_end(raw + b"\r\n\r\nrest", LIMITS), len(raw))
        self.assertEqual(find_head_end(bytearray(raw), LIMITS), len(raw))

    def test_an_honest_head_is_waited_for_at_every_cut(self) -> None:
        """No beginning of a valid head is refused, and none is taken for a whole one."""
        raw = POST + b"X-A: \xe9\tb\r\nContent-Length: 2\r\n\r\n"
        for cut in range(len(raw)):
            for seen in range(cut + 1):
                self.assertIsNone(find_head_end(raw[:cut], LIMITS, seen), raw[:cut])
        for seen in range(len(raw)):
            self.assertEqual(find_head_end(raw, LIMITS, seen), len(raw))

    def test_what_cannot_become_a_head_is_not_waited_for(self) -> None:
        """A stray CR or LF is refused when the byte that makes it stray comes, wherever the packets are cut."""
        for raw in (GET + b"X: a\rb", GET + b"X: a\n", GET + b"\r\r"):
            for seen in range(len(raw)):
                with self.assertRaises(HttpRefusal):
                    find_head_end(raw, LIMITS, seen)

    def test_a_head_without_its_blank_line_is_no_head(self) -> None:
        """The parser refuses what find_head_end would not have delimited."""
        for raw in (GET, GET + b"ab", GET + b"\r\nX: y\r\n\r\n", b""):
            with self.assertRaises(HttpRefusal):
                parse_head(raw, LIMITS)

    def test_the_limits_are_those_handed_in(self) -> None:
        """Smaller ones refuse what the usual ones accept."""
        raw = GET + b"A: b\r\n\r\n"
        for limits in (HeadLimits(line_bytes=20), HeadLimits(fields=1), HeadLimits(head_bytes=40)):
            with self.assertRaises(HttpRefusal):
                end = find_head_end(raw, limits)
                parse_head(raw[:end], limits)


if __name__ == "__main__":
    unittest.main()
