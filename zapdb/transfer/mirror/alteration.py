"""What a change of a table's schema is to its mirror: columns added, renamed and dropped in place.

A column is filled in again only where its values changed: one that an expression makes, that has
another type, or whose values were transformed. Columns of the key keep their values always.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from zapdb.activation import TableDescriptor, TenantCatalog
from zapdb.records.derivation import Constant, Derivation, SourceField
from zapdb.schema import TableSchema
from zapdb.transfer.mirror.state import Filling, MirroredTable
from zapdb.transfer.mirror.target import ConstraintChange, TargetSession
from zapdb.transfer.plain_tables import PlainColumn, PlainTable, plan_plain_table
from zapdb.values import Reference, ValueType

Place = tuple[int, int]
"""A column by the number of its field, and its place among the columns of that."""


@dataclass(frozen=True, slots=True)
class AddedColumn:
    """A column that was not there: with a value that all rows have, or to be filled."""

    column: PlainColumn
    value: Any
    is_filled: bool


@dataclass(frozen=True, slots=True)
class Alteration:
    """The steps in their order; `renamed` is (column, new name)."""

    dropped: tuple[str, ...]
    renamed: tuple[tuple[str, str], ...]
    added: tuple[AddedColumn, ...]
    changed: tuple[str, ...]
    """Columns that stay, and whose values are others."""

    def loosen(self, session: TargetSession, name: str, new: PlainTable) -> None:
        """Take away the constraints that may be in the way of the change, and of rows until all
        columns are filled."""
        left = {to: column for column, to in self.renamed}
        added = {one.column.name for one in self.added}
        kept = {
            left.get(column.name, column.name)
            for at, column in enumerate(new.columns)
            if (at in new.key or not column.optional) and column.name not in {*self.changed, *added}
        }
        loose = session.required_columns(name) - kept - {*self.dropped}
        dropped = [
            key
            for key in session.read_foreign_keys([name])
            if not {*key.columns}.isdisjoint(self.dropped)
        ]
        if loose or dropped:
            change = ConstraintChange(optional=tuple(sorted(loose)), dropped=tuple(dropped))
            session.constrain(name, change)

    def carry_out(self, session: TargetSession, name: str) -> list[str]:
        """Change the table; return the columns that are to be filled."""
        for column in self.dropped:
            session.drop_column(name, column)
        taken = {to for _, to in self.renamed} & {column for column, _ in self.renamed}
        waiting = {column: f"zapdb_mirror_{at}" for at, column in enumerate(sorted(taken))}
        for column, passing in waiting.items():  # two that change names
            session.rename_column(name, column, passing)
        for column, to in self.renamed:
            session.rename_column(name, waiting.get(column, column), to)
        unfilled = list(self.changed)
        for added in self.added:
            is_done = session.add_column(name, added.column, added.value)
            if added.is_filled or not is_done:
                unfilled.append(added.column.name)
        return unfilled


@dataclass(frozen=True, slots=True)
class TableForm:
    """A table's schema, and the plain table that a mirror makes of it."""

    schema: TableSchema
    plain: PlainTable

    @classmethod
    def of(cls, schema: TableSchema, session: TargetSession, long: tuple[str, ...]) -> TableForm:
        return cls(schema, plan_plain_table(schema, session.engine, long))

    def by_place(self) -> dict[Place, PlainColumn]:
        found: dict[Place, PlainColumn] = {}
        for declared in self.schema.fields:
            for at, column in enumerate(self.plain.columns_of(declared.name)):
                found[declared.number, at] = column
        return found


def plan_alteration(
    old: TableForm, new: TableForm, derivations: dict[int, Derivation] | None, engine: Any
) -> Alteration | None:
    """How the old table becomes the new one; None if it has to be made anew, since values of its
    key are others. Without `derivations`, the values of all columns may have changed."""
    before, after = old.by_place(), new.by_place()
    dropped, renamed, added, changed = (list[Any]() for _ in range(4))
    for place, column in after.items():
        was, number = before.get(place), place[0]
        is_same = _is_same(number, old.schema, new.schema, derivations)
        if was is not None and was.sql_type(engine) == column.sql_type(engine):
            if was.name != column.name:
                renamed.append((was.name, column.name))
            if is_same:
                continue
            if number in new.schema.key:
                return None
            changed.append(column.name)
            continue
        if number in new.schema.key:
            return None
        if was is not None:
            dropped.append(was.name)
        added.append(_add(column, None if derivations is None else derivations[number]))
    dropped += [column.name for place, column in before.items() if place not in after]
    return Alteration(tuple(dropped), tuple(renamed), tuple(added), tuple(changed))


def _is_same(
    number: int, old: TableSchema, new: TableSchema, derivations: dict[int, Derivation] | None
) -> bool:
    """Whether a field has the same values, written in the same way."""
    former = next((field for field in old.fields if field.number == number), None)
    if former is None or not _has_same_values(former.type, new.field_numbered(number).type):
        return False
    if number in new.key:
        return True
    if derivations is None:
        return False
    derivation = derivations[number]
    return isinstance(derivation, SourceField) and derivation.number == number


def _has_same_values(old: ValueType, new: ValueType) -> bool:
    return list(_parts(old)) == list(_parts(new))


def _parts(kind: ValueType) -> Iterator[ValueType]:
    if isinstance(kind, Reference):  # whatever its target is called
        for part in kind.key:
            yield from _parts(part)
    else:
        yield kind


def _add(column: PlainColumn, derivation: Derivation | None) -> AddedColumn:
    if isinstance(derivation, Constant):
        return AddedColumn(
            column, column.take(SimpleNamespace(**{column.field: derivation.value})), False
        )
    return AddedColumn(column, None, True)


def find_derivations(
    catalog: TenantCatalog, descriptor: TableDescriptor, revision: int
) -> dict[int, Derivation] | None:
    """How the fields come from those at a revision; None if its migration was rolled back."""
    origin = descriptor.origins.get(revision)
    if origin is None:
        return None
    number = descriptor.schema.number
    return dict(catalog.chain.conversion_plan(number, origin, catalog.position).derivations)


def carry_on(filling: Filling | None, old: TableForm, new: TableForm) -> list[str]:
    """The columns that were being filled, by the names that they have now."""
    if filling is None:
        return []
    after = new.by_place()
    return [
        after[place].name
        for place, column in old.by_place().items()
        if column.name in filling.columns and place in after
    ]


def rename_long(table: MirroredTable, old: TableSchema, new: TableSchema) -> set[str]:
    """The fields of long numbers, by the names that they have now."""
    numbers = {field.number for field in old.fields if field.name in table.long}
    return {field.name for field in new.fields if field.number in numbers}
