"""Conversion programs: from the bytes of a record under one layout to its bytes under another.

A program copies runs of untouched fields as slices and decodes only what its expressions read.
Since fields are stored by number, most changes leave long runs. It is total: it raises only
`CorruptRecord`, on bytes that no encoder wrote, and the errors of loading a blob. Of the bytes that
it copies it checks only where fields end, so that a record that was cut is never taken for a whole
one; decoding the result checks the rest. Copied blobs stay unchanged. New blobs and
archived values are added to the record's `Attachments` (rule 19).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Final, cast

from zapdb.errors import CorruptRecord
from zapdb.expressions import Emitter
from zapdb.limits import INLINE_SIZE_BYTES_MAX
from zapdb.records.attachments import Attachments
from zapdb.records.codec import presence_source
from zapdb.records.derivation import (
    Computed,
    Constant,
    ConversionPlan,
    Derivation,
    Recast,
    Restored,
    SourceField,
    copied_from,
    inputs_of,
    read_by_expressions,
    subderivations,
)
from zapdb.records.layout import Layout, Slot
from zapdb.values import ValueType, Zones
from zapdb.values.blob import Blob, LargeValueType, decode_inline_or_blob
from zapdb.values.generated_source import Namespace, compile_function, indent

INLINE_CHARS_MAX: Final = INLINE_SIZE_BYTES_MAX // 4
"""So few characters are never more bytes than a record holds itself."""
NO_ARCHIVED_VALUE: Final = object()
"""Stands for no archived value, since None may be an archived value."""


ConvertRows = Callable[[Iterable[tuple[bytes, bytes]], int, bytes], list[bytes]]
"""((key, record) rows of one revision, position after their prefix, new prefix) → new records."""


@dataclass(frozen=True)
class Conversion:
    """A compiled program, with its source."""

    convert: Callable[[bytes, bytes, int, bytes, Attachments], bytes]
    """(key, record, position after its prefix, new prefix, its attachments) → the new record; new
    blobs and archived values are added to its attachments."""
    is_self_contained: bool
    """Whether it neither uses nor adds attachments."""
    source: str
    _compile_rows: Callable[[], ConvertRows] | None = field(default=None, repr=False)

    @cached_property
    def convert_rows(self) -> ConvertRows:
        """The same program in a loop, if it is self-contained; it is compiled at its first use."""
        assert self._compile_rows is not None
        return self._compile_rows()


def compile_conversion(
    source: Layout,
    target: Layout,
    plan: ConversionPlan,
    *,
    zones: Zones | None = None,
    splice: bool = True,
) -> Conversion:
    """Compile the program that makes `target` records of `source` records.

    `zones` are the database's, to which both layouts are bound: archived values are, too.
    With `splice=False` every field is decoded and encoded: the same result by the long way, for
    tests and benchmarks to compare with.
    """
    return _Program(source, target, plan, zones, splice).compile()


class _Program:
    """Writes one program. `s<i>` is the position of source slot i, `f<number>` a decoded field."""

    def __init__(
        self,
        source: Layout,
        target: Layout,
        plan: ConversionPlan,
        zones: Zones | None,
        splice: bool,
    ) -> None:
        self.source = source
        self.target = target
        self.derivations = plan.derivations
        self.archives = plan.archives
        self.otherwise = plan.otherwise
        self.zones = zones
        # Where an expression reads them, blobs are loaded; everywhere else they are passed on.
        self.read_by_expressions: set[int] = set()
        self.restored_for_expressions: set[int] = set()
        self.names = Namespace()
        self.places = {slot.number: at for at, slot in enumerate(source.slots)}
        self.variables: dict[int, str] = {}
        self.copies = {
            slot.number: self.places[number]
            for slot in target.slots
            if splice and (number := copied_from(plan.derivations[slot.number])) is not None
            if self._is_copy(slot, number)
        }

    def _is_copy(self, slot: Slot, number: int) -> bool:
        if number not in self.places:
            return False  # a field of the key: encoded differently
        held = self.source.slots[self.places[number]]
        if held.encoding_id != slot.encoding_id or (held.optional and not slot.optional):
            return False
        # The null that a required field may hold is no value of an optional one: it is absent.
        return held.optional or not (slot.optional and slot.type.holds_null)

    @property
    def made(self) -> list[Derivation]:
        """The derivations whose values are computed: all but the copied ones."""
        made = [
            self.derivations[slot.number]
            for slot in self.target.slots
            if slot.number not in self.copies
        ]
        return [*made, *self.archives.values(), *self.otherwise.values()]

    @property
    def is_self_contained(self) -> bool:
        parts = [part for derivation in self.made for part in subderivations(derivation)]
        read = {part.number for part in parts if isinstance(part, SourceField)}
        touched = [slot for slot in self.source.slots if slot.number in read]
        touched += (slot for slot in self.target.slots if slot.number not in self.copies)
        is_restoring = any(isinstance(part, Restored) for part in parts)
        return not (self.archives or is_restoring or any(s.type.may_be_blob for s in touched))

    def compile(self) -> Conversion:
        steps, result = self._record_source()
        body = ["b = key", "p = 0", *self._guard([*steps, f"return {result}"])]
        head = "def convert(key, value, start, prefix, attachments):"
        convert, text = compile_function("convert", [head, *indent(body)], self.names, "conversion")
        if not self.is_self_contained:
            return Conversion(convert, False, text)
        return Conversion(convert, True, text, partial(self._compile_rows, steps, result))

    def _compile_rows(self, steps: list[str], result: str) -> ConvertRows:
        loop = ["for key, value in rows:", *indent(["b = key", "p = 0", *steps, f"add({result})"])]
        body = ["made = []", "add = made.append", "b = b''", "p = 0", *self._guard(loop)]
        lines = ["def convert_rows(rows, start, prefix):", *indent([*body, "return made"])]
        return compile_function("convert_rows", lines, self.names, "conversion of rows")[0]

    def _guard(self, steps: list[str]) -> list[str]:
        corrupt = self.names.bind(CorruptRecord.at, "corrupt")
        return [
            "try:",
            *indent(steps),
            "except (IndexError, UnicodeDecodeError):",
            f"    raise {corrupt}('record', b, p) from None",
        ]

    def _record_source(self) -> tuple[list[str], str]:
        """Return the statements that convert one record, and the expression for its new bytes."""
        read = frozenset[int]().union(*map(inputs_of, self.made))
        for derivation in self.made:
            for part in read_by_expressions(derivation):
                if isinstance(part, SourceField):
                    self.read_by_expressions.add(part.number)
                elif isinstance(part, Restored):
                    self.restored_for_expressions.add(part.slot.number)
        runs = self._runs()
        marks = {at for run in runs if isinstance(run, range) for at in (run.start, run.stop)}
        lines = [*self._key_source(read)]
        lines += ["b = value", "p = start", "n = len(b)"]
        if self.source.presence_size_bytes:
            lines += presence_source(self.source, self.names)
        lines += self._walk_source(read, marks)
        parts = ["prefix", *self._presence_parts()]
        for run in runs:
            if isinstance(run, range):
                end = "" if run.stop == len(self.source.slots) else f"s{run.stop}"
                parts.append(f"b[s{run.start}:{end}]")
            else:
                statements, encoded = self._encode_source(run)
                lines += statements
                parts.append(encoded)
        lines += self._archive_source()
        lines += self._presence_statements()
        return lines, f"b''.join(({', '.join(parts)},))"

    def _runs(self) -> list[range | Slot]:
        """The target as runs of copied source slots, and single slots that are computed."""
        runs: list[range | Slot] = []
        for slot in self.target.slots:
            at = self.copies.get(slot.number)
            if at is None:
                runs.append(slot)
            elif runs and isinstance(runs[-1], range) and runs[-1].stop == at:
                runs[-1] = range(runs[-1].start, at + 1)
            else:
                runs.append(range(at, at + 1))
        return runs

    def _key_source(self, read: frozenset[int]) -> list[str]:
        if not any(slot.number in read for slot in self.source.key):
            return []
        lines = ["n = len(b)"]
        for slot in self.source.key:
            lines += slot.type.decode_key_source(f"f{slot.number}", self.names)
        return lines

    def _walk_source(self, read: frozenset[int], marks: set[int]) -> list[str]:
        """Step through the source, marking positions on the way.

        To its end, whatever is needed of it: a record that was cut short must not be taken for a
        whole one, and only its last field tells (80 ns for a record of 9 fields).
        """
        lines: list[str] = []
        if 0 in marks:
            lines.append("s0 = p")
        for at, slot in enumerate(self.source.slots):
            lines += self._step_over(slot, is_read=slot.number in read)
            if at + 1 in marks and at + 1 < len(self.source.slots):
                lines.append(f"s{at + 1} = p")
        corrupt = self.names.bind(CorruptRecord.at, "corrupt")
        return [*lines, f"if p != n: raise {corrupt}('record', b, p)"]

    def _step_over(self, slot: Slot, *, is_read: bool) -> list[str]:
        """Step over one field of the source, which is decoded on the way if it is read."""
        if is_read:
            step = self._decode_source(slot)
            absent = [f"{held} = None" for held in self._variables_of(slot)]
        else:
            step, absent = slot.type.skip_field_source(self.names), []
        if not slot.optional:
            return step
        lines = [f"if m & {1 << self.source.bit(slot.number)}:", *indent(step)]
        return [*lines, "else:", *indent(absent)] if absent else lines

    def _decode_source(self, slot: Slot) -> list[str]:
        """Statements that decode a source slot.

        A blob is loaded into a variable of its own if an expression reads it: if the field is also
        copied, the blob stays unchanged.
        """
        held, *loaded = self._variables_of(slot)
        step = slot.type.decode_field_source(held, self.names)
        for read in loaded:
            is_blob = f"type({held}) is {self.names.bind(Blob, 'Blob')}"
            step = [*step, f"{read} = attachments.load_value({held}) if {is_blob} else {held}"]
        return step

    def _variables_of(self, slot: Slot) -> list[str]:
        """What holds a source field: as it is, and loaded, if an expression reads what may be a
        blob."""
        held = [f"f{slot.number}"]
        if slot.type.may_be_blob and slot.number in self.read_by_expressions:
            held.append(f"l{slot.number}")
        return held

    def _archive_source(self) -> list[str]:
        """Return statements that add the archived values to the record's attachments."""
        lines: list[str] = []
        for slot, derivation in self.archives.items():
            held = self._variable(derivation, lines)
            value, kept = f"a{slot.number}", f"attachments.archived[{slot.number}]"
            kind = self._bind(slot.type)
            statements, expression = kind.encode_field_source(value, "archived", self.names)
            lines.append(f"{value} = {held}")
            begin = "if"
            if slot in self.otherwise:
                other = self._variable(self.otherwise[slot], lines)
                is_same = self.names.bind(partial(_is_same_value, kind), "is_same")
                lines.append(f"if {is_same}({value}, {other}, attachments):")
                lines += indent([f"attachments.unneeded.add({slot.number})"])
                begin = "elif"
            lines += [f"{begin} {value} is None: {kept} = b''", "else:"]
            lines += indent([*statements, f"{kept} = {expression}"])
        return lines

    def _presence_parts(self) -> list[str]:
        size = self.target.presence_size_bytes
        if not size:
            return []
        return [f"present.to_bytes({size}, 'little')"]

    def _presence_statements(self) -> list[str]:
        """Set `present`: source bits moved in runs, and one bit for each computed slot."""
        if not self.target.presence_size_bytes:
            return []
        terms: list[str] = []
        moves: list[tuple[int, int, int]] = []  # source bit, target bit, how many
        ones = 0
        for bit, slot in enumerate(self.target.optional):
            at = self.copies.get(slot.number)
            if at is None:
                terms.append(f"(e{slot.number} is not None) << {bit}")
                continue
            held = self.source.slots[at]
            if not held.optional:
                ones |= 1 << bit
                continue
            origin = self.source.bit(held.number)
            if (
                moves
                and moves[-1][0] + moves[-1][2] == origin
                and moves[-1][1] + moves[-1][2] == bit
            ):
                moves[-1] = (moves[-1][0], moves[-1][1], moves[-1][2] + 1)
            else:
                moves.append((origin, bit, 1))
        for origin, bit, count in moves:
            terms.append(f"(m >> {origin} & {(1 << count) - 1}) << {bit}")
        if ones:
            terms.append(str(ones))
        # `e<number>` is None for an absent field until here, and no bytes from here on.
        absent = [
            f"if e{slot.number} is None: e{slot.number} = b''"
            for slot in self.target.optional
            if slot.number not in self.copies
        ]
        return [f"present = {' | '.join(terms) or '0'}", *absent]

    def _encode_source(self, slot: Slot) -> tuple[list[str], str]:
        """Statements that compute and encode a target slot, and the expression for its bytes."""
        derivation = self.derivations[slot.number]
        encoded = f"e{slot.number}"
        if isinstance(derivation, Constant):
            value = derivation.value
            if value is not None and slot.type.may_be_blob and len(value) > INLINE_CHARS_MAX:
                return self._encode_large_source(slot, value)
            # Without a value, an optional field is absent; null is a value of a required one.
            is_absent = value is None and slot.optional
            constant = None if is_absent else slot.type.encode(value)
            name = self.names.bind(constant, "constant")
            return ([f"{encoded} = {name}"], encoded) if slot.optional else ([], name)
        lines: list[str] = []
        held = self._variable(derivation, lines)
        value = f"v{slot.number}"
        statements, expression = slot.type.encode_field_source(value, "converted", self.names)
        if not slot.optional:
            return [*lines, f"{value} = {held}", *statements], expression
        lines += [f"{value} = {held}", f"if {value} is None: {encoded} = None", "else:"]
        return [*lines, *indent([*statements, f"{encoded} = {expression}"])], encoded

    def _encode_large_source(self, slot: Slot, constant: Any) -> tuple[list[str], str]:
        """As `_encode_source`, for a constant that may be a blob: a new one for each record."""
        value, encoded = f"v{slot.number}", f"e{slot.number}"
        statements, expression = slot.type.encode_field_source(value, "constant", self.names)
        set_value = f"{value} = {self.names.bind(constant, 'constant')}"
        return [set_value, *statements, f"{encoded} = {expression}"], encoded

    def _variable(self, derivation: Derivation, lines: list[str]) -> str:
        """The variable that holds the derivation's value; adds what computes it, once."""
        for part in subderivations(derivation):
            if id(part) in self.variables:
                continue
            variable = f"x{len(self.variables)}"
            if isinstance(part, Computed):
                held = {name: self._read(inner) for name, inner in part.inputs.items()}
                emitter = Emitter(part.types, held, self.names, variable)
                lines.append(f"{variable} = {emitter.emit(part.expression, part.type)}")
            elif isinstance(part, Restored):
                is_read = part.slot.number in self.restored_for_expressions
                take = partial(_restore, part.slot.number, self._bind(part.slot.type), is_read)
                restore = self.names.bind(take, "restore")
                lines.append(f"{variable} = {restore}(attachments)")
                missing = self.names.bind(NO_ARCHIVED_VALUE, "MISSING")
                otherwise = self._held(part.otherwise)
                lines.append(f"if {variable} is {missing}: {variable} = {otherwise}")
            elif isinstance(part, Recast):
                recast, held_value = self.names.bind(part.recast, "recast"), self._held(part.value)
                lines.append(
                    f"{variable} = None if {held_value} is None else {recast}({held_value})"
                )
            else:
                continue
            self.variables[id(part)] = variable
        return self._held(derivation)

    def _read(self, derivation: Derivation) -> str:
        """The variable that an expression reads a derivation from."""
        if isinstance(derivation, SourceField) and derivation.number in self.places:
            return self._variables_of(self.source.slots[self.places[derivation.number]])[-1]
        return self._held(derivation)

    def _held(self, derivation: Derivation) -> str:
        match derivation:
            case SourceField(number):
                return f"f{number}"
            case Constant(value):
                return self.names.bind(value, "constant")
            case Computed() | Restored() | Recast():
                return self.variables[id(derivation)]

    def _bind(self, kind: ValueType) -> ValueType:
        return kind if self.zones is None else kind.bind(self.zones)


def _is_same_value(kind: ValueType, value: Any, other: Any, attachments: Attachments) -> bool:
    """Whether two values have the same encoding; of blobs, the same content."""
    if value is None or other is None:
        return value is other
    if not kind.may_be_blob:
        return kind.encode(value) == kind.encode(other)
    loaded = (attachments.load_value(v) if isinstance(v, Blob) else v for v in (value, other))
    return next(loaded) == next(loaded)


def _restore(number: int, kind: ValueType, is_read: bool, attachments: Attachments) -> Any:
    """The archived value of a dropped field, or `NO_ARCHIVED_VALUE`; loads a blob that is read."""
    encoded = attachments.archive.get(number)
    if encoded is None:
        return NO_ARCHIVED_VALUE
    attachments.restored.add(number)
    if not encoded:
        return None
    if not kind.may_be_blob:
        return kind.decode(encoded, 0)[0]
    value, _ = decode_inline_or_blob(cast("LargeValueType", kind), encoded, 0)
    return attachments.load_value(value) if is_read and isinstance(value, Blob) else value
