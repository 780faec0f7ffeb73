"""The bare drivers, `sqlite3` and psycopg: rows as tuples, and records of msgspec beside keys."""

from __future__ import annotations

import datetime
import decimal
import json
import sqlite3
import uuid
from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from tests.bench.contestants.base import SQLITE_PRAGMAS, Reader, Values
from tests.bench.databases import orm_engine
from tests.bench.people import Base, Person
from zapdb.limits import PAGE_RECORDS_MAX


class OfDriver(Reader):
    """Statements that are written by hand. A row has the driver's types: with `sqlite3`, JSON is a
    string, and so are decimals, times and UUIDs."""

    name = "bare driver, rows"
    _columns = ", ".join(column.name for column in Person.__table__.columns)

    def __init__(self, address: str) -> None:
        url = sa.make_url(address)
        self._driver, self._mark = _connect(url), "?" if url.drivername == "sqlite" else "%s"
        self._create(address)
        mark, first = self._mark, f"SELECT {self._columns} FROM people WHERE"
        self._get_sql = f"{first} id = {mark}"
        self._find_one_sql = f"{first} number = {mark} LIMIT 1"
        self._find_sql = f"{first} number >= {mark} ORDER BY number LIMIT {mark}"
        self._scan_sql = f"{first} id > {mark} ORDER BY id LIMIT {PAGE_RECORDS_MAX}"

    def _create(self, address: str) -> None:
        engine = orm_engine(address)
        Base.metadata.create_all(engine)
        engine.dispose()

    def _to_row(self, person: Values) -> Sequence[Any]:
        """The values of the columns."""
        row = person | {"extra": json.dumps(person["extra"])}
        if self._mark == "?":
            texts = {"balance": str(row["balance"]), "met": str(row["met"])}
            row = row | texts | {"token": row["token"].hex}
        return tuple(row.values())

    def _to_object(self, row: Any) -> object:
        return row

    def insert_many(self, people: Sequence[Values]) -> None:
        rows = [self._to_row(person) for person in people]
        marks = ", ".join([self._mark] * len(rows[0]))
        cursor = self._driver.cursor()
        cursor.execute("BEGIN")
        cursor.executemany(f"INSERT INTO people ({self._columns}) VALUES ({marks})", rows)
        cursor.execute("COMMIT")

    def get(self, ids: Sequence[int]) -> None:
        for id in ids:
            self._to_object(self._driver.execute(self._get_sql, (id,)).fetchone())

    def find_one(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._to_object(self._driver.execute(self._find_one_sql, (number,)).fetchone())

    def find(self, lows: Sequence[int], count: int) -> int:
        found = 0
        for low in lows:
            rows = self._driver.execute(self._find_sql, (low, count)).fetchall()
            found += len([self._to_object(row) for row in rows])
        return found

    def scan(self) -> int:
        count, last = 0, -1
        while rows := self._driver.execute(self._scan_sql, (last,)).fetchall():
            count, last = count + sum(1 for _ in map(self._to_object, rows)), rows[-1][0]
        return count

    def close(self) -> None:
        self._driver.close()


class Packed(msgspec.Struct):
    number: int
    name: str
    city: str
    active: bool
    balance: decimal.Decimal
    met: datetime.datetime
    extra: dict[str, Any]
    token: uuid.UUID


class OfMsgspec(OfDriver):
    """The same with a typed struct of msgspec in each row, as MessagePack, beside the two columns
    that are looked for."""

    name = "bare driver, msgspec"
    _columns = "id, number, value"

    def __init__(self, address: str) -> None:
        self._encode = msgspec.msgpack.Encoder(uuid_format="bytes").encode
        self._decode = msgspec.msgpack.Decoder(Packed).decode
        super().__init__(address)

    def _create(self, address: str) -> None:
        kind = "BLOB" if self._mark == "?" else "bytea"
        self._driver.execute(
            f"CREATE TABLE people (id BIGINT PRIMARY KEY, number BIGINT NOT NULL, value {kind})"
        )
        self._driver.execute("CREATE INDEX by_number ON people (number)")

    def _to_row(self, person: Values) -> Sequence[Any]:
        values = dict(person)
        id = values.pop("id")
        return id, values["number"], self._encode(Packed(**values))

    def _to_object(self, row: Any) -> object:
        return self._decode(row[2])


def _connect(url: sa.URL) -> Any:
    if url.drivername == "sqlite":
        assert url.database is not None
        connection = sqlite3.connect(url.database, isolation_level=None)
        for name, value in SQLITE_PRAGMAS.items():
            connection.execute(f"PRAGMA {name} = {value}")
        return connection
    import psycopg

    plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
    return _Binary(psycopg.connect(plain, autocommit=True))


class _Binary:
    """A connection of psycopg with results in binary form, and one cursor for all: as zapdb has
    it."""

    def __init__(self, connection: Any) -> None:
        self.cursor, self.close = connection.cursor, connection.close
        self.execute = connection.cursor(binary=True).execute
