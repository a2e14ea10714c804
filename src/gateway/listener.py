"""How connections are accepted: on one thread, each waited for by the very call that takes it.

Knows no requests. Decides what is done where none can be accepted, and how accepting ends.
"""

import contextlib
import errno
import socket
import socketserver
import sys
import threading
from collections.abc import Callable
from http.server import ThreadingHTTPServer
from typing import Any

_PAUSE_S = 0.05
_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Listener(ThreadingHTTPServer):
    """Accepts connections and gives each to process_request(), which its subclass has: that never waits.

    report  told of every exception that kept a connection from being accepted or processed, but for one that had left
            again; never raises
    pause   waits for so many seconds; for tests
    """

    request_queue_size = 512
    daemon_threads = True
    block_on_close = False

    def __init__(
        self, address: tuple[str, int], report: Callable[[BaseException], None], pause: Callable[[float], object] | None
    ) -> None:
        """Bind and listen; OSError if the address is taken. Connections are accepted after `start_accepting`."""
        self._report = report
        self._pause = pause or threading.Event().wait
        self._acceptor: threading.Thread | None = None
        self._accepting = True
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, socketserver.BaseRequestHandler)

    def start_accepting(self) -> None:
        """Accept connections on a thread of its own."""
        self._acceptor = threading.Thread(target=self.serve_forever, name="accept", daemon=True)
        self._acceptor.start()

    def stop_accepting(self) -> None:
        """Close the listening socket, once its thread has ended; more than once is once."""
        self._accepting = False
        if self._acceptor is not None:
            with contextlib.suppress(OSError):
                self.socket.shutdown(socket.SHUT_RDWR)  # wakes the accept loop
            self._acceptor.join()
            self._acceptor = None
        self.server_close()

    def serve_forever(self, poll_interval: float = 0) -> None:
        """Accept until told to stop."""
        while self._accepting:
            try:
                request, address = self.get_request()
            except OSError:
                continue
            try:
                self.process_request(request, address)
            except Exception:  # noqa: BLE001 - the thread of the listener outlives each connection
                self.handle_error(request, address)
                self.shutdown_request(request)

    def server_bind(self) -> None:
        """Bind without http.server's look-up of the host's name, which can take seconds."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept; when descriptors have run out, pause, since the listening socket stays readable."""
        try:
            return super().get_request()
        except OSError as error:
            if error.errno in _EXHAUSTED:
                self._report(error)
                self._pause(_PAUSE_S)
            raise

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report instead of printing."""
        error = sys.exc_info()[1]
        if error is not None:
            self._report(error)
