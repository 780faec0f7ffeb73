"""The past through a service: a record against its `get` in the process and a bare echo of the same
bytes, and a table in Arrow against `to_arrow` in the process.

Processor times are those of all that takes part: the client, the service or the echo, and the
database's server. Service and echo are processes of their own with the same library and kind of
event loop, and the call log is on. One client calls, in short turns, so that other work on the
machine meets both; the figures are medians.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import grpc
import grpc.aio

import zapdb
from tests.bench.databases import TITLES, Bench, Engine, opened
from tests.bench.measure import Row, take_turns, time_turns
from tests.bench.past_life import change
from tests.bench.people import CREATE, make_people
from tests.bench.processor import spend_tree
from zapdb.service.methods import METHODS

RECORDS = 30_000
CHANGED = 100
"""How many records changed since the moment."""
GETS = 100
ROUNDS = 25
LOADS = 5
ECHO = "/bench.Echo/Echo"


def run(bench: Bench) -> Iterator[Row]:
    for engine in bench.engines:
        yield from _run(bench, engine)


def _run(bench: Bench, engine: Engine) -> Iterator[Row]:
    migrations = bench.migrations(f"service-past-{engine}", CREATE)
    address, server = bench.address(engine, "service-past"), bench.server_of(engine)
    with opened(address, migrations) as db:
        db.admin.set_setting("change_log", "on")
        db.table("people").insert_many(make_people(0, RECORDS))
        moment = next(db.moments()).number
        change(db, range(0, RECORDS, RECORDS // CHANGED), "elsewhere")
        people = db.at(moment).table("people")
        with (
            _serving(address) as service,
            _echoing(*_bytes_of_a_call(service, moment)) as echo,
            zapdb.connect(f"grpc://{service}") as client,
        ):

            def fetch() -> None:
                for number in range(GETS):
                    client.history.fetch_row("people", (str(number),), f"#{moment}")

            def get() -> None:
                for number in range(GETS):
                    people.get(number)
                    echo()

            def load() -> None:
                found = client.history.to_arrow("people", f"#{moment}").read_all()
                assert found.num_rows == RECORDS

            def read() -> None:
                assert people.to_arrow().read_all().num_rows == RECORDS

            for what, against, actions, count, rounds, reach in (
                ("FetchRow", "get and echo", (fetch, get), GETS, ROUNDS, ("≤", 1.3)),
                ("LoadTable", "to_arrow", (load, read), 1, LOADS, ("≥", 0.6)),
            ):
                spend = [partial(spend_tree, server, action) for action in actions]
                seconds = [one / count for one in time_turns(rounds, *spend)]
                yield Row(f"{what}, {TITLES[engine]}: processor time", against, *seconds, reach)
                seconds = [one / count for one in take_turns(rounds, *actions)]
                yield Row(f"{what}, {TITLES[engine]}: wall time", against, *seconds, None)


@contextmanager
def _serving(address: str) -> Iterator[str]:
    command = [sys.executable, "-m", "zapdb", "serve", "-d", address, "--insecure-loopback"]
    command += ["--listen", "127.0.0.1:0", "--json"]
    with _started(command, "}\n") as text:
        yield json.loads(text)["address"]


def _bytes_of_a_call(service: str, moment: int) -> tuple[bytes, bytes]:
    """The request and the answer of a `FetchRow`."""
    (method,) = (one for one in METHODS if one.name == "FetchRow")
    request = method.request_class(table="people", key=["0"], at=f"#{moment}").SerializeToString()
    with grpc.insecure_channel(service) as channel:
        return request, channel.unary_unary(method.path)(request)


@contextmanager
def _echoing(request: bytes, answer: bytes) -> Iterator[Callable[[], bytes]]:
    with (
        _started([sys.executable, "-m", __name__, answer.hex()], "\n") as address,
        grpc.insecure_channel(address.strip()) as channel,
    ):
        yield partial(channel.unary_unary(ECHO), request)


@contextmanager
def _started(command: list[str], end: str) -> Iterator[str]:
    """A process, and what it says until it is ready."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        while not said.endswith(end):
            line = process.stdout.readline()
            assert line, "the process ended"
            said += line
        yield said
    finally:
        process.terminate()
        process.wait()


async def _echo(answer: bytes) -> None:
    async def reply(request: bytes, context: object) -> bytes:
        return answer

    server = grpc.aio.server()
    handler = grpc.unary_unary_rpc_method_handler(reply)
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("bench.Echo", {"Echo": handler})]
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"127.0.0.1:{port}", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(_echo(bytes.fromhex(sys.argv[1])))
