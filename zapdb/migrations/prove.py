"""Proving a migration: records are sent up and down again, and must come back.

For every table that a migration converts, records made of boundary values (see `boundaries`) go
through its programs. What must hold:

    the programs raise nothing, and what they make decodes and is of its types       (rule 18)
    down(up(x)) is x in every field that no operation loses
    up(down(y)) is total; where it is not y, though no operation loses anything, that is a remark
    an example's record becomes what it says, and comes back

Which fields are lost the operations say (`Operation.lossy_fields`); a lost field that came from
others makes those lost. It is trying, not a proof in logic: what passed can be wrong for a record
that was not tried. No database, no clock, no randomness: a migration gives the same result
everywhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from zapdb.datasets import zone_names
from zapdb.limits import PROOFS_REMEMBERED_MAX
from zapdb.memo import Memo
from zapdb.migrations.boundary_values import ZONE_NAMES, neutral
from zapdb.migrations.migration import Migration
from zapdb.migrations.proof_findings import (
    ProofFinding,
    RecordTrace,
    TableProof,
    format_proof_value,
)
from zapdb.migrations.record_examples import RecordExample, find_tables, read_value
from zapdb.migrations.round_trip import NO_ARCHIVE, RoundTrip, is_same_value
from zapdb.records import ConversionPlan, Layout, SourceField
from zapdb.schema import Field, Schema, TableSchema, canonical_bytes
from zapdb.values import Zones

_ZONES: Final = Zones(
    dict(enumerate(ZONE_NAMES, 1)),
    lambda: dict(enumerate(dict.fromkeys((*ZONE_NAMES, *sorted(zone_names()))), 1)),
)
"""Numbers for a few zones; for the others once a migration names one."""


@dataclass(frozen=True, slots=True)
class Proof:
    """What trying one migration showed."""

    number: int
    label: str
    tables: tuple[TableProof, ...] = ()
    examples: int = 0
    failures: tuple[ProofFinding, ...] = ()
    remarks: tuple[ProofFinding, ...] = ()

    @property
    def names_places(self) -> bool:
        """Whether it says where in a file something stands."""
        return bool(self.failures or self.remarks or any(table.lossy for table in self.tables))


_remembered = Memo[bytes, Proof](PROOFS_REMEMBERED_MAX)
"""By what was tried, the last ones: `migrate up` proves before it takes the lease, and under it."""


def prove(migration: Migration) -> Proof:
    """Try a migration on records made up for it; see `require_proven` for an error instead.

    What this process has tried already is not tried again.
    """
    tried = _identify(migration)
    placed = tried + _identify_places(migration)
    found = _remembered.find(tried) or _remembered.find(placed)
    if found is None:
        found = _try(migration)
        _remembered.put(placed if found.names_places else tried, found)
    return found


def _identify(migration: Migration) -> bytes:
    """All that a proof depends on."""
    return _digest(
        migration.label,
        migration.digest,
        _describe(migration.before),
        _describe(migration.after),
        migration.changes,
        migration.examples,
    )


def _describe(schema: Schema) -> tuple[object, ...]:
    """All of a schema: of a table its bytes, which say all of it, and are made once for all
    migrations that leave it alone."""
    archived = [(canonical_bytes(a.table), a.archived_by) for a in schema.archived]
    return list(map(canonical_bytes, schema)), schema.types, archived


def _identify_places(migration: Migration) -> bytes:
    """The places in a file that a proof may name; comments move them."""
    return _digest(
        [operation.place for operation in (*migration.changes, *migration.rollback)],
        [(example.location, example.places) for example in migration.examples],
    )


def _digest(*values: object) -> bytes:
    return hashlib.sha256(repr(values).encode()).digest()


def _try(migration: Migration) -> Proof:
    tables: list[TableProof] = []
    failures: list[ProofFinding] = []
    remarks: list[ProofFinding] = []
    round_trips: dict[int, RoundTrip] = {}
    for number in converted_tables(migration):
        round_trip = round_trips[number] = RoundTrip(migration, number, _ZONES, is_made_up=True)
        tables.append(round_trip.run())
        failures += round_trip.failures.values()
        remarks += round_trip.remarks
    for example in migration.examples:
        failures += _try_example(migration, example, round_trips)
    return Proof(
        migration.number,
        migration.label,
        tuple(tables),
        len(migration.examples),
        tuple(failures),
        tuple(remarks),
    )


def require_proven(migrations: Iterable[Migration]) -> list[Proof]:
    """Prove migrations, but for those that another process has proven; raises `NotProven` for the
    first failure of the first that has any."""
    proofs = []
    for migration in migrations:
        if migration.is_proven:
            continue
        proof = prove(migration)
        if proof.failures:
            raise proof.failures[0].to_error(len(proof.failures) - 1)
        proofs.append(proof)
    return proofs


def converted_tables(migration: Migration) -> list[int]:
    """The tables whose records a migration converts, by number."""
    found = []
    for table in (*migration.before, *(a.table for a in migration.before.archived)):
        after = migration.after.table_active_or_archived(table.number)
        if after is None or after == table:
            continue
        up, down = migration.conversion_up(table.number), migration.conversion_down(table.number)
        is_same = up.is_identity and down.is_identity and _recasts_nothing(up, down)
        if not (is_same and Layout.of(table) == Layout.of(after)):
            found.append(table.number)
    return found


def _recasts_nothing(*plans: ConversionPlan) -> bool:
    """Whether values stay what they are, not their bytes alone: a renamed member is another."""
    return all(isinstance(d, SourceField) for plan in plans for d in plan.derivations.values())


def _try_example(
    migration: Migration, example: RecordExample, round_trips: dict[int, RoundTrip]
) -> Iterator[ProofFinding]:
    """Run one example both ways."""
    tables = find_tables(example, migration.before, migration.after)
    assert tables is not None, "the examples were validated"
    before, after = tables
    round_trip = round_trips.get(before.number)
    if round_trip is None:
        round_trip = RoundTrip(migration, before.number, _ZONES, is_made_up=True)
        round_trips[before.number] = round_trip
    given = {
        f.name: read_value(f, example.before[f.name])  # type: ignore[index]  # a name of the document
        if f.name in example.before
        else neutral(f)
        for f in round_trip.tables["up"].fields
    }
    encoded = round_trip.encode("up", given)
    if encoded is None:
        return
    trace = round_trip.travel(*encoded, NO_ARCHIVE, ("up", "down"))
    if trace.error is not None:
        known = len(round_trip.failures)
        round_trip.note_stop(trace, ("up", "down"))
        yield from list(round_trip.failures.values())[known:]
        return
    made = round_trip.decode("down", trace.key, trace.values[1])
    for name, plain in example.after.items():
        f = _field(after, name)
        wanted, found = read_value(f, plain), getattr(made, name)
        if not is_same_value(f, wanted, found):
            otherwise = Otherwise("after", name, found, wanted)
            yield _example_finding(round_trip, example, trace, otherwise)
    back = round_trip.decode("up", trace.key, trace.values[2])
    for name in example.before:
        f = _field(before, name)
        found = getattr(back, name)
        if f.number not in round_trip.claims.lost and not is_same_value(f, given[name], found):
            otherwise = Otherwise("before", name, found, given[name])
            yield _example_finding(round_trip, example, trace, otherwise)


def _field(table: TableSchema, name: str) -> Field:
    found = table.field_named(name)
    assert found is not None
    return found


SAID = {
    "after": ("an example comes out otherwise", "correct the expression, or the example"),
    "before": (
        "an example does not come back as it was",
        "correct down, or, if the loss is meant, say reversibility: lossy and because: why",
    ),
}
"""Message and hint, by the side of the example that is not met."""


@dataclass(frozen=True, slots=True)
class Otherwise:
    """A field of an example that has another value than it should, on one side of the migration."""

    side: str
    name: str
    found: Any
    wanted: Any


def _example_finding(
    round_trip: RoundTrip, example: RecordExample, trace: RecordTrace, otherwise: Otherwise
) -> ProofFinding:
    name = otherwise.name
    message, hint = SAID[otherwise.side]
    found, wanted = map(format_proof_value, (otherwise.found, otherwise.wanted))
    record = round_trip.decode("up", trace.key, trace.values[0])
    return ProofFinding(
        "example",
        round_trip.migration.label,
        round_trip.name,
        name,
        example.place(otherwise.side, name),
        message,
        hint,
        {
            field_name: format_proof_value(getattr(record, field_name))
            for field_name in example.before
        },
        {},
        {},
        f"{name} is {found}, not {wanted}",
    )
