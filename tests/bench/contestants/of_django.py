"""Django's ORM, without the rest of Django."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import django
import sqlalchemy as sa
from django.conf import settings
from django.db import connections, models, transaction

from tests.bench.contestants.base import SQLITE_PRAGMAS, Contestant, Values
from zapdb.limits import PAGE_RECORDS_MAX

# Not under a test runner: pytest never imports this.
settings.configure(
    INSTALLED_APPS=[], DATABASES={}, USE_TZ=True, DEFAULT_AUTO_FIELD="django.db.models.BigAutoField"
)
django.setup()


class Person(models.Model):
    id = models.IntegerField(primary_key=True)
    number = models.IntegerField(db_index=True)
    name = models.TextField()
    city = models.TextField()
    active = models.BooleanField()
    balance = models.DecimalField(max_digits=12, decimal_places=2)
    met = models.DateTimeField()
    extra = models.JSONField()
    token = models.UUIDField()

    class Meta:
        app_label = "bench"
        db_table = "people"


class OfDjango(Contestant):
    name = "Django ORM"

    def __init__(self, address: str) -> None:
        self._alias = f"bench{len(connections.settings)}"
        connections.settings[self._alias] = connections.configure_settings(
            {"default": {}, self._alias: _database(sa.make_url(address))}
        )[self._alias]
        with connections[self._alias].schema_editor() as editor:
            editor.create_model(Person)

    @property
    def _people(self) -> Any:
        return Person.objects.using(self._alias)

    def insert(self, people: Sequence[Values]) -> None:
        for person in people:
            self._people.create(**person)

    def insert_many(self, people: Sequence[Values]) -> None:
        with transaction.atomic(using=self._alias):
            self._people.bulk_create([Person(**person) for person in people])

    def get(self, ids: Sequence[int]) -> None:
        for id in ids:
            self._people.get(pk=id)

    def find_one(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._people.filter(number=number).first()

    def update(self, ids: Sequence[int], city: str) -> None:
        for id in ids:
            self._people.filter(pk=id).update(city=city)

    def save(self, ids: Sequence[int], city: str) -> None:
        for id in ids:
            with transaction.atomic(using=self._alias):
                person = self._people.get(pk=id)
                person.city = city
                person.save()

    def delete(self, ids: Sequence[int]) -> None:
        for id in ids:
            with transaction.atomic(using=self._alias):
                self._people.get(pk=id).delete()

    def insert_in_transaction(self, people: Sequence[Values]) -> None:
        with transaction.atomic(using=self._alias):
            self.insert(people)

    def find(self, lows: Sequence[int], count: int) -> int:
        return sum(
            len(list(self._people.filter(number__gte=low).order_by("number")[:count]))
            for low in lows
        )

    def scan(self) -> int:
        return sum(1 for _ in self._people.iterator(chunk_size=PAGE_RECORDS_MAX))

    def close(self) -> None:
        connections[self._alias].close()


def _database(url: sa.URL) -> dict[str, Any]:
    if url.drivername == "sqlite":
        pragmas = "; ".join(f"PRAGMA {name} = {value}" for name, value in SQLITE_PRAGMAS.items())
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": url.database,
            "OPTIONS": {"init_command": pragmas, "transaction_mode": "IMMEDIATE"},
        }
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": url.database,
        "USER": url.username or "",
        "PASSWORD": url.password or "",
        "HOST": url.query.get("host", url.host or ""),
        "PORT": str(url.port or ""),
    }
