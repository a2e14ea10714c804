"""A TCP load balancer with a long cable: it gives new connections to whoever is ready, and delays every byte."""

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from typing import Any

Address = tuple[str, int]

_LOOK_S = 0.02
_READ_BYTES = 65_536


class DelayingProxy:
    """Relays each connection to a backend that answered 200 on /readyz when last asked. Use as a context manager.

    delay_s  what each direction takes, connections and their ends included
    refused  connections that found nobody ready
    """

    def __init__(self, delay_s: float) -> None:
        self.refused = 0
        self.address: Address = ("", 0)
        self._delay_s = delay_s
        self._ready: dict[Address, bool] = {}
        self._turn = 0
        self._loop = asyncio.new_event_loop()
        self._started, self._stop = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),), name="proxy")

    def serve(self, *backends: Address) -> None:
        """Give new connections to these from now on, as soon as they are ready."""
        self._do(self._serve(backends))

    def is_ready(self, backend: Address) -> bool:
        """Whether it gets new connections."""
        return self._ready.get(backend, False)

    def __enter__(self) -> "DelayingProxy":
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _run(self) -> None:
        server = await asyncio.start_server(self._relay, "127.0.0.1", 0)
        self.address = server.sockets[0].getsockname()
        self._started.set()
        checks = asyncio.create_task(self._check_health())
        await self._stop.wait()
        server.close()
        running = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in (checks, *running):
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _serve(self, backends: tuple[Address, ...]) -> None:
        self._ready = {backend: self._ready.get(backend, False) for backend in backends}
        await self._look()

    async def _check_health(self) -> None:
        while True:
            await self._look()
            await asyncio.sleep(_LOOK_S)

    async def _look(self) -> None:
        for backend in list(self._ready):
            self._ready[backend] = await _answers(backend)

    async def _relay(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        ready = [backend for backend, is_ready in self._ready.items() if is_ready]
        self._turn += 1
        try:
            backend, to_backend = await asyncio.open_connection(*ready[self._turn % len(ready)])
        except (OSError, ZeroDivisionError):
            self.refused += 1
            to_client.close()
            return
        with contextlib.closing(to_backend), contextlib.closing(to_client):
            await asyncio.gather(self._pump(client, to_backend), self._pump(backend, to_client))

    async def _pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        """Carry bytes and the end of one direction, each `delay_s` later than it came."""
        on_the_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        arriving = asyncio.create_task(self._deliver(on_the_way, target))
        data = b"-"
        while data:
            try:
                data = await source.read(_READ_BYTES)
            except OSError:
                data = b""
            on_the_way.put_nowait((self._loop.time() + self._delay_s, data))
        await arriving

    async def _deliver(self, on_the_way: asyncio.Queue[tuple[float, bytes]], target: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while True:
                due_s, data = await on_the_way.get()
                await asyncio.sleep(due_s - self._loop.time())
                if not data:
                    target.write_eof()
                    return
                target.write(data)
                await target.drain()


async def _answers(backend: Address) -> bool:
    try:
        answer, ask = await asyncio.open_connection(*backend)
    except OSError:
        return False
    with contextlib.closing(ask):
        try:
            ask.write(b"GET /readyz HTTP/1.1\r\nHost: proxy\r\nConnection: close\r\n\r\n")
            return b" 200 " in await answer.readline()
        except OSError:
            return False
