"""Applying a migration takes the same time however many records there are."""

from __future__ import annotations

import statistics
import time

from tests.bench.databases import TITLES, Bench, Engine, opened
from tests.bench.measure import Row
from zapdb.activation.up import migrate_up
from zapdb.catalog import DEFAULT_TENANT
from zapdb.storage import connect

FEW = 1_000
ROUNDS = 25
CREATE = """create_table: {table: items, key: [id], fields: [
      {name: id, type: integer}, {name: number, type: integer}, {name: name, type: string}]}"""
KINDS = {
    "add_field with a default": (
        "add_field: {{table: items, field: {{name: added{0}, type: integer, default: 7}}}}"
    ),
    "create_index": "create_index: {{table: items, index: index{0}, fields: [{{field: number}}]}}",
    "rename_field": "rename_field: {{table: items, field: added{0}, to: renamed{0}}}",
}


def run(bench: Bench) -> list[Row]:
    return [row for engine in bench.engines for row in _run(bench, engine)]


def _run(bench: Bench, engine: Engine) -> list[Row]:
    migrations = bench.migrations(f"apply-{engine}", CREATE)
    storages = []
    for count in (FEW, bench.many):
        address = bench.address(engine, f"apply-{count}")
        with opened(address, migrations) as database:
            values = ({"id": n, "number": n * 7919 % 999_983, "name": "x"} for n in range(count))
            database.table("items").insert_many(values)
        storages.append(connect(address))
    measured: dict[str, list[list[float]]] = {kind: [[], []] for kind in KINDS}
    for number in range(ROUNDS + 1):
        for kind, change in KINDS.items():
            migrations.add(change.format(number))
            for at in (0, 1) if number % 2 else (1, 0):
                started = time.perf_counter()
                migrate_up(storages[at], DEFAULT_TENANT, migrations.directory)
                if number:  # the first round warms up
                    measured[kind][at].append(time.perf_counter() - started)
    for storage in storages:
        storage.close()
    return [
        Row(
            f"{kind}, {bench.many:,} records, {TITLES[engine]}",
            f"{FEW:,} records",
            statistics.median(large),
            statistics.median(small),
            ("≤", 1.2),
        )
        for kind, (small, large) in measured.items()
    ]
