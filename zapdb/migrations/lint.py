"""Lint: what is valid, and better looked at before it is applied.

Every finding has a code that never changes its meaning. It is allowed by a comment in the file, on
the line of the operation or before it, which says why:

    # zapdb: allow ZL003 because every row was filled in March
    - make_required: {table: people, field: age}

A suppression without a reason, or for what is not found, is a finding itself.
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
from zapdb.migrations.migration import Migration
from zapdb.migrations.operations import Operation
from zapdb.migrations.operations.alter_type import AlterType
from zapdb.migrations.operations.change_type import ChangeType
from zapdb.migrations.operations.check import AddCheck
from zapdb.migrations.operations.field import AddField, DropField, RestoreField
from zapdb.migrations.operations.index import CreateIndex
from zapdb.migrations.operations.optionality import MakeRequired
from zapdb.migrations.operations.reference import AddReference
from zapdb.migrations.operations.table import DropTable
from zapdb.migrations.operations.transform import Transform
from zapdb.migrations.proof_findings import LossyField
from zapdb.migrations.prove import prove
from zapdb.migrations.structure import ABSENT
from zapdb.schema import Schema, TableSchema

Severity = Literal["error", "warning", "note"]

_PAGE: Final = "docs/reference/lint.md"


@dataclass(frozen=True, slots=True)
class LintRule:
    """A code, and what it means wherever it is found."""

    code: str
    level: Severity
    title: str
    description: str
    fix: str

    @property
    def link(self) -> str:
        return f"{_PAGE}#{self.code.lower()}"


RULES: Final[dict[str, LintRule]] = {
    rule.code: rule
    for rule in (
        LintRule(
            "ZL001",
            "warning",
            "a field is dropped without its values",
            "Once records are converted, what was in the field is gone; a rollback puts something "
            "else there.",
            "say restore: {archive: true, otherwise: …}",
        ),
        LintRule(
            "ZL002",
            "warning",
            "a table is dropped with its records",
            "Discarded records are deleted in the background; a rollback makes an empty table.",
            "say records: archive",
        ),
        LintRule(
            "ZL003",
            "warning",
            "a field becomes required",
            "What was null is filled, and no rollback knows which records that were.",
            "look how many records have null, and whether the fill is right for them",
        ),
        LintRule(
            "ZL004",
            "warning",
            "an index becomes unique over records that are there",
            "It binds new writes at once; if records are equal already, the index is not readable "
            "until none are.",
            "look for equal records first",
        ),
        LintRule(
            "ZL005",
            "warning",
            "a check is added over records that are there",
            "It binds new writes at once; records that violate it are listed, and stay until they "
            "are corrected.",
            "look for records that violate it first",
        ),
        LintRule(
            "ZL006",
            "warning",
            "a reference is added over records that are there",
            "It binds new writes at once; records that refer to nothing are listed, and stay until "
            "they are corrected.",
            "look for records that refer to nothing first",
        ),
        LintRule(
            "ZL007",
            "warning",
            "values that can't be converted are replaced",
            "Where the function fails, the record gets what `else=` says, and the value that was "
            "there is gone.",
            "look for values that the function fails for, with `zapdb migrate prove --database …`",
        ),
        LintRule(
            "ZL008",
            "warning",
            "members of a type are removed",
            "Records that have them get another member, or lose the part; a rollback can't tell.",
            "rename the member, or leave it",
        ),
        LintRule(
            "ZL009",
            "note",
            "older processes are not served exactly",
            "A process whose files end before this migration reads records through the rollback, "
            "which does not bring back everything.",
            "ship code that does without the field before this migration, or archive it",
        ),
        LintRule(
            "ZL010",
            "note",
            "an index is built over records that are there",
            "It is built in the background, and queries scan until it is. On a large table that "
            "takes a while.",
            "apply it when the build may run: `zapdb migrate up --no-build`, `zapdb convert run`",
        ),
        LintRule(
            "ZL011",
            "error",
            "a lossy rollback has no reason",
            "Who rolls back has to know what is lost, and why that is all right.",
            "add because: …",
        ),
        LintRule(
            "ZL012",
            "warning",
            "a rollback brings nothing back",
            "Of all records that were tried, none had its value again, or all had the same one.",
            "correct down, or drop the field and say so",
        ),
        LintRule(
            "ZL013",
            "note",
            "a rollback that is declared lossy brings everything back",
            "All records that were tried came back as they were.",
            "say reversibility: exact, and have it proven",
        ),
        LintRule(
            "ZL014",
            "warning",
            "a name is used again for another field or table",
            "It does not get the values that the earlier one had; code that knew that one may "
            "think so.",
            "take another name, or bring the earlier one back: restore_field, restore_table",
        ),
        LintRule(
            "ZL015",
            "error",
            "a suppression has no reason",
            "A finding is allowed for a reason, which the next reader wants to know.",
            "write `# zapdb: allow CODE because …`",
        ),
        LintRule(
            "ZL016",
            "warning",
            "a suppression allows nothing",
            "The operation has no such finding, or there is no such code.",
            "remove the comment, or put it on the line before the operation",
        ),
    )
}


@dataclass(frozen=True, slots=True)
class LintFinding:
    """One finding; `allowed` is the reason why it is, empty where it is not."""

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
    """The findings of the migrations whose numbers are wanted, in the order of the files.

    `sources` holds their texts by number, for the suppressions in them.
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
    """Codes and messages of one change; tables that the migration makes have no records yet."""
    yield from _find_names_used_again(operation, before, after, migration, chain)
    if isinstance(operation, AlterType) and operation.remove:
        yield "ZL008", f"{operation.type} loses {', '.join(operation.remove)}"
        for user in before:
            if migration.before.table_active_or_archived(user.number) is not None:
                yield from _find_lost(operation, user)
    name = getattr(operation, "table", None)
    table = None if name is None else before.table_named(name)
    if table is None or migration.before.table_active_or_archived(table.number) is None:
        return
    match operation:
        case DropField(restore=restore, field=field):
            if restore is ABSENT or not restore.is_archived:
                yield "ZL001", f"the values of {name}.{field} are not archived"
        case DropTable(records="discard"):
            yield "ZL002", f"the records of {name} are discarded"
        case MakeRequired(field=field):
            yield "ZL003", f"records whose {name}.{field} is null are filled"
        case CreateIndex(index=index, unique=True):
            yield "ZL004", f"records of {name} may be equal in what {index!r} wants to be unique"
        case AddCheck(check=check):
            yield "ZL005", f"records of {name} may violate {check!r}"
        case AddReference(field=field) if not _is_null(migration, table, field):
            yield "ZL006", f"records of {name} may refer to nothing with {field!r}"
        case ChangeType() | Transform():
            if any(map(_can_fail, _texts_of(operation.up))):
                yield "ZL007", f"values of {name} that can't be converted get what else= says"
            if operation.reversibility == "lossy" and not _has_reason(operation.because):
                yield "ZL011", f"why may the rollback of this change of {name} lose something?"
    if isinstance(operation, CreateIndex):
        yield "ZL010", f"{operation.index!r} is built over the records of {name}"
    if not isinstance(operation, DropTable):
        yield from _find_lost(operation, table)


