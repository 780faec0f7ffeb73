"""The state of one index or one constraint of a tenant, as its catalog row has it.

An index is *building* until a job has filled it, then *readable*. When its collation or time zone
data change, it is built again, or it is *rewriting*: its entries are replaced in place, one by one.
Or it is *disabled*: it has no entries, and no process makes any, until an operator rebuilds it
(rules 23, 26).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from zapdb import release
from zapdb.catalog.row_kinds import (
    ConstraintKind,
    ConstraintState,
    DatasetVersion,
    IndexRow,
    IndexState,
)
from zapdb.datasets import Dataset, Dependency, dataset_of
from zapdb.formats import newest
from zapdb.limits import FORMER_DATASETS_MAX
from zapdb.printing import one_line
from zapdb.schema import Index, TableSchema


@dataclass(frozen=True, slots=True)
class IndexDescriptor:
    """An index of a tenant: its state, the table of its entries, and the datasets of their keys.

    `entry_table` is the number of the table that holds the entries, `build` the number of this
    build of the index, which is never reused. `built_with` has, by name, the datasets that its keys
    are made with: all entries have them, or will have them. `rewritten_from` has the earlier
    datasets that some keys may still be made with while the index is rewriting. A disabled index
    keeps its datasets.

    `former` has the fingerprints of the datasets that it was built with before, oldest first.
    Versions are unreliable, so which of two datasets is newer is unknown. But a process with a
    former dataset must not replace a later one.
    """

    index: Index
    dependencies: tuple[Dependency, ...]
    state: IndexState
    entry_table: int
    build: int
    key_format: int
    built_with: dict[str, Dataset] = field(hash=False)
    rewritten_from: dict[str, Dataset] = field(hash=False, default_factory=dict)
    former: dict[str, tuple[str, ...]] = field(hash=False, default_factory=dict)

    @classmethod
    def planned(cls, table: TableSchema, index: Index) -> IndexDescriptor:
        """An index that is not there: queries by it scan its table."""
        needs = table.datasets_of(index)
        datasets = {dataset.name: dataset for dataset in map(dataset_of, needs)}
        return cls(index, needs, "building", 0, 0, newest("key", release.LEVEL), datasets)

    @property
    def needs_build(self) -> bool:
        """Whether a job must fill the index, or rewrite its entries, before it is readable."""
        return self.state in ("building", "rewriting")

    @property
    def is_mismatched(self) -> bool:
        """Whether this process would build other keys, because its datasets differ from the
        index's.

        A disabled index is never mismatched, because no keys are made for it.
        """
        return self.state != "disabled" and bool(self._differing())

    def _differing(self) -> list[Dataset]:
        """Return this process's datasets that differ from the index's."""
        return [
            found
            for found in map(dataset_of, self.dependencies)
            if self._fingerprint(found.name) != found.fingerprint
        ]

    def _fingerprint(self, name: str) -> str | None:
        return self.built_with[name].fingerprint if name in self.built_with else None

    @property
    def is_ahead(self) -> bool:
        """Whether the index is mismatched, and was built with this process's datasets before."""
        return self.is_mismatched and any(
            found.fingerprint in self.former.get(found.name, ()) for found in self._differing()
        )

    @property
    def is_rebuilt(self) -> bool:
        """Whether the index is being rebuilt because a dataset changed to this process's."""
        return self.state == "building" and bool(self.former) and not self.is_mismatched

    def find_former(self) -> dict[str, tuple[str, ...]]:
        """Return the former fingerprints that the index gets when this process's datasets replace
        its own."""
        found = {}
        for dependency in self.dependencies:
            here = dataset_of(dependency)
            known = (*self.former.get(here.name, ()), self._fingerprint(here.name))
            kept = dict.fromkeys(f for f in known if f is not None and f != here.fingerprint)
            found[here.name] = tuple(kept)[-FORMER_DATASETS_MAX:]
        return {name: kept for name, kept in found.items() if kept}

    def describe_difference(self) -> tuple[str, str]:
        """Return the versions of the datasets that differ: the index's, and this process's."""
        differing = self._differing()
        return _list_versions(self._built_with(differing)), _list_versions(differing)

    def describe_rewriting(self) -> tuple[str, str]:
        """Return the versions of a rewriting index's datasets, before and after."""
        before = self.rewritten_from.values()
        return _list_versions(before), _list_versions(self._built_with(before))

    def _built_with(self, others: Iterable[Dataset]) -> Iterator[Dataset]:
        """Yield the datasets that the index is built with instead of these."""
        return (self.built_with[other.name] for other in others if other.name in self.built_with)

    def disabled(self, build: int) -> IndexDescriptor:
        """Return the same index in the state disabled; no job has this `build` as its target."""
        return replace(
            self, state="disabled", build=build, rewritten_from={}, former=self.find_former()
        )

    def rewriting(self, build: int) -> IndexDescriptor:
        """Return the same index in the state rewriting, towards this process's datasets."""
        differing = {found.name: found for found in self._differing()}
        before = {name: self.built_with[name] for name in differing if name in self.built_with}
        return replace(
            self,
            state="rewriting",
            build=build,
            built_with=self.built_with | differing,
            rewritten_from=self.rewritten_from | before,
            former=self.find_former(),
        )

    def readable(self) -> IndexDescriptor:
        """Return the same index in the state readable."""
        return replace(self, state="readable", rewritten_from={})

    def to_row(self, tenant: int, table: int) -> IndexRow:
        return IndexRow(
            tenant,
            self.index.number,
            table,
            self.state,
            self.entry_table,
            self.build,
            self.key_format,
            _versions_of(self.built_with),
            _versions_of(self.rewritten_from),
            self.former,
        )

    @classmethod
    def from_row(cls, table: TableSchema, index: Index, row: IndexRow) -> IndexDescriptor:
        return cls(
            index,
            table.datasets_of(index),
            row.state,
            row.entry_table,
            row.build,
            row.key_format,
            _datasets_of(row.built_with),
            _datasets_of(row.rewritten_from),
            row.former,
        )


def _versions_of(datasets: dict[str, Dataset]) -> dict[str, DatasetVersion]:
    return {
        name: DatasetVersion(found.version, found.fingerprint) for name, found in datasets.items()
    }


def _datasets_of(versions: dict[str, DatasetVersion]) -> dict[str, Dataset]:
    return {
        name: Dataset(name, found.version, found.fingerprint) for name, found in versions.items()
    }


def _list_versions(datasets: Iterable[Dataset]) -> str:
    return one_line("; ".join(dataset.version for dataset in datasets))  # of rows of the database


@dataclass(frozen=True, slots=True)
class ConstraintDescriptor:
    """A check, or a field's reference; it binds every write in all its states.

    `number` and `name` identify the check or field. A validated constraint was checked for all
    records after it became active, and no record violated it.
    """

    kind: ConstraintKind
    number: int
    name: str
    state: ConstraintState

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    @property
    def is_validated(self) -> bool:
        return self.state == "validated"


def constraints_of(table: TableSchema) -> Iterator[tuple[ConstraintKind, int, str]]:
    """Return kind, number and name of each check and each reference."""
    for check in table.checks:
        yield "check", check.number, check.name
    for key in table.foreign_keys:
        yield "reference", key.field, table.field_numbered(key.field).name
