"""Lint: changes that are valid but risky.

The meaning of a code never changes. A comment in the file suppresses a finding and says why, on the
line of the operation or before it:

    # zapdb: allow ZL003 because every row was filled in March
    - make_required: {table: people, field: age}

A suppression without a reason, or without a finding, is a finding itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Final, Literal

from zapdb.errors import Location
from zapdb.expressions import parse_expression
from zapdb.expressions.tree import Call
from zapdb.migrations.chain import Chain
from zapdb.migrations.document import DocumentText
from zapdb.migrations.document_structure import ABSENT
from zapdb.migrations.migration import Migration
from zapdb.migrations.operations import Operation
from zapdb.migrations.operations.alter_type import AlterType
from zapdb.migrations.operations.change_type import ChangeType
from zapdb.migrations.operations.check_and_reference import AddCheck, AddReference
from zapdb.migrations.operations.field import AddField, DropField, RestoreField
from zapdb.migrations.operations.field_change import MakeRequired
from zapdb.migrations.operations.index import CreateIndex
from zapdb.migrations.operations.table import CreateTable, DropTable
from zapdb.migrations.operations.transform import Transform
from zapdb.migrations.proof_findings import LossyField
from zapdb.migrations.prove import prove
from zapdb.records import Constant
from zapdb.records.derivation import subderivations
from zapdb.schema import Field, Schema, TableSchema
from zapdb.schema.model import types_in
from zapdb.values import List, Reference

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class LintRule:
    """A code, its meaning, and what to do."""

    code: str
    level: Severity
    title: str
    description: str
    fix: str


RULES: Final[dict[str, LintRule]] = {
    rule.code: rule
    for rule in (
        LintRule(
            "ZL001",
            "warning",
            "a field is dropped without its values",
            "Converting a record deletes the field's value for good; a rollback fills in another "
            "value.",
            "say restore: {archive: true, otherwise: …}",
        ),
        LintRule(
            "ZL002",
            "warning",
            "a table is dropped with its records",
            "Discarded records are deleted in the background; a rollback creates an empty table.",
            "say records: archive",
        ),
        LintRule(
            "ZL003",
            "warning",
            "a field becomes required",
            "Null values are filled, and a rollback can't tell which records had null.",
            "count the records that have null, and check that the fill is right for them",
        ),
        LintRule(
            "ZL004",
            "warning",
            "a unique index is created on existing records",
            "It binds new writes at once; if existing records have equal values, the index is not "
            "readable until they are changed.",
            "look for records with equal values first",
        ),
        LintRule(
            "ZL005",
            "warning",
            "a check is added to existing records",
            "It binds new writes at once; existing records that violate it are reported, and stay "
            "until they are corrected.",
            "look for records that violate it first",
        ),
        LintRule(
            "ZL006",
            "warning",
            "a reference is added to existing records",
            "It binds new writes at once; existing records whose target is missing are reported, "
            "and stay until they are corrected.",
            "look for records whose target is missing first",
        ),
        LintRule(
            "ZL007",
            "warning",
            "values that can't be converted are replaced",
            "If the function fails, the record gets the value of `else=`, and the old value is "
            "lost.",
            "look for values for which the function fails: `zapdb migrate prove --database …`",
        ),
        LintRule(
            "ZL008",
            "warning",
            "members of a type are removed",
            "Records that have them get another member, or lose that part of the value; a "
            "rollback can't tell which records had them.",
            "rename the member, or keep it",
        ),
        LintRule(
            "ZL009",
            "note",
            "older processes don't read the exact values",
            "A process whose files end before this migration reads records through the rollback, "
            "which does not restore every value.",
            "deploy code that does not use the field before this migration, or archive the field",
        ),
        LintRule(
            "ZL010",
            "note",
            "an index is built on existing records",
            "The index is built in the background, and queries scan until it is readable. On a "
            "large table this takes a while.",
            "run the build at a suitable time: `zapdb migrate up --no-build`, then `zapdb convert "
            "run`",
        ),
        LintRule(
            "ZL011",
            "error",
            "a lossy rollback has no reason",
            "Before a rollback, the operator has to know what is lost, and why that is acceptable.",
            "add because: …",
        ),
        LintRule(
            "ZL012",
            "warning",
            "a rollback restores no value",
            "In the round-trip test, no record had its value again, or all records had the same "
            "value.",
            "correct `down`, or drop the field explicitly",
        ),
        LintRule(
            "ZL013",
            "note",
            "a rollback that is declared lossy restores every value",
            "In the round-trip test, all records came back unchanged.",
            "declare reversibility: exact, which is then proven",
        ),
        LintRule(
            "ZL014",
            "warning",
            "a name is used again for another field or table",
            "The new one does not get the values of the earlier one, though older code may expect "
            "them.",
            "choose another name, or restore the earlier one: restore_field, restore_table",
        ),
        LintRule(
            "ZL015",
            "error",
            "a suppression has no reason",
            "The next reader needs to know why the finding is acceptable.",
            "write `# zapdb: allow CODE because …`",
        ),
        LintRule(
            "ZL016",
            "warning",
            "a suppression matches no finding",
            "The operation has no such finding, or the code does not exist.",
            "remove the comment, or put it on the line before the operation",
        ),
        LintRule(
            "ZL017",
            "note",
            "values made at insert are for new records only",
            "A number of a sequence, a UUID or the moment of the insert is made for new records "
            "alone; existing ones get the value of fill, or null.",
            "check that the application can tell the two apart",
        ),
        LintRule(
            "ZL018",
            "note",
            "a sequence has no unique index",
            "Numbers that are drawn are unique; one that is written explicitly may, on PostgreSQL, "
            "be in a block that another process has drawn already, and be given again.",
            "create a unique index on the field, or write no numbers explicitly",
        ),
        LintRule(
            "ZL019",
            "warning",
            "a reference is not checked",
            "The type alone names a record: writes may name one that does not exist, and deleting "
            "the target leaves the reference as it is. An add_reference, in this migration or a "
            "later one, checks both.",
            "create an index that begins with the field, then add_reference: {table: …, field: …, "
            "on_delete: restrict}; cascade and set_null are the alternatives",
        ),
        LintRule(
            "ZL020",
            "warning",
            "existing records get a reference to a given record",
            "A migration inserts no records. Where the record is not there when the migration is "
            "applied, which is so in a new database, or where a script brings it later, all "
            "existing records refer to nothing; and what the script was to fill in looks filled.",
            "add the field as optional, let the script write the records and fill the field, then "
            "add_check: {table: …, check: …, expression: FIELD is not None}",
        ),
    )
}


@dataclass(frozen=True, slots=True)
class LintFinding:
    """One finding; `allowed` is the reason of its suppression, empty if it has none."""

    code: str
    place: Location
    message: str
    migration: str
    allowed: str = ""

    @property
    def rule(self) -> LintRule:
        return RULES[self.code]

    @property
    def level(self) -> Severity:
        return self.rule.level


def lint(
    chain: Chain,
    sources: Mapping[int, DocumentText],
    only: Callable[[int], bool] = lambda number: True,
) -> list[LintFinding]:
    """Return the findings of the migrations that `only` selects, in the order of the files.

    `sources` has the files' texts by number, for their suppressions.
    """
    found = []
    for migration in chain.migrations:
        if only(migration.number):
            findings = list(_lint_migration(migration, chain))
            source = sources.get(migration.number)
            if source is not None:
                findings = _apply_suppressions(findings, source, migration)
            found += sorted(findings, key=lambda f: (f.place.line, f.place.column, f.code))
    return found


def _lint_migration(migration: Migration, chain: Chain) -> Iterator[LintFinding]:
    losses = {
        (loss.place, loss.field): loss for table in prove(migration).tables for loss in table.lossy
    }
    for operation, before, after in migration.steps_up():
        for code, message in _lint_operation(operation, before, after, migration, chain):
            yield LintFinding(code, operation.place, message, migration.label)
        if getattr(operation, "reversibility", "exact") == "lossy":
            mine = [loss for (place, _), loss in losses.items() if place == operation.place]
            for code, message in _lint_losses(mine):
                yield LintFinding(code, operation.place, message, migration.label)


def _lint_operation(
    operation: Operation, before: Schema, after: Schema, migration: Migration, chain: Chain
) -> Iterator[tuple[str, str]]:
    """Yield codes and messages of one change; tables that the migration creates have no records
    yet."""
    yield from _find_names_used_again(operation, before, after, migration, chain)
    if isinstance(operation, AlterType) and operation.remove:
        yield "ZL008", f"{operation.type} loses {', '.join(operation.remove)}"
        for user in before:
            if migration.before.table_active_or_archived(user.number) is not None:
                yield from _find_lost(operation, user)
    name = getattr(operation, "table", None)
    if name is not None:
        yield from _find_sequences(operation, before, after, migration)
    if isinstance(operation, AddField | ChangeType | CreateTable):
        yield from _find_unchecked(operation, before, after, chain)
    table = None if name is None else before.table_named(name)
    if table is None or migration.before.table_active_or_archived(table.number) is None:
        return
    if isinstance(operation, AddField) and any(
        field.is_made for field in _added_by(operation, before, after)
    ):
        yield "ZL017", f"existing records of {name} get fill, or null, in {operation.field.name!r}"
    yield from _lint_records(operation, table, migration)
    yield from _find_given_references(
        operation, table, after.table_active_or_archived(table.number)
    )
    if isinstance(operation, CreateIndex):
        yield "ZL010", f"{operation.index!r} is built on the records of {name}"
    if not isinstance(operation, DropTable):
        yield from _find_lost(operation, table)


def _lint_records(
    operation: Operation, table: TableSchema, migration: Migration
) -> Iterator[tuple[str, str]]:
    """Yield what a change does to the records of a table that there may be."""
    name = table.name
    match operation:
        case DropField(restore=restore, field=field):
            if restore is ABSENT or not restore.is_archived:
                yield "ZL001", f"the values of {name}.{field} are not archived"
        case DropTable(records="discard"):
            yield "ZL002", f"the records of {name} are discarded"
        case MakeRequired(field=field):
            yield "ZL003", f"records whose {name}.{field} is null are filled"
        case CreateIndex(index=index, unique=True):
            yield (
                "ZL004",
                f"records of {name} may be equal in the fields of the unique index {index!r}",
            )
        case AddCheck(check=check):
            yield "ZL005", f"records of {name} may violate {check!r}"
        case AddReference(field=field) if not _is_null(migration, table, field):
            yield "ZL006", f"records of {name} may have a missing target in {field!r}"
        case ChangeType() | Transform():
            yield from _lint_new_values(operation, name)


def _find_given_references(
    operation: Operation, before: TableSchema, after: TableSchema | None
) -> Iterator[tuple[str, str]]:
    """Yield the fields in which existing records refer to a record that the migration names."""
    if after is None:
        return
    for number, derivation in operation.derive(before, after).items():
        field = after.field_numbered(number)
        if not any(isinstance(kind, Reference) for kind in types_in(field.type)):
            continue
        given = [d.value for d in subderivations(derivation) if isinstance(d, Constant)]
        is_list = isinstance(field.type, List)
        if any(value is not None and (value or not is_list) for value in given):
            yield "ZL020", f"{after.name}.{field.name} refers to what the migration says"


def _lint_new_values(operation: ChangeType | Transform, table: str) -> Iterator[tuple[str, str]]:
    if any(map(_can_fail, _expressions_in(operation.up))):
        yield (
            "ZL007",
            f"values of {table} that can't be converted are replaced by the value of else=",
        )
    if operation.reversibility == "lossy" and not _has_reason(operation.because):
        yield (
            "ZL011",
            f"the rollback of this change of {table} loses values, and no reason is given",
        )


def _added_by(operation: Operation, before: Schema, after: Schema) -> list[Field]:
    """The fields that a change of a table adds."""
    name = getattr(operation, "table", "")
    old, new = before.table_named(name), after.table_named(name)
    known = set() if old is None else {f.number for f in old.fields}
    return [] if new is None else [f for f in new.fields if f.number not in known]


def _find_sequences(
    operation: Operation, before: Schema, after: Schema, migration: Migration
) -> Iterator[tuple[str, str]]:
    if not isinstance(operation, AddField | CreateTable):
        return
    for field in _added_by(operation, before, after):
        table = migration.after.table_named(operation.table)
        if table is not None and field.is_sequence and not _is_unique(table, field):
            yield "ZL018", f"{operation.table}.{field.name} is a sequence without a unique index"


def _find_unchecked(
    operation: AddField | ChangeType | CreateTable, before: Schema, after: Schema, chain: Chain
) -> Iterator[tuple[str, str]]:
    """Yield fields that refer to records from here on, and are not checked at the chain's end."""
    old, new = before.table_named(operation.table), after.table_named(operation.table)
    assert new is not None
    end = chain.schema_at(chain.end).table_numbered(new.number)
    if end is None:
        return
    known = set() if old is None else _references_of(old)
    for number in sorted((_references_of(new) - known) & _references_of(end)):
        if end.foreign_key_on(number) is None:
            field = new.field_numbered(number)
            yield "ZL019", f"{operation.table}.{field.name} may name a record that does not exist"


