"""Where an upstream lives: the one grammar of base URLs.

Decides which texts are one, and what their parts are. Resolves nothing and opens nothing.
"""

import ipaddress
import re

from msgspec import Struct

_DEFAULT_PORTS = {"http": 80, "https": 443}
_BASE_URL = re.compile(
    r"(?!.*[?#\\])(?P<scheme>https?)://(?:(?P<name>[A-Za-z0-9._-]+)|\[(?P<ipv6>[0-9A-Fa-f:.]+)\])"
    r"(?::(?P<port>[0-9]{1,5}))?(?P<path>/[!-~]*)?"
)
_LABEL = r"[A-Za-z0-9_][A-Za-z0-9_-]{0,62}"
_HOST = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*\.?")


class BaseUrl(Struct, frozen=True):
    """Where an upstream lives; path has no slash at its end."""

    scheme: str
    host: str
    port: int
    path: str

    @classmethod
    def parse(cls, url: str) -> "BaseUrl":
        """From `http(s)://host[:port][/path]`, visible ASCII. Raises ValueError, which shows nothing of it."""
        match = _BASE_URL.fullmatch(url)
        if match is None:
            raise ValueError("must be http(s)://host[:port][/path], without user, password, query or fragment")
        host = (match["name"] or match["ipv6"]).lower()
        if not (_HOST.fullmatch(host) if match["name"] else _is_ipv6(host)):
            raise ValueError("must be http(s)://host[:port][/path], where host is a name or an address")
        port = int(match["port"] or _DEFAULT_PORTS[match["scheme"]])
        if not 1 <= port <= 65_535:
            raise ValueError("must be http(s)://host[:port][/path], where port is 1 to 65535")
        return cls(match["scheme"], host, port, (match["path"] or "").rstrip("/"))

    @property
    def authority(self) -> str:
        """The value of the Host header: IPv6 in brackets, a default port left out."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


def _is_ipv6(host: str) -> bool:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return True
