"""Every bound of zapdb, named, with its unit last.

A bound is part of the contract: what exceeds one is refused with an error that names it, before
anything is written. Bounds of stored bytes may be raised by a later release, never lowered.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Self


class RetryPolicy(NamedTuple):
    """How something is tried again: no more often than `tries` (None: as often as there is time),
    and not once `seconds` have passed since it was first tried.

    The pause before each further try is random, up to `pause_seconds` at first, which doubles each
    time up to `pause_seconds_max`. Metrics and errors call it by its name.
    """

    name: str
    seconds: float
    tries: int | None = None
    pause_seconds: float = 0.002
    pause_seconds_max: float = 0.25

    def within(self, seconds: float) -> Self:
        """The same with another deadline."""
        return self._replace(seconds=seconds)

    def __str__(self) -> str:
        tries = "" if self.tries is None else f"{self.tries} tries in "
        return f"{tries}{self.seconds:,} s"


# Values
VARINT_SIZE_BYTES_MAX: Final = 63
"""Payload bytes of an orderable varint: integers lie in −256⁶³ … 256⁶³ − 1."""
DECIMAL_SCALE_MAX: Final = 64
"""Digits after the point of a decimal."""
VALUE_SIZE_BYTES_MAX: Final = 4 * 1024 * 1024
"""One string, JSON value, struct or list, encoded; a binary inside a struct or list too."""
BINARY_SIZE_BYTES_MAX: Final = 64 * 1024 * 1024
"""The binary value of a field."""
INLINE_SIZE_BYTES_MAX: Final = 4 * 1024
"""A string or binary field that a record holds itself; a larger one is a blob (rule 28)."""
BLOB_CHUNK_SIZE_BYTES: Final = 256 * 1024
"""A row of the blob table."""
TYPE_DEPTH_MAX: Final = 8
"""Structs and lists inside structs and lists."""
ENUM_MEMBERS_MAX: Final = 4_096
STRUCT_MEMBERS_MAX: Final = 256
JSON_DEPTH_MAX: Final = 64
"""Nesting of a JSON value."""

# Keys
RECORD_KEY_SIZE_BYTES_MAX: Final = 1024
"""A record's key, all its fields together (rule 21)."""
INDEX_KEY_SIZE_BYTES_MAX: Final = 1024
"""An index entry's key over all components, before the record key (rule 24)."""

# Schemas
NAME_LENGTH_MAX: Final = 63
"""Characters of a table's, field's, index's or tenant's name."""
FIELDS_PER_TABLE_MAX: Final = 1_000
INDEX_COMPONENTS_MAX: Final = 16
CHECKS_PER_TABLE_MAX: Final = 100

# The catalog
PRINCIPAL_LENGTH_MAX: Final = 255
"""Characters of whom the catalog names for a change: as long as a token's subject may be."""

EXCERPT_LENGTH_MAX: Final = 60
"""How much of a refused value the context of an error holds."""
ERROR_VALUE_CHARS_MAX: Final = 2_000
"""Of one value that an error, or a line of a log, shows to people."""

# Documents and expressions
SUMMARY_LENGTH_CHARS_MAX: Final = 500
"""Of a migration's summary and of a reason: one line, without control characters."""
DOCUMENT_SIZE_BYTES_MAX: Final = 1024 * 1024
DOCUMENT_DEPTH_MAX: Final = 32
MIGRATIONS_MAX: Final = 100_000
PROOFS_REMEMBERED_MAX: Final = 1_000
"""Migrations whose proofs a process keeps, so that it does not try the same ones twice."""
COMPILED_MAX: Final = 1_000
"""Codecs and decoders that a process keeps for all databases, and for the time zones of each; and
conversions, conversion plans and archived fields that it keeps for each chain of migrations."""
EXPRESSION_LENGTH_CHARS_MAX: Final = 2_000
"""As its author writes it."""
EXPRESSION_CANONICAL_LENGTH_CHARS_MAX: Final = 12_000
"""As it is stored: blanks, parentheses and escapes make it longer, but not by more than this."""
EXPRESSION_DEPTH_MAX: Final = 32
EXPRESSION_NODES_MAX: Final = 500
EXPRESSION_PARENTHESES_MAX: Final = 100
"""Open at a time: where Python gives up depends on its release."""

