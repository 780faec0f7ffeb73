"""The active tables, and the schema history of each."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from zapdb.activation import (
    IndexDescriptor,
    TableDescriptor,
    TenantCatalog,
    load_tenant_catalog,
)
from zapdb.activation.inspection import find_entry, read_labels, read_log, read_log_numbered
from zapdb.activation.pinned_fingerprints import find_in_log
from zapdb.activation.schema_history_recovery import recover_schema_histories
from zapdb.answers import hidden
from zapdb.catalog import rows as rows_of_catalog
from zapdb.catalog.calls import PAGE_CALLS, read_calls
from zapdb.catalog.feed import FeedRow, read_changed_rows, read_seq
from zapdb.catalog.row_kinds import (
    KINDS,
    ChainState,
    ConstraintKind,
    DatasetVersion,
    LevelRow,
    SettingRow,
)
from zapdb.catalog.schema_history import RevisionEntry, find_rollbacks, format_fingerprint
from zapdb.control.bounds import Count, Number
from zapdb.control.durations import read_time_us
from zapdb.control.target import Json, Target, paced
from zapdb.datasets import Dataset
from zapdb.errors import CorruptRecord, InvalidValue, UnknownName, UsageError
from zapdb.jobs.known_revisions import list_range_revisions
from zapdb.limits import CATALOG_LOOK_SECONDS, HISTORY_ENTRIES_MAX, HISTORY_ENTRIES_UNASKED
from zapdb.past.schema_history_pruning import PruneBound, plan_pruning, prune
from zapdb.records import codec_for
from zapdb.records.cell_format import to_cell
from zapdb.schema import (
    Difference,
    Field,
    ForeignKey,
    TableSchema,
    canonical_bytes,
    compare_tables,
    fingerprint,
)
from zapdb.storage import Connection
from zapdb.storage.cells import as_time
from zapdb.tables.indexes.bound_table import show_code
from zapdb.values import Decimal, Enum, List, Reference, Struct, ValueType, to_json

FINGERPRINT: Final = re.compile(r"0x[0-9a-fA-F]{1,16}")


@dataclass(frozen=True, slots=True)
class TableSummary:
    """One active table; `key`, `fields` and `indexes` are names."""

    table: str
    number: int
    key: tuple[str, ...]
    revision: int
    layout_revision: int
    fingerprint: str
    fields: tuple[str, ...]
    indexes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Tables:
    """The active tables; `migration` is the label of the newest active migration, if there is
    one."""

    position: int
    migration: str | None
    tables: tuple[TableSummary, ...]


def list_tables(target: Target) -> Tables:
    """The active tables of the tenant, in the order of their numbers."""
    catalog = target.catalog()
    return Tables(
        catalog.position, newest_label(catalog), tuple(map(_summarize, catalog.tables.values()))
    )


def newest_label(catalog: TenantCatalog) -> str | None:
    return catalog.chain.at(catalog.position).label if catalog.position else None


def _summarize(descriptor: TableDescriptor) -> TableSummary:
    table = descriptor.schema
    return TableSummary(
        table=table.name,
        number=table.number,
        key=tuple(f.name for f in table.key_fields),
        revision=descriptor.revision,
        layout_revision=descriptor.layout_revision,
        fingerprint=format_fingerprint(fingerprint(table)),
        fields=tuple(f.name for f in table.fields),
        indexes=tuple(index.index.name for index in descriptor.indexes),
    )


# --- one table -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FieldDescription:
    """A field. `type` is its name with its parameters; `generated` is true, false or `sequence`.

    `default_text` is the default as documents say it, such as `7`, `"a"` or `now`; it is empty for
    a field without one.
    """

    name: str
    number: int
    type: Json
    key: bool
    optional: bool
    generated: Json
    default: Json | None = hidden(lambda one: not one.default_text)
    default_text: str = hidden()


@dataclass(frozen=True, slots=True)
class IndexedField:
    field: str
    collation: str | None
    descending: bool


@dataclass(frozen=True, slots=True)
class IndexDescription:
    """An index; the datasets by their names that its entries are made with, and those that some
    entries may still be made with while it is rewriting."""

    name: str
    number: int
    unique: bool
    state: str
    fields: tuple[IndexedField, ...]
    built_with: Mapping[str, DatasetVersion]
    rewritten_from: Mapping[str, DatasetVersion]


@dataclass(frozen=True, slots=True)
class CheckDescription:
    name: str
    number: int
    expression: str
    state: str


@dataclass(frozen=True, slots=True)
class ReferenceDescription:
    """A field whose values are keys of a table."""

    field: str
    table: str
    on_delete: str
    state: str


@dataclass(frozen=True, slots=True)
class ArchivedDescription:
    """A field that was dropped, with its values kept; `migration` dropped it."""

    field: str
    number: int
    type: Json
    migration: int


@dataclass(frozen=True, slots=True)
class TableDescription:
    """A table's schema, and the states of its indexes, checks and references.

    `code` is the generated source, if it was asked for; `schema` the canonical bytes of the schema
    (docs/format), which the fingerprint is made of.
    """

    table: str
    number: int
    key: tuple[str, ...]
    revision: int
    layout_revision: int
    fingerprint: str
    fields: tuple[FieldDescription, ...]
    indexes: tuple[IndexDescription, ...]
    checks: tuple[CheckDescription, ...]
    references: tuple[ReferenceDescription, ...]
    archived: tuple[ArchivedDescription, ...]
    code: str | None = hidden(lambda one: one.code is None)
    schema: bytes = hidden()


def get_table(target: Target, table: str, with_code: bool = False) -> TableDescription:
    """An active table; raises `UnknownName`."""
    catalog = target.catalog()
    descriptor = catalog.table(table)
    code = show_code(catalog, descriptor) if with_code else None
    return _describe(descriptor, code)


def _describe(descriptor: TableDescriptor, code: str | None) -> TableDescription:
    table = descriptor.schema
    return TableDescription(
        table=table.name,
        number=table.number,
        key=tuple(f.name for f in table.key_fields),
        revision=descriptor.revision,
        layout_revision=descriptor.layout_revision,
        fingerprint=format_fingerprint(fingerprint(table)),
        fields=tuple(describe_field(table, one) for one in table.fields),
        indexes=tuple(_describe_index(table, one) for one in descriptor.indexes),
        checks=tuple(
            CheckDescription(
                one.name, one.number, one.expression, _state_of(descriptor, "check", one.number)
            )
            for one in table.checks
        ),
        references=tuple(_describe_reference(descriptor, one) for one in table.foreign_keys),
        archived=tuple(
            ArchivedDescription(
                one.field.name, one.field.number, type_to_json(one.field.type), one.archived_by
            )
            for one in table.archived
        ),
        code=code,
        schema=canonical_bytes(table),
    )


def describe_field(table: TableSchema, field: Field) -> FieldDescription:
    """A field of a schema as answers have it."""
    text = ""
    if field.has_default:
        plain = field.plain_default
        text = json.dumps(plain, ensure_ascii=False) if field.has_constant else plain
    return FieldDescription(
        name=field.name,
        number=field.number,
        type=type_to_json(field.type),
        key=field.number in table.key,
        optional=field.optional,
        generated=field.plain_generated,
        default=field.plain_default if field.has_default else None,
        default_text=text,
    )


def _describe_index(table: TableSchema, found: IndexDescriptor) -> IndexDescription:
    return IndexDescription(
        name=found.index.name,
        number=found.index.number,
        unique=found.index.unique,
        state=found.state,
        fields=tuple(
            IndexedField(
                table.field_numbered(component.field).name,
                None if component.collation is None else str(component.collation),
                component.descending,
            )
            for component in found.index.components
        ),
        built_with=_name_datasets(found.built_with),
        rewritten_from=_name_datasets(found.rewritten_from),
    )


def _name_datasets(datasets: Mapping[str, Dataset]) -> dict[str, DatasetVersion]:
    return {
        name: DatasetVersion(one.version, one.fingerprint) for name, one in sorted(datasets.items())
    }


def _describe_reference(descriptor: TableDescriptor, key: ForeignKey) -> ReferenceDescription:
    field = descriptor.schema.field_numbered(key.field)
    assert isinstance(field.type, Reference)
    state = _state_of(descriptor, "reference", key.field)
    return ReferenceDescription(field.name, field.type.table, key.on_delete, state)


def _state_of(descriptor: TableDescriptor, kind: ConstraintKind, number: int) -> str:
    return next(c for c in descriptor.constraints if (c.kind, c.number) == (kind, number)).state


def type_to_json(kind: ValueType) -> dict[str, Any]:
    """`name` with the type's parameters; declared types with all of their members."""
    match kind:
        case Decimal(scale):
            return {"name": kind.name, "scale": scale}
        case List(items):
            return {"name": kind.name, "of": type_to_json(items)}
        case Reference(table, number, key):
            parts = [type_to_json(part) for part in key]
            return {"name": kind.name, "to": table, "number": number, "key": parts}
        case Enum(declared_name, number, members):
            named = [{"name": name, "number": at} for at, name in members]
            return {"name": declared_name, "number": number, "enum": named}
        case Struct(declared_name, number, members):
            described = [
                {
                    "name": member.name,
                    "number": member.number,
                    "type": type_to_json(member.type),
                    "optional": member.optional,
                }
                for member in members
            ]
            return {"name": declared_name, "number": number, "struct": described}
    return {"name": kind.name}


