"""A record 50 migrations behind costs about what a current one does."""

from __future__ import annotations

import itertools

from tests.bench.databases import Bench, Migrations, opened
from tests.bench.measure import Row, take_turns
from tests.bench.people import CREATE, make_people
from zapdb import asdict

RECORDS = 5_000
ROUNDS = 25
STEPS = 50


def run(bench: Bench) -> list[Row]:
    migrations = bench.migrations("stale", CREATE)
    address = bench.address("sqlite", "stale")
    with opened(address, migrations) as database:
        database.table("people").insert_many(make_people(0, RECORDS))
    _add_steps(migrations)
    with opened(address, migrations) as database:
        people = database.table("people")
        old = list(itertools.islice(people.scan(), RECORDS))
        people.insert_many(asdict(person) | {"id": person.id + RECORDS} for person in old)
        assert database.admin.count_by_revision("people") == {1: RECORDS, 1 + STEPS: RECORDS}

        def get_stale() -> None:
            for id in range(RECORDS):
                people.get(id)

        def get_current() -> None:
            for id in range(RECORDS, 2 * RECORDS):
                people.get(id)

        get, against = take_turns(ROUNDS, get_stale, get_current)

        bound = people._bound
        page = database._storage.connection().fetch_all(bound.records.page_sql, (b"", 2 * RECORDS))
        read = bound.reader.read

        def read_stale() -> None:
            for key, value in page[:RECORDS]:
                read(key, value)

        def read_current() -> None:
            for key, value in page[RECORDS:]:
                read(key, value)

        bare, bare_against = take_turns(ROUNDS, read_stale, read_current)
    return [
        Row(
            f"get of a record {STEPS} migrations behind, SQLite",
            "a current one",
            get / RECORDS,
            against / RECORDS,
            ("≤", 1.5),
        ),
        Row(
            "   the reading alone: bytes to object",
            "a current one",
            bare / RECORDS,
            bare_against / RECORDS,
            ("≤", 1.5),
        ),
    ]


def _add_steps(migrations: Migrations) -> None:
    """Two transforms, and 48 renames, additions and drops in turn."""
    migrations.add(
        "transform: {table: people, from: {name: string}, into: {first: string, last: string},"
        " up: {first: \"before(name, ' ')\", last: \"after(name, ' ')\"},"
        " down: {name: \"join(' ', first, last)\"}, reversibility: lossy}"
    )
    name = "city"
    for number in range(16):
        migrations.add(f"rename_field: {{table: people, field: {name}, to: city{number}}}")
        name = f"city{number}"
        added = f"{{name: extra{number}, type: integer, default: 1}}"
        migrations.add(f"add_field: {{table: people, field: {added}}}")
        # Three of four go at once; the fourth takes the place of one that came before.
        dropped = f"extra{number - 4 if number % 4 == 0 else number}" if number else "number"
        migrations.add(f"drop_field: {{table: people, field: {dropped}, restore: {{value: 1}}}}")
    migrations.add(
        "transform: {table: people, from: {first: string, last: string}, into: {title: string},"
        " up: {title: \"join(', ', upper(last), first)\"},"
        " down: {first: \"after(title, ', ')\", last: \"before(title, ', ')\"},"
        " reversibility: lossy, because: the case of the last name is lost}"
    )
    assert migrations.count == 1 + STEPS
