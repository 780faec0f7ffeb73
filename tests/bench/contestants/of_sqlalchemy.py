"""SQLAlchemy: its ORM, and its Core without objects."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from tests.bench.contestants.base import Contestant, Values
from tests.bench.databases import orm_engine
from tests.bench.people import Base, Person
from zapdb.limits import PAGE_RECORDS_MAX


class OfOrm(Contestant):
    """A session for each piece of work, as web applications have it."""

    name = "SQLAlchemy ORM"

    def __init__(self, address: str) -> None:
        self._engine = orm_engine(address)
        Base.metadata.create_all(self._engine)

    def insert(self, people: Sequence[Values]) -> None:
        for person in people:
            with Session(self._engine) as session:
                session.add(Person(**person))
                session.commit()

    def insert_many(self, people: Sequence[Values]) -> None:
        with Session(self._engine) as session:
            session.execute(sa.insert(Person), people)
            session.commit()

    def get(self, ids: Sequence[int]) -> None:
        with Session(self._engine) as session:
            for id in ids:
                person = session.get(Person, id)
                session.expunge(person)  # or the next get of it would read nothing

    def find_one(self, numbers: Sequence[int]) -> None:
        with Session(self._engine) as session:
            for number in numbers:
                query = sa.select(Person).where(Person.number == number).limit(1)
                session.expunge(session.scalars(query).one())

    def update(self, ids: Sequence[int], city: str) -> None:
        for id in ids:
            with Session(self._engine) as session:
                person = session.get(Person, id)
                assert person is not None
                person.city = city
                session.commit()

    def save(self, ids: Sequence[int], city: str) -> None:
        self.update(ids, city)

    def delete(self, ids: Sequence[int]) -> None:
        for id in ids:
            with Session(self._engine) as session:
                session.delete(session.get(Person, id))
                session.commit()

    def insert_in_transaction(self, people: Sequence[Values]) -> None:
        with Session(self._engine) as session:
            for person in people:
                session.add(Person(**person))
                session.flush()
            session.commit()

    def find(self, lows: Sequence[int], count: int) -> int:
        found = 0
        with Session(self._engine) as session:
            for low in lows:
                query = sa.select(Person).where(Person.number >= low)
                found += len(session.scalars(query.order_by(Person.number).limit(count)).all())
                session.expunge_all()
        return found

    def scan(self) -> int:
        with Session(self._engine) as session:
            everybody = sa.select(Person).execution_options(yield_per=PAGE_RECORDS_MAX)
            return sum(1 for _ in session.scalars(everybody))

    def close(self) -> None:
        self._engine.dispose()


class OfCore(Contestant):
    """Rows in the place of objects."""

    name = "SQLAlchemy Core"

    def __init__(self, address: str) -> None:
        self._engine = orm_engine(address)
        Base.metadata.create_all(self._engine)
        self._table: Any = Person.__table__

    def insert(self, people: Sequence[Values]) -> None:
        for person in people:
            with self._engine.begin() as connection:
                connection.execute(sa.insert(self._table), person)

    def insert_many(self, people: Sequence[Values]) -> None:
        with self._engine.begin() as connection:
            connection.execute(sa.insert(self._table), people)

    def get(self, ids: Sequence[int]) -> None:
        c = self._table.c
        with self._engine.connect() as connection:
            for id in ids:
                connection.execute(sa.select(self._table).where(c.id == id)).one()

    def find_one(self, numbers: Sequence[int]) -> None:
        c = self._table.c
        with self._engine.connect() as connection:
            for number in numbers:
                query = sa.select(self._table).where(c.number == number).limit(1)
                connection.execute(query).one()

    def update(self, ids: Sequence[int], city: str) -> None:
        for id in ids:
            with self._engine.begin() as connection:
                statement = sa.update(self._table).where(self._table.c.id == id)
                connection.execute(statement.values(city=city))

    def save(self, ids: Sequence[int], city: str) -> None:
        table = self._table
        for id in ids:
            with self._engine.begin() as connection:
                connection.execute(sa.select(table).where(table.c.id == id)).one()
                connection.execute(sa.update(table).where(table.c.id == id).values(city=city))

    def delete(self, ids: Sequence[int]) -> None:
        table = self._table
        for id in ids:
            with self._engine.begin() as connection:
                connection.execute(sa.select(table).where(table.c.id == id)).one()
                connection.execute(sa.delete(table).where(table.c.id == id))

    def insert_in_transaction(self, people: Sequence[Values]) -> None:
        with self._engine.begin() as connection:
            for person in people:
                connection.execute(sa.insert(self._table), person)

    def find(self, lows: Sequence[int], count: int) -> int:
        c, found = self._table.c, 0
        with self._engine.connect() as connection:
            for low in lows:
                query = sa.select(self._table).where(c.number >= low)
                found += len(connection.execute(query.order_by(c.number).limit(count)).all())
        return found

    def scan(self) -> int:
        with self._engine.connect() as connection:
            paged = connection.execution_options(yield_per=PAGE_RECORDS_MAX)
            return sum(1 for _ in paged.execute(sa.select(self._table)))

    def close(self) -> None:
        self._engine.dispose()