@dataclass(frozen=True, slots=True)
class KeyRange:
    """No record with a key behind `after`, up to `up_to`, has a revision below `revision`.

    A key is an object of its fields, or null where there is no bound; `after_text` and `up_to_text`
    are the keys as people write them, and empty there. If the range is `current`, its records need
    no conversion.
    """

    after: Json | None
    up_to: Json | None
    revision: int
    current: bool
    after_text: str = hidden()
    up_to_text: str = hidden()


@dataclass(frozen=True, slots=True)
class KeyRanges:
    """What is known of all keys of a table, in their order."""

    ranges: tuple[KeyRange, ...]


def list_key_ranges(target: Target, table: str) -> KeyRanges:
    """Which revisions the records of each key range have at least; raises `UnknownName`."""
    catalog = target.catalog()
    with target.reading() as connection:
        catalog = load_tenant_catalog(connection, catalog.tenant, catalog)
        descriptor = catalog.table(table)
        known = list_range_revisions(connection, catalog.tenant, descriptor)
    return KeyRanges(
        tuple(
            KeyRange(
                _key_to_json(descriptor.schema, one.lower),
                _key_to_json(descriptor.schema, one.upper),
                one.revision,
                one.revision >= descriptor.current.since,
                _show_key(descriptor.schema, one.lower),
                _show_key(descriptor.schema, one.upper),
            )
            for one in known
        )
    )


