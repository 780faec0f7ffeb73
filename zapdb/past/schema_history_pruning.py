"""Pruning the schema history: an operator deletes old entries of one table's log.

zapdb never prunes by itself. The newest entry stays, because the next revision is one above it. So
does every entry that is the layout revision of an entry that stays, and every one whose records are
current though the table had other layouts since. Stored data need the entry of
their revision to be read: while there are such data, the whole pruning is refused (rule 31).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from zapdb.catalog import rows, schema_history
from zapdb.catalog.range_revisions import find_ranges_below
from zapdb.catalog.schema_history import RevisionEntry, read_entries
from zapdb.catalog.tenants import read_tenant
from zapdb.errors import ConcurrencyError, UsageError
from zapdb.log.pending_changes import count_changes
from zapdb.past.files.history_manifest import find_first_revision
from zapdb.records import group_by_revision
from zapdb.storage import Connection, Storage, TransactionMode
from zapdb.storage.archives import count_archives
from zapdb.storage.data_tables import list_record_tables
from zapdb.storage.record_statements import RecordStatements


@dataclass(frozen=True, slots=True)
class PruneBound:
    """The entries that an operator wants to prune; exactly one of the three is given.

    All entries but the newest `keep_last`; entries of revisions below `before`; entries that were
    written before `older_than_us`, in microseconds since 1970-01-01 UTC.
    """

    keep_last: int | None = None
    before: int | None = None
    older_than_us: int | None = None

    def __post_init__(self) -> None:
        given = [v for v in (self.keep_last, self.before, self.older_than_us) if v is not None]
        if len(given) != 1:
            raise UsageError(
                "give exactly one of --keep-last, --before and --older-than",
                hint="for example --keep-last 10",
            )
        if self.keep_last is not None and self.keep_last < 1:
            raise UsageError("the newest revision cannot be pruned", keep_last=self.keep_last)

    def select(self, log: Sequence[RevisionEntry]) -> list[RevisionEntry]:
        """Return the selected entries of a log, without the newest."""
        older = log[:-1]
        if self.keep_last is not None:
            return list(log[: max(0, len(log) - self.keep_last)])
        if self.before is not None:
            return [entry for entry in older if entry.revision < self.before]
        assert self.older_than_us is not None
        return [entry for entry in older if entry.migrated_at < self.older_than_us]


@dataclass(frozen=True, slots=True)
class RequiredBy:
    """Stored data that need a revision; `what` describes them for people."""

    revision: int
    what: str


@dataclass(frozen=True, slots=True)
class Pruning:
    """What pruning a log does. `pruned` are deleted; `layouts` are selected, but stay because
    entries that stay have their layouts. If there are `required_by`, nothing is deleted."""

    log: tuple[RevisionEntry, ...]
    pruned: tuple[RevisionEntry, ...]
    layouts: tuple[RevisionEntry, ...]
    required_by: tuple[RequiredBy, ...]


def plan_pruning(
    connection: Connection, log: Sequence[RevisionEntry], bound: PruneBound
) -> Pruning:
    """Plan a pruning, in a READ transaction; counts the records of the table by their revisions,
    unless they are known to be newer.
    """
    meant = bound.select(log)
    revisions = {entry.revision for entry in meant}
    kept = [entry for entry in log if entry.revision not in revisions]
    # The layout revision of a layout revision is itself, so one step is enough.
    needed = {entry.layout_revision for entry in kept}
    current = [entry for entry in meant if _has_current_layout(entry, log[-1])]
    needed |= {one.revision for one in _find_records(connection, current, kept)}
    pruned = [entry for entry in meant if entry.revision not in needed]
    required_by = [
        requirement
        for check in REQUIREMENT_CHECKS
        for requirement in check(connection, pruned, kept)
    ]
    return Pruning(
        tuple(log),
        tuple(pruned),
        tuple(entry for entry in meant if entry.revision in needed),
        tuple(sorted(required_by, key=lambda requirement: requirement.revision)),
    )


def _has_current_layout(entry: RevisionEntry, newest: RevisionEntry) -> bool:
    """Whether records of an entry are not stale, so that no conversion would make them newer."""
    is_same = entry.first_layout_revision == newest.first_layout_revision
    return is_same and newest.event != "drop"


def prune(storage: Storage, pruning: Pruning) -> None:
    """Execute the plan; raises `UsageError` while something needs an entry that would be pruned,
    and `ConcurrencyError` if the log has changed since it was planned.

    Records are not counted again: they are written under the newest revision, which stays. So no
    record can get an older revision.
    """
    newest = pruning.log[-1]
    if pruning.required_by:
        raise UsageError(
            "stored data need the revisions that would be pruned",
            table=newest.schema.name,
            needed="; ".join(
                f"revision {requirement.revision}: {requirement.what}"
                for requirement in pruning.required_by
            ),
            hint="convert stale records with `zapdb convert run`, delete archived values "
            "with `zapdb migrate prune-archive`, or prune less; revisions that the "
            "change log or the history store needs always stay",
        )
    with storage.transaction(TransactionMode.DDL) as connection:
        log = tuple(read_entries(connection, newest.tenant, newest.table_number))
        if log != pruning.log:
            raise ConcurrencyError(
                "the schema history changed during the check",
                table=newest.schema.name,
                hint="nothing was pruned; try again",
            )
        revisions = [entry.revision for entry in pruning.pruned]
        schema_history.delete_revisions(connection, newest.tenant, newest.table_number, revisions)
        # The seq moves, since services keep by it what the schema history was.
        rows.put(connection, read_tenant(connection, newest.tenant))


RequirementCheck = Callable[
    [Connection, Sequence[RevisionEntry], Sequence[RevisionEntry]], Iterator[RequiredBy]
]
"""Finds stored data that need the entries to be pruned; also gets the entries that stay."""


def _find_records(
    connection: Connection, pruned: Sequence[RevisionEntry], _: Sequence[RevisionEntry]
) -> Iterator[RequiredBy]:
    """Yield records of these revisions, also of archived and discarded tables."""
    if not pruned or pruned[0].table_number not in list_record_tables(connection):
        return
    tenant, table = pruned[0].tenant, pruned[0].table_number
    if not find_ranges_below(connection, tenant, table, max(e.revision for e in pruned) + 1):
        return  # all records are known to be newer: nothing to count
    records = RecordStatements(connection.storage, table, tenant)
    yield from _list_required(pruned, records.count_by_prefix(connection), "record")


def _find_archives(
    connection: Connection, pruned: Sequence[RevisionEntry], kept: Sequence[RevisionEntry]
) -> Iterator[RequiredBy]:
    """Yield archived values; their records may have any later revision.

    An archived value has the type that its field had in a revision with the field. So one such
    entry has to stay as long as there are values; they are deleted with their records.
    """
    if not pruned:
        return
    counts = count_archives(connection, pruned[0].tenant).get(pruned[0].table_number, {})
    known = frozenset[int]().union(*(entry.schema.archived_cells for entry in kept))
    for entry in pruned if counts else ():
        table = entry.schema
        fields = [*table.fields, *(a.field for a in table.archived if a.field.cell not in known)]
        for field in fields:
            count = counts.get(field.cell)
            if count:
                what = f"{count:,} archived value" + "s" * (count != 1)
                yield RequiredBy(entry.revision, f"{what} of {field.name}")


def _find_changes(
    connection: Connection, pruned: Sequence[RevisionEntry], _: Sequence[RevisionEntry]
) -> Iterator[RequiredBy]:
    """Yield changes in the change log, whose records are read with the schema of their time."""
    if not pruned:
        return
    found = count_changes(connection, pruned[0].tenant, pruned[0].table_number)
    yield from _list_required(pruned, found, "change")


def _find_history(
    connection: Connection, pruned: Sequence[RevisionEntry], _: Sequence[RevisionEntry]
) -> Iterator[RequiredBy]:
    """Yield the revisions that a table had at moments that the history store holds."""
    if not pruned:
        return
    first = find_first_revision(connection, pruned[0].tenant, pruned[0].table_number)
    for entry in pruned:
        if first is not None and entry.revision >= first:
            yield RequiredBy(entry.revision, "files of the history store")


def _list_required(
    pruned: Sequence[RevisionEntry], found: Iterable[tuple[bytes, int]], what: str
) -> Iterator[RequiredBy]:
    """Yield the entries that data need; `found` has the number of such data by their prefix."""
    counts = group_by_revision(found)
    for entry in pruned:
        if count := counts.get(entry.revision):
            yield RequiredBy(entry.revision, f"{count:,} {what}" + "s" * (count != 1))


REQUIREMENT_CHECKS: Final[tuple[RequirementCheck, ...]] = (
    _find_records,
    _find_archives,
    _find_changes,
    _find_history,
)
"""The finders of all stored data that need a schema history to be read."""
