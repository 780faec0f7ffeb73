"""Proving a migration: records are sent up and down again, and must come back.

For every table that a migration converts, records made of boundary values (see `boundaries`) go
through its programs. What must hold:

    the programs raise nothing, and what they make decodes and is of its types       (rule 18)
    down(up(x)) is x in every field that no operation loses
    up(down(y)) is total; where it is not y, though no operation loses anything, that is a remark
    an example's record becomes what it says, and comes back

Which fields are lost the operations say (`Operation.loses`); a lost field that came from others
makes those lost. It is trying, not a proof in logic: what passed can be wrong for a record that was
not tried. No database, no clock, no randomness: a migration gives the same result everywhere.
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
from zapdb.migrations.examples import RecordExample, find_tables, read_value
from zapdb.migrations.migration import Migration
from zapdb.migrations.proof_findings import ProofFinding, TableProof, format_proof_value
from zapdb.migrations.record_trace import Journey
from zapdb.migrations.round_trip import NO_ARCHIVE, Trial, is_same_value
from zapdb.records import Input, Layout, Route
from zapdb.schema import Field, Table
from zapdb.values import Zones

ZONES: Final = Zones(
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


_remembered = Memo[bytes, Proof](PROOFS_REMEMBERED_MAX)
"""By what was tried, the last ones: `migrate up` proves before it takes the lease, and under it."""


def prove(migration: Migration) -> Proof:
    """Try a migration on records made up for it; see `require_proven` for an error instead.

    What this process has tried already is not tried again.
    """
    return _remembered.get(_identify(migration), lambda: _try(migration))


def _identify(migration: Migration) -> bytes:
    """All that a proof depends on, and the places that it speaks of: comments move those."""
    tried = (
        migration.label,
        migration.digest,
        migration.before,
        migration.after,
        migration.changes,
        [operation.place for operation in (*migration.changes, *migration.rollback)],
        [(example, example.location, example.places) for example in migration.examples],
    )
    return hashlib.sha256(repr(tried).encode()).digest()


def _try(migration: Migration) -> Proof:
    tables: list[TableProof] = []
    failures: list[ProofFinding] = []
    remarks: list[ProofFinding] = []
    trials: dict[int, Trial] = {}
    for number in converted_tables(migration):
        trial = trials[number] = Trial(migration, number, ZONES)
        tables.append(trial.run())
        failures += trial.failures.values()
        remarks += trial.remarks
    for example in migration.examples:
        failures += _try_example(migration, example, trials)
    return Proof(
        migration.number,
        migration.label,
        tuple(tables),
        len(migration.examples),
        tuple(failures),
        tuple(remarks),
    )


def require_proven(migrations: Iterable[Migration]) -> list[Proof]:
    """Prove migrations; raises `NotProven` for the first failure of the first that has any."""
    proofs = []
    for migration in migrations:
        proof = prove(migration)
        if proof.failures:
            raise proof.failures[0].to_error(len(proof.failures) - 1)
        proofs.append(proof)
    return proofs


def converted_tables(migration: Migration) -> list[int]:
    """The tables whose records a migration converts, by number."""
    found = []
    for table in (*migration.before, *(a.table for a in migration.before.archived)):
        after = migration.after.table_kept(table.number)
        if after is None or after == table:
            continue
        up, down = migration.route_up(table.number), migration.route_down(table.number)
        is_same = Layout.of(table) == Layout.of(after)
        if not (is_same and up.is_identity and down.is_identity and _recasts_nothing(up, down)):
            found.append(table.number)
    return found


def _recasts_nothing(*routes: Route) -> bool:
    """Whether values stay what they are, not their bytes alone: a renamed member is another."""
    return all(isinstance(d, Input) for route in routes for d in route.derivations.values())


def _try_example(
    migration: Migration, example: RecordExample, trials: dict[int, Trial]
) -> Iterator[ProofFinding]:
    """Run one example both ways."""
    tables = find_tables(example, migration.before, migration.after)
    assert tables is not None, "the examples were validated"
    before, after = tables
    trial = trials.get(before.number)
    if trial is None:
        trial = trials[before.number] = Trial(migration, before.number, ZONES)
    given = {
        f.name: read_value(f, example.before[f.name])  # type: ignore[index]  # a name of the document
        if f.name in example.before
        else neutral(f)
        for f in before.fields
    }
    encoded = trial.encode("up", given)
    if encoded is None:
        return
    journey = trial.travel(*encoded, NO_ARCHIVE, ("up", "down"))
    if journey.error is not None:
        known = len(trial.failures)
        trial.note_stop(journey, ("up", "down"))
        yield from list(trial.failures.values())[known:]
        return
    made = trial.decode("down", journey.key, journey.values[1])
    for name, plain in example.after.items():
        f = _field(after, name)
        wanted, found = read_value(f, plain), getattr(made, name)
        if not is_same_value(f, wanted, found):
            otherwise = Otherwise("after", name, found, wanted)
            yield _example_finding(trial, example, journey, otherwise)
    back = trial.decode("up", journey.key, journey.values[2])
    for name in example.before:
        f = _field(before, name)
        found = getattr(back, name)
        if f.number not in trial.claims.lost and not is_same_value(f, given[name], found):
            otherwise = Otherwise("before", name, found, given[name])
            yield _example_finding(trial, example, journey, otherwise)


def _field(table: Table, name: str) -> Field:
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
    trial: Trial, example: RecordExample, journey: Journey, otherwise: Otherwise
) -> ProofFinding:
    name = otherwise.name
    message, hint = SAID[otherwise.side]
    found, wanted = map(format_proof_value, (otherwise.found, otherwise.wanted))
    record = trial.decode("up", journey.key, journey.values[0])
    return ProofFinding(
        "example",
        trial.migration.label,
        trial.name,
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
