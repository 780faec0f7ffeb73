"""Opening a database whose chain is long, when there is nothing to do."""

from __future__ import annotations

from tests.bench.databases import Bench, opened
from tests.bench.measure import Row, take_turns

STORED = 1_000
TABLES = 20
SECONDS = 0.150
ROUNDS = 9


def run(bench: Bench) -> list[Row]:
    migrations = bench.migrations("open")
    for number in range(STORED):
        migrations.add(_change(number))
    address = bench.address("sqlite", "open")
    with opened(address, migrations) as database:
        assert database.position == STORED

    def open_and_close() -> None:
        with opened(address, migrations):
            pass

    (ours,) = take_turns(ROUNDS, open_and_close)
    return [
        Row(
            f"open, {STORED:,} stored migrations, SQLite",
            "the time allowed",
            ours,
            SECONDS,
            ("≤", 1),
        )
    ]


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
