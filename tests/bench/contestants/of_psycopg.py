"""The bare driver: one prepared statement, sent by itself."""

from __future__ import annotations

import json
from collections.abc import Sequence

import psycopg
import sqlalchemy as sa

from tests.bench.contestants.base import Values
from tests.bench.databases import orm_engine
from tests.bench.people import Base, Person


class OfPsycopg:
    """`INSERT` in autocommit: the least that a durable insertion can be."""

    name = "bare INSERT"

    def __init__(self, address: str) -> None:
        engine = orm_engine(address)
        Base.metadata.create_all(engine)
        engine.dispose()
        url = sa.make_url(address).set(drivername="postgresql")
        self._connection = psycopg.connect(
            url.render_as_string(hide_password=False), autocommit=True
        )
        names = [column.name for column in Person.__table__.columns]
        self._sql = (
            f"INSERT INTO people ({', '.join(names)})"
            f" VALUES ({', '.join(f'%({name})s' for name in names)})"
        )

    def insert(self, people: Sequence[Values]) -> None:
        for person in people:
            values = person | {"extra": json.dumps(person["extra"])}
            self._connection.execute(self._sql, values, prepare=True)

    def close(self) -> None:
        self._connection.close()