def _show_key(table: TableSchema, key: bytes | None) -> str:
    if key is None:
        return ""
    try:
        values = codec_for(table).decode_key(key)
    except CorruptRecord:
        return key.hex()
    cells = (to_cell(field, value) for field, value in zip(table.key_fields, values, strict=True))
    return ", ".join(cells)


def _key_to_json(table: TableSchema, key: bytes | None) -> Any:
    if key is None:
        return None
    try:
        values = codec_for(table).decode_key(key)
    except CorruptRecord:
        return key.hex()
    return {field.name: to_json(v) for field, v in zip(table.key_fields, values, strict=True)}


# --- the schema history --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TableRevision:
    """One schema of a table. `migration` is the label of the newest migration that was active from
    then on; `migrated_at` is 1970-01-01 if the table is older than its schema history."""

    table: str
    table_number: int
    revision: int
    fingerprint: str
    migrated_at: datetime
    migrated_by: str
    migration: str | None
    event: str


@dataclass(frozen=True, slots=True)
class FingerprintHistoryEntry(TableRevision):
    """One entry of a schema history. If it rolled a change back, `rollback_from` is the revision
    before, and `rollback_to` the newest earlier one with the same fingerprint. `schema` are the
    canonical bytes of the schema."""

    rollback_from: int | None
    rollback_to: int | None
    layout_revision: int
    schema: bytes = hidden()


@dataclass(frozen=True, slots=True)
class _Log:
    """The schema history of one table, with the labels of migrations."""

    entries: Sequence[RevisionEntry]
    labels: Mapping[int, str]

    def revision(self, entry: RevisionEntry) -> TableRevision:
        return TableRevision(**self._columns(entry))

    def history(
        self, since: int, since_us: int, limit: int, *, descending: bool
    ) -> Iterator[FingerprintHistoryEntry]:
        """Up to `limit` entries from a revision and a time on."""
        last: dict[int, int] = {}
        found: list[tuple[RevisionEntry, int | None, int | None]] = []
        for entry, rolled_back in zip(self.entries, find_rollbacks(self.entries), strict=True):
            returned_to = None if rolled_back is None else last[entry.fingerprint]
            last[entry.fingerprint] = entry.revision
            if entry.revision >= since and entry.migrated_at >= since_us:
                found.append((entry, rolled_back, returned_to))
        if descending:
            found.reverse()
        for entry, rolled_back, returned_to in found[:limit]:
            yield FingerprintHistoryEntry(
                **self._columns(entry),
                rollback_from=rolled_back,
                rollback_to=returned_to,
                layout_revision=entry.layout_revision,
                schema=entry.schema_bytes,
            )

    def _columns(self, entry: RevisionEntry) -> dict[str, Any]:
        return {
            "table": entry.table_name,
            "table_number": entry.table_number,
            "revision": entry.revision,
            "fingerprint": format_fingerprint(entry.fingerprint),
            "migrated_at": as_time(entry.migrated_at),
            "migrated_by": entry.migrated_by,
            "migration": self.labels.get(entry.migration),
            "event": entry.event,
        }


