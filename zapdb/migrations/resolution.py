"""From a parsed migration to a resolved one: validated, with its rollback.

A rollback is inferred from the changes or written out. Either way it must lead from the schema
after the migration to that before it, archives included.
"""

from __future__ import annotations

import contextlib
from typing import Final

import cbor2

from zapdb.errors import Location
from zapdb.migrations.canonical_migration import (
    decode_operations,
    implies_waiting,
    reading_stored,
)
from zapdb.migrations.document import DocumentText
from zapdb.migrations.document_structure import ParsingStopped, ViolationCollector, locate
from zapdb.migrations.migration import Migration, RecordingAllocator, with_new_cells
from zapdb.migrations.operations import NumberAllocator, Operation
from zapdb.migrations.parsed_migration import ParsedMigration
from zapdb.migrations.record_examples import validate_examples
from zapdb.schema import Schema, bytes_without_numbers, type_bytes_without_numbers

SPLIT: Final = "put the change into a migration of its own, or write the rollback out"


def resolve(parsed: ParsedMigration, before: Schema, numbers: NumberAllocator) -> Migration:
    """Validate a parsed migration against the schema before it and resolve its rollback.

    Raises `InvalidMigration`, or `NotExhaustive` where a rollback is missing and nothing else is.
    """
    collector = ViolationCollector(parsed.source)
    if len(parsed.replaces) not in (0, parsed.number):
        collector.report(
            parsed.place,
            f"a squash with the number {parsed.number} replaces as many migrations, "
            f"not {len(parsed.replaces)}",
            "let `zapdb migrate squash` write it",
        )
    recorded = RecordingAllocator(numbers, parsed.number)
    schema = before
    inverses: list[tuple[Operation, ...]] = []
    changes: list[Operation] = []
    for given in parsed.changes:
        met = schema
        operation, schema = _apply_checked(given, met, recorded, collector)
        changes.append(operation.without_rollback_hints())
        if parsed.rollback is None:
            inverse = operation.invert(met, parsed.number, collector)
            inverses.append(locate(inverse, given.place))
    collector.raise_violations()
    if parsed.rollback is None:
        rollback = tuple(op for inverse in reversed(inverses) for op in inverse)
    else:
        rollback = parsed.rollback
    rollback = _check_rollback(parsed, rollback, before, schema, collector)
    validate_examples(parsed.examples, before, schema, collector)
    collector.raise_violations()
    migration = Migration(
        parsed.number,
        parsed.name,
        parsed.summary,
        tuple(changes),
        rollback,
        before,
        schema,
        recorded.drawn,
        parsed.examples,
        parsed.replaces,
        None if implies_waiting(parsed.changes) else parsed.activation,
        parsed.version,
        parsed.is_proven,
    )
    return with_new_cells(migration, recorded)


def parse_resolved(
    structure: bytes, name: str, summary: str, source: DocumentText
) -> ParsedMigration:
    """A migration that another process has resolved, as if its document had been parsed here.

    Raises `CorruptCatalog` for a structure that is none.
    """
    with reading_stored(name):
        content = cbor2.loads(structure)
        return ParsedMigration(
            content["number"],
            name,
            summary,
            decode_operations(content["changes"], name),
            decode_operations(content["rollback"], name),
            source,
            Location(source.name, 1, 1),
            replaces=tuple(content.get("replaces", ())),
            activation=content.get("activation"),
            version=content["zapdb"],
        )


def _apply_checked(
    operation: Operation, schema: Schema, numbers: NumberAllocator, collector: ViolationCollector
) -> tuple[Operation, Schema]:
    """Normalize and apply if valid; else stop here, since what follows may rest on it."""
    noted = len(collector.violations)
    with contextlib.suppress(ParsingStopped):
        operation.validate(schema, collector)
    if len(collector.violations) > noted:
        collector.raise_violations()
    operation = operation.normalize(schema, numbers.migration)
    return operation, operation.apply(schema, numbers)


def _check_rollback(
    parsed: ParsedMigration,
    rollback: tuple[Operation, ...],
    before: Schema,
    after: Schema,
    collector: ViolationCollector,
) -> tuple[Operation, ...]:
    """The rollback, normalized; it must lead from the schema after the migration to that before."""
    reached, numbers = after, NumberAllocator(step=-1, migration=parsed.number)
    normal = []
    for given in rollback:
        context: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if parsed.rollback is None:
            context = collector.within(f"in the inferred rollback, {_describe(given)}", SPLIT)
        with context:
            operation, reached = _apply_checked(given, reached, numbers, collector)
        normal.append(operation)
    _check_tables_return(parsed, before, after, reached, collector)
    _check_archives_return(parsed, before, after, reached, collector)
    _check_types_return(parsed, before, reached, collector)
    return tuple(normal)


def _check_tables_return(
    parsed: ParsedMigration,
    before: Schema,
    after: Schema,
    reached: Schema,
    collector: ViolationCollector,
) -> None:
    """The schema that the rollback reaches has the tables of the one before the migration."""
    wanted = {table.name: bytes_without_numbers(table) for table in before}
    found = {table.name: bytes_without_numbers(table) for table in reached}
    for name in sorted(wanted.keys() | found.keys()):
        if wanted.get(name) != found.get(name):
            collector.report(
                parsed.place,
                f"the rollback does not bring back the table {name!r} as it was before",
                "let it be inferred, or make it end at the schema before the migration",
            )
    for table in before:
        if after.table_active_or_archived(table.number) and not reached.table_active_or_archived(
            table.number
        ):
            collector.report(
                parsed.place,
                f"the rollback drops the table {table.name!r} and makes another one: its records "
                "would be lost",
                "let it be inferred, or change the table back instead",
            )


def _check_archives_return(
    parsed: ParsedMigration,
    before: Schema,
    after: Schema,
    reached: Schema,
    collector: ViolationCollector,
) -> None:
    # What a discarded table had archived went with its records.
    held = {table.number for table in before if after.table_active_or_archived(table.number)}
    for what in sorted(_archived_in(before, held) ^ _archived_in(reached, held)):
        collector.report(
            parsed.place,
            f"the rollback does not leave the archive as it was: {what}",
            "take back with restore_field and restore_table what the changes archive, and archive "
            "with archived_by what they restore; or let the rollback be inferred",
        )


def _check_types_return(
    parsed: ParsedMigration, before: Schema, reached: Schema, collector: ViolationCollector
) -> None:
    kept = {kind.declared_name: type_bytes_without_numbers(kind) for kind in before.types}
    left = {kind.declared_name: type_bytes_without_numbers(kind) for kind in reached.types}
    for name in sorted(kept.keys() | left.keys()):
        if kept.get(name) != left.get(name):
            collector.report(
                parsed.place,
                f"the rollback does not bring back the type {name!r} as it was before",
                "let it be inferred, or make it end at the schema before the migration",
            )


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
        f"{table.name}.{archived.field.name} by {archived.archived_by}"
        for table in schema
        if table.number in tables
        for archived in table.archived
    }
    return fields | {
        f"{archived.table.name} by {archived.archived_by}" for archived in schema.archived
    }
