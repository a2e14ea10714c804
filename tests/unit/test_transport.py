"""What of the transport needs no socket: base URLs, clocks, and which requests it refuses to write."""

import unittest

from llmkit.base_url import BaseUrl
from llmkit.resolver import Address
from llmkit.transport import Pool, Timeouts


class BaseUrlTest(unittest.TestCase):
    """Where an upstream may live."""

    def test_a_base_url_gives_its_parts(self) -> None:
        """Scheme, host, port and path; the slash at the end goes."""
        table = [
            ("http://127.0.0.1:9001/v1", ("http", "127.0.0.1", 9001, "/v1"), "127.0.0.1:9001"),
            ("https://API.example.com/v1/", ("https", "api.example.com", 443, "/v1"), "api.example.com"),
            ("https://api.example.com:443", ("https", "api.example.com", 443, ""), "api.example.com"),
            ("http://api.example.com:443/", ("http", "api.example.com", 443, ""), "api.example.com:443"),
            ("https://h:80/a/b%20c", ("https", "h", 80, "/a/b%20c"), "h:80"),
            ("http://[::1]:8000/v1", ("http", "::1", 8000, "/v1"), "[::1]:8000"),
            ("http://[2001:DB8::1]", ("http", "2001:db8::1", 80, ""), "[2001:db8::1]"),
            ("http://my_service.internal.:1/v1", ("http", "my_service.internal.", 1, "/v1"), "my_service.internal.:1"),
        ]
        for text, parts, authority in table:
            with self.subTest(text):
                url = BaseUrl.parse(text)
                self.assertEqual((url.scheme, url.host, url.port, url.path), parts)
                self.assertEqual(url.authority, authority)

    def test_anything_else_is_refused(self) -> None:
        """Other schemes, credentials, queries, fragments, odd hosts and ports, spaces and control characters."""
        for text in (
            "",
            "api.example.com/v1",
            "ftp://api.example.com",
            "file:///etc/passwd",
            "http://",
            "http:///v1",
            "http://user@host/v1",
            "http://user:secret@host/v1",
            "http://@host/v1",
            "http://host/v1?x=1",
            "http://host/v1?",
            "http://host/v1#x",
            "http://host/v1#",
            "http://host:0/v1",
            "http://host:65536/v1",
            "http://host:-1/v1",
            "http://host:port/v1",
            "http://ho st/v1",
            "http://host/v 1",
            " http://host/v1",
            "http://host/v1\r\nx: y",
            "http://ho\nst/v1",
            "http://höst/v1",
            "http://host\\evil/v1",
            "http://.host/v1",
            "http://a..b/v1",
            "http://[::1",
            "http://[fe80::1%25eth0]/v1",
            "http://[127.0.0.1]/v1",
            "http://[::1]x/v1",
            "http://x[::1]/v1",
            "http://host:/v1",
            "http://[:::]/v1",
            f"http://{'a' * 64}/v1",
            f"http://{'a.' * 127}/v1",
        ):
            with self.subTest(text), self.assertRaises(ValueError):
                BaseUrl.parse(text)


class TimeoutsTest(unittest.TestCase):
    """The clocks of a call."""

    def test_a_clock_that_would_fire_at_once_is_refused(self) -> None:
        """Zero, less than zero, and what is no number."""
        for value in (0, -1, float("nan")):
            for name in ("connect_s", "ttft_s", "idle_s", "total_s"):
                with self.subTest(name, value=value), self.assertRaisesRegex(ValueError, name):
                    Timeouts(**{name: value})


class RequestTest(unittest.TestCase):
    """Requests that are refused before anything is sent: the pool's host does not even exist."""

    def setUp(self) -> None:
        """A pool that could not connect."""
        self.pool = Pool("http://nowhere.invalid/v1", timeouts=Timeouts(), clock=lambda: 0.0, lookup=self._no_lookup)
        self.head = self.pool.head("POST", "/", [])

    def test_a_header_cannot_smuggle_another(self) -> None:
        """CR, LF, NUL and other control characters are refused, and the error does not repeat the value."""
        for value in ("a\r\nx: y", "a\nb", "a\rb", "a\0b", "a\x7fb", "a\u20acb"):
            with self.subTest(value), self.assertRaisesRegex(ValueError, "x-key") as caught:
                self.pool.head("POST", "/", [("x-key", "secret" + value)])
            self.assertNotIn("secret", str(caught.exception))
            with self.assertRaisesRegex(ValueError, "x-key") as caught:
                self.pool.request(self.head, b"", [("x-key", "secret" + value)])
            self.assertNotIn("secret", str(caught.exception))

    def test_a_header_name_is_a_token_and_not_the_transports_own(self) -> None:
        """What decides where the request goes and how it is framed is not for a caller."""
        for name in ("", "x y", "x:", "x\r\ny", "é", "Host", "content-length", "Transfer-Encoding", "Connection", "TE"):
            with self.subTest(name), self.assertRaises(ValueError):
                self.pool.head("POST", "/", [(name, "1")])
            with self.subTest(name, of="one request"), self.assertRaises(ValueError):
                self.pool.request(self.head, b"", [(name, "1")])

    def test_a_method_and_a_path_cannot_carry_more(self) -> None:
        """HEAD has answers without bodies; a path is visible ASCII from its slash on."""
        for method, path in (
            ("HEAD", "/"),
            ("CONNECT", "/"),
            ("POST /", "/"),
            ("post", "/"),
            ("POST", ""),
            ("POST", "x"),
            ("POST", "/a b"),
            ("POST", "/a\r\nx: y"),
            ("POST", "/é"),
            ("POST", "/#x"),
            ("POST", "http://elsewhere/"),
        ):
            with self.subTest(method=method, path=path), self.assertRaises(ValueError):
                self.pool.head(method, path, [])

    def _no_lookup(self, host: str, port: int) -> list[Address]:
        raise AssertionError("nothing may be sent")
