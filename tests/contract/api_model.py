"""What the application's API has to answer, from records as plain data.

A `World` is the state of a whole database: the stored chain, and for each tenant its position and
its records (`Model`). Copies of it are what a transaction goes back to, and what a snapshot sees.
Conditions and orders are data that name fields by number, so that they mean the same in any shape.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal
from uuid import UUID

import icu

from tests.contract.model import Key, Model, Row
from zapdb.errors import CheckViolation, ReferenceViolation, UniqueViolation
from zapdb.migrations import Chain
from zapdb.schema import Field, Index, TableSchema
from zapdb.values import Boolean, Integer, Reference, String, Uuid

LONG = "long " * 230
"""Longer than keys of indexes may be: equal ones are compared again."""
TITLES = ("", "a", "A", "á", "ab", "Ab", "b", "résumé", "RESUME", "z", LONG, LONG + "a")
IDS = tuple(UUID(int=n << 64) for n in range(4))
SIZE_MIN = -2
SCHEMA = (
    """\
create_table: {table: people, key: [id], fields: [
      {name: id, type: integer},
      {name: name, type: string},
      {name: boss, type: reference, to: people, optional: true}]}""",
    """\
create_table: {table: items, key: [shelf, number], fields: [
      {name: shelf, type: string},
      {name: number, type: integer},
      {name: title, type: string, optional: true},
      {name: size, type: integer, default: 0},
      {name: done, type: boolean, default: false},
      {name: owner, type: reference, to: people, optional: true}]}""",
    """\
