"""A service against a bare echo of the same bytes by the same library: look-ups from its cache, and
a schema history as a stream. Both are processes of their own; the clients are coroutines of this
one. Tokens are verified, and the call log is on.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import sqlalchemy as sa

from tests.bench.databases import Bench, opened
from tests.bench.measure import Row
from zapdb.service import keys
from zapdb.service.methods import METHODS
from zapdb.service.principals import EVERY_TENANT, SCOPES, Grant
from zapdb.storage import TransactionMode
from zapdb.storage.fixed_tables import SCHEMA_HISTORY

CLIENTS = (1, 16, 64)
CALLS = 3_000
STREAMS = 24
ENTRIES = 1_024
ROUNDS = 5
TABLES = 20
REACH = 0.7
UNARY, STREAM = "/bench.Echo/Unary", "/bench.Echo/Stream"

Call = Callable[[], Awaitable[int]]
"""Makes a call, and returns how many answers it had."""


def run(bench: Bench) -> Iterator[Row]:
    migrations = bench.migrations("service", *map(_create_table, range(TABLES)))
    address = bench.address("sqlite", "service")
    with opened(address, migrations) as db:
        _lengthen_history(db._storage)
    key_file = bench.directory / "service-keys.json"
    keys.add_key(key_file)
    grant = Grant(EVERY_TENANT, frozenset(SCOPES))
    token = keys.issue_token(key_file, "bench", [grant], 86_400)
    with _serving(address, key_file) as service:
        yield from asyncio.run(_measure(service, token))


def _create_table(number: int) -> str:
    fields = ", ".join(f"{{name: f{at}, type: string, optional: true}}" for at in range(8))
    key = "{name: id, type: integer}"
    return f"create_table: {{table: t{number}, key: [id], fields: [{key}, {fields}]}}"


def _lengthen_history(storage: Any) -> None:
    with storage.transaction(TransactionMode.CATALOG) as connection:
        found = connection.core_execute(sa.select(SCHEMA_HISTORY).limit(1)).fetchall()
        plain = dict(zip(SCHEMA_HISTORY.c.keys(), found[0], strict=True))
        for at in range(2, ENTRIES + 1):
            row = {**plain, "revision": at}
            connection.core_execute(sa.insert(SCHEMA_HISTORY).values(row))


async def _measure(service: str, token: str) -> list[Row]:
    metadata = (("authorization", f"Bearer {token}"),)
    methods = {method.name: method for method in METHODS}
    look_up, history = methods["ListTables"], methods["GetFingerprintHistory"]
    asked = look_up.request_class(tenant="default").SerializeToString()
    since = history.request_class(
        tenant="default", table_number=1, since_generation=1, limit=ENTRIES
    ).SerializeToString()
    async with grpc.aio.insecure_channel(service) as channel:
        answer = await channel.unary_unary(look_up.path)(asked, metadata=metadata)
        entries = [
            one async for one in channel.unary_stream(history.path)(since, metadata=metadata)
        ]
        assert len(entries) == ENTRIES
        with _echoing(answer, entries[0]) as echo:
            async with grpc.aio.insecure_channel(echo) as bare:
                unary = (
                    _unary(channel, look_up.path, asked, metadata),
                    _unary(bare, UNARY, asked, metadata),
                )
                streams = (
                    _stream(channel, history.path, since, metadata),
                    _stream(bare, STREAM, since, metadata),
                )
                rows = list[Row]()
                for clients in CLIENTS:
                    rows += await _compare(f"look-up, {clients} clients", *unary, CALLS, clients)
                for clients in CLIENTS:
                    work = f"history of {ENTRIES:,} entries, {clients} clients"
                    rows += await _compare(work, *streams, STREAMS, clients)
                return rows


def _unary(channel: Any, path: str, request: bytes, metadata: Any) -> Call:
    ask = channel.unary_unary(path)

    async def call() -> int:
        await ask(request, metadata=metadata)
        return 1

    return call


def _stream(channel: Any, path: str, request: bytes, metadata: Any) -> Call:
    ask = channel.unary_stream(path)

    async def call() -> int:
        return len([one async for one in ask(request, metadata=metadata)])

    return call


async def _compare(work: str, ours: Call, theirs: Call, calls: int, clients: int) -> list[Row]:
    """Answers a second, in turns; and the times of a call."""
    rates: tuple[list[float], list[float]] = ([], [])
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(ROUNDS + 1):
        for at in (0, 1) if turn % 2 else (1, 0):
            rate, taken = await _rate((ours, theirs)[at], calls, clients)
            if turn:
                rates[at].append(rate)
                times[at].extend(taken)
    mine, bare = map(statistics.median, rates)
    rows = [Row(work, "bare echo", mine, bare, ("≥", REACH), "/s")]
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        mine, bare = (sorted(taken)[int(len(taken) * share)] for taken in times)
        rows.append(Row(f"{work}, {name}", "bare echo", mine, bare, None))
    return rows


async def _rate(call: Call, calls: int, clients: int) -> tuple[float, list[float]]:
    left, taken, answers = itertools.count(), list[float](), 0

    async def work() -> None:
        nonlocal answers
        while next(left) < calls:
            began = time.perf_counter()
            made = await call()
            answers += made
            taken.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(clients)))
    return answers / (time.perf_counter() - began), taken


@contextmanager
def _serving(address: str, key_file: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "zapdb", "serve", "-d", address, "--tokens", str(key_file)]
    with _started([*command, "--listen", "127.0.0.1:0", "--json"], "}\n") as said:
        yield json.loads(said)["address"]


@contextmanager
def _echoing(answer: bytes, entry: bytes) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as directory:
        for name, content in (("answer", answer), ("entry", entry)):
            Path(directory, name).write_bytes(content)
        with _started([sys.executable, "-m", __name__, directory], "\n") as said:
            yield said.strip()


@contextmanager
def _started(command: list[str], end: str) -> Iterator[str]:
    """A process, and what it says until it is ready."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        said = ""
        while not said.endswith(end):
            line = process.stdout.readline()
            assert line, "it has ended"
            said += line
        yield said
    finally:
        process.terminate()
        process.communicate()


async def _echo(directory: Path) -> None:
    answer, entry = ((directory / name).read_bytes() for name in ("answer", "entry"))

    async def unary(_: bytes, context: object) -> bytes:
        return answer

    async def stream(_: bytes, context: object) -> AsyncIterator[bytes]:
        for _ in range(ENTRIES):
            yield entry

    server = grpc.aio.server()
    handlers = {
        "Unary": grpc.unary_unary_rpc_method_handler(unary),
        "Stream": grpc.unary_stream_rpc_method_handler(stream),
    }
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("bench.Echo", handlers)])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(_echo(Path(sys.argv[1])))
