"""What a network costs on PostgreSQL: round trips counted at the socket, and rates with latency.

What counts, and what adds a millisecond to each reply, is a relay of ours (`tests.relay`); rates
without latency are measured without it.
"""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass

import sqlalchemy as sa

from tests.bench.contestants import Contestant, OfCore, OfDjango, OfOrm, OfPeewee, OfZapdb
from tests.bench.contestants.of_psycopg import OfPsycopg
from tests.bench.databases import Bench
from tests.bench.measure import Reach, Row, take_turns, time_turns
from tests.bench.people import CREATE, CREATE_INDEX, make_people
from tests.relay import COUNTING_LATENCY_SECONDS, Relay, Upstream, relay

RECORDS = 5_000
EACH = 150
"""Operations of a contestant in a round."""
IN_TRANSACTION = 10
BATCH = 500
PAGE = 20
ROUNDS = 7
LATENCY_SECONDS = 0.001
WARM = 12
"""Drivers prepare a statement after it has been executed five times."""

Values = Sequence[dict[str, object]]


def run(bench: Bench) -> list[Row]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # One field after the other: Peewee's model is bound to one database at a time.
        with relay(_upstream(bench)) as between, _enter_field(bench, "far", between) as field:
            between.delay(COUNTING_LATENCY_SECONDS)
            counted = list(_count(field, between))
            between.delay(LATENCY_SECONDS)
            far = list(_compare(field, "1 ms", 0.95))
        with _enter_field(bench, "near", None) as field:
            near = list(_compare(field, "no latency", 0.9))
    return [*counted, *near, *far]


def _upstream(bench: Bench) -> Upstream:
    url = sa.make_url(bench.address("postgresql", "trips"))
    host = url.query.get("host", url.host)
    assert isinstance(host, str)
    return Upstream(host, url.port or 5432)


@dataclass(frozen=True, slots=True)
class Field:
    """All contestants, each with a database of its own that is filled."""

    ours: Contestant
    bare: OfPsycopg
    peers: Sequence[Contestant]
    """SQLAlchemy's ORM first."""
    ids: Iterator[int]
    """Of records that are not there yet."""

    def make(self, count: int) -> Values:
        return list(make_people(next(self.ids), count))


@contextmanager
def _enter_field(bench: Bench, name: str, between: Relay | None) -> Iterator[Field]:
    """The contestants, connected through the relay, or without one."""

    def address(database: str) -> str:
        direct = bench.address("postgresql", f"{name}-{database}")
        if between is None:
            return direct
        url = sa.make_url(direct).difference_update_query(["host", "port"])
        return url.set(host="127.0.0.1", port=between.port).render_as_string(hide_password=False)

    with ExitStack() as stack:
        ours = OfZapdb(address("zapdb"), bench.migrations(f"trips-{name}", CREATE, CREATE_INDEX))
        peers = [kind(address(kind.__name__)) for kind in (OfOrm, OfCore, OfPeewee, OfDjango)]
        bare = OfPsycopg(address("bare"))
        for contestant in (ours, bare, *peers):
            stack.enter_context(closing(contestant))
        for contestant in (ours, *peers):
            contestant.insert_many(list(make_people(0, RECORDS)))
        yield Field(ours, bare, peers, itertools.count(RECORDS, 10_000))


@dataclass(frozen=True, slots=True)
class Operation:
    """`prepare` makes what is to be done, which it may do only once, from new records."""

    title: str
    prepare: Callable[[Contestant, Values], Callable[[], object]]
    trips: float
    """Round trips to reach, of one."""
    many: int = 1
    """How many records one is about."""


def _delete(contestant: Contestant, people: Values) -> Callable[[], object]:
    contestant.insert_many(people)
    ids = [int(str(person["id"])) for person in people]
    return lambda: contestant.delete(ids)


OPERATIONS = (
    Operation("insert", lambda c, people: lambda: c.insert(people), 1),
    Operation(
        "update: read and write",
        lambda c, people: lambda: c.save(range(len(people)), f"city {time.perf_counter_ns()}"),
        2,
    ),
    Operation("delete: read and delete", _delete, 2),
    Operation(
        f"transaction of {IN_TRANSACTION} inserts",
        lambda c, people: lambda: c.insert_in_transaction(people),
        IN_TRANSACTION + 1,
        IN_TRANSACTION,
    ),
    Operation(f"insert many, {BATCH}", lambda c, people: lambda: c.insert_many(people), 3, BATCH),
    Operation("get", lambda c, people: lambda: c.get(range(len(people))), 1),
    Operation(
        f"index range of {PAGE}", lambda c, people: lambda: c.find(range(len(people)), PAGE), 1
    ),
)


def _count(field: Field, between: Relay) -> Iterator[Row]:
    for operation in OPERATIONS:
        counted = [
            _count_trips(field, between, operation, contestant)
            for contestant in (field.ours, *field.peers)
        ]
        title = f"{operation.title}: round trips"
        yield Row(title, "to reach", counted[0], operation.trips, ("≤", 1), "trips")
        for peer, trips in zip(field.peers, counted[1:], strict=True):
            yield Row(title, peer.name, counted[0], trips, None, "trips")


def _count_trips(
    field: Field, between: Relay, operation: Operation, contestant: Contestant
) -> float:
    """Round trips of one, where many have warmed up what the driver prepares."""
    for _ in range(WARM):
        operation.prepare(contestant, field.make(operation.many))()
    ready = operation.prepare(contestant, field.make(operation.many))
    between.count_trips()
    ready()
    return between.count_trips()


def _compare(field: Field, title: str, of_bare: float) -> Iterator[Row]:
    bare, ours = take_turns(
        ROUNDS,
        lambda: field.bare.insert(field.make(EACH)),
        lambda: field.ours.insert(field.make(EACH)),
    )
    yield Row(f"insert, {title}", field.bare.name, EACH / ours, EACH / bare, ("≥", of_bare), "/s")
    for operation in OPERATIONS[:3]:
        contestants = (field.ours, *field.peers)
        seconds = time_turns(ROUNDS, *(_timed(field, operation, c) for c in contestants))
        for peer, theirs in zip(field.peers, seconds[1:], strict=True):
            rates = EACH / seconds[0], EACH / theirs
            reach = _reach(operation, peer)
            yield Row(f"{operation.title}, {title}", peer.name, *rates, reach, "/s")


def _reach(operation: Operation, peer: Contestant) -> Reach:
    """At least as fast as each; an update or a deletion as 1.5 of SQLAlchemy's ORM."""
    return "≥", 1.5 if isinstance(peer, OfOrm) and operation.title != "insert" else 1.0


def _timed(field: Field, operation: Operation, contestant: Contestant) -> Callable[[], float]:
    def act() -> float:
        ready = operation.prepare(contestant, field.make(EACH))
        started = time.perf_counter()
        ready()
        return time.perf_counter() - started

    return act
