"""zapdb itself."""

from __future__ import annotations

from collections.abc import Sequence

import zapdb
from tests.bench.contestants.base import Contestant, Values
from tests.bench.databases import Migrations


class OfZapdb(Contestant):
    name = "zapdb"

    def __init__(self, address: str, migrations: Migrations) -> None:
        self._db = zapdb.open(address, migrations=migrations.directory, apply="auto")
        self._people = self._db.table("people")

    def insert(self, people: Sequence[Values]) -> None:
        for person in people:
            self._people.insert(**person)

    def insert_many(self, people: Sequence[Values]) -> None:
        with self._db.transaction():
            self._people.insert_many(people)

    def get(self, ids: Sequence[int]) -> None:
        for id in ids:
            self._people.get(id)

    def find_one(self, numbers: Sequence[int]) -> None:
        people = self._people
        for number in numbers:
            people.where(people.f.number == number).first()

    def update(self, ids: Sequence[int], city: str) -> None:
        for id in ids:
            self._people.update(id, city=city)

    def save(self, ids: Sequence[int], city: str) -> None:
        self.update(ids, city)  # it reads what it changes, always

    def delete(self, ids: Sequence[int]) -> None:
        for id in ids:
            self._people.delete(id)

    def insert_in_transaction(self, people: Sequence[Values]) -> None:
        with self._db.transaction() as tx:
            inserting = tx.table("people")
            for person in people:
                inserting.insert(**person)

    def find(self, lows: Sequence[int], count: int) -> int:
        people = self._people
        found = 0
        for low in lows:
            found += len(list(people.where(people.f.number >= low).order_by("number").limit(count)))
        return found

    def scan(self) -> int:
        return sum(1 for _ in self._people)

    def close(self) -> None:
        self._db.close()
