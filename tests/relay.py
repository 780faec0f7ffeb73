"""A relay before a server: it counts round trips at the socket, and adds latency.

A process of its own, so that it takes no turn of the interpreter from what is measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

COUNTING_LATENCY_SECONDS = 0.01
"""What a client sends without waiting arrives before the reply to the first of it."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """A server: a directory with PostgreSQL's socket, or a host; and the port."""

    host: str
    port: int = 5432

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self.host.startswith("/"):
            return await asyncio.open_unix_connection(f"{self.host}/.s.PGSQL.{self.port}")
        return await asyncio.open_connection(self.host, self.port)


@dataclass(frozen=True, slots=True)
class Relay:
    """A relay that runs: clients connect to `port` on 127.0.0.1."""

    port: int
    _control: Connection

    def delay(self, seconds: float) -> None:
        """From now on a reply arrives so much later (rounded up to a millisecond)."""
        self._ask(seconds)

    def count_trips(self) -> int:
        """How often a client waited for the server since the last call.

        Right for one client at a time, with a delay of `COUNTING_LATENCY_SECONDS`.
        """
        return self._ask(None)

    def _ask(self, request: float | None) -> int:
        self._control.send(request)
        count: int = self._control.recv()
        return count


@contextlib.contextmanager
def relay(upstream: Upstream) -> Iterator[Relay]:
    """Run a relay to the server for the duration of the block."""
    ours, theirs = multiprocessing.Pipe()
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=_run, args=(upstream, theirs), daemon=True)
    process.start()
    theirs.close()
    try:
        yield Relay(ours.recv(), ours)
    finally:
        process.terminate()
        process.join()
        ours.close()


@dataclass(slots=True)
class _State:
    latency: float = 0.0
    trips: int = 0
    client_was_last: bool = False


def _run(upstream: Upstream, control: Connection) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_serve(upstream, control))


async def _serve(upstream: Upstream, control: Connection) -> None:
    state = _State()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            server_reader, server_writer = await upstream.connect()
            await asyncio.gather(
                _forward_requests(state, reader, server_writer),
                _forward_replies(state, server_reader, writer),
            )

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    control.send(server.sockets[0].getsockname()[1])
    ended = asyncio.get_running_loop().create_future()

    def answer() -> None:
        try:
            request = control.recv()
        except EOFError:
            asyncio.get_running_loop().remove_reader(control.fileno())
            ended.set_result(None)
            return
        if request is None:
            control.send(state.trips)
            state.trips = 0
        else:
            state.latency = request
            control.send(0)

    asyncio.get_running_loop().add_reader(control.fileno(), answer)
    async with server:
        await ended


async def _forward_requests(
    state: _State, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    with contextlib.closing(writer), contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            state.client_was_last = True
            writer.write(data)
            await writer.drain()


async def _forward_replies(
    state: _State, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Each part waits by itself, so that a long reply isn't delayed once for each of its parts."""
    loop = asyncio.get_running_loop()
    waiting: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

    async def deliver() -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError):
            while (item := await waiting.get())[1]:
                due, data = item
                if due > loop.time():
                    await asyncio.sleep(due - loop.time())
                state.trips += state.client_was_last
                state.client_was_last = False
                writer.write(data)
                await writer.drain()

    async def receive() -> None:
        data: Any = b"-"
        while data:
            try:
                data = await reader.read(1 << 16)
            except OSError:
                data = b""
            waiting.put_nowait((loop.time() + state.latency, data))

    await asyncio.gather(deliver(), receive())
