"""Which tables a mirror must have, and how it comes to have them.

When the schema of a table changes, columns are added, renamed and dropped in place. A column is
filled in again only where its values changed: one that an expression makes, that has another type,
or whose values were transformed. Columns of the key keep their values always.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from types import SimpleNamespace
from typing import Any, Final

from zapdb.activation import TableDescriptor, TenantCatalog
from zapdb.database import Database, Snapshot
from zapdb.jobs.exclusive import ProgressReporter, measure_value
from zapdb.log.stamps import LogSnapshot
from zapdb.records.derivation import Constant, Derivation, SourceField
from zapdb.schema import TableSchema
from zapdb.transfer.export.snapshots import naming_table, read_catalog
from zapdb.transfer.mirror.batch import rows_of
from zapdb.transfer.mirror.mirror_constraints import drop_foreign_keys
from zapdb.transfer.mirror.source_rows import (
    list_mirrored,
    plan_of,
    read_former_schema,
    read_log_snapshot,
)
from zapdb.transfer.mirror.state import (
    Filling,
    MirroredTable,
    MirrorState,
    forget_table,
    save_table,
)
from zapdb.transfer.mirror.target import (
    Addition,
    ConstraintChange,
    Row,
    TargetBlocked,
    TargetSession,
)
from zapdb.transfer.plain_tables import PlainColumn, PlainTable, plan_plain_table
from zapdb.values import Reference, ValueType

NOTED_ROWS: Final = 1_000
"""After how many rows of a baseline its job is told of them, at most."""


@dataclass
class MirrorReport:
    """What one run has done: changes applied, batches, and the tables that were made, altered or
    dropped, by name."""

    changes: int = 0
    batches: int = 0
    made: list[str] = field(default_factory=list)
    altered: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    """Those that were found changed by others, and are made right again."""
    repaired: int = 0
    """Rows that others had changed, removed or added."""
    rows: int = 0
    """Rows that were written to the target."""
    untold: int = 0
    """Rows that its job was not told of, and their bytes. A change without a row, such as a
    deletion, counts as one with a row does."""
    untold_bytes: int = 0
    lost: list[str] = field(default_factory=list)
    """What others had added to a table, and the one that was made in its place has not."""
    problems: dict[str, str] = field(default_factory=dict)
    """Why a table is not kept, by its name; empty for one that is kept again."""

    def add(self, more: MirrorReport) -> None:
        """Take in what one transaction has done."""
        self.problems |= more.problems
        for one in fields(self):
            if one.name != "problems":
                setattr(self, one.name, getattr(self, one.name) + getattr(more, one.name))

    def measured(self, rows: Iterable[Row]) -> Iterator[Row]:
        """Count rows, and their bytes, while they are written."""
        for row in rows:
            self.rows += 1
            self.untold += 1
            self.untold_bytes += sum(map(measure_value, row))
            yield row

    def paced(self, rows: Iterable[Row], pace: ProgressReporter) -> Iterator[Row]:
        """Tell a job of rows while they are written, which may wait meanwhile."""
        bound = min(NOTED_ROWS, pace.batch_records_max or NOTED_ROWS)
        for row in self.measured(rows):
            yield row
            if self.untold >= bound:
                self.tell(pace)
                bound = min(NOTED_ROWS, pace.batch_records_max or NOTED_ROWS)

    def tell(self, pace: ProgressReporter) -> None:
        """Tell a job of what was done since it was last told."""
        read, size_bytes, self.untold, self.untold_bytes = self.untold, self.untold_bytes, 0, 0
        pace.note(read, 0, size_bytes)


@dataclass
class StructureWork:
    """One transaction's work on the tables of a target.

    `remade` are tables that are to be made anew, `long` the fields of long numbers that were
    found, both by table number. `at` is the table of the step that is under way, by number and
    name.
    """

    db: Database
    session: TargetSession
    state: MirrorState
    remade: set[int]
    long: dict[int, set[str]]
    now: int
    pace: ProgressReporter
    done: MirrorReport = field(default_factory=MirrorReport)
    built: set[int] = field(default_factory=set)
    at: tuple[int, str] = (0, "")

    def next_step(self, wanted: dict[int, TableDescriptor], waiting: set[int]) -> bool:
        """Do one step, if there is one; those of the tables in `waiting` are left for later.

        Raises `TargetBlocked` for the table `at`.
        """
        tables = self.state.tables
        gone = [table for n, table in tables.items() if n not in wanted and n not in waiting]
        if gone:
            self._drop(gone[0])
            return True
        new = [n for n in wanted if n not in waiting and self._is_new(n)]
        if new:
            self._build(new)
            return True
        for number, descriptor in wanted.items():
            table = tables.get(number)
            if table is None or number in waiting:
                continue
            if table.problem or not self._is_current(table, descriptor):
                self._alter(table, descriptor)
                return True
            if table.is_stale:
                self._build([number])
                return True
        return False

    def _is_new(self, number: int) -> bool:
        table = self.state.tables.get(number)
        return number in self.remade or table is None or not table.columns

    def _is_current(self, table: MirroredTable, descriptor: TableDescriptor) -> bool:
        long = self.long.get(table.number, set())
        is_named = table.name == descriptor.schema.name and long <= {*table.long}
        return is_named and table.revision == descriptor.revision

    # Tables that are no more

    def _drop(self, table: MirroredTable) -> None:
        self.at = table.number, table.name
        if table.columns:
            drop_foreign_keys(self.session, self.state, table.name)
            self.session.drop(table.name)
        forget_table(self.session, self.state, table.number)
        self.done.dropped.append(table.name)
        self.done.problems[table.name] = ""

    # Columns

    def _alter(self, table: MirroredTable, descriptor: TableDescriptor) -> None:
        """Give a table the columns and the name of its schema; one for which that is not enough is
        made anew."""
        self.at = table.number, table.name
        catalog, session = self.db._session.catalog, self.session
        if has_other_columns(session, table):  # while the mirror ran
            self.done.broken.append(table.name)
            self.remade.add(table.number)
            return
        with self.db._session.reading() as connection:
            former = read_former_schema(connection, catalog.tenant, table.number, table.revision)
        if former is None:
            self.remade.add(table.number)
            return
        schema = descriptor.schema
        long = rename_long(table, former, schema) | self.long.get(table.number, set())
        old = TableForm.of(former, session, table.long)
        new = TableForm.of(schema, session, tuple(sorted(long)))
        derivations = find_derivations(catalog, descriptor, table.revision)
        plan = plan_alteration(old, new, derivations, session.engine)
        if plan is None:
            self.remade.add(table.number)
            return
        plan.loosen(session, table.name, new.plain)
        filled = plan.carry_out(session, table.name)
        filled += [name for name in carry_on(table.filling, old, new) if name not in filled]
        if table.name != schema.name:
            self._rename(table.name, schema.name)
        altered = replace(
            table,
            name=schema.name,
            revision=descriptor.revision,
            columns=session.observe(schema.name),
            long=tuple(sorted(long)),
            filling=Filling(tuple(filled)) if filled and not table.is_stale else None,
            problem="",
        )
        save_table(session, self.state, altered)
        self.done.problems[table.name] = ""
        if altered.columns != table.columns or altered.name != table.name:
            self.done.altered.append(schema.name)

    def _rename(self, name: str, to: str) -> None:
        for other in list(self.state.tables.values()):
            if other.name == to:  # it is to be renamed, too
                passing = _waiting_name(other.number)
                self.session.rename(to, passing)
                save_table(self.session, self.state, replace(other, name=passing))
        self._require_free(to)
        self.session.rename(name, to)

    def _require_free(self, name: str) -> None:
        if self.session.describe_columns(name):
            raise TargetBlocked(f"there is a table or view {name} that is not the mirror's")

    # Rows

    def _build(self, numbers: Iterable[int]) -> None:
        """Make tables from one snapshot; one that has the right columns keeps them."""
        with self.db.snapshot() as snap:
            snap._session.reload()
            wanted = list_mirrored(read_catalog(snap._session))
            baseline = read_log_snapshot(snap)
            built = [wanted[n] for n in numbers if n in wanted]  # not dropped meanwhile
            if self.pace.is_job:
                self.pace.expect(sum(snap.table(one.schema.name).count() for one in built))
            for one in built:
                self._build_one(snap, one, baseline)
        self.pace.expect(None)  # as long as there are changes

    def _build_one(
        self, snap: Snapshot, descriptor: TableDescriptor, baseline: LogSnapshot
    ) -> None:
        schema = descriptor.schema
        known = self.state.tables.get(schema.number)
        is_kept = known is not None and not self._is_new(schema.number)
        if known is not None and is_kept and known.revision != descriptor.revision:
            return  # altered first
        self.at = schema.number, schema.name
        long = {*(known.long if known else ()), *self.long.get(schema.number, ())}
        made = MirroredTable(
            schema.number,
            schema.name,
            descriptor.revision,
            baseline,
            long=tuple(sorted(long & {field.name for field in schema.fields})),
            checked_at=self.now,
        )
        plain = plan_of(schema, self.session, made)
        read = rows_of(snap.table(schema.name).scan(), plain, schema.number)
        rows = self.done.paced(read, self.pace)
        with naming_table(schema.name):
            if is_kept:
                drop_foreign_keys(self.session, self.state, made.name)
                self.session.empty(made.name)
                count = self.session.insert(made.name, plain, rows)
            else:
                count = self._make(made, plain, rows, known)
        columns = self.session.observe(made.name)
        save_table(self.session, self.state, replace(made, rows=count, columns=columns))
        self.done.made.append(made.name)
        self.built.add(made.number)

    def _make(
        self,
        made: MirroredTable,
        plain: PlainTable,
        rows: Iterable[Row],
        known: MirroredTable | None,
    ) -> int:
        """Make a table in place of the former one; return how many rows it has."""
        session, former = self.session, known.name if known and known.columns else None
        if former is not None:
            drop_foreign_keys(session, self.state, former)
        if former != made.name:
            self._require_free(made.name)
        if former is not None and not session.describe_columns(former):
            former = None  # others have dropped it
        if former is not None and former != made.name and not session.fills_aside:
            session.rename(former, made.name)  # so that what is added names it so
            former = made.name
        added = [] if former is None else session.read_additions(former)
        if not session.fills_aside:
            if former is not None:
                session.drop(former)
            session.create(made.name, plain)
            count = session.insert(made.name, plain, rows)
            self._add(added, made.name, made.name)
            return count
        # Under a name of its own first: nobody waits for the rows.
        aside = _waiting_name(made.number)
        session.drop(aside)
        session.create(aside, plain)
        count = session.insert(aside, plain, rows)
        refused = self._add(added, aside, made.name)
        if former is None:
            session.admit_readers(aside)
        else:
            session.drop(former)
        session.rename(aside, made.name)
        session.name_additions(added, refused, aside)
        return count

    def _add(self, added: list[Addition], name: str, shown: str) -> list[Addition]:
        """Add what others have added to the former table; returns what can't be."""
        refused = self.session.add(added, name)
        self.done.lost += [f"{one.shown} of {shown}" for one in refused]
        return refused


def _waiting_name(number: int) -> str:
    return f"zapdb_mirror_new_{number}"


def has_other_columns(session: TargetSession, table: MirroredTable) -> bool:
    """Whether the columns of a table are others than the mirror left."""
    return session.observe(table.name) != table.columns


def find_broken(session: TargetSession, state: MirrorState) -> dict[int, str]:
    """The tables that others have changed: by number, whether in their `columns` or `rows`."""
    found = {}
    for number, table in state.tables.items():
        if table.columns and not table.is_stale:
            if has_other_columns(session, table):
                found[number] = "columns"
            elif session.count(table.name) != table.rows:
                found[number] = "rows"
    return found


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
    """How the fields come from those at a revision; None if a migration was rolled back since: then
    records that were not converted have the values from before it; or if one was applied again that
    was kept, with values of its own."""
    origin = descriptor.origins.get(revision)
    later = (place for at, place in descriptor.origins.items() if at >= revision)
    if origin is None or not all(map(catalog.is_on_chain, later)):
        return None
    if descriptor.is_reapplied_between(revision):
        return None
    return dict(catalog.plan(descriptor.schema.number, origin, catalog.place).derivations)


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
