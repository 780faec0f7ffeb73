"""From a draft to a migration: validated against the schema before it, with its rollback resolved.

A rollback is inferred from the changes or written out. Either way it must lead from the schema
after the migration to that before it, archives included.
"""

from __future__ import annotations

import contextlib
from typing import Final

from zapdb.migrations.activation_policy import implies_waiting
from zapdb.migrations.examples import validate_examples
from zapdb.migrations.migration import Migration
from zapdb.migrations.numbers import RecordedNumbers
from zapdb.migrations.operations import NumberAllocator, Operation
from zapdb.migrations.parsed_migration import Draft
from zapdb.migrations.structure import Refused, Reporter, locate
from zapdb.schema import Schema, shape, shape_of

SPLIT: Final = "put the change into a migration of its own, or write the rollback out"


def resolve(draft: Draft, before: Schema, numbers: NumberAllocator) -> Migration:
    """Validate a draft against the schema before it and resolve its rollback.

    Raises `InvalidMigration`, or `NotExhaustive` where a rollback is missing and nothing else is.
    """
    reporter = Reporter(draft.source)
    if len(draft.replaces) not in (0, draft.number):
        reporter.report(
            draft.place,
            f"a squash with the number {draft.number} replaces as many migrations, "
            f"not {len(draft.replaces)}",
            "let `zapdb migrate squash` write it",
        )
    recorded = RecordedNumbers(numbers, draft.number)
    schema = before
    inverses: list[tuple[Operation, ...]] = []
    changes: list[Operation] = []
    for given in draft.changes:
        met = schema
        operation, schema = _apply_checked(given, met, recorded, reporter)
        changes.append(operation.without_way_back())
        if draft.rollback is None:
            inverse = operation.invert(met, draft.number, reporter)
            inverses.append(locate(inverse, given.place))
    reporter.raise_violations()
    if draft.rollback is None:
        rollback = tuple(op for inverse in reversed(inverses) for op in inverse)
    else:
        rollback = draft.rollback
    rollback = _check_rollback(draft, rollback, before, schema, reporter)
    validate_examples(draft.examples, before, schema, reporter)
    reporter.raise_violations()
    migration = Migration(
        draft.number,
        draft.name,
        draft.summary,
        tuple(changes),
        rollback,
        before,
        schema,
        recorded.drawn,
        draft.examples,
        draft.replaces,
        None if implies_waiting(draft.changes) else draft.activation,
        draft.version,
    )
    _refuse_round_trips(migration, draft, reporter)
    reporter.raise_violations()
    return migration


def _refuse_round_trips(migration: Migration, draft: Draft, reporter: Reporter) -> None:
    """A table that changes there and back has the shape that it had: nothing would tell records
    that were converted from those that were not."""
    for table in migration.before:
        after = migration.after.table_kept(table.number)
        if after is table or after != table:
            continue
        routes = migration.route_up(table.number), migration.route_down(table.number)
        if not all(route.is_identity for route in routes):
            reporter.report(
                draft.place,
                f"the changes of {table.name!r} lead back to the shape that it had, and change "
                "values on the way",
                "put the way there and the way back into two migrations",
            )


def _apply_checked(
    operation: Operation, schema: Schema, numbers: NumberAllocator, reporter: Reporter
) -> tuple[Operation, Schema]:
    """Normalize and apply if valid; else stop here, since what follows may rest on it."""
    noted = len(reporter.violations)
    with contextlib.suppress(Refused):
        operation.validate(schema, reporter)
    if len(reporter.violations) > noted:
        reporter.raise_violations()
    operation = operation.normalize(schema, numbers.migration)
    return operation, operation.apply(schema, numbers)


def _check_rollback(
    draft: Draft,
    rollback: tuple[Operation, ...],
    before: Schema,
    after: Schema,
    reporter: Reporter,
) -> tuple[Operation, ...]:
    """The rollback, normalized; it must lead from the schema after the migration to that before."""
    reached, numbers = after, NumberAllocator(step=-1, migration=draft.number)
    normal = []
    for given in rollback:
        context: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if draft.rollback is None:
            context = reporter.within(f"in the inferred rollback, {_describe(given)}", SPLIT)
        with context:
            operation, reached = _apply_checked(given, reached, numbers, reporter)
        normal.append(operation)
    wanted = {table.name: shape(table) for table in before}
    found = {table.name: shape(table) for table in reached}
    for name in sorted(wanted.keys() | found.keys()):
        if wanted.get(name) != found.get(name):
            reporter.report(
                draft.place,
                f"the rollback does not bring back the table {name!r} as it was before",
                "let it be inferred, or make it end at the schema before the migration",
            )
    for table in before:
        if after.table_kept(table.number) and not reached.table_kept(table.number):
            reporter.report(
                draft.place,
                f"the rollback drops the table {table.name!r} and makes another one: its records "
                "would be lost",
                "let it be inferred, or change the table back instead",
            )
    # What a discarded table had archived went with its records.
    held = {table.number for table in before if after.table_kept(table.number)}
    for what in sorted(_archived_in(before, held) ^ _archived_in(reached, held)):
        reporter.report(
            draft.place,
            f"the rollback does not leave the archive as it was: {what}",
            "take back with restore_field and restore_table what the changes archive, and archive "
            "with archived_by what they restore; or let the rollback be inferred",
        )
    kept = {kind.declared_name: shape_of(kind) for kind in before.types}
    left = {kind.declared_name: shape_of(kind) for kind in reached.types}
    for name in sorted(kept.keys() | left.keys()):
        if kept.get(name) != left.get(name):
            reporter.report(
                draft.place,
                f"the rollback does not bring back the type {name!r} as it was before",
                "let it be inferred, or make it end at the schema before the migration",
            )
    return tuple(normal)


def _describe(operation: Operation) -> str:
    """What an operation does to what: `drop_field of people.name`."""
    name = getattr(operation, "field", "")
    parts = [
        getattr(operation, "table", getattr(operation, "type", "")),
        getattr(name, "name", name),
    ]
    return f"{operation.keyword} of {'.'.join(filter(None, parts))}"


def _archived_in(schema: Schema, tables: set[int]) -> set[str]:
    """What is archived of these tables, and which tables are, by their names and migrations."""
    fields = {
        f"{table.name}.{archived.field.name} by {archived.by}"
        for table in schema
        if table.number in tables
        for archived in table.archived
    }
    return fields | {f"{archived.table.name} by {archived.by}" for archived in schema.archived}