def _read_log(
    target: Target, table: str | None, table_number: int | None = None, *, begins: bool = True
) -> _Log:
    """The history of the table with this present or former name, or this number; one that is
    missing begins anew, unless nothing may begin.

    Raises `UnknownName`, and `UsageError` unless exactly one is given.
    """
    if (table is None) == (table_number is None):
        raise UsageError(
            "give exactly one of the table's name and its number",
            hint="give either --table NAME or --table-number NUMBER",
        )
    tenant = target.tenant()
    if begins:
        recover_schema_histories(target.storage, tenant)
    with target.reading() as connection:
        return _Log(_find_log(connection, tenant, table, table_number), read_labels(connection))


def _find_log(
    connection: Connection, tenant: int, table: str | None, table_number: int | None
) -> list[RevisionEntry]:
    if table_number is not None:
        return read_log_numbered(connection, tenant, table_number)
    assert table is not None
    return read_log(connection, tenant, table)


def get_fingerprint(target: Target, table: str) -> TableRevision:
    """The newest revision of an active table; raises `UnknownName`."""
    log = _read_log(target, table)
    newest = log.entries[-1]
    if newest.event == "drop" or newest.schema.name != table:
        raise UnknownName(
            "the table was dropped; only its schema history remains",
            table=table,
            became="(dropped)" if newest.event == "drop" else newest.schema.name,
            hint="run `zapdb catalog revisions --table NAME` to see it",
        )
    return log.revision(newest)


def get_fingerprint_history(
    target: Target,
    table: str | None = None,
    table_number: Number | None = None,
    since_generation: Number = 0,
    limit: Count = 0,
    descending: bool = False,
    since: str | None = None,
) -> Iterator[FingerprintHistoryEntry]:
    """Entries of a table's schema history from the revision `since_generation` on, the oldest
    first; only those written since a time with its UTC offset, or so long ago (7d), if that is
    given.

    At most `limit` of them, which is 64 where it is 0, and at most 1,024: for more, ask again
    from behind the last one. Raises `UnknownName`; and `InvalidValue` for a revision that is
    more than 1,024 above the newest.
    """
    log = _read_log(target, table, table_number)
    newest = log.entries[-1]
    if since_generation > newest.revision + HISTORY_ENTRIES_MAX:
        raise InvalidValue(
            "the table never had this revision",
            table=newest.schema.name,
            since=since_generation,
            newest=newest.revision,
        )
    since_us = 0 if since is None else read_time_us(target.storage.connection(), since)
    most = min(limit or HISTORY_ENTRIES_UNASKED, HISTORY_ENTRIES_MAX)
    return log.history(since_generation, since_us, most, descending=descending)


@dataclass(frozen=True, slots=True)
class SchemaStamp:
    revision: int
    fingerprint: str


@dataclass(frozen=True, slots=True)
class SchemaDifference:
    """A part of a table that only one of two schemas has, or that differs.

    `name` is the newer name. `before` and `after` are objects of attributes: all those of a removed
    or added part, the differing ones of a changed part. `before` is null for an added part, `after`
    for a removed one.
    """

    part: str
    number: int
    name: str
    change: str
    before: Json | None
    after: Json | None


@dataclass(frozen=True, slots=True)
class PinCheck:
    """The revisions at which a table had a fingerprint, and what changed since the last of them.

    `active` is null for a table that was dropped; `revision` is its newest one then, too.
    """

    table: str
    table_number: int
    fingerprint: str
    revisions: tuple[int, ...]
    active: SchemaStamp | None
    differences: tuple[SchemaDifference, ...]
    revision: int = hidden()