# Processes
NODE_LEASE_SECONDS: Final = 30.0
"""A node that did not renew its lease for this long counts as dead."""
NODE_HEARTBEAT_SECONDS: Final = 10.0
NODE_KEPT_SECONDS: Final = 600.0
"""The row of a node whose lease has been over for this long is removed by other processes."""
REBUILD_WHEN_OPENING_SECONDS: Final = 5.0
"""How long opening a database works on indexes whose collation or time zone data changed; what is
left then is done beside its use."""
FORMER_DATASETS_MAX: Final = 100
"""Of the data that an index was built with before, so many are remembered for each dataset."""
RANGE_LEASE_SECONDS: Final = 10.0
"""A job renews with every batch, that is every few milliseconds."""
CHAIN_LEASE_SECONDS: Final = 30.0
TENANT_WORKERS: Final = 4
"""Tenants that are migrated at the same time, on a server."""
ACTIVATION_WAIT_SECONDS: Final = 10.0
"""How long opening a database waits for them by itself."""
GATE_WAIT_LOGGED_SECONDS: Final = 1.0
"""A transaction that waited longer for the gate is logged."""
GATE_LOCK_TIMEOUT_MS: Final = 250
"""One attempt: a waiting exclusive lock stops new writers, so it may not wait for long."""
CATALOG_IDLE_SECONDS: Final = 10.0
"""PostgreSQL ends a small write to the catalog, such as a heartbeat, that its process has left
alone for so long: the rows that it holds keep others from putting the process out. The same for an
operation that keeps all other writers out."""
GATE_IDLE_SECONDS: Final = 30.0
"""A holder of the gate that has no node counts as gone after this much silence."""
WRITE_BACK_LOCK_TIMEOUT_MS: Final = 20
"""How long writing a converted record back after a read waits for a lock."""
BUSY_TIMEOUT_MS: Final = 30_000
"""How long a SQLite connection waits for the single writer's place."""
BUSY_SLICE_MS: Final = 100
"""The same for a call that may be interrupted, which looks so often whether it was."""
LONG_TRANSACTION_SECONDS: Final = 5.0
"""A SQLite transaction that kept all other writers out for longer makes up for it: what was leased
when it began is leased for as much longer."""
CONNECTIONS_MAX: Final = 20
"""Transactions and snapshots that a process may have open at once, unless `open` is told otherwise:
each has a connection. Threads keep one more each, for single operations."""
CONNECTION_WAIT_SECONDS: Final = 5.0
"""How long the beginning of another one waits until one of them ends."""
CANCEL_SECONDS: Final = 2.0
"""How long it is tried to tell a PostgreSQL server that a statement is to be cancelled."""
STRIKE_SECONDS: Final = 0.02
"""How often what a cancelled asyncio task has under way is interrupted, until it ends."""
ASYNC_READERS: Final = 6
"""Threads that single reading operations of `zapdb.aio` share, for each open database."""
ASYNC_WRITERS: Final = 6
"""The same for single writing operations."""
ASYNC_STATEMENTS: Final = 4
"""The same for statements of `db.sql`."""
ASYNC_TASKS: Final = 4
"""The same for what may take long: `verify`, `sweep`, `run_jobs`, changes, other tenants."""
ASYNC_LOADED_SIZE_BYTES: Final = 16 * 1024 * 1024
"""An asynchronous iterator reads no further ahead once it holds large values of this size."""
SERIAL_WAIT_SECONDS: Final = 30
"""How long a serializable snapshot on PostgreSQL waits for a moment that is safe."""
WAIT_CHECK_SECONDS: Final = 0.25
"""How often a thread that waits for its place looks whether it can ever get it."""
LOOP_WAIT_SECONDS: Final = 0.5
"""How long a call may wait on the thread of an event loop until it is looked whether it waits for a
transaction that only that loop can end."""
CATALOG_POLL_SECONDS: Final = 1.0
"""How often an open database looks for changes of the catalog."""
CATALOG_WAIT_SECONDS: Final = 10.0
"""How long a read that was given a seq waits by itself until the process has seen it."""
BACKGROUND_RETRY_SECONDS: Final = 5.0
"""When jobs in the background are tried again after an error."""
METRICS_TENANTS_MAX: Final = 100
"""Tenants that metrics name; beyond, they are counted only."""
TOMBSTONES_KEPT: Final = 1_000
"""Changes of the catalog that remember which keys they deleted; a process that is further behind
loads the catalog whole."""
PIPELINE_STATEMENTS_MAX: Final = 64
PIPELINE_SIZE_BYTES_MAX: Final = 1 << 20
"""What is sent to PostgreSQL at once, in statements and in bytes of their parameters; a parameter
that is larger goes alone."""
PREPARED_STATEMENTS_MAX: Final = 256
"""Statements of pipelines that a connection to PostgreSQL keeps prepared; the one that was used
longest ago makes room."""
COMMIT_TOKEN_KEPT_SECONDS: Final = 600.0
"""How long a commit token tells whether its COMMIT took effect."""
COMMIT_TOKEN_PURGE_SECONDS: Final = 60.0
"""How often a process that writes commit tokens deletes expired ones."""
EXCLUSIVE_AFTER_CONFLICTS: Final = 6
"""After so many conflicts an operation makes every second attempt under the exclusive gate."""
EXCLUSIVE_LOCK_TIMEOUT_MS: Final = 100
"""How long it waits for writers that hold the gate; meanwhile no other writer begins."""

