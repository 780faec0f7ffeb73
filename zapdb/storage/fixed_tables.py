"""zapdb's own fixed tables, as the code expects them to be.

The Alembic revisions under top-level `migrations/` create and change them; a test compares their
result with this module. All are internal: their names are reserved, and applications never write to
them. Times are microseconds since 1970-01-01 UTC by the database's clock.

A column of `word` has one word of a closed set. Whoever reads another one, by `cells.checked` or
`cells.as_word`, says that a later release wrote it.
"""

from __future__ import annotations

from typing import Any, Final, Literal, get_args

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    text,
)

METADATA = MetaData()

VERSION_TABLE: Final = "zapdb_storage_version"
"""Alembic's own table, with the storage version: where it is, the others are."""

WORDS: Final = "words"
"""In the `info` of a column: the closed set that its cells are of."""


def word(name: str, words: Any, *, nullable: bool = False) -> Column[Any]:
    """A column of texts that are members of a `Literal`."""
    return Column(name, Text, nullable=nullable, info={WORDS: get_args(words)})


def has_word_sql(column: Column[Any], wanted: str) -> str:
    """Return the condition of the rows with a word, and of those whose words this release does not
    know: reading these says so, where leaving them out would be silent."""
    others = [f"'{other}'" for other in column.info[WORDS] if other != wanted]
    return f"{column.name} NOT IN ({', '.join(others)})"


MigrationState = Literal["stored", "rolled_back"]
RevisionEvent = Literal["create", "change", "drop", "restore", "rollback", "reapply", "recovered"]
"""Events of a table's new revision."""
TenantEvent = Literal["activation", "rollback"]
"""Events of a tenant's new position."""
OperatorEvent = Literal[
    "change_log_on",
    "change_log_off",
    "archive_pruning",
    "archive_pruned",
    "history_purged",
    "history_erased",
    "history_field_erased",
]
ChangeEvent = Literal[RevisionEvent, TenantEvent, OperatorEvent]
RangeState = Literal["free", "running", "done"]
StoreState = Literal["baseline", "follows", "stopped", "broken"]
FileKind = Literal["checkpoint", "ended", "segment", "moments"]
FileState = Literal["live", "retired"]
EraState = Literal["baseline", "open", "sealed"]
EraDoubt = Literal["archive_pruning"]


_IS_EVENT = "event IS NOT NULL"
IS_DELETION: Final = "event IS NULL AND after IS NULL"
IS_REFUSED_CALL: Final = "status = 'PERMISSION_DENIED'"
"""Of a row of `zapdb_changes`."""

GATE = Table("zapdb_gate", METADATA, Column("unused", Integer))
"""Never holds a row; on PostgreSQL its table lock is the gate (rule 7)."""

