"""One migration, resolved: its changes and their rollback, operation by operation.

It comes from a document (`resolution`) or from what the database stored (`read_stored`). What it
says is its canonical structure (`canonical_migration`); its schemas and plans follow from that. The
numbers that its operations draw are noted when it is resolved, and given out again when it is
replayed.
"""

from __future__ import annotations

import contextlib
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import cbor2

from zapdb.formats import require_known
from zapdb.migrations.canonical_migration import (
    ACTIVATION_POLICIES,
    DOCUMENT_VERSION,
    ActivationPolicy,
    decode_operations,
    digest_of,
    encode_structure,
    implies_waiting,
    reading_stored,
)
from zapdb.migrations.operations import NumberAllocator, Operation
from zapdb.migrations.record_examples import RecordExample
from zapdb.records import ConversionPlan, Restored, Slot, SourceField, copied_from
from zapdb.schema import Field, Schema, TableSchema


class RecordingAllocator(NumberAllocator):
    """Draws from other numbers, and notes by kind what was drawn."""

    def __init__(self, inner: NumberAllocator, migration: int) -> None:
        super().__init__(migration=migration)
        self.inner = inner
        self.drawn: dict[str, list[int]] = {}

    def allocate(self, kind: Any) -> int:
        number = self.inner.allocate(kind)
        self.drawn.setdefault(kind, []).append(number)
        return number


class ReplayAllocator(NumberAllocator):
    """Returns the numbers again that were allocated when the migration was stored."""

    def __init__(self, drawn: dict[str, list[int]], migration: int) -> None:
        super().__init__(migration=migration)
        self.rest = {kind: iter(numbers) for kind, numbers in drawn.items()}

    def allocate(self, kind: str) -> int:
        number = next(self.rest[kind], None)
        if number is None:
            raise ValueError(f"too few {kind} numbers are stored")
        return number


REMADE: Final = "remade"
"""Beside the kinds of numbers that a migration draws: the fields whose values it computes anew. The
last numbers of fields that it has drawn are their cells."""

Step = tuple[Operation, Schema, Schema]
"""An operation, with the schema before it and after it."""


def schemas_along(
    schema: Schema, operations: tuple[Operation, ...], numbers: NumberAllocator
) -> list[Schema]:
    """The schema that they begin with, and that after each of them."""
    states = [schema]
    for operation in operations:
        states.append(operation.apply(states[-1], numbers))
    return states


def make_steps(states: list[Schema], operations: tuple[Operation, ...]) -> list[Step]:
    return list(zip(operations, states, states[1:], strict=False))


def compose_conversion(
    states: list[Schema], operations: tuple[Operation, ...], table: int
) -> ConversionPlan:
    """Return how a list of operations converts the records of one table."""
    start = states[0].table_active_or_archived(table)
    assert start is not None
    plan = None
    for operation, before, after in zip(operations, states, states[1:], strict=False):
        old, new = before.table_active_or_archived(table), after.table_active_or_archived(table)
        if old is None or new is None or old is new:
            continue
        step = conversion_of(operation, old, new)
        plan = step if plan is None else plan.then(step)
    if plan is None:
        return ConversionPlan({f.number: SourceField(f.number) for f in start.fields})
    return plan


def conversion_of(operation: Operation, before: TableSchema, after: TableSchema) -> ConversionPlan:
    """Return how one operation converts the records of a table that it changes."""
    carried = {f.number: SourceField(f.number) for f in after.fields}
    return ConversionPlan(
        carried | operation.derive(before, after), operation.archive(before, after)
    )


def label(number: int, name: str) -> str:
    """How a migration is called: its file's name without the ending."""
    return f"{number:04d}_{name}"