# Trying again
WRITE: Final = RetryPolicy("write", seconds=30.0, tries=20)
"""An operation, or the function of `db.run`, that conflicted with a concurrent transaction. After
these seconds no further try begins: one that waited for a lock may have taken them all."""
READ: Final = RetryPolicy("read", seconds=30.0, tries=20)
"""A read whose tables were changed by a migration meanwhile, so that its rows can't be decoded."""
CATALOG: Final = RetryPolicy("catalog", seconds=900.0, tries=20)
"""Opening a database, planning jobs and sweeping, when the catalog changed meanwhile."""
BATCH: Final = RetryPolicy("batch", seconds=120.0, tries=20)
"""A batch of a job that conflicted with a writer."""
LEASE: Final = RetryPolicy("lease", seconds=60.0, pause_seconds=0.02, pause_seconds_max=0.5)
"""Taking a lease that another process holds."""
GATE: Final = RetryPolicy("gate", seconds=10.0, pause_seconds=0.5, pause_seconds_max=0.5)
"""Taking the gate exclusively while writers hold it; they go on in the pauses."""
COMMIT_OUTCOME: Final = RetryPolicy("commit outcome", seconds=10.0, pause_seconds=0.1)
"""Finding out whether a COMMIT took effect, when the database can't be reached."""
ACTIVATION: Final = RetryPolicy("activation", 10.0, pause_seconds=0.2, pause_seconds_max=0.2)
"""Activating a migration that waits until all running processes have its file."""
WRITER: Final = RetryPolicy("writer", seconds=30.0, pause_seconds=0.0)
"""Waiting for SQLite's single writer's place, on behalf of a task that may be cancelled."""
JOURNAL_MODE: Final = RetryPolicy("journal mode", seconds=30.0, pause_seconds=0.01)
"""Switching a new SQLite file to write-ahead logging, which only one process can do at a time."""
CLOSE: Final = RetryPolicy("close", seconds=5.0, pause_seconds=0.002, pause_seconds_max=0.002)
"""Closing a SQLite connection on which another thread runs a statement."""

