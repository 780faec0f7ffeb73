"""Reading a moment behind many later changes of a small table, against reading the present: without
a history store, by rewinding, and with one, by the cheaper of both ways.

Records are changed as often each, or (`--queue`) come and go. `--records` and `--behind` say how
many there are, and how many changes. All are processor times, of this process and of the server;
SQL has a process of its own, which counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from tests.bench.databases import TITLES, Bench, Engine, opened
from tests.bench.measure import Row, time_turns
from tests.bench.past_life import change
from tests.bench.people import CREATE, make_people
from tests.bench.processor import spend_tree, spend_turns
from zapdb.database import Database

ROUNDS = 7
REPEATED = 5
PART = 100
"""How many records a transaction changes, and how many a part of the table has."""
REACH = 3.0
SQL = "SELECT city, count(*), sum(balance) FROM people GROUP BY city"


def run(bench: Bench) -> Iterator[Row]:
    for engine in bench.engines:
        for is_stored in (False, True):
            yield from _run(bench, engine, is_stored=is_stored)


def _run(bench: Bench, engine: Engine, *, is_stored: bool) -> Iterator[Row]:
    name = f"past-behind-{engine}-{'stored' if is_stored else 'log'}"
    migrations, server, count = bench.migrations(name, CREATE), bench.server_of(engine), bench.few
    with opened(bench.address(engine, name), migrations) as db:
        db.admin.set_setting("change_log", "on")
        db.table("people").insert_many(make_people(0, count))
        if is_stored:
            db.history.start(bench.directory / name)
        moment, made = next(db.moments()), 0
        for behind in sorted(bench.behind):
            made = _live(bench, db, made, behind)
            if is_stored:
                db.history.flush()
            past, away = db.at(moment), made // 2 if bench.is_queue else 0
            asked = past.table("people").where().explain().past
            assert asked is not None
            title = (
                f"{TITLES[engine]}, {behind:,} changes of {count:,} records since,"
                f" {'with a store' if is_stored else 'by the log alone'}, {asked.way}"
            )
            for work, (read, is_renewed) in WORKS.items():
                find = (lambda: db.at(moment)) if is_renewed else lambda past=past: past
                then = partial(_repeat, read, find, (0, count))
                now = partial(_repeat, read, lambda: db, (away, away + count))
                seconds = [
                    one.processor / REPEATED for one in spend_turns(ROUNDS, server, then, now)
                ]
                yield Row(f"{work}: {title}", "the present", *seconds, ("≤", REACH))
            turns = [
                partial(spend_tree, server, partial(_repeat_sql, find))
                for find in (lambda: db.at(moment), lambda: db)
            ]
            seconds = [one / REPEATED for one in time_turns(ROUNDS, *turns)]
            yield Row(f"sql: {title}", "the present", *seconds, ("≤", REACH))


def _live(bench: Bench, db: Database, made: int, until: int) -> int:
    """Make changes until there are so many since the moment; returns how many there are."""
    count, people = bench.few, db.table("people")
    while made < until:
        if bench.is_queue:
            first = made // 2
            people.where(people.f.id < first + PART).delete()
            people.insert_many(make_people(first + count, PART))
            made += 2 * PART
        else:
            change(db, range(count), f"elsewhere {made}")
            made += count
    return made


def _repeat(
    read: Callable[[Any, int, int], object], find: Callable[[], Any], keys: tuple[int, int]
) -> None:
    people = find().table("people")
    for _ in range(REPEATED):
        read(people, *keys)


def _repeat_sql(find: Callable[[], Any]) -> None:
    found = find()
    for _ in range(REPEATED):
        found.sql(SQL).fetchall()


WORKS: dict[str, tuple[Callable[[Any, int, int], object], bool]] = {
    "scan": (lambda people, *_: sum(1 for _ in people.scan()), True),
    "get": (lambda people, first, _: people.get(first + PART), False),
    "exists": (lambda people, first, _: people.exists(first + PART), False),
    "any": (lambda people, *_: people.where().exists(), True),
    "range of keys": (lambda people, _, end: people.where(people.f.id >= end - PART).all(), False),
    "condition": (lambda people, *_: people.where(people.f.name == "Person number 7").all(), True),
    "count": (lambda people, *_: people.count(), True),
    "count of a range": (
        lambda people, _, end: people.where(people.f.id >= end - PART).count(),
        False,
    ),
    "first page": (lambda people, *_: people.page(20), False),
    "last page": (lambda people, *_: people.order_by("-id").page(20), False),
    "sum": (lambda people, *_: people.sum("number"), True),
    "max": (lambda people, *_: people.max("number"), True),
    "to_arrow": (lambda people, *_: people.to_arrow().read_all(), True),
}
"""What is read, of keys from a first one to an end; and if by a past of its own each round: what it
has held does not count then."""
