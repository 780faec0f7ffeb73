"""The findings of jobs: how many records violate which constraint, and examples in words.

Jobs store their findings by range, in the transaction that stores their progress. So if another
worker goes through a range again, each record is still counted once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import structs

from zapdb.catalog import rows
from zapdb.catalog.row_kinds import ConstraintFinding, FindingsRow
from zapdb.storage import Connection

EXAMPLES_MAX: Final = 10
"""Records that a finding names."""


def _add(one: ConstraintFinding, other: ConstraintFinding) -> ConstraintFinding:
    examples = (*one.examples, *other.examples)[:EXAMPLES_MAX]
    return ConstraintFinding(one.what, one.count + other.count, examples)


def merge_findings(findings: Iterable[ConstraintFinding]) -> tuple[ConstraintFinding, ...]:
    """One finding for each thing that is violated, in the order of their first ones."""
    merged: dict[str, ConstraintFinding] = {}
    for finding in findings:
        earlier = merged.get(finding.what)
        merged[finding.what] = finding if earlier is None else _add(earlier, finding)
    return tuple(merged.values())


def without_examples(findings: Iterable[ConstraintFinding]) -> tuple[ConstraintFinding, ...]:
    """How many records violate what, and not which."""
    return tuple(structs.replace(finding, examples=()) for finding in findings)


def add_findings(
    connection: Connection, job: str, number: int, findings: Iterable[ConstraintFinding]
) -> None:
    """Add what a batch of a range found, in the transaction that notes its progress."""
    row = rows.get(connection, FindingsRow, job, number)
    known = () if row is None else row.findings
    rows.put(connection, FindingsRow(job, number, merge_findings([*known, *findings])))


def read_findings(connection: Connection, job: str) -> tuple[ConstraintFinding, ...]:
    """What the ranges of a job found so far, in the order of the ranges."""
    found = sorted(rows.list_rows(connection, FindingsRow, job), key=lambda row: row.range)
    return merge_findings(finding for row in found for finding in row.findings)


def clear_findings(connection: Connection, job: str) -> None:
    for row in rows.list_rows(connection, FindingsRow, job):
        rows.delete(connection, FindingsRow, row.key)
