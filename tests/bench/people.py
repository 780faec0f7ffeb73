"""The record that most benchmarks use: as a zapdb table, as an ORM class, and as values."""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

CREATE = """create_table: {table: people, key: [id], fields: [
      {name: id, type: integer},
      {name: number, type: integer},
      {name: name, type: string},
      {name: city, type: string},
      {name: active, type: boolean},
      {name: balance, type: decimal, scale: 2},
      {name: met, type: timestamp},
      {name: extra, type: json},
      {name: token, type: uuid}]}"""

CREATE_INDEX = "create_index: {table: people, index: by_number, fields: [{field: number}]}"

DROP_ONE_ADD_ONE = (
    "drop_field: {table: people, field: city, restore: {value: ''}}",
    "add_field: {table: people, field: {name: visits, type: integer, default: 0}}",
)
"""The change of most examples: one string goes, one integer with a default comes."""


class Base(DeclarativeBase):
    pass


class Person(Base):
    """The same table, as SQLAlchemy's ORM would have it."""

    __tablename__ = "people"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    number: Mapped[int] = mapped_column(index=True)
    name: Mapped[str]
    city: Mapped[str]
    active: Mapped[bool]
    balance: Mapped[decimal.Decimal] = mapped_column(sa.Numeric(12, 2))
    met: Mapped[datetime.datetime] = mapped_column(sa.DateTime(timezone=True))
    extra: Mapped[Any] = mapped_column(sa.JSON)
    token: Mapped[uuid.UUID] = mapped_column(sa.Uuid)


CITIES = ("Amsterdam", "São Paulo", "東京", "Nairobi", "Wien", "Reykjavík", "Bern", "Hà Nội")
START = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)


def make_people(first: int, count: int) -> Iterator[dict[str, Any]]:
    """Values of persons first … first + count − 1; the record of each is some 110 bytes long."""
    for number in range(first, first + count):
        yield {
            "id": number,
            "number": number * 7919 % 1_000_003,
            "name": f"Person number {number}",
            "city": CITIES[number % len(CITIES)],
            "active": number % 3 == 0,
            "balance": decimal.Decimal(number % 100_000).scaleb(-2),
            "met": START + datetime.timedelta(seconds=number * 37),
            "extra": {"tags": ["a", "b"], "score": number % 100},
            "token": uuid.UUID(int=number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128),
        }