def check_pin(target: Target, table: str, fingerprint: str) -> PinCheck:
    """Whether a table has or had the schema that a program was built for.

    Raises `UnknownName` if no table has or ever had the name, and `UsageError`.
    """
    wanted = parse_fingerprint(fingerprint)
    found = find_in_log(list(_read_log(target, table).entries), wanted)
    active = SchemaStamp(found.revision, format_fingerprint(found.current))
    return PinCheck(
        found.table,
        found.table_number,
        format_fingerprint(wanted),
        found.revisions,
        active if found.is_active else None,
        tuple(map(_describe_difference, found.differences)),
        found.revision,
    )


def parse_fingerprint(text: str) -> int:
    """Raises `UsageError`."""
    if FINGERPRINT.fullmatch(text) is None:
        raise UsageError(
            "this is not a fingerprint",
            given=text,
            hint="give 0x and up to 16 hexadecimal digits, as `zapdb catalog revisions` prints "
            "them",
        )
    return int(text, 16)


@dataclass(frozen=True, slots=True)
class RevisionComparison:
    """What differs between two schemas of a table."""

    table: str
    table_number: int
    from_: SchemaStamp
    to: SchemaStamp
    differences: tuple[SchemaDifference, ...]


def compare_revisions(
    target: Target,
    before: Number,
    after: Number,
    table: str | None = None,
    table_number: Number | None = None,
) -> RevisionComparison:
    """What differs between two revisions of a table; raises `UnknownName`."""
    log = _read_log(target, table, table_number).entries
    old, new = find_entry(log, before), find_entry(log, after)
    return RevisionComparison(
        new.schema.name,
        new.table_number,
        SchemaStamp(old.revision, format_fingerprint(old.fingerprint)),
        SchemaStamp(new.revision, format_fingerprint(new.fingerprint)),
        tuple(map(_describe_difference, compare_tables(old.schema, new.schema))),
    )


def _describe_difference(one: Difference) -> SchemaDifference:
    return SchemaDifference(
        one.part,
        one.number,
        one.name,
        one.change,
        None if one.change == "added" else _attributes_to_json(one.before),
        None if one.change == "removed" else _attributes_to_json(one.after),
    )


def _attributes_to_json(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name.replace(" ", "_"): type_to_json(value) if isinstance(value, ValueType) else value
        for name, value in attributes.items()
    }


@dataclass(frozen=True, slots=True)
class RevisionUse:
    """Stored data that need a revision: `by` describes them."""

    revision: int
    by: str


@dataclass(frozen=True, slots=True)
class HistoryPruning:
    """What was pruned of a schema history, or would be.

    `kept_for_layout` are revisions that stay, because later ones have their layouts. If revisions
    are `in_use`, nothing is pruned. `entries` are those of `pruned`.
    """

    table: str
    table_number: int
    pruned: tuple[int, ...]
    kept_for_layout: tuple[int, ...]
    in_use: tuple[RevisionUse, ...]
    newest: int
    done: bool
    entries: tuple[TableRevision, ...] = hidden()
    seq: int = hidden()


@dataclass(frozen=True, slots=True)
class HistoryBound:
    """The entries that are to be pruned: all but the newest `keep_last`, those of revisions below
    `before`, or those that were written before `older_than`: a time with its UTC offset, or so long
    ago (90d) by the database's clock. Exactly one is given."""

    keep_last: Number | None = None
    before: Number | None = None
    older_than: str | None = None


def prune_fingerprint_history(
    target: Target,
    bound: HistoryBound,
    table: str | None = None,
    table_number: Number | None = None,
    dry_run: bool = False,
) -> HistoryPruning:
    """Delete old entries of a table's schema history for good; with `dry_run`, only say which.

    Raises `UnknownName`, `UsageError` and `ConcurrencyError`.
    """
    log = _read_log(target, table, table_number, begins=False)
    with target.reading() as connection:
        given = bound.older_than
        oldest = None if given is None else read_time_us(connection, given)
        plan = plan_pruning(
            connection, log.entries, PruneBound(bound.keep_last, bound.before, oldest)
        )
    done = bool(plan.pruned) and not dry_run
    if done:
        prune(target.storage, plan)
    newest = plan.log[-1]
    return HistoryPruning(
        newest.schema.name,
        newest.table_number,
        tuple(entry.revision for entry in plan.pruned),
        tuple(entry.revision for entry in plan.layouts),
        tuple(RevisionUse(one.revision, one.what) for one in plan.required_by),
        newest.revision,
        done,
        tuple(map(log.revision, plan.pruned)),
        read_seq(target.storage.connection()),
    )


