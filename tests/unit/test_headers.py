"""What the gateway reads from a client's headers, and what it does not."""

import unittest

from gateway.context import Facts, Options
from gateway.errors import InvalidApiKey, InvalidRequest
from gateway.headers import MAX_TIMEOUT_S, fact_headers, key_of, options_of, route_of, shown_key
from gateway.http_head import HeadLimits, Heads, RequestHead, parse_head
from gateway.keys import ShownKey, hash_key
from tests.support.raw_requests import post


def head(*lines: bytes) -> RequestHead:
    """A parsed head with these lines."""
    return parse_head(post(*lines), HeadLimits())


def _told(facts: Facts) -> dict[str, str]:
    """What a client is told of a request, by the names of headers."""
    fields = fact_headers(facts, 0.0).decode().split("\r\n")
    return {name: value for name, _, value in (line.partition(": ") for line in fields)}


class RouteTest(unittest.TestCase):
    def test_a_route_names_every_hop_unless_they_are_very_many(self) -> None:
        """Then how it began and how it ended; a header of any length is refused by proxies."""
        hops = [f"d{number}=server" for number in range(24)]
        self.assertEqual(route_of(hops), ", ".join(hops))
        many = [f"d{number}=server" for number in range(100)]
        self.assertEqual(route_of(many), ", ".join([*many[:4], "...", *many[-20:]]))
        self.assertEqual(route_of(["a=ok"]), "a=ok")

    def test_a_remembered_answer_is_named(self) -> None:
        """With its age; a fresh one has neither."""
        names = {"age", "x-gateway-cache-entry"}
        self.assertTrue(names.isdisjoint(_told(Facts("req_1"))))
        told = _told(Facts("req_1", cache="semantic", age_s=7, entry="00ff"))
        self.assertEqual(
            (told["x-gateway-cache"], told["age"], told["x-gateway-cache-entry"]), ("semantic", "7", "00ff")
        )

    def test_a_word_with_a_control_character_is_an_error(self) -> None:
        """Whoever named the deployment, or its outcome: no header is made of it."""
        for facts in (Facts("req_1", deployment="a\r\nb"), Facts("req_1", hops=["a=ok", "b\x00=ok"])):
            with self.assertRaises(ValueError):
                fact_headers(facts, 0.0)


class KeyTest(unittest.TestCase):
    def test_a_key_comes_in_one_of_three_headers(self) -> None:
        """The scheme in any case; blanks around it do not count; two that agree are one."""
        for lines in (
            (b"Authorization: Bearer k",),
            (b"authorization:\tbEARER  k ",),
            (b"x-api-key: k",),
            (b"API-KEY:k",),
            (b"x-api-key: k", b"Authorization: Bearer k", b"api-key: k"),
        ):
            self.assertEqual(key_of(head(*lines)), "k")
        self.assertIsNone(key_of(head()))

    def test_what_could_be_two_keys_is_none(self) -> None:
        """Two that differ, one header twice, and a scheme of another kind beside a key."""
        for lines in (
            (b"x-api-key: k", b"api-key: j"),
            (b"Authorization: Bearer k", b"Authorization: Bearer k"),
            (b"api-key: k", b"api-key: k"),
            (b"Authorization: Basic azpr", b"x-api-key: k"),
        ):
            with self.assertRaises(InvalidApiKey):
                key_of(head(*lines))

    def test_a_key_is_read_once_of_a_head_that_comes_again(self) -> None:
        """With a body of any length; another key, or another header, is another head."""
        heads = Heads()

        def shown(key: bytes, length: int, *more: bytes) -> ShownKey:
            lines = b"Authorization: Bearer " + key, b"Content-Length: %d" % length, *more
            head = heads.take(post(*lines), HeadLimits())
            assert head is not None
            return shown_key(head)

        first = shown(b"sk-gw-a-1", 5)
        self.assertEqual((first.id, first.digest), ("a", hash_key("sk-gw-a-1")))
        self.assertIs(shown(b"sk-gw-a-1", 5), first)
        self.assertIs(shown(b"sk-gw-a-1", 77), first)
        self.assertEqual(shown(b"sk-gw-a-2", 77), ShownKey.of("sk-gw-a-2"))
        self.assertEqual(shown(b"sk-gw-a-1", 77, b"X: 1"), first)
        with self.assertRaises(InvalidApiKey):
            shown(b"sk-gw-a-1", 77, b"api-key: sk-gw-a-2")


class OptionsTest(unittest.TestCase):
    def test_lists_may_be_spread_over_lines(self) -> None:
        """RFC 9110 5.3: several lines of a list are one list."""
        options = options_of(
            head(
                b"x-gateway-tags: a, b,", b"Cache-Control: No-Cache", b"X-Gateway-Tags:c", b"cache-control: x,no-store"
            )
        )
        self.assertEqual(options.tags, ("a", "b", "c"))
        self.assertTrue(options.no_cache and options.no_store)
        self.assertEqual(options_of(head()), Options())

    def test_a_header_of_one_value_may_not_stand_twice(self) -> None:
        """Else the second would be ignored: a request that is marked as private would be cached."""
        for name, values in (
            ("x-gateway-private", ("false", "true")),
            ("x-gateway-prompt-version", ("v1", "v2")),
            ("x-gateway-timeout-s", ("5", "5")),
        ):
            with self.assertRaises(InvalidRequest) as caught:
                options_of(head(*(f"{name}: {value}".encode() for value in values)))
            self.assertEqual(caught.exception.param, name)

    def test_a_time_is_plain_digits(self) -> None:
        """Nothing that only one language's number reader takes."""
        self.assertEqual(options_of(head(b"x-gateway-timeout-s: 0.25")).timeout_s, 0.25)
        self.assertEqual(options_of(head(b"x-gateway-timeout-s: 86400")).timeout_s, MAX_TIMEOUT_S)
        for value in (
            b"1_0",
            b"+5",
            b"1e2",
            b"5s",
            b".5",
            b"5.",
            b"\xb2",
            b"0x5",
            b"86400.1",
            b"Infinity",
            b"5,5",
            b"",
        ):
            with self.subTest(value=value), self.assertRaises(InvalidRequest):
                options_of(head(b"x-gateway-timeout-s: " + value))


if __name__ == "__main__":
    unittest.main()
