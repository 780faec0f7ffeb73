"""Opening a database whose chain is long, when there is nothing to do."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import zapdb
from tests.bench.databases import Bench, Migrations, opened
from tests.bench.measure import Row
from tests.bench.processor import spend_turns

LENGTHS = (50, 500, 2_000)
TABLES = 20
SECONDS = 0.150
GROWTH = 1.3
"""How many times as long an open may take with the longest chain as with the shortest."""
PREVIEW = 2
"""How many times as long a preview may take to open as the database does."""
ROUNDS = 15
ONE_MORE = "add_field: {table: table0, field: {name: previewed, type: integer, default: 1}}"


def run(bench: Bench) -> list[Row]:
    lengths = LENGTHS[: 2 if bench.quick else None]
    chains = []
    for stored in lengths:
        migrations, address = (
            bench.migrations(f"open{stored}"),
            bench.address("sqlite", f"o{stored}"),
        )
        for number in range(stored):
            migrations.add(_change(number))
        with opened(address, migrations) as database:
            assert database.position == stored
        chains.append((address, migrations))

    def open_bare(address: str) -> None:
        zapdb.open(address).close()

    bare = spend_turns(ROUNDS, None, *(partial(open_bare, address) for address, _ in chains))
    rows = [
        Row(
            f"open, {stored:,} stored migrations, processor, SQLite",
            f"{lengths[0]} of them",
            spent.processor,
            bare[0].processor,
            ("≤", GROWTH),
        )
        for stored, spent in zip(lengths[1:], bare[1:], strict=True)
    ]

    def open_with_files() -> None:
        with opened(*chains[-1]):
            pass

    (ours,) = spend_turns(ROUNDS, None, open_with_files)
    work = f"open, {lengths[-1]:,} stored migrations and all files, processor, SQLite"
    rows.append(Row(work, "the time allowed", ours.processor, SECONDS, ("≤", 1)))
    return [*rows, _compare_preview(*chains[0])]


def _compare_preview(address: str, applied: Migrations) -> Row:
    """With the files, and with one more, which is previewed."""
    pending = Migrations(Path(shutil.copytree(applied.directory, f"{applied.directory}-pending")))
    pending.count = applied.count
    pending.add(ONE_MORE)

    def open_ordinary() -> None:
        zapdb.open(address, migrations=applied.directory).close()

    def open_preview() -> None:
        zapdb.open(address, migrations=pending.directory, preview=True).close()

    ordinary, preview = spend_turns(ROUNDS, None, open_ordinary, open_preview)
    work = f"open a preview of one file, {applied.count} stored migrations, processor, SQLite"
    return Row(work, "open", preview.processor, ordinary.processor, ("≤", PREVIEW))


def _change(number: int) -> str:
    """Tables first; then each in turn gets a field, another name for it, and loses it again."""
    step, at = divmod(number, TABLES)
    if not step:
        return (
            f"create_table: {{table: table{at}, key: [id], fields: ["
            "{name: id, type: integer}, {name: name, type: string},"
            " {name: balance, type: decimal, scale: 2}, {name: active, type: boolean}]}"
        )
    added, kind = divmod(step - 1, 3)
    if kind == 0:
        field = f"{{name: field{added}, type: integer, default: {added}}}"
        return f"add_field: {{table: table{at}, field: {field}}}"
    if kind == 1:
        return f"rename_field: {{table: table{at}, field: field{added}, to: renamed{added}}}"
    # Every second of the added fields stays.
    if added % 2:
        return f"rename_field: {{table: table{at}, field: renamed{added}, to: kept{added}}}"
    return f"drop_field: {{table: table{at}, field: renamed{added}, restore: {{value: 0}}}}"
