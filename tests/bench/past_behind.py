"""Reading a moment behind many later changes of a small table, against reading the present: without
a history store, by rewinding, and with one, by the cheaper of both ways.

All are processor times, of this process and of the server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from tests.bench.databases import TITLES, Bench, Engine, opened
from tests.bench.measure import Row
from tests.bench.past_life import change
from tests.bench.people import CREATE, make_people
from tests.bench.processor import spend_turns

RECORDS = 1_000
BEHIND = (0, 20_000, 200_000)
"""How many changes there are since the moment: all records are changed as often."""
ROUNDS = 7
REPEATED = 5
REACH = 3.0


def run(bench: Bench) -> Iterator[Row]:
    for engine in bench.engines:
        for is_stored in (False, True):
            yield from _run(bench, engine, is_stored=is_stored)


def _run(bench: Bench, engine: Engine, *, is_stored: bool) -> Iterator[Row]:
    name = f"past-behind-{engine}-{'stored' if is_stored else 'log'}"
    migrations, server = bench.migrations(name, CREATE), bench.server_of(engine)
    way = "with a store" if is_stored else "by the log alone"
    with opened(bench.address(engine, name), migrations) as db:
        db.admin.set_setting("change_log", "on")
        db.table("people").insert_many(make_people(0, RECORDS))
        if is_stored:
            db.history.start(bench.directory / name)
        moment, made = next(db.moments()), 0
        for behind in BEHIND:
            while made < behind:
                change(db, range(RECORDS), f"elsewhere {made}")
                made += RECORDS
            if is_stored:
                db.history.flush()
            title = f"{TITLES[engine]}, {behind:,} changes of {RECORDS:,} records since, {way}"
            past = db.at(moment)
            for work, read in WORKS.items():
                find = (lambda: db.at(moment)) if work in WHOLE else lambda past=past: past
                then = partial(_repeat, read, find)
                turns = spend_turns(ROUNDS, server, then, partial(_repeat, read, lambda: db))
                seconds = [one.processor / REPEATED for one in turns]
                yield Row(f"{work}: {title}", "the present", *seconds, ("≤", REACH))


def _repeat(read: Callable[[Any], object], find: Callable[[], Any]) -> None:
    people = find().table("people")
    for _ in range(REPEATED):
        read(people)


WORKS: dict[str, Callable[[Any], object]] = {
    "scan": lambda people: sum(1 for _ in people.scan()),
    "get": lambda people: people.get(500),
    "exists": lambda people: people.exists(500),
    "range of keys": lambda people: people.where(people.f.id >= RECORDS - 100).all(),
    "scan for one": lambda people: people.where(people.f.name == "Person number 7").all(),
    "count": lambda people: people.count(),
    "first page": lambda people: people.page(20),
    "sum": lambda people: people.sum("number"),
    "to_arrow": lambda people: people.to_arrow().read_all(),
}
WHOLE = {"scan", "scan for one", "count", "sum", "to_arrow"}
"""What reads all has a past of its own each round: what it has held does not count."""
