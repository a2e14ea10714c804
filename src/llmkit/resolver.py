"""Host names to socket addresses, off the caller's path.

Decides when a name is looked up: once per `ttl_s`, in a helper thread, so that a caller can leave by its own clock or
its own cancellation while the system's resolver hangs. At most one look-up of a name runs at a time, whoever asks:
a dead name server costs one thread. Knows no deadlines itself. A failure is not remembered.
"""

import os
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any

TTL_S = 60.0  # getaddrinfo does not tell the record's own; long enough to be off the path, short enough for a failover

Address = tuple[socket.AddressFamily, Any]  # the family, and what connect() takes for it
Lookup = Callable[[str, int], Sequence[Address]]


def system_lookup(host: str, port: int, flags: int = 0) -> Sequence[Address]:
    """Ask the operating system, in its order of preference. Blocks. Raises OSError, UnicodeError for no ASCII name.

    A name in bytes is taken as it is; one in text would load tables for names in other scripts.
    """
    found = socket.getaddrinfo(host.encode("ascii"), port, type=socket.SOCK_STREAM, flags=flags)
    return [(family, address) for family, _, _, _, address in found]


class Resolver:
    """The addresses of one host and port. Safe from any thread: `_lock` guards the cache and the running look-up."""

    def __init__(
        self, host: str, port: int, *, clock: Callable[[], float], ttl_s: float = TTL_S, lookup: Lookup = system_lookup
    ) -> None:
        self._host, self._port = host, port
        self._clock = clock
        self._ttl_s = ttl_s
        self._lookup = lookup
        self._lock = threading.Lock()
        self._addresses: Sequence[Address] = _literal(host, port)
        self._expires_s = float("inf") if self._addresses else 0.0
        self._running: _Running | None = None

    def addresses(self, wait: Callable[[int], None]) -> Sequence[Address]:
        """The addresses, from the cache or from a look-up. Raises OSError if there are none.

        wait(fd) blocks until fd is readable or raises; what it raises passes through, the look-up goes on for others.
        """
        with self._lock:
            if self._addresses and self._clock() < self._expires_s:
                return self._addresses
            running, mine = self._running, self._running is None
            if running is None:
                running = self._running = _Running(*os.pipe())
        if mine:
            self._start(running)
        wait(running.fd)
        if running.error is not None:
            raise OSError(*running.error.args) from running.error
        return running.addresses

    def _start(self, running: "_Running") -> None:
        try:
            threading.Thread(target=self._run, args=(running,), name=f"resolve {self._host}", daemon=True).start()
        except RuntimeError as error:
            self._settle(running, error=OSError(f"no thread for a name look-up: {error}"))

    def _run(self, running: "_Running") -> None:
        try:
            found = self._lookup(self._host, self._port)
        except Exception as error:  # noqa: BLE001 - whatever it was, those who wait must be woken
            self._settle(running, error=error)
        else:
            self._settle(running, found=found)

    def _settle(self, running: "_Running", *, found: Sequence[Address] = (), error: Exception | None = None) -> None:
        with self._lock:
            self._running = None
            if found:
                self._addresses, self._expires_s = found, self._clock() + self._ttl_s
        running.finish(found, error)


class _Running:
    """One look-up: `fd` turns readable, for everyone who waits, when it is finished."""

    def __init__(self, fd: int, write_end: int) -> None:
        self.fd, self._write_end = fd, write_end
        self.addresses: Sequence[Address] = ()
        self.error: Exception | None = None

    def finish(self, addresses: Sequence[Address], error: Exception | None) -> None:
        self.addresses = addresses
        self.error = error if addresses or error else OSError("the name has no address")
        os.close(self._write_end)

    def __del__(self) -> None:
        """The last one to let go closes the read end: nobody can be waiting on it."""
        os.close(self.fd)


def _literal(host: str, port: int) -> Sequence[Address]:
    """The address that a numeric host is; empty for a name."""
    try:
        return system_lookup(host, port, socket.AI_NUMERICHOST)
    except (OSError, UnicodeError):
        return ()