@dataclass(frozen=True)
class Migration:
    """A resolved migration and its place in the chain: the schema before it and after it."""

    number: int
    name: str
    summary: str
    changes: tuple[Operation, ...]
    rollback: tuple[Operation, ...]
    before: Schema
    after: Schema
    drawn: dict[str, list[int]] = field(compare=False)
    """The numbers that its operations drew, by kind, in order."""
    examples: tuple[RecordExample, ...] = field(default=(), compare=False)
    """None for one that the database stored: they are in the file alone."""
    replaces: tuple[str, ...] = ()
    """Of a squash: the digests of the migrations that it stands for."""
    activation: ActivationPolicy | None = None
    """As the document says it; None also where the changes imply it. See `waits_for_nodes`."""
    version: int = DOCUMENT_VERSION
    """Of the document."""
    is_proven: bool = field(default=False, compare=False)
    """Whether another process has proven it already."""
    id: int = field(default=0, compare=False)
    """What the database knows it by, whatever has its number later; 0 if it is not stored."""
    keeps_values: bool = field(default=False, compare=False)
    """Whether it is rolled back and kept: the values that it made are archived on the way back over
    it, and restored on the way forward (rule 13)."""

    @property
    def waits_for_nodes(self) -> bool:
        """Whether it becomes active only when every live node has its file (rule 12)."""
        return self.activation == "wait_for_nodes" or implies_waiting(self.changes)

    is_stored = False
    """Whether the database stored it; one that it did says so in its attributes."""

    if not TYPE_CHECKING:  # it would hide every name that is none

        def __getattr__(self, name: str) -> Any:
            """The rollback of a stored migration; raises `CorruptCatalog` if it can't be read."""
            structure = vars(self).get("structure")
            if name != "rollback" or structure is None:
                raise AttributeError(name)
            with reading_stored(self.name):
                rollback = decode_operations(cbor2.loads(structure)["rollback"], self.name)
            vars(self)["rollback"] = rollback
            return rollback

    def keeping_values(self) -> Migration:
        """The same, rolled back and kept."""
        found = copy(self)
        vars(found)["keeps_values"] = True
        return found

    def _reading(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which an error means, for a stored migration, that it was tampered
        with."""
        return reading_stored(self.name) if self.is_stored else contextlib.nullcontext()

    def check(self) -> None:
        """Compute everything that follows from the structure; raises `CorruptCatalog` if a stored
        migration was tampered with. Otherwise each part is computed only when it is needed."""
        self.steps_up()
        self.steps_down()
        before = {table.number for table in self.before.tables}
        for table in before & {table.number for table in self.after.tables}:
            self.conversion_up(table)
            self.conversion_down(table)

    @property
    def label(self) -> str:
        return label(self.number, self.name)

    @cached_property
    def structure(self) -> bytes:
        """The canonical structure: what is stored and digested."""
        return encode_structure(
            self.number,
            self.changes,
            self.rollback,
            self.replaces,
            self.activation,
            self.version,
        )

    @cached_property
    def digest(self) -> str:
        return digest_of(self.structure)

    def steps_up(self) -> list[Step]:
        """The changes in order, each with the schema before it and after it."""
        numbers = ReplayAllocator(self.drawn, self.number)
        with self._reading():
            return make_steps(schemas_along(self.before, self.changes, numbers), self.changes)

    def steps_down(self) -> list[Step]:
        """As `steps_up`, for the rollback; what it adds again has provisional numbers."""
        numbers = NumberAllocator(step=-1, migration=self.number)
        with self._reading():
            return make_steps(schemas_along(self.after, self.rollback, numbers), self.rollback)

    def conversion_up(self, table: int, *, keeps: bool = False) -> ConversionPlan:
        """How the fields of the table with this number come from those before the migration. If it
        `keeps` values, those that it made are archived on the way back, and restored here."""
        plan = self._compose_conversion_up(table)
        if not (keeps or self.keeps_values):
            return plan
        derivations = dict(plan.derivations)
        for made in self.list_made(table).values():
            otherwise = derivations[made.number]
            derivations[made.number] = Restored(_archive_slot(made), otherwise)
        return replace(plan, derivations=derivations)

    def conversion_down(self, table: int, *, keeps: bool = False) -> ConversionPlan:
        """How the fields before the migration come from those after it."""
        plan = self._compose_conversion_down(table)
        if not (keeps or self.keeps_values):
            return plan
        again = plan.then(self._compose_conversion_up(table)).derivations
        archives, otherwise = dict(plan.archives), dict(plan.otherwise)
        for made in self.list_made(table).values():
            slot = _archive_slot(made)
            archives[slot], otherwise[slot] = SourceField(made.number), again[made.number]
        return ConversionPlan(plan.derivations, archives, otherwise)

    def list_made(self, table: int) -> dict[int, Field]:
        """The fields of a table that have other values since this migration than any before it, by
        cell."""
        before = self.before.table_active_or_archived(table)
        after = self.after.table_active_or_archived(table)
        if before is None or after is None or before is after:
            return {}
        known = before.cells | before.archived_cells
        return {f.cell: f for f in after.value_fields if f.cell not in known}

    def list_made_cells(self) -> set[int]:
        """The cells of such fields, of all tables."""
        tables = [*self.after, *(archived.table for archived in self.after.archived)]
        return {cell for table in tables for cell in self.list_made(table.number)}

    def _compose_conversion_up(self, table: int) -> ConversionPlan:
        numbers = ReplayAllocator(self.drawn, self.number)
        with self._reading():
            states = schemas_along(self.before, self.changes, numbers)
            plan = compose_conversion(states, self.changes, table)
            return _by_cells(plan, self.before, self.after, table)

    def _compose_conversion_down(self, table: int) -> ConversionPlan:
        with self._reading():
            return self._read_conversion_down(table)

    def _read_conversion_down(self, table: int) -> ConversionPlan:
        states = schemas_along(
            self.after, self.rollback, NumberAllocator(step=-1, migration=self.number)
        )
        plan = compose_conversion(states, self.rollback, table)
        reached = states[-1].table_active_or_archived(table)
        target = self.before.table_active_or_archived(table)
        assert reached is not None
        assert target is not None
        # What the rollback adds again has provisional numbers; its names say which fields it is.
        by_name = {f.name: f.number for f in reached.fields}
        named = {f.number: plan.derivations[by_name[f.name]] for f in target.fields}
        kept = {(a.field.name, a.archived_by): a.field.number for a in target.archived}
        numbers = {a.field.number: kept[a.field.name, a.archived_by] for a in reached.archived}
        archives = {
            slot.numbered(numbers[slot.number]): derivation
            for slot, derivation in plan.archives.items()
            if slot.number in numbers
        }
        return _by_cells(ConversionPlan(named, archives), self.after, self.before, table)


def _archive_slot(made: Field) -> Slot:
    return Slot.of(made).numbered(made.cell)


def _by_cells(plan: ConversionPlan, source: Schema, target: Schema, table: int) -> ConversionPlan:
    """A plan between two schemas, where slots of the archive have the numbers of fields, by the
    cells of these fields."""
    restored, archived = (
        {one.field.number: one.field.cell for one in found.archived}
        for schema in (source, target)
        if (found := schema.table_active_or_archived(table)) is not None
    )
    if all(number == cell for known in (restored, archived) for number, cell in known.items()):
        return plan
    return plan.by_cells(restored, archived)


def with_new_cells(resolved: Migration, numbers: NumberAllocator) -> Migration:
    """A migration that was resolved, with a new cell for each field whose values it computes anew;
    their numbers are drawn behind those of its operations."""
    remade = [number for table in resolved.after.tables for number in _list_remade(resolved, table)]
    for kept in resolved.after.archived:
        remade += _list_remade(resolved, kept.table)
    if not remade:
        return resolved
    cells = {number: numbers.allocate("field") for number in remade}
    drawn = resolved.drawn | {REMADE: remade}
    return replace(resolved, after=resolved.after.with_cells(cells), drawn=drawn)


def _list_remade(resolved: Migration, table: TableSchema) -> list[int]:
    """The numbers of a table's fields, archived ones too, whose values are not those of before:
    other bytes, or other bytes on the way back, such as of a member that an enum gets."""
    before = resolved.before.table_active_or_archived(table.number)
    if before is None or before is table:
        return []
    up, down = resolved.conversion_up(table.number), resolved.conversion_down(table.number)
    old = {f.number: f for f in before.fields}
    held = {one.field.number: one.field for one in before.archived}
    remade = []
    for f in table.fields:
        if f.number in old:
            is_same = Slot.of(f) == Slot.of(old[f.number])
            is_same = is_same and up.copies(f.number) and down.copies(f.number)
        else:  # restored as it was, or new
            is_same = f.number not in held or isinstance(up.derivations[f.number], Restored)
        if not is_same:
            remade.append(f.number)
    for archived in table.archived:
        f = archived.field
        if f.number not in old:
            continue
        is_copied = copied_from(up.archives[Slot.of(f).numbered(f.cell)]) == f.number
        is_same = is_copied and Slot.of(f) == Slot.of(old[f.number])
        if not (is_same and isinstance(down.derivations[f.number], Restored)):
            remade.append(f.number)
    return remade


def read_stored(
    structure: bytes,
    name: str,
    summary: str,
    drawn: dict[str, list[int]],
    before: Schema,
    id: int = 0,
) -> Migration:
    """The migration that the database stored; raises `CorruptCatalog` if it can't be one."""
    with reading_stored(name):
        content = cbor2.loads(structure)
        require_known("document", content["zapdb"], migration=name)
        number, replaces = content["number"], tuple(content.get("replaces", ()))
        changes = decode_operations(content["changes"], name)
        activation = content.get("activation")
        assert activation in ACTIVATION_POLICIES
        assert type(content["rollback"]) is list
        numbers = ReplayAllocator(drawn, number)
        after = schemas_along(before, changes, numbers)[-1]
        if REMADE in drawn:
            cells = zip(drawn[REMADE], numbers.rest["field"], strict=True)
            after = after.with_cells(dict(cells))
    migration = Migration(
        number,
        name,
        summary,
        changes,
        (),
        before,
        after,
        drawn,
        replaces=replaces,
        activation=activation,
        version=content["zapdb"],
        id=id,
    )
    # As it is stored, not made anew: a later release may fill in more.
    vars(migration).update(structure=structure, is_stored=True)
    del vars(migration)["rollback"]  # read when it is needed, which is rare
    return migration
