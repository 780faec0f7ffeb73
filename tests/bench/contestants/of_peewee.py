"""Peewee."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import peewee
import sqlalchemy as sa

from tests.bench.contestants.base import SQLITE_PRAGMAS, Contestant, Values

SQLITE_PARAMETERS_MAX = 30_000
"""SQLite takes 32,766 in a statement; Peewee leaves the cutting to the application."""


class Json(peewee.TextField):
    def db_value(self, value: Any) -> str:
        return json.dumps(value)

    def python_value(self, value: str) -> Any:
        return json.loads(value)


class Person(peewee.Model):
    id = peewee.IntegerField(primary_key=True)
    number = peewee.IntegerField(index=True)
    name = peewee.TextField()
    city = peewee.TextField()
    active = peewee.BooleanField()
    balance = peewee.DecimalField(12, 2)
    met = peewee.DateTimeField()
    extra = Json()
    token = peewee.UUIDField()

    class Meta:
        table_name = "people"


class OfPeewee(Contestant):
    name = "Peewee"

    def __init__(self, address: str) -> None:
        url = sa.make_url(address)
        if url.drivername == "sqlite":
            self._db = peewee.SqliteDatabase(url.database, pragmas=SQLITE_PRAGMAS)
        else:
            plain = url.set(drivername="postgresql").render_as_string(hide_password=False)
            self._db = peewee.PostgresqlDatabase(plain, prefer_psycopg3=True)
        self._db.bind([Person])
        self._db.create_tables([Person])

    def insert(self, people: Sequence[Values]) -> None:
        for person in people:
            Person.create(**person)

    def insert_many(self, people: Sequence[Values]) -> None:
        with self._db.atomic():
            for batch in peewee.chunked(people, SQLITE_PARAMETERS_MAX // 9):
                Person.insert_many(batch).execute()

    def get(self, ids: Sequence[int]) -> None:
        for id in ids:
            Person.get_by_id(id)

    def find_one(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            Person.select().where(Person.number == number).first()

    def update(self, ids: Sequence[int], city: str) -> None:
        for id in ids:
            Person.update(city=city).where(Person.id == id).execute()

    def save(self, ids: Sequence[int], city: str) -> None:
        for id in ids:
            with self._db.atomic():
                person = Person.get_by_id(id)
                person.city = city
                person.save()

    def delete(self, ids: Sequence[int]) -> None:
        for id in ids:
            with self._db.atomic():
                Person.get_by_id(id).delete_instance()

    def insert_in_transaction(self, people: Sequence[Values]) -> None:
        with self._db.atomic():
            self.insert(people)

    def find(self, lows: Sequence[int], count: int) -> int:
        found = 0
        for low in lows:
            query = Person.select().where(Person.number >= low)
            found += len(list(query.order_by(Person.number).limit(count)))
        return found

    def scan(self) -> int:
        if isinstance(self._db, peewee.SqliteDatabase):
            return sum(1 for _ in Person.select().iterator())
        with self._db.atomic():
            return sum(1 for _ in Person.select().iterator())

    def close(self) -> None:
        self._db.close()
