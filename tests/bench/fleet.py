"""Ten thousand tenants: with nothing to do, and some of them to be brought up."""

from __future__ import annotations

import contextlib
import time

import sqlalchemy as sa

import zapdb
from tests.bench.databases import TITLES, Bench, Engine, Migrations, opened
from tests.bench.measure import Row, take_turns
from zapdb.activation.up import migrate_all_tenants, read_all_tenants
from zapdb.catalog.tenants import add_tenant
from zapdb.storage import Storage, TransactionMode, connect
from zapdb.storage.fixed_tables import CATALOG

TENANTS = 10_000
BROUGHT = 200
IDLE_SECONDS = 5.0
OPEN_SECONDS = 0.150
ROUNDS = 3

ITEMS = (
    "create_table: {table: items, key: [id], fields: ["
    "{name: id, type: integer}, {name: title, type: string}]}"
)
COLOR = "add_field: {table: items, field: {name: color, type: string, default: red}}"


def run(bench: Bench) -> list[Row]:
    return [row for engine in bench.engines for row in _measure(bench, engine)]


def _measure(bench: Bench, engine: Engine) -> list[Row]:
    migrations = bench.migrations(f"fleet-{engine}", ITEMS)
    address = bench.address(engine, f"fleet-{engine}")
    with opened(address, migrations):
        pass
    storage = connect(address)
    count = TENANTS // 10 if bench.quick else TENANTS
    with storage.transaction(TransactionMode.CATALOG) as connection:
        for number in range(count):
            add_tenant(connection, f"tenant-{number}")
    created = _bring_up(storage)
    migrations.add(COLOR)
    with opened(address, migrations):
        pass
    brought = _bring_up(storage)
    _pretend_all_are_up(storage)

    def look() -> None:
        assert migrate_all_tenants(storage) == []
        assert not read_all_tenants(storage).behind

    (idle,) = take_turns(ROUNDS, look)
    one = _open_one(address, migrations)
    storage.close()
    title = TITLES[engine]
    return [
        Row(f"up and status, {count:,} tenants, {title}", "allowed", idle, IDLE_SECONDS, ("≤", 1)),
        Row(f"open one of {count:,}, {title}", "the time allowed", one, OPEN_SECONDS, ("≤", 1)),
        Row(
            f"tenants brought up, a field more, {title}",
            "those brought up to a first table",
            brought,
            created,
            None,
            "/s",
        ),
    ]


def _bring_up(storage: Storage) -> float:
    """Tenants per second, of some; the others stay behind."""
    status = read_all_tenants(storage)
    some = min(BROUGHT, len(status.behind))

    class Enough(Exception):
        pass

    left = iter(range(some - 1))

    def note(_: object) -> None:
        if next(left, None) is None:
            raise Enough

    started = time.perf_counter()
    with contextlib.suppress(Enough):
        migrate_all_tenants(storage, note)
    seconds = time.perf_counter() - started
    brought = len(status.behind) - len(read_all_tenants(storage).behind)
    return brought / seconds


def _pretend_all_are_up(storage: Storage) -> None:
    with storage.transaction(TransactionMode.CATALOG) as connection:
        connection.core_execute(
            sa.update(CATALOG)
            .where(CATALOG.c.kind == "tenant")
            .values(
                value=sa.func.replace(
                    sa.func.replace(CATALOG.c.value, '"position":0', '"position":2'),
                    '"position":1',
                    '"position":2',
                )
            )
        )


def _open_one(address: str, migrations: Migrations) -> float:
    def open_and_close() -> None:
        zapdb.open(address, migrations=migrations.directory, tenant="tenant-7").close()

    (seconds,) = take_turns(ROUNDS, open_and_close)
    return seconds
