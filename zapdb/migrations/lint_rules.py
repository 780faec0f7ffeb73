"""What lint finds: codes, what they mean, and what to do. The meaning of a code never changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

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