def _references_of(table: TableSchema) -> set[int]:
    return {field.number for field in table.fields if isinstance(field.type, Reference)}


def _is_unique(table: TableSchema, field: Field) -> bool:
    indexes = (tuple(c.field for c in i.components) for i in table.indexes if i.unique)
    return table.key == (field.number,) or (field.number,) in indexes


def _is_null(migration: Migration, table: TableSchema, name: str) -> bool:
    """Return whether all records have null in a field, because the same migration adds it."""
    field = table.field_named(name)
    for operation, _, after in migration.steps_up():
        if isinstance(operation, AddField) and operation.fill is ABSENT:
            within = after.table_numbered(table.number)
            added = None if within is None else within.field_named(operation.field.name)
            if added is not None and field is not None and added.number == field.number:
                is_as_added = (added.type, added.optional) == (field.type, field.optional)
                return is_as_added and added.optional and not added.has_constant
    return False


def _find_lost(operation: Operation, table: TableSchema) -> Iterator[tuple[str, str]]:
    lost = operation.lossy_fields(table)
    if lost:
        names = ", ".join(f.name for f in table.fields if f.number in lost)
        yield "ZL009", f"older processes don't get the exact values of {names} of {table.name}"


def _has_reason(because: Any) -> bool:
    return because is not ABSENT and bool(str(because).strip())


