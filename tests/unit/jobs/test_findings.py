"""Findings: added up by what is violated, with examples up to a limit."""

from __future__ import annotations

from zapdb.catalog.row_kinds import ConstraintFinding, FindingsRow
from zapdb.catalog.rows import dump_row, load_row
from zapdb.jobs.findings import EXAMPLES_MAX, merge_findings


def test_findings_are_added_up_by_what_is_violated() -> None:
    found = merge_findings(
        [
            ConstraintFinding("check a", 1, ("1",)),
            ConstraintFinding("check b", 2, ("2", "3")),
            ConstraintFinding("check a", 1, ()),
        ]
    )
    assert found == (
        ConstraintFinding("check a", 2, ("1",)),
        ConstraintFinding("check b", 2, ("2", "3")),
    )


def test_a_finding_names_some_and_counts_all() -> None:
    (found,) = merge_findings(ConstraintFinding("check a", 1, (str(at),)) for at in range(100))
    assert found.count == 100
    assert found.examples == tuple(map(str, range(EXAMPLES_MAX)))
    row = FindingsRow("a", 1, (found,))
    assert load_row(FindingsRow, row.key, dump_row(row)) == row