def _is_null(migration: Migration, table: TableSchema, name: str) -> bool:
    """Whether a field is null in all records that are there: the same migration has added it so."""
    field = table.field_named(name)
    for operation, _, after in migration.steps_up():
        if isinstance(operation, AddField) and operation.fill is ABSENT:
            within = after.table_numbered(table.number)
            added = None if within is None else within.field_named(operation.field.name)
            if added is not None and field is not None and added.number == field.number:
                is_as_added = (added.type, added.optional) == (field.type, field.optional)
                return is_as_added and added.optional and not added.has_default
    return False


def _find_lost(operation: Operation, table: TableSchema) -> Iterator[tuple[str, str]]:
    lost = operation.lossy_fields(table)
    if lost:
        names = ", ".join(f.name for f in table.fields if f.number in lost)
        yield "ZL009", f"older processes don't get {names} of {table.name} as it was"


def _has_reason(because: Any) -> bool:
    return because is not ABSENT and bool(str(because).strip())


def _texts_of(up: Any) -> Iterable[str]:
    return up.values() if isinstance(up, dict) else [up]


def _can_fail(text: str) -> bool:
    """Whether a call in the expression says what it is where it fails."""

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
            yield "ZL012", f"{loss.field} came back as one and the same in {loss.tried:,} records"
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
        numbers, names = {f.number for f in old.fields}, {f.name for f in old.fields}
        added = [f.name for f in table.fields if f.number not in numbers and f.name not in names]
        if not added:
            continue
        kept = (schema.table_active_or_archived(table.number) for schema in (*earlier, before))
        former_names = {f.name for t in kept if t is not None for f in t.fields}
        for name in added:
            if name in former_names:
                yield "ZL014", f"{table.name}.{name} was another field before"


# Suppressions

SUPPRESSION: Final = re.compile(r"(?:^|\s)(?P<comment>#\s*zapdb:\s*allow\b(?P<rest>.*))$")
CODE: Final = re.compile(r"\bZL[0-9]+\b")


@dataclass(frozen=True, slots=True)
class SuppressedFinding:
    codes: tuple[str, ...]
    reason: str
    place: Location
    line: int
    """The line of the operation that it is for."""


def read_suppressed(source: DocumentText) -> list[SuppressedFinding]:
    """The comments of a file that allow findings; those on lines of their own are for the next."""
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
                note("ZL016", f"{code} is not found here")
        if not suppression.codes:
            note("ZL016", "no code is named")
    return findings + added