def _expressions_in(up: Any) -> Iterable[str]:
    return up.values() if isinstance(up, dict) else [up]


def _can_fail(text: str) -> bool:
    """Return whether a call in the expression has a value for failures (`else=`)."""

    def look(part: Any) -> bool:
        if isinstance(part, Call) and part.on_failure is not None:
            return True
        if isinstance(part, tuple):
            return any(map(look, part))
        return is_dataclass(part) and any(look(getattr(part, f.name)) for f in fields(part))

    return look(parse_expression(text))


def _lint_losses(losses: list[LossyField]) -> Iterator[tuple[str, str]]:
    for loss in losses:
        if loss.is_constant:
            yield (
                "ZL012",
                f"{loss.field} came back as the same value in all of {loss.tried:,} records",
            )
        elif not loss.returned:
            yield "ZL012", f"{loss.field} came back in none of {loss.tried:,} records"
    if losses and all(loss.returned == loss.tried for loss in losses):
        names = ", ".join(loss.field for loss in losses)
        yield "ZL013", f"{names} came back in all of {losses[0].tried:,} records"


def _find_names_used_again(
    operation: Operation, before: Schema, after: Schema, migration: Migration, chain: Chain
) -> Iterator[tuple[str, str]]:
    if isinstance(operation, RestoreField):
        return
    earlier = [m.before for m in chain.up_to(migration.number).migrations]
    for table in after:
        old = before.table_active_or_archived(table.number)
        if old is None:
            former = {t.number for schema in earlier for t in schema if t.name == table.name}
            if former:
                yield "ZL014", f"{table.name!r} was another table before"
            continue
        for name in _find_fields_used_again(old, table, (*earlier, before)):
            yield "ZL014", f"{table.name}.{name} was another field before"


