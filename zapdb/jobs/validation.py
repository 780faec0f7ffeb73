"""Validation: whether the records that are older than a constraint satisfy it.

A constraint binds every write from its activation on. So a record that satisfies it once does so
for good, and it is enough to check each record once, in any order. The rows are locked during the
check, so the target of a reference can't be deleted meanwhile without the referencing record.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zapdb.activation.activate import publish_constraint
from zapdb.activation.tenant_catalog import TenantCatalog, load_tenant_catalog
from zapdb.catalog.row_kinds import ConstraintFinding, Job
from zapdb.jobs.findings import add_findings, read_findings
from zapdb.jobs.quarantine import count_quarantined
from zapdb.jobs.work import Findings, Superseded, Work, find_active_table
from zapdb.records import Record
from zapdb.storage import Connection, Storage, TransactionMode
from zapdb.tables.indexes import BoundTable, make_reader, violations


class ValidateWork(Work):
    """Check every record at its current schema; nothing is written."""

    def __init__(self, storage: Storage, catalog: TenantCatalog, job: Job) -> None:
        super().__init__(storage, catalog, job)
        descriptor = find_active_table(catalog, job)
        if descriptor.revision != job.target or not descriptor.unvalidated:
            raise Superseded
        self.bound = BoundTable(storage, catalog, descriptor)
        self.read = make_reader(
            storage,
            catalog,
            descriptor,
            self.bound.place,
            descriptor.revision,
            self.bound.decode_demanded,
        ).read

    @property
    def condition(self) -> tuple[str, list[Any]]:
        return "1 = 1", []

    def count_left(self, connection: Connection) -> int:
        """A record that can't be read may violate anything."""
        return count_quarantined(connection, self.job.id)

    def find_obstacles(self, connection: Connection, *, is_last: bool) -> Findings:
        return read_findings(connection, self.job.id)

    def finish(self) -> Findings:
        """Mark what no record violates; returns the findings on the rest."""
        with self.storage.transaction(TransactionMode.DDL) as connection:
            findings = read_findings(connection, self.job.id)
            violated = {finding.what for finding in findings}
            catalog = load_tenant_catalog(connection, self.job.tenant, self.catalog)
            descriptor = find_active_table(catalog, self.job)
            if descriptor.revision != self.job.target:
                raise Superseded
            for constraint in descriptor.unvalidated:
                if str(constraint) not in violated:
                    publish_constraint(connection, catalog.tenant, descriptor.schema, constraint)
        return findings

    def try_to_read(self, connection: Connection, place: bytes, value: bytes) -> None:
        record = self.read(place, value)
        for _ in find_violations(connection, self.bound, [(place, record)], validated=False):
            pass

    def write(self, connection: Connection, batch: list[tuple[bytes, bytes]], number: int) -> int:
        records = [(key, self.read(key, value)) for key, value in batch]
        found = [
            ConstraintFinding(str(what), 1, (example,))
            for what, example in find_violations(connection, self.bound, records, validated=False)
        ]
        if found:
            add_findings(connection, self.job.id, number, found)
        return 0


def find_violations(
    connection: Connection,
    bound: BoundTable,
    records: list[tuple[bytes, Record]],
    *,
    validated: bool,
) -> Iterator[tuple[str, str]]:
    """What records violate of the constraints that are validated, or of the others; in words."""
    for constraint in bound.descriptor.constraints:
        if constraint.is_validated != validated:
            continue
        if constraint.kind == "check":
            check = next(c for c in bound.checks if c.check.number == constraint.number)
            for key, record in records:
                if not check.holds(record):
                    text = violations.describe_check_violation(bound, check, key, record)
                    yield str(constraint), text
        else:
            reference = next(r for r in bound.references if r.field.number == constraint.number)
            for at in reference.find_missing(connection, [record for _, record in records]):
                text = violations.describe_missing_target(bound, reference, *records[at])
                yield str(constraint), text