# Jobs
RANGE_RECORDS: Final = 16_384
"""Records a planned range holds."""
OTHERS_POLL_SECONDS: Final = 0.2
"""How often a runner that has no range left looks whether other processes are done with theirs."""
RANGES_PER_JOB_MAX: Final = 4_096
BATCH_TARGET_SECONDS: Final = 0.020
"""A batch of a job holds its locks no longer than about this (rule 17)."""
BATCH_RECORDS_MIN: Final = 16
"""A batch after conflicts."""
WRITE_BACK_RECORDS: Final = 250
"""Records that were read and are written back converted in one transaction."""
BATCH_RECORDS_SLOW_MIN: Final = 128
"""A batch that is slow without conflicts: below this, fixed costs are most of its time."""
BATCH_RECORDS_MAX: Final = 4_096
SWEEP_AGE_SECONDS: Final = 3_600.0
"""Blobs that are younger are left alone by a sweep: longer than any transaction may live."""
SWEEP_SLICE_BLOBS: Final = 100_000
"""Blobs whose ids a sweep holds at a time; it walks all records once for each slice."""
SWEEP_BATCH_BLOBS: Final = 64
"""Blobs that a sweep deletes in one transaction."""
BATCH_BLOBS: Final = 16
"""New blobs that a job holds before it stores them, inside its transaction."""
CHANGES_PENDING_MAX: Final = 4_096
"""Changes of records that a transaction gathers for the change log before it writes some."""
CHANGES_PENDING_SIZE_BYTES_MAX: Final = 16 * 1024 * 1024
"""The same by the size of the records."""
CHANGES_PAGE: Final = 500
"""Changes that are read from the change log at a time."""
CHANGES_COUNTED_MAX: Final = 100_000
"""Counting stops here: changes that a follower is behind, or that pruning would delete."""
PRUNE_BATCH_CHANGES: Final = 1_000
"""Changes that a pruning of the change log deletes in one transaction."""
INSERT_BATCH_RECORDS: Final = 2_000
PAGE_RECORDS_MAX: Final = 1_000
"""Records fetched at a time by a scan."""
PAGE_RECORDS_FIRST: Final = 64
"""Records fetched at first by a query or lookup: many want few."""
PAGE_RECORDS_GROWTH: Final = 4
"""A query's next page is so many times larger, up to the largest."""
RACE_HEAD_START_RECORDS: Final = PAGE_RECORDS_FIRST * (1 + PAGE_RECORDS_GROWTH)
"""Where it is not known whether it is shorter to sort all that match or to go through an order
until there are enough: how many records of the first kind are looked at before the second."""
RACE_TURN_RECORDS: Final = PAGE_RECORDS_MAX
"""How many of each are looked at in turn from then on."""
PLAN_SPANS_MAX: Final = 1_000
"""Ranges of an index that one query reads; of `in_` lists that would make more, fewer are used."""
PLAN_BRANCHES_MAX: Final = 16
"""Conditions under `|` that a query reads by ranges of several indexes; with more, it scans."""
PLANS_KEPT_MAX: Final = 256
"""Shapes of queries, of one table, whose way through its indexes a process remembers."""
ESTIMATE_RECORDS_MAX: Final = 100_000
"""As far as `explain` counts the records in the ranges that a query reads."""
ESTIMATE_SAMPLE_RECORDS: Final = 100
"""Records that `explain` reads to estimate what share of those in the ranges a query gives."""
INCLUDE_RECORDS_MAX: Final = 500
"""Records whose references a query with `include` loads at a time."""
CURSOR_SIZE_BYTES_MAX: Final = 16 * 1024
"""The place in a query that a cursor holds, before it is made text."""
ARROW_BATCH_SIZE_BYTES: Final = 64 * 1024 * 1024
"""An Arrow batch ends with the record that brings it to this size, blobs included."""
SQL_MEMORY_SIZE_BYTES: Final = 512 * 1024 * 1024
"""What the process of a statement of `db.sql` may take, and its answer, by default."""
SQL_SECONDS: Final = 30.0
"""How long it may take, by default."""
SQL_ROWS: Final = 1_000_000
"""How many rows its answer may have, by default."""
SQL_AHEAD_BATCHES_MAX: Final = 8
"""Batches of a table that a statement is sent at a time, after the first ones."""
SQL_AHEAD_SIZE_BYTES: Final = 4 * 1024 * 1024
"""No more are sent at a time once they have this size."""
SQL_START_SECONDS: Final = 60.0
"""How long is waited for the process that forks those of statements, once, to start."""
SQL_END_SECONDS: Final = 5.0
"""How long is waited for the process of a statement to be gone, after it was killed."""
SQL_ROWS_SHOWN: Final = 40
"""Rows of an answer that `show` prints, unless it is told otherwise."""
VIOLATIONS_SHOWN_MAX: Final = 50
"""Violations of a document, differences of two migrations, or findings that one report shows."""