def _find_fields_used_again(
    old: TableSchema, table: TableSchema, earlier: Iterable[Schema]
) -> Iterator[str]:
    """Yield the new fields of a table that have the name of an earlier one."""
    numbers, names = {f.number for f in old.fields}, {f.name for f in old.fields}
    added = [f.name for f in table.fields if f.number not in numbers and f.name not in names]
    if not added:
        return
    kept = (schema.table_active_or_archived(table.number) for schema in earlier)
    former_names = {f.name for t in kept if t is not None for f in t.fields}
    yield from (name for name in added if name in former_names)


# Suppressions

SUPPRESSION: Final = re.compile(r"(?:^|\s)(?P<comment>#\s*zapdb:\s*allow\b(?P<rest>.*))$")
CODE: Final = re.compile(r"\bZL[0-9]+\b")


@dataclass(frozen=True, slots=True)
class SuppressedFinding:
    codes: tuple[str, ...]
    reason: str
    place: Location
    line: int
    """The line of the operation that it applies to."""


def read_suppressed(source: DocumentText) -> list[SuppressedFinding]:
    """Return the comments of a file that suppress findings; one on its own line is for the next."""
    lines = source.raw.decode("utf-8", "replace").splitlines()
    found = []
    for at, line in enumerate(lines, 1):
        match = SUPPRESSION.search(line)
        if match is None:
            continue
        codes, _, reason = match["rest"].partition("because")
        target = at
        while target <= len(lines) and lines[target - 1].lstrip()[:1] in ("#", ""):
            target += 1
        place = Location(source.name, at, match.start("comment") + 1)
        found.append(SuppressedFinding(tuple(CODE.findall(codes)), reason.strip(), place, target))
    return found


def _apply_suppressions(
    findings: list[LintFinding], source: DocumentText, migration: Migration
) -> list[LintFinding]:
    added = []
    for suppression in read_suppressed(source):
        meant = [
            at
            for at, finding in enumerate(findings)
            if finding.place.line == suppression.line and finding.code in suppression.codes
        ]
        codes = {findings[at].code for at in meant}

        def note(code: str, message: str, place: Location = suppression.place) -> None:
            added.append(LintFinding(code, place, message, migration.label))

        if not suppression.reason:
            note("ZL015", f"{', '.join(suppression.codes) or 'this'} is allowed without a reason")
        else:
            for at in meant:
                findings[at] = replace(findings[at], allowed=suppression.reason)
        for code in suppression.codes:
            if code not in RULES:
                note("ZL016", f"there is no code {code}")
            elif code not in codes:
                note("ZL016", f"the operation has no finding {code}")
        if not suppression.codes:
            note("ZL016", "no code is named")
    return findings + added