# --- the call log --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CallLogEntry:
    """A call of a service: of those that changed something, read records, or were refused.

    `tables` are those that the request named, and `status` is that of gRPC.
    """

    called_at: datetime
    principal: str
    method: str
    tenant: str
    tables: tuple[str, ...]
    status: str
    duration_us: int


def list_calls(
    target: Target,
    since: str | None = None,
    principal: str | None = None,
    limit: Count = 0,
    all_tenants: bool = False,
) -> Iterator[CallLogEntry]:
    """The calls of services for the tenant, newest first: since a time with its UTC offset, or so
    long ago (7d) by the database's clock, or by a principal, if they are given; at most `limit`,
    where 0 is no bound. With `all_tenants` also those for all others, for tenants that there are
    not, and on paths that no method has, whose tenant is empty."""
    tenant = None if all_tenants else target.tenant_name
    if all_tenants:
        target.require_rows()
    else:
        target.tenant()
    since_us = None if since is None else read_time_us(target.storage.connection(), since)
    before: tuple[int, bytes] | None = None
    given = 0
    while True:
        with target.reading() as connection:
            page = read_calls(connection, tenant, since_us, principal, before)
        for call in page:
            yield CallLogEntry(
                as_time(call.called_at),
                call.principal,
                call.method,
                call.tenant,
                call.tables,
                call.status,
                call.duration_us,
            )
            given += 1
            if given == limit:
                return
        if len(page) < PAGE_CALLS:
            return
        before = page[-1].called_at, page[-1].id


# --- the rows of the catalog ---------------------------------------------------------------------

WATCHED_AT_ONCE: Final = 10_000
"""Rows in one answer."""
OF_ALL: Final = frozenset({ChainState.KIND, LevelRow.KIND, SettingRow.KIND})
"""The kinds of rows that concern each tenant, where they are about no single one."""


@dataclass(frozen=True, slots=True)
class ChangedRow:
    """A row of the catalog that was written, or deleted. What it says, other methods answer."""

    seq: int
    kind: str
    key: str
    is_deleted: bool


@dataclass(frozen=True, slots=True)
class CatalogChanges:
    """The rows that have changed since the answer before, each once, in the order of their newest
    changes. Whoever asks again gives `seq`."""

    seq: int
    rows: tuple[ChangedRow, ...]


@paced(CATALOG_LOOK_SECONDS)
def watch_catalog(
    target: Target, after: Number = 0, kinds: Sequence[str] = (), all_tenants: bool = False
) -> Iterator[CatalogChanges]:
    """What changes in the catalog after a seq, again and again: rows about the tenant, and those
    about the chain, the level and settings of the database; with `all_tenants` those of all, and
    of nodes, too. 0 asks for all rows first. `kinds` are the kinds of rows; none given are all.

    An answer without rows says that nothing has changed up to its seq. A deleted job is told to
    those alone who watch all tenants. Raises `CatalogChangesPurged`, which says from which seq on
    changes are kept; then ask for all rows. Raises `UnknownName`.
    """
    tenant = target.tenant()
    if unknown := sorted(set(kinds) - set(KINDS)):
        raise UnknownName(
            "the catalog has no rows of this kind",
            kind=", ".join(unknown),
            kinds=", ".join(sorted(KINDS)),
        )
    while True:
        with target.reading() as connection:
            seq = read_seq(connection)
            found = read_changed_rows(connection, after, kinds or None)
        rows = [
            ChangedRow(row.seq, row.kind, row.key, row.text is None)
            for row in found
            if all_tenants or _concerns(tenant, row)
        ]
        for start in range(0, len(rows), WATCHED_AT_ONCE):
            some = tuple(rows[start : start + WATCHED_AT_ONCE])
            is_last = start + len(some) == len(rows)
            yield CatalogChanges(seq if is_last else some[-1].seq, some)
        if not rows:
            yield CatalogChanges(seq, ())
        after = seq


def _concerns(tenant: int, row: FeedRow) -> bool:
    kind = KINDS.get(row.kind)
    if kind is None:  # of a later release
        return False
    of_tenant = kind.tenant_in(row.key)
    if of_tenant is None and row.text is not None:
        of_tenant = rows_of_catalog.decode_row(kind, row.key, row.text).of_tenant
    return of_tenant == tenant or (of_tenant is None and row.kind in OF_ALL)
