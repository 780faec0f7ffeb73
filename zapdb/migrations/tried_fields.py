"""The fields of a table that records made up for a proof have.

A program makes each field of what its derivation reads, and of nothing else. A field that it copies
up and down it takes by its type and its presence bit, whatever it is called and whatever is in the
others. So what records of a table with 500 fields show of a migration that changes one of them,
records show that have:

    the key, and each field that is not the same before and after, or is not copied both ways
    whatever these are made of or archived from, and what an example names
    the two fields beside each of these in the layout, whose bytes are copied with others or alone
    one copied field of each type, optional and not: what copying does to it depends on no more

The others are left out of the table on both sides, and of the plans. The records are the same ones
otherwise: as many, with the same values in each field that is left, so a proof finds the same. That
programs of any width copy all of their fields is for tests of the programs, not for proofs.

A table with few copied fields keeps them all. Otherwise the time for one migration would depend on
all that the table has, and that for a chain which widens a table would be quadratic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from zapdb.migrations.record_examples import RecordExample
from zapdb.records import ConversionPlan, SourceField
from zapdb.records.derivation import inputs_of
from zapdb.schema import Field, TableSchema

COPIED_MAX: Final = 16
"""Copied fields of a table that is tried as it is."""


@dataclass(frozen=True, slots=True)
class TriedTable:
    """A table on both sides of a migration, and the plans between them."""

    before: TableSchema
    after: TableSchema
    up: ConversionPlan
    down: ConversionPlan

    def narrow(self, wanted: Iterable[int], examples: Iterable[RecordExample]) -> TriedTable:
        """The table with the fields that are tried; `wanted` are the numbers of some of them."""
        copied = self._list_copied()
        if len(copied) <= COPIED_MAX:
            return self
        tried = {*wanted, *self.before.key, *self.after.key, *self._read()}
        tried |= {f.number for f in self._named(examples)}
        tried |= {f.number for f in self._all_fields() if f.number not in copied}
        tried |= {*self._list_beside(tried)}
        kinds = {(f.type, f.optional) for n, f in copied.items() if n in tried}
        for number, f in copied.items():
            if (f.type, f.optional) not in kinds:
                kinds.add((f.type, f.optional))
                tried.add(number)
        return TriedTable(
            _keep(self.before, tried),
            _keep(self.after, tried),
            _keep_derivations(self.up, tried),
            _keep_derivations(self.down, tried),
        )

    def _list_copied(self) -> Mapping[int, Field]:
        """The fields that are the same before and after, and copied both ways, by number."""
        before = {f.number: f for f in self.before.fields}
        return {
            f.number: f
            for f in self.after.fields
            if (f is before.get(f.number) or f == before.get(f.number))
            and all(_is_copied(f.number, plan) for plan in (self.up, self.down))
        }

    def _all_fields(self) -> Iterator[Field]:
        yield from self.before.fields
        yield from self.after.fields

    def _read(self) -> Iterator[int]:
        """What derivations of fields that are not copied read, and those of archived values."""
        for plan in (self.up, self.down):
            for number, derivation in plan.derivations.items():
                if not _is_copied(number, plan):
                    yield from inputs_of(derivation)
            for derivation in plan.archives.values():
                yield from inputs_of(derivation)

    def _named(self, examples: Iterable[RecordExample]) -> Iterator[Field]:
        names = {name for example in examples for name in (*example.before, *example.after)}
        return (f for f in self._all_fields() if f.name in names)

    def _list_beside(self, tried: set[int]) -> Iterator[int]:
        """The fields on either side of these, in the order of the layout."""
        numbers = sorted({f.number for f in self._all_fields()})
        for at, number in enumerate(numbers):
            if number in tried:
                yield from numbers[max(at - 1, 0) : at + 2]


def _is_copied(number: int, plan: ConversionPlan) -> bool:
    derivation = plan.derivations.get(number)
    return isinstance(derivation, SourceField) and derivation.number == number


def _keep(table: TableSchema, numbers: set[int]) -> TableSchema:
    """The table with these fields; indexes and what else is not of records is left out."""
    fields = tuple(f for f in table.fields if f.number in numbers)
    return TableSchema(table.number, table.name, table.key, fields, archived=table.archived)


def _keep_derivations(plan: ConversionPlan, numbers: set[int]) -> ConversionPlan:
    kept = {n: d for n, d in plan.derivations.items() if n in numbers}
    return ConversionPlan(kept, plan.archives)
