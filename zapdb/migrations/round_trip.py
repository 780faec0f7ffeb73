"""Trying one table of one migration: its programs compiled both ways, and what records showed.

Blobs lie in memory. What going up leaves in the archive is given to going down, as the database
does it. Records may be made up, or read from a database: those are named by their keys, and their
contents are not shown.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, Literal

from zapdb.errors import (
    BlobMissing,
    InvalidValue,
    Location,
    UnknownZone,
    describe_value,
)
from zapdb.migrations.boundary_values import generate_archives, generate_records
from zapdb.migrations.document_structure import ABSENT
from zapdb.migrations.migration import Migration, Step, conversion_of
from zapdb.migrations.operations import Operation
from zapdb.migrations.proof_findings import (
    FindingKind,
    LossyField,
    MemoryBlobs,
    ProofFinding,
    RecordTrace,
    TableProof,
    format_proof_value,
    shorten,
)
from zapdb.migrations.tried_fields import TriedTable
from zapdb.records import (
    Attachments,
    Codec,
    Conversion,
    ConversionPlan,
    Layout,
    Record,
    SourceField,
    codec_for,
    compile_conversion,
    copied_from,
    encode_prefix,
)
from zapdb.records.derivation import inputs_of
from zapdb.schema import Field, TableSchema
from zapdb.values import Zones

RECORDS_MAX: Final = 1_400
"""Records before a migration made up for one table."""
BACK_RECORDS_MAX: Final = 600
"""Records after it."""
RECORD_PREFIX: Final = encode_prefix(1)
NO_ARCHIVE: Final[Mapping[int, bytes]] = {}

Direction = Literal["up", "down"]


class RoundTrip:
    """One table of one migration, compiled both ways, and what trying it showed so far."""

    def __init__(
        self,
        migration: Migration,
        number: int,
        zones: Zones,
        memory: MemoryBlobs | None = None,
        *,
        is_private: bool = False,
        is_made_up: bool = False,
    ) -> None:
        """`memory` is where the records' blobs are; contents that are private are not shown.
        Records that are made up have the fields of `tried_fields`; stored ones have all."""
        before, after = (
            migration.before.table_active_or_archived(number),
            migration.after.table_active_or_archived(number),
        )
        assert before is not None
        assert after is not None
        self.migration, self.number = migration, number
        self.zones, self.is_private = zones, is_private
        up, down = migration.conversion_up(number), migration.conversion_down(number)
        self.claims = RollbackClaims(before, migration.steps_up())
        self.claims_down = RollbackClaims(after, migration.steps_down())
        if is_made_up:
            claimed = {*self.claims.touched, *self.claims.lost, *self.claims_down.touched}
            tried = TriedTable(before, after, up, down).narrow(claimed, migration.examples)
            before, after, up, down = tried.before, tried.after, tried.up, tried.down
        self.tables = {"up": before, "down": after}
        self.up, self.down = up, down
        layouts = Layout.of(before, zones), Layout.of(after, zones)
        self.programs: dict[Direction, Conversion] = {
            "up": _compile(layouts[0], layouts[1], self.up, zones),
            "down": _compile(layouts[1], layouts[0], self.down, zones),
        }
        self.codecs: dict[Direction, Codec] = {
            "up": codec_for(before, zones),
            "down": codec_for(after, zones),
        }
        sides: tuple[tuple[Direction, TableSchema, ConversionPlan], ...] = (
            ("up", before, self.down),
            ("down", after, self.up),
        )
        self._computed: dict[Direction, list[Field]] = {
            side: [f for f in table.value_fields if copied_from(plan.derivations[f.number]) is None]
            for side, table, plan in sides
        }
        self._stored = before.value_fields
        self.failures: dict[tuple[FindingKind, str], ProofFinding] = {}
        """The first of each kind for each field."""
        self.remarks: list[ProofFinding] = []
        self.tried = 0
        self._memory = memory or MemoryBlobs()
        self._returned = dict.fromkeys(self.claims.lost, 0)
        self._differed: dict[int, ProofFinding] = {}
        self._came_back: dict[int, set[str]] = {number: set() for number in self.claims.lost}

    @property
    def name(self) -> str:
        return self.tables["up"].name

    # Trying records

    def run(self) -> TableProof:
        """Try records made up for the table, both ways."""
        before, after = self.tables["up"], self.tables["down"]
        records = generate_records(before, self.up, self.down, RECORDS_MAX)
        ordinary = next(records)
        for values in itertools.chain([ordinary], records):
            self.try_values(values, NO_ARCHIVE)
        for archive in generate_archives(self.up, self.zones):
            self.try_values(ordinary, archive)
        for values in generate_records(after, self.down, self.up, BACK_RECORDS_MAX):
            self._try_back(values)
        return self.report()

    def report(self) -> TableProof:
        before = self.tables["up"]
        changed = [f for f in before.fields if f.number in self.claims.touched]
        failed = {name for kind, name in self.failures if kind == "rollback"}
        return TableProof(
            self.name,
            self.tried,
            tuple(
                f.name for f in changed if f.number not in self.claims.lost and f.name not in failed
            ),
            tuple(
                self._loss(f, self.claims.lost[f.number])
                for f in before.fields
                if f.number in self.claims.lost
            ),
        )

    def _loss(self, lost: Field, operation: Operation) -> LossyField:
        because = getattr(operation, "because", ABSENT)
        return LossyField(
            lost.name,
            operation.keyword,
            operation.place,
            "" if because is ABSENT else str(because),
            self.tried,
            self._returned[lost.number],
            len(self._came_back[lost.number]) < 2 < self.tried,
            self._differed.get(lost.number),
        )

    def try_values(self, values: Mapping[str, Any], archive: Mapping[int, bytes]) -> None:
        """Send a record before the migration up and down."""
        encoded = self.encode("up", values)
        if encoded is not None:
            self.try_record(*encoded, archive)

    def try_record(self, key: bytes, value: bytes, archive: Mapping[int, bytes]) -> RecordTrace:
        """Send the bytes of a record before the migration, behind `RECORD_PREFIX`, up and down."""
        self.tried += 1
        trace = self.travel(key, value, archive, ("up", "down"))
        if trace.error is not None:
            self.note_stop(trace, ("up", "down"))
        else:
            self._note_values(trace)
            if trace.values[2] == value:
                trace.came_back = True
                for number in self._returned:
                    self._returned[number] += 1
            else:
                trace.came_back = self._compare(trace)
        return trace

    def _note_values(self, trace: RecordTrace) -> None:
        """Remember what came back in lost fields, until it was not always the same."""
        wanted = [number for number, seen in self._came_back.items() if len(seen) < 2]
        if wanted:
            back, table = self.decode("up", trace.key, trace.values[2]), self.tables["up"]
            for number in wanted:
                name = table.field_numbered(number).name
                self._came_back[number].add(repr(getattr(back, name)))

    def _try_back(self, values: Mapping[str, Any]) -> None:
        """Send a record after the migration down and up again."""
        encoded = self.encode("down", values)
        if encoded is None:
            return
        trace = self.travel(*encoded, NO_ARCHIVE, ("down", "up"))
        if trace.error is not None:
            self.note_stop(trace, ("down", "up"))
        elif not (
            trace.values[2] == trace.values[0]
            or self.remarks
            or self.failures
            or self.claims.loses_anything
            or self.claims_down.loses_anything
        ):
            self._remark(trace)

    def encode(self, way: Direction, values: Mapping[str, Any]) -> tuple[bytes, bytes] | None:
        """Key and record, or None where the key would be too long."""
        codec, attachments = self.codecs[way], self._attachments(NO_ARCHIVE)
        try:
            key = codec.encode_key(values)
        except InvalidValue:
            return None
        value = codec.encode(RECORD_PREFIX, values, attachments)
        self._memory.blobs |= attachments.take_blobs()
        return key, value

    def travel(
        self, key: bytes, value: bytes, archive: Mapping[int, bytes], ways: tuple[Direction, ...]
    ) -> RecordTrace:
        trace = RecordTrace(key, [value], [archive])
        for way in ways:
            given = trace.archives[-1]
            attachments = self._attachments(given)
            try:
                program = self.programs[way].convert
                made = program(
                    key, trace.values[-1], len(RECORD_PREFIX), RECORD_PREFIX, attachments
                )
                self._memory.blobs |= attachments.take_blobs()
                self._check(_other(way), key, made)
            except (BlobMissing, UnknownZone):
                raise  # of a stored record: no fault of the conversion
            except Exception as error:
                trace.error = error
                return trace
            kept = {n: v for n, v in given.items() if n not in attachments.restored}
            trace.values.append(made)
            trace.archives.append(kept | attachments.archived)
            trace.failed_at += 1
        return trace

    def _check(self, side: Direction, key: bytes, value: bytes) -> None:
        """What was made decodes, and the fields that were computed are of their types."""
        record = self.decode(side, key, value)
        for f in self._computed[side]:
            held = getattr(record, f.name)
            if held is not None or not f.optional:
                f.type.check(held, f.name)

    def decode(self, side: Direction, key: bytes, value: bytes) -> Record:
        return self.codecs[side].decode(
            key, value, len(RECORD_PREFIX), self._attachments(NO_ARCHIVE)
        )

    def _attachments(self, archive: Mapping[int, bytes]) -> Attachments:
        return Attachments(self._memory.load, self._memory.make_id, archive)

    # What is wrong

    def _compare(self, trace: RecordTrace) -> bool:
        """Whether all values are the same, though the bytes are not; notes which are not."""
        first = self.decode("up", trace.key, trace.values[0])
        last = self.decode("up", trace.key, trace.values[2])
        came_back = True
        for f in self._stored:
            is_same = is_same_value(f, getattr(first, f.name), getattr(last, f.name))
            if is_same:
                if f.number in self._returned:
                    self._returned[f.number] += 1
                continue
            came_back = False
            if f.number not in self.claims.lost:
                self._note_rollback(f, trace)
            elif f.number not in self._differed:
                operation = self.claims.lost[f.number]
                self._differed[f.number] = self._loss_example(f, operation, trace)
        return came_back

    def _loss_example(self, f: Field, operation: Operation, trace: RecordTrace) -> ProofFinding:
        """A record that comes back otherwise, as declared.

        Of one that is private no more is shown than the field that is lost, and its key.
        """
        found = self._finding("remark", f, operation, trace, "", "")
        if not self.is_private:
            return found
        values = (self.decode("up", trace.key, trace.values[step]) for step in (0, 2))
        was, back = ({f.name: format_proof_value(getattr(record, f.name))} for record in values)
        return replace(found, record=_name_record(trace) | was, back=back, key=trace.key)

    def _note_rollback(self, f: Field, trace: RecordTrace) -> None:
        if ("rollback", f.name) in self.failures:
            return
        operation = self.claims.culprit(f.number)
        hint = "write a rollback that brings it back, or archive what is dropped"
        if hasattr(operation, "reversibility"):
            hint = (
                "correct down (and up), or, if the loss is meant, say reversibility: lossy and "
                "because: why"
            )
        message = "the rollback does not bring back what is claimed to be exact"
        self.failures["rollback", f.name] = self._finding(
            "rollback", f, operation, trace, message, hint
        )

    def note_stop(self, trace: RecordTrace, ways: tuple[Direction, ...]) -> None:
        way = ways[trace.failed_at]
        if ("conversion", way) in self.failures:
            return
        claims = self.claims if ways[0] == "up" else self.claims_down
        operation = claims.culprit(None) or self.claims.culprit(None)
        error = trace.error
        cause = type(error).__name__
        if str(error) and not self.is_private:
            cause += f": {shorten(str(error).splitlines()[0])}"
        self.failures["conversion", way] = ProofFinding(
            "conversion",
            self.migration.label,
            self.name,
            "",
            _place_of(operation),
            f"a record can't be converted {way}",
            "a conversion must work for every record: add an else=, or a condition",
            self._show_record(ways[0], trace, 0, None),
            cause=cause,
        )

    def _remark(self, trace: RecordTrace) -> None:
        first = self.decode("down", trace.key, trace.values[0])
        last = self.decode("down", trace.key, trace.values[2])
        for f in self.tables["down"].value_fields:
            if not is_same_value(f, getattr(first, f.name), getattr(last, f.name)):
                operation = self.claims_down.culprit(f.number)
                self.remarks.append(
                    ProofFinding(
                        "remark",
                        self.migration.label,
                        self.name,
                        f.name,
                        _place_of(self.claims.culprit(None) or operation),
                        "a record written after the migration is another one after it was taken "
                        "back and applied again",
                        "",
                        self._show_record("down", trace, 0, None),
                        self._show_record("up", trace, 1, None),
                        self._show_record("down", trace, 2, {f.number}),
                    )
                )
                return

    def _finding(
        self,
        kind: FindingKind,
        f: Field,
        operation: Operation | None,
        trace: RecordTrace,
        message: str,
        hint: str,
    ) -> ProofFinding:
        """Return a finding about the value that a field had after the round trip, with the fields
        that it is made of."""
        read = inputs_of(self.down.derivations[f.number])
        made = [self.up.derivations[n] for n in read if n in self.up.derivations]
        origins = frozenset({f.number}).union(*(inputs_of(derivation) for derivation in made))
        return ProofFinding(
            kind,
            self.migration.label,
            self.name,
            f.name,
            _place_of(operation),
            message,
            hint,
            self._show_record("up", trace, 0, origins),
            self._show_record("down", trace, 1, read),
            self._show_record("up", trace, 2, {f.number}),
        )

    def _show_record(
        self, side: Direction, trace: RecordTrace, step: int, numbers: Iterable[int] | None
    ) -> dict[str, str]:
        """Return the fields with these numbers, or else the fields that the migration changes."""
        table = self.tables[side]
        record = self.decode(side, trace.key, trace.values[step])
        if numbers is None:
            plan = self.down if side == "down" else self.up
            other = self.up if side == "down" else self.down
            numbers = {
                f.number
                for f in table.fields
                if not isinstance(other.derivations.get(f.number), SourceField)
            }.union(
                *(inputs_of(d) for d in plan.derivations.values() if not isinstance(d, SourceField))
            )
        wanted = set(numbers)
        shown = {
            f.name: self._show(getattr(record, f.name)) for f in table.fields if f.number in wanted
        }
        if self.is_private:
            return _name_record(trace) | shown
        return shown

    def _show(self, value: Any) -> str:
        return describe_value(value) if self.is_private else format_proof_value(value)


def _name_record(trace: RecordTrace) -> dict[str, str]:
    return {"(key)": shorten(trace.key.hex())}


def _compile(source: Layout, target: Layout, plan: ConversionPlan, zones: Zones) -> Conversion:
    return compile_conversion(source, target, plan, zones=zones)


def _other(way: Direction) -> Direction:
    return "down" if way == "up" else "up"


def is_same_value(f: Field, left: Any, right: Any) -> bool:
    if left is None or right is None:
        return left is right
    return f.type.is_same(left, right)


def _place_of(operation: Operation | None) -> Location:
    return Location("<migration>") if operation is None else operation.place


# The fields that a list of operations claims to restore, and the fields that it declares as lost.


class RollbackClaims:
    """The fields at the start of some steps that the rollback loses, and the operations that change
    them."""

    def __init__(self, table: TableSchema, steps: list[Step]) -> None:
        plan = ConversionPlan({f.number: SourceField(f.number) for f in table.fields})
        self.lost: dict[int, Operation] = {}
        self.touched: dict[int, list[Operation]] = {}
        self.operations: list[Operation] = []
        self.loses_anything = False
        for operation, before, after in steps:
            old, new = (
                before.table_active_or_archived(table.number),
                after.table_active_or_archived(table.number),
            )
            if old is None or new is None or old is new:
                continue
            self.operations.append(operation)
            step = conversion_of(operation, old, new)
            lost = operation.lossy_fields(old)
            self.loses_anything |= bool(lost)
            kept = {n for n, d in step.derivations.items() if d == SourceField(n)}
            for number in (f.number for f in old.fields):
                origins = inputs_of(plan.derivations[number])
                if number in lost:
                    self.lost.update({o: operation for o in origins if o not in self.lost})
                if number not in kept:
                    for origin in origins:
                        self.touched.setdefault(origin, []).append(operation)
            plan = plan.then(step)

    def culprit(self, number: int | None) -> Operation | None:
        """The operation that is most likely to blame for a field."""
        candidates = self.touched.get(number, []) if number is not None else []
        candidates = candidates or [
            operation for operations in self.touched.values() for operation in operations
        ]
        telling = [o for o in candidates if hasattr(o, "reversibility")]
        return next(iter(telling or candidates or self.operations), None)