create_table: {table: notes, key: [id], fields: [
      {name: id, type: uuid, generated: true},
      {name: text, type: string, default: ""},
      {name: item, type: reference, to: items}]}""",
    "create_index: {table: people, index: one_name, unique: true, fields: ["
    "{field: name, collation: {locale: und, strength: primary}}]}",
    "create_index: {table: people, index: by_boss, fields: [{field: boss}]}",
    "create_index: {table: items, index: one_title, unique: true, fields: ["
    "{field: title, collation: {locale: und, strength: primary}}, {field: done}]}",
    "create_index: {table: items, index: by_size, fields: [{field: size}]}",
    "create_index: {table: items, index: by_owner, fields: [{field: owner}]}",
    "create_index: {table: notes, index: by_item, fields: [{field: item}]}",
    f'add_check: {{table: items, check: sized, expression: "size >= {SIZE_MIN}"}}',
    "add_reference: {table: people, field: boss, on_delete: set_null}",
    "add_reference: {table: items, field: owner, on_delete: cascade}",
    "add_reference: {table: notes, field: item, on_delete: restrict}",
)
ON_DELETE = {
    "people": (("people", "boss", "set_null"), ("items", "owner", "cascade")),
    "items": (("notes", "item", "restrict"),),
    "notes": (),
}


def list_migrations(items: TableSchema, people: TableSchema) -> list[str]:
    """The operations that could come next; none of them loses anything, either way."""
    names = {f.name for f in items.fields}
    size = "size" if "size" in names else "extent"
    indexes = {index.name for index in items.indexes}
    other, name = {"size": "extent", "extent": "size"}[size], people.fields[1].name
    archived = "restore: {archive: true, otherwise: {value:"
    found = [
        f"rename_field: {{table: items, field: {size}, to: {other}}}",
        f"rename_field: {{table: people, field: {name}, to: {_other_name(name)}}}",
        f"drop_field: {{table: items, field: color, {archived} lost}}}}}}"
        if "color" in names
        else "add_field: {table: items, field: {name: color, type: string, default: red}}",
        f"drop_field: {{table: items, field: double, {archived} 0}}}}}}"
        if "double" in names
        else "add_field: {table: items, field: {name: double, type: integer},"
        f' fill: {{expression: "{size} * 2"}}}}',
    ]
    for index, described in (
        ("by_done", f"{{field: done}}, {{field: {size}, descending: true}}"),
        ("by_title", "{field: title}"),
    ):
        found.append(
            f"drop_index: {{table: items, index: {index}}}"
            if index in indexes
            else f"create_index: {{table: items, index: {index}, fields: [{described}]}}"
        )
    return found


def _other_name(name: str) -> str:
    return "label" if name == "name" else "name"


# The state


@dataclass
class World:
    chain: Chain
    positions: dict[str, int] = field(default_factory=dict)
    models: dict[str, Model] = field(default_factory=dict)
    _chains: dict[int, Chain] = field(default_factory=dict)

    def copy(self) -> World:
        """One that can be changed; the records themselves are never changed in place."""
        models = {name: Model() for name in self.models}
        for name, model in models.items():
            model.rows = {n: dict(rows) for n, rows in self.models[name].rows.items()}
        return World(self.chain, dict(self.positions), models, self._chains)

    def chain_of(self, tenant: str) -> Chain:
        """The migrations that are in force for it."""
        end = self.positions[tenant]
        if end not in self._chains:
            self._chains[end] = self.chain.up_to(end)
        return self._chains[end]

    def change_chain(self, chain: Chain) -> None:
        self.chain, self._chains = chain, {}

    def rows(self, tenant: str, number: int, at: int) -> dict[Key, Row]:
        return self.models[tenant].seen_all(self.chain_of(tenant), number, at)

    def insert(self, tenant: str, number: int, row: Row, at: int) -> bool:
        """Whether it was new; one that was there is replaced, to see what else is wrong with it."""
        chain, model = self.chain_of(tenant), self.models[tenant]
        key = model.key_of(chain.table_at(at, number), row)
        is_new = model.rows[number].pop(key, None) is None
        model.insert_at(chain, number, row, at)
        return is_new

    def update(self, tenant: str, number: int, key: Key, changes: Row, at: int) -> None:
        self.models[tenant].update_at(self.chain_of(tenant), number, key, changes, at)

    def delete(self, tenant: str, number: int, keys: list[Key]) -> bool:
        """Delete records and do what references say; False where one of them restricts it."""
        chain, model = self.chain_of(tenant), self.models[tenant]
        schema = chain.schema_at(chain.end)
        waiting = [(number, key) for key in keys]
        for key in keys:
            del model.rows[number][key]
        while waiting:
            number, key = waiting.pop(0)
            gone = key if len(key) > 1 else key[0]
            for other, name, rule in ON_DELETE[chain.table_at(chain.end, number).name]:
                table = schema.table_named(other)
                assert table is not None
                for referring, row in self.rows(tenant, table.number, chain.end).items():
                    if row[name] != gone:
                        continue
                    if rule == "restrict":
                        return False
                    if rule == "set_null":
                        self.update(tenant, table.number, referring, {name: None}, chain.end)
                    else:
                        del model.rows[table.number][referring]
                        waiting.append((table.number, referring))
        return True

    def violations(self, tenant: str) -> set[type[Exception]]:
        """Which constraints do not hold; those of the position bind all writers."""
        chain = self.chain_of(tenant)
        found: set[type[Exception]] = set()
        rows = {
            table.name: self.rows(tenant, table.number, chain.end)
            for table in chain.schema_at(chain.end)
        }
        for table in chain.schema_at(chain.end):
            for index in table.indexes:
                if index.unique and _collide(table, index, rows[table.name]):
                    found.add(UniqueViolation)
            for other, references in ON_DELETE.items():
                for name in (f for t, f, _ in references if t == table.name):
                    keys = {k if len(k) > 1 else k[0] for k in rows[other]}
                    if {r[name] for r in rows[table.name].values()} - keys - {None}:
                        found.add(ReferenceViolation)
        sizes = (row.get("size", row.get("extent")) for row in rows["items"].values())
        if any(size < SIZE_MIN for size in sizes):
            found.add(CheckViolation)
        return found


def _collide(table: TableSchema, index: Index, rows: dict[Key, Row]) -> bool:
    seen: set[Any] = set()
    for row in rows.values():
        key = []
        for component in index.components:
            value = row[table.field_numbered(component.field).name]
            key.append(sound(value) if component.collation and value is not None else value)
        if None in key:
            continue  # nulls never collide
        if tuple(key) in seen:
            return True
        seen.add(tuple(key))
    return False


def sound(text: str) -> bytes:
    """Equal for strings that are equal under the collation of the indexes."""
    return bytes(_collator().getSortKey(text))


@functools.cache
def _collator() -> Any:
    collator = icu.Collator.createInstance(icu.Locale("und"))
    collator.setStrength(icu.Collator.PRIMARY)
    return collator


# Values


def draw_value(random_: Random, of: Field) -> Any:
    """Few values, so that records meet; null where the field may be."""
    if of.optional and random_.random() < 0.3:
        return None
    match of.type:
        case String():
            return random_.choice(TITLES)
        case Integer():
            return random_.randint(SIZE_MIN - (of.name in ("size", "extent")), 4)
        case Boolean():
            return random_.random() < 0.5
        case Uuid():
            return random_.choice(IDS)
        case Reference(key=(_,)):
            return random_.randint(0, 3)
        case Reference():
            return random_.choice("xy"), random_.randint(0, 2)
    raise TypeError(of.type)


def draw_key(random_: Random, table: TableSchema) -> Key:
    match table.name:
        case "people":
            return (random_.randint(0, 3),)
        case "items":
            return random_.choice("xy"), random_.randint(0, 2)
    return (random_.choice(IDS),)


# Conditions and orders


@dataclass(frozen=True)
class Compared:
    field: int
    op: str
    value: Any

    def holds(self, names: dict[int, str], row: Row) -> bool:
        mine, value = row[names[self.field]], self.value
        match self.op:
            case "==":
                return bool(rank(mine) == rank(value))
            case "!=":
                return bool(rank(mine) != rank(value))
            case "in":
                return mine in value
            case "null":
                return mine is None
            case "starts":
                return mine is not None and mine.startswith(value)
            case "sounds":
                return mine is not None and sound(mine) == sound(value)
        if mine is None:
            return False
        match self.op:
            case "<":
                return bool(mine < value)
            case "<=":
                return bool(mine <= value)
            case ">":
                return bool(mine > value)
            case ">=":
                return bool(mine >= value)
            case "between":
                return bool(value[0] <= mine <= value[1])
        raise ValueError(self.op)

    def make(self, api: Any, names: dict[int, str]) -> Any:
        of, value = api[names[self.field]], self.value
        match self.op:
            case "==":
                return of == value
            case "!=":
                return of != value
            case "in":
                return of.in_(value)
            case "null":
                return of.is_null()
            case "starts":
                return of.startswith(value)
            case "sounds":
                return of.collated("und", "primary") == value
            case "<":
                return of < value
            case "<=":
                return of <= value
            case ">":
                return of > value
            case ">=":
                return of >= value
            case "between":
                return of.between(*value)
        raise ValueError(self.op)

    def fields(self) -> set[int]:
        return {self.field}


@dataclass(frozen=True)
class Joined:
    op: str
    parts: tuple[Any, ...]

    def holds(self, names: dict[int, str], row: Row) -> bool:
        parts = [part.holds(names, row) for part in self.parts]
        return {"and": all(parts), "or": any(parts), "not": not parts[0]}[self.op]

    def make(self, api: Any, names: dict[int, str]) -> Any:
        parts = [part.make(api, names) for part in self.parts]
        if self.op == "not":
            return ~parts[0]
        return parts[0] & parts[1] if self.op == "and" else parts[0] | parts[1]

    def fields(self) -> set[int]:
        return set().union(*(part.fields() for part in self.parts))


Condition = Compared | Joined


def draw_condition(random_: Random, table: TableSchema, depth: int = 2) -> Condition:
    op = random_.choice(["one", "and", "or", "not"]) if depth else "one"
    if op == "one":
        return _draw_compared(random_, table)
    count = 1 if op == "not" else 2
    return Joined(op, tuple(draw_condition(random_, table, depth - 1) for _ in range(count)))


def _draw_compared(random_: Random, table: TableSchema) -> Compared:
    of = random_.choice(table.fields)
    text = ("starts", "sounds") if isinstance(of.type, String) else ()
    op = random_.choice(["==", "!=", "in", "null", "<", "<=", ">", ">=", "between", *text])
    first, second = draw_value(random_, of), draw_value(random_, of)
    if op == "in":
        return Compared(of.number, op, (first, second))
    if op == "null":
        return Compared(of.number, op, None)
    if op in ("==", "!="):
        return Compared(of.number, op, first)
    if first is None or second is None:
        return Compared(of.number, "==", first)
    if op == "between":
        return Compared(of.number, op, tuple(sorted([first, second])))
    return Compared(of.number, op, first[:2] if op == "starts" else first)


def rank(value: Any) -> tuple[bool, Any]:
    """Nulls come first."""
    return value is not None, 0 if value is None else value


Way = Literal["rises", "falls", "nulls last"]


@dataclass(frozen=True)
class Ordered:
    """Fields by number; which way they go, and whether they are compared by their sound."""

    fields: tuple[tuple[int, Way, bool], ...]

    @property
    def key_falls(self) -> bool:
        return bool(self.fields) and self.fields[0][1] == "falls"

    def make(self, api: Any, names: dict[int, str]) -> list[Any]:
        made = []
        for number, way, sounds in self.fields:
            of = api[names[number]]
            of = of.collated("und", "primary") if sounds else of
            made.append({"rises": of, "falls": -of, "nulls last": of.nulls_last()}[way])
        return made

    def place(self, names: dict[int, str], key: Key, row: Row) -> tuple[Any, ...]:
        """Where a record is: places compare as the order has them."""
        found: list[Any] = []
        for number, way, sounds in self.fields:
            value = row[names[number]]
            is_there, ranked = rank(sound(value) if sounds and value is not None else value)
            rises = (not is_there if way == "nulls last" else is_there, ranked)
            found.append(_Falling(rises) if way == "falls" else rises)
        return *found, (_Falling(key) if self.key_falls else key)


@functools.total_ordering
@dataclass(frozen=True)
class _Falling:
    value: Any

    def __lt__(self, other: _Falling) -> bool:
        return bool(other.value < self.value)


def draw_order(random_: Random, table: TableSchema) -> Ordered:
    found = []
    for of in random_.sample(table.fields, random_.randint(1, 2)):
        sounds = isinstance(of.type, String) and random_.random() < 0.4
        way: Way = random_.choice(["rises", "falls", "nulls last"])
        found.append((of.number, way, sounds))
    return Ordered(tuple(found))


@dataclass(frozen=True)
class Asked:
    """A query, and which records it must give in which order."""

    table: int
    condition: Condition | None
    order: Ordered | None

    @classmethod
    def draw(cls, random_: Random, table: TableSchema) -> Asked:
        condition = draw_condition(random_, table) if random_.random() < 0.8 else None
        order = draw_order(random_, table) if random_.random() < 0.8 else None
        return cls(table.number, condition, order)

    def fields(self) -> set[int]:
        order = {number for number, _, _ in self.order.fields} if self.order else set()
        return order | (self.condition.fields() if self.condition else set())

    def make(self, api: Any, table: TableSchema) -> Any:
        names = names_of(table)
        query = (
            api.where() if self.condition is None else api.where(self.condition.make(api, names))
        )
        return query.order_by(*self.order.make(api, names)) if self.order else query

    def answer(self, table: TableSchema, rows: dict[Key, Row]) -> list[Row]:
        return [row for _, row in self.places(table, rows)]

    def places(self, table: TableSchema, rows: dict[Key, Row]) -> list[tuple[Any, Row]]:
        return sorted(self._places(table, rows), key=lambda found: found[0])

    def _places(self, table: TableSchema, rows: dict[Key, Row]) -> Iterator[tuple[Any, Row]]:
        names, order = names_of(table), self.order or Ordered(())
        for key, row in rows.items():
            if self.condition is None or self.condition.holds(names, row):
                yield order.place(names, key, row), row


def names_of(table: TableSchema) -> dict[int, str]:
    return {f.number: f.name for f in table.fields}