CATALOG = Table(
    "zapdb_catalog",
    METADATA,
    Column("kind", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("seq", BigInteger, nullable=False),
    Column("value", Text),
    Index("zapdb_catalog_seq", "seq", unique=True),
)
"""The catalog's state, one JSON value per (kind, key): the catalog feed, compacted by key (rule
30).

A row without a value is a tombstone: the key was deleted by the change with that seq.
"""

LEASES = Table(
    "zapdb_leases",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("since", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
)
"""Leases (rule 9); every writing transaction compares its node's epoch.

Leases are no part of the catalog: taking or renewing one changes nothing in the catalog feed.
"""

COUNTERS = Table(
    "zapdb_counters",
    METADATA,
    Column("name", Text, primary_key=True),
    Column("value", BigInteger, nullable=False),
)
"""The last number drawn, by kind; numbers are never used again (rule 3).

`horizon` is not drawn: the newest seq up to which tombstones may have been purged.
"""

SEQUENCES = Table(
    "zapdb_sequences",
    METADATA,
    Column("tenant", BigInteger, primary_key=True, autoincrement=False),
    Column("field", BigInteger, primary_key=True, autoincrement=False),
    Column("block_after", BigInteger, nullable=False),
    Column("last", BigInteger, nullable=False),
)
"""The last number drawn from each sequence, or used explicitly; the newest block has the numbers
above `block_after` up to it."""

CATALOG_VERSIONS = Table(
    "zapdb_catalog_versions",
    METADATA,
    Column("tenant", BigInteger, primary_key=True, autoincrement=False),
    Column("version", BigInteger, nullable=False),
)
"""The catalog version of each tenant, which every change of its active schema raises; read by every
statement (rule 8)."""

MIGRATIONS = Table(
    "zapdb_migrations",
    METADATA,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("parent", BigInteger, nullable=False),
    Column("number", BigInteger, nullable=False),
    Column("name", Text, nullable=False),
    Column("summary", Text, nullable=False),
    word("state", MigrationState),
    Column("digest", Text, nullable=False),
    Column("structure", LargeBinary, nullable=False),
    Column("numbers", LargeBinary, nullable=False),
    Column("source_hash", LargeBinary, nullable=False),
    Column("stored_at", BigInteger, nullable=False),
    Column("stored_by", Text, nullable=False),
    Column("rolled_back_at", BigInteger),
    Column("rolled_back_by", Text),
)
"""Every migration ever stored, exactly; `state` is stored or rolled_back. `parent` is the id of the
one that it was stored behind, 0 if there was none: all of them are a tree, and the chain is the
path to the newest one that is stored."""

SCHEMAS = Table(
    "zapdb_schemas",
    METADATA,
    Column("table_number", BigInteger, primary_key=True, autoincrement=False),
    Column("migration", BigInteger, primary_key=True, autoincrement=False),
    Column("content", LargeBinary, nullable=False),
)
"""What each stored migration, by its id, has changed: the new schema of each table, and under the
table number 0 which tables and types there are. Compressed by zlib."""

SCHEMA_HISTORY = Table(
    "zapdb_schema_history",
    METADATA,
    Column("tenant", BigInteger, primary_key=True),
    Column("table_number", BigInteger, primary_key=True),
    Column("revision", BigInteger, primary_key=True),
    word("event", RevisionEvent),
    Column("fingerprint", LargeBinary, nullable=False),
    Column("migrated_at", BigInteger, nullable=False),
    Column("migrated_by", Text, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("migration", BigInteger, nullable=False),
    Column("record_format", BigInteger, nullable=False),
    Column("layout_revision", BigInteger, nullable=False),
    Column("first_layout_revision", BigInteger, nullable=False),
    Column("table_schema", LargeBinary, nullable=False),
)
"""The append-only schema history; `revision` prefixes records.

`table_schema` holds the canonical bytes of the schema, compressed by zlib.
"""

ARCHIVES = Table(
    "zapdb_archives",
    METADATA,
    Column("tenant", BigInteger, primary_key=True, autoincrement=False),
    Column("table_number", BigInteger, primary_key=True, autoincrement=False),
    Column("key", LargeBinary, primary_key=True),
    Column("cell", BigInteger, primary_key=True, autoincrement=False),
    Column("value", LargeBinary, nullable=False),
)
"""Values of dropped fields by record key and cell; an empty one is a null (rule 19)."""

BLOBS = Table(
    "zapdb_blobs",
    METADATA,
    Column("id", LargeBinary, primary_key=True),
    Column("chunk", BigInteger, primary_key=True, autoincrement=False),
    Column("checksum", BigInteger, nullable=False),
    Column("data", LargeBinary, nullable=False),
)
"""Large values in chunks, numbered from 0; owned by the records that refer to them (rule 28)."""

ZONES = Table(
    "zapdb_zones",
    METADATA,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("name", Text, nullable=False, unique=True),
)
"""The numbers of time zones in records; append-only."""

RANGES = Table(
    "zapdb_ranges",
    METADATA,
    Column("job", Text, primary_key=True),
    Column("range", BigInteger, primary_key=True),
    Column("lower", LargeBinary),
    Column("upper", LargeBinary),
    word("state", RangeState),
    Column("fence", BigInteger, nullable=False),
    Column("owner", Text, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("resume_after", LargeBinary),
    Column("read", BigInteger, nullable=False),
    Column("written", BigInteger, nullable=False),
    Column("conflicts", BigInteger, nullable=False),
)
"""The key ranges (lower, upper] of a job, each with its own lease, fence and counters.

Rows without a job, `import/…` of three parts and `spark/…`, say how far an import or a write by
Spark has come.
"""

RANGE_REVISIONS = Table(
    "zapdb_range_revisions",
    METADATA,
    Column("tenant", BigInteger, primary_key=True, autoincrement=False),
    Column("table_number", BigInteger, primary_key=True, autoincrement=False),
    Column("revision", BigInteger, primary_key=True, autoincrement=False),
    Column("lower", LargeBinary, primary_key=True),
    Column("upper", LargeBinary),
)
"""Facts about a table's records: none whose key is in (lower, upper] has a lower revision; an empty
`lower`, and no `upper`, are no bound."""

QUARANTINE = Table(
    "zapdb_quarantine",
    METADATA,
    Column("job", Text, primary_key=True),
    Column("key", LargeBinary, primary_key=True),
    Column("tenant", BigInteger, nullable=False),
    Column("reason", Text, nullable=False),
    Column("found_at", BigInteger, nullable=False),
)
"""The records that a job could not read, by their keys, and why."""

PROBES = Table(
    "zapdb_probes",
    METADATA,
    Column("job", Text, primary_key=True),
    Column("worker", Text, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("latency_us", BigInteger, nullable=False),
    Column("share_percent", BigInteger, nullable=False),
    Column("probed_at", BigInteger, nullable=False),
)
"""What a process that works on a job has measured last: how long a small write takes beside it, and
the share of the time that the process works because of that. Old rows mean nothing."""

COMMIT_TOKENS = Table(
    "zapdb_commit_tokens",
    METADATA,
    Column("id", LargeBinary, primary_key=True),
    Column("owner", Text, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
)
"""Transactions that took effect and carried a token (rule 15), by a UUID of version 7; `owner` is
the id of the node, or `-` where the transaction is never to take effect."""

TRANSACTIONS = Table(
    "zapdb_transactions",
    METADATA,
    Column("tenant", BigInteger, primary_key=True, autoincrement=False),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("commit_order", BigInteger, nullable=False),
    Column("principal", Text, nullable=False),
    Column("made_at", BigInteger, nullable=False),
)
"""The transactions of the change log (rule 29), with their principals and times.

A number is an incarnation and a transaction's id on PostgreSQL, and a counter's on SQLite.
`commit_order` is allocated at the end of a transaction: a transaction that depends on another one
has a higher one.
"""

CHANGES = Table(
    "zapdb_changes",
    METADATA,
    Column("tenant", BigInteger, primary_key=True, autoincrement=False),
    Column("transaction_number", BigInteger, primary_key=True, autoincrement=False),
    Column("table_number", BigInteger, primary_key=True, autoincrement=False),
    Column("key", LargeBinary, primary_key=True),
    word("event", ChangeEvent, nullable=True),
    Column("before", LargeBinary),
    Column("after", LargeBinary),
    Column("replaced", Boolean),
    Column("archive_before", LargeBinary),
    Column("archive_after", LargeBinary),
    Index("zapdb_changes_by_key", "tenant", "table_number", "key", "transaction_number"),
    Index(
        "zapdb_changes_events",
        "tenant",
        "transaction_number",
        sqlite_where=text(_IS_EVENT),  # PostgreSQL's: complete_for_postgresql
    ),
    Index(
        "zapdb_changes_deletions",
        "tenant",
        "table_number",
        "key",
        sqlite_where=text(IS_DELETION),
    ),
    sqlite_with_rowid=False,
)
"""What each transaction did to each key, `before` and `after` as the records' bytes; an insert has
no `before`, a deletion no `after`; `replaced` is true where the record was deleted and inserted
again, else null. `archive_before` and `archive_after` are all archived values of the record, if the
transaction changed one of them; both are null if it did not (see `zapdb.records.archive_cells`).

Rows with an `event` are schema events: of a table, with its new revision, or of the tenant, with
table number 0.
"""

INCARNATIONS = Table(
    "zapdb_incarnations",
    METADATA,
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("server", Text, nullable=False),
    Column("began_by", BigInteger, nullable=False),
    Column("began_at", BigInteger, nullable=False),
)
"""The servers that a PostgreSQL database has lived on: their system identifiers, and the ids of the
transactions that wrote the rows there. Empty on SQLite. See `zapdb.log.incarnations`."""

STAMPS = Table(
    "zapdb_stamps",
    METADATA,
    Column("tenant", BigInteger, primary_key=True, autoincrement=False),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("snapshot", Text, nullable=False),
    Column("stamped_at", BigInteger, nullable=False),
    Column("moment", BigInteger, nullable=False),
    Column("visible_at", BigInteger, nullable=False),
)
"""Stamps on PostgreSQL: `number` is the stamp of all changes that are visible in `snapshot` and in
no earlier one; `moment` counts the transactions up to its end, and `visible_at` is the time from
which the last of them is visible. On SQLite, the transaction's number is stamp and moment."""

FOLLOWERS = Table(
    "zapdb_followers",
    METADATA,
    Column("tenant", BigInteger, primary_key=True, autoincrement=False),
    Column("name", Text, primary_key=True),
    Column("bookmark", Text, nullable=False),
    Column("advanced_at", BigInteger, nullable=False),
)
"""The bookmark of each named follower of the change log; the row with an empty name has the log's
beginning, directly after the pruned changes."""

HISTORY_STORES = Table(
    "zapdb_history_stores",
    METADATA,
    Column("tenant", BigInteger, primary_key=True, autoincrement=False),
    Column("timeline", Text, primary_key=True),
    Column("directory", Text, nullable=False),
    Column("format", BigInteger, nullable=False),
    word("state", StoreState),
    Column("begins", BigInteger, nullable=False),
    Column("ends", BigInteger, nullable=False),
    Column("ends_bookmark", Text, nullable=False),
    Column("visible_at", BigInteger, nullable=False),
    Column("purged_before", BigInteger, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Column("flushed_at", BigInteger, nullable=False),
    Column("commits", BigInteger, nullable=False),
    Column("problem", Text),
    Column("former_directories", Text, nullable=False),
)
"""The history stores of tenants: which moments are in files, from `begins` to `ends`.

A tenant's newest timeline, a UUID of version 7, is the one that is followed; earlier ones are only
read. `visible_at` is the time from which the moment `ends` is visible, `commits` how many
transactions have changed what files it has, and `problem` says why the follower can't go on.
`former_directories` is JSON with those that it was moved out of: what is left there is not erased.
"""

HISTORY_FILES = Table(
    "zapdb_history_files",
    METADATA,
    Column("tenant", BigInteger, primary_key=True, autoincrement=False),
    Column("timeline", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("table_number", BigInteger, nullable=False),
    Column("era", BigInteger, nullable=False),
    word("kind", FileKind),
    Column("first_moment", BigInteger, nullable=False),
    Column("last_moment", BigInteger, nullable=False),
    Column("revision", BigInteger, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("size_bytes", BigInteger, nullable=False),
    Column("sha256", LargeBinary, nullable=False),
    Column("key_lower", LargeBinary),
    Column("key_upper", LargeBinary),
    Column("directory", Text),
    word("state", FileState),
    Column("retired_at", BigInteger),
    Index("zapdb_history_files_by_table", "tenant", "timeline", "table_number", "era"),
)
"""The Parquet files of the history stores, each with the moments and keys of its rows; it is in
`directory`, or, if that is null, in the store's directory, under a name that is made of the row. A
file's bytes never change once its row is committed."""

HISTORY_ERASURES = Table(
    "zapdb_history_erasures",
    METADATA,
    Column("tenant", BigInteger, primary_key=True, autoincrement=False),
    Column("id", Text, primary_key=True),
    Column("table_number", BigInteger, nullable=False),
    Column("key", LargeBinary),
    Column("fields", Text, nullable=False),
    Column("resume_after", LargeBinary),
    Column("counted", Text),
    Column("key_sha256", LargeBinary, nullable=False),
    Column("proof", Text, nullable=False),
    Column("requested_at", BigInteger, nullable=False),
    Column("finished_at", BigInteger),
)
"""Records, or fields of them, that were erased from the past. `key` is null once they are gone from
all files, and for all records; `key_sha256` stays, of the id and the key. `fields` has their
numbers, or is empty for the whole record. `resume_after` is the key up to which the database itself
is done with fields of all records; null when it is. `counted` is JSON with the transactions of a
record's logged changes; null when no moment counts them. `proof` is JSON with what was deleted."""

HISTORY_ERAS = Table(
    "zapdb_history_eras",
    METADATA,
    Column("tenant", BigInteger, primary_key=True, autoincrement=False),
    Column("timeline", Text, primary_key=True),
    Column("table_number", BigInteger, primary_key=True, autoincrement=False),
    Column("era", BigInteger, primary_key=True, autoincrement=False),
    Column("first_moment", BigInteger, nullable=False),
    Column("last_moment", BigInteger),
    Column("revision", BigInteger, nullable=False),
    Column("layout_revision", BigInteger, nullable=False),
    Column("live_rows", BigInteger, nullable=False),
    Column("changes", BigInteger, nullable=False),
    word("state", EraState),
    word("doubt", EraDoubt, nullable=True),
)
"""The eras of each table's history: a checkpoint at `first_moment`, and the changes after it up to
`last_moment`, or up to the store's end if that is null; `doubt` says why values may differ from
those of then, null if they do not."""


def complete_for_postgresql() -> None:
    """Add what only PostgreSQL is told: SQLAlchemy imports the engine's dialect for it, which a
    program with a SQLite file does without."""
    where = {
        "zapdb_changes_events": _IS_EVENT,
        "zapdb_changes_deletions": IS_DELETION,
        "zapdb_calls_refused": IS_REFUSED_CALL,
    }
    for index in (*CHANGES.indexes, *CALLS.indexes):
        if index.name in where:
            index.dialect_kwargs["postgresql_where"] = text(where[index.name])


CALLS = Table(
    "zapdb_calls",
    METADATA,
    Column("id", LargeBinary, primary_key=True),
    Column("called_at", BigInteger, nullable=False),
    Column("principal", Text, nullable=False),
    Column("method", Text, nullable=False),
    Column("tenant_name", Text, nullable=False),
    Column("tables", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("duration_us", BigInteger, nullable=False),
    Index("zapdb_calls_by_time", "called_at", "id"),
    Index("zapdb_calls_refused", "called_at", "id", sqlite_where=text(IS_REFUSED_CALL)),
)
"""The call log of services; no rows of the catalog, which every process caches. The tenant and the
tables (JSON) are names as the request had them, so the calls for a tenant outlive it; `status` is
that of gRPC."""

REQUESTS = Table(
    "zapdb_requests",
    METADATA,
    Column("principal", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("request", LargeBinary, nullable=False),
    Column("owner", Text, nullable=False),
    Column("answer", LargeBinary),
    Column("expires_at", BigInteger, nullable=False),
)
"""Requests to services that have an idempotency key, and their answers once they are there. No
such answer has values of records: an erasure does not look here."""
