"""What jobs find in the way: how many records violate what, and some of them in words.

Range tasks keep what they find by range, in the transaction that notes their progress: so a range
that is gone through again by another worker counts each record once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from zapdb.catalog import rows
from zapdb.storage import Connection

EXAMPLES_MAX: Final = 10
"""Records that a finding names."""


@dataclass(frozen=True, slots=True)
class ConstraintFinding:
    """`what` is violated (an index, a check, a reference), how often, and by which records."""

    what: str
    count: int
    examples: tuple[str, ...]

    def __add__(self, other: ConstraintFinding) -> ConstraintFinding:
        examples = (*self.examples, *other.examples)[:EXAMPLES_MAX]
        return ConstraintFinding(self.what, self.count + other.count, examples)

    @classmethod
    def from_row(cls, row: dict[str, Any]) -> ConstraintFinding:
        return cls(row["what"], row["count"], tuple(row["examples"]))

    def to_json(self) -> dict[str, Any]:
        return {"what": self.what, "count": self.count, "examples": list(self.examples)}


def unite(findings: Iterable[ConstraintFinding]) -> tuple[ConstraintFinding, ...]:
    """One finding for each thing that is violated, in the order of their first ones."""
    united: dict[str, ConstraintFinding] = {}
    for finding in findings:
        known = united.get(finding.what)
        united[finding.what] = finding if known is None else known + finding
    return tuple(united.values())


def add_findings(
    connection: Connection, job: str, number: int, findings: Iterable[ConstraintFinding]
) -> None:
    """Add what a batch of a range found, in the transaction that notes its progress."""
    key = _key(job, number)
    row = rows.get(connection, "finding", key)
    known = [] if row is None else [ConstraintFinding.from_row(found) for found in row["findings"]]
    united = unite([*known, *findings])
    rows.put(connection, "finding", key, {"findings": [found.to_json() for found in united]})


def read_findings(connection: Connection, job: str) -> tuple[ConstraintFinding, ...]:
    """What the ranges of a job found so far, in the order of the ranges."""
    found = rows.list_rows(connection, "finding", f"{job}/")
    return unite(
        ConstraintFinding.from_row(row) for value in found.values() for row in value["findings"]
    )


def clear_findings(connection: Connection, job: str) -> None:
    for key in rows.list_rows(connection, "finding", f"{job}/"):
        rows.delete(connection, "finding", key)


def _key(job: str, number: int) -> str:
    return f"{job}/{number:06}"
