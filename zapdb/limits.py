"""Every bound of zapdb, with its unit last in its name.

A bound is part of the contract: a value that exceeds one is refused with an error that names it,
before anything is written. A later release may raise a bound of stored bytes, but never lower it.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Self


class RetryPolicy(NamedTuple):
    """How often and how long an operation is tried again: at most `tries` times (None: without
    bound), and not after `seconds` have passed since the first try.

    The pause before each further try is random, at most `pause_seconds` at first. That bound
    doubles with each try, up to `pause_seconds_max`. Metrics and errors show the policy's name.
    """

    name: str
    seconds: float
    tries: int | None = None
    pause_seconds: float = 0.002
    pause_seconds_max: float = 0.25

    def within(self, seconds: float) -> Self:
        """Return the same policy with another deadline."""
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
"""One encoded string, JSON value, struct or list, or one binary inside a struct or list."""
BINARY_SIZE_BYTES_MAX: Final = 64 * 1024 * 1024
"""One binary value of a field."""
INLINE_SIZE_BYTES_MAX: Final = 4 * 1024
"""A string or binary value inside its record; a larger one is a large value outside it (rule
28)."""
BLOB_CHUNK_SIZE_BYTES: Final = 256 * 1024
"""One row of the blob table."""
TYPE_DEPTH_MAX: Final = 8
"""Nesting of structs and lists."""
ENUM_MEMBERS_MAX: Final = 4_096
STRUCT_MEMBERS_MAX: Final = 256
JSON_DEPTH_MAX: Final = 64
"""Nesting of a JSON value."""

# Keys
RECORD_KEY_SIZE_BYTES_MAX: Final = 1024
"""A record's key, all its fields together, encoded (rule 21)."""
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
"""Characters of a principal, which the catalog records for each change; a token's subject may be
that long."""

HISTORY_ENTRIES_MAX: Final = 1_024
"""Entries of a table's schema history in one answer, with their schemas: a megabyte or so. Whoever
wants more asks again from behind the last one."""
SCHEMA_NAMES_KEPT_MAX: Final = 4_096
"""Stored table schemas of which a process knows the names: two megabytes or so."""
HISTORY_ENTRIES_UNASKED: Final = 64
"""The same where the request names no number."""

EXCERPT_LENGTH_MAX: Final = 60
"""Characters of a refused value in the context of an error."""
ERROR_VALUE_CHARS_MAX: Final = 2_000
"""Characters of one value in the text of an error or of a line of the log."""

# Sequences
SEQUENCE_MAX: Final = 2**63 - 1
"""The last number of a sequence."""
SEQUENCE_BLOCK_NUMBERS_MAX: Final = 1_000
"""Numbers that a process draws from a sequence at a time, and may leave unused when it ends: as
many as it drew before, up to this bound. One operation draws more if it needs them."""

# Documents and expressions
SUMMARY_LENGTH_CHARS_MAX: Final = 500
"""A migration's summary, or a reason: one line, without control characters."""
DOCUMENT_SIZE_BYTES_MAX: Final = 1024 * 1024
DOCUMENT_DEPTH_MAX: Final = 32
MIGRATIONS_MAX: Final = 100_000
PROOFS_REMEMBERED_MAX: Final = 1_000
"""Migrations whose proofs a process keeps, so that it does not prove the same migration twice."""
COMPILED_MAX: Final = 1_000
"""Codecs and decoders that a process keeps for all databases, and for each database's time zones;
also conversions, conversion plans and archived fields that it keeps for each chain."""
EXPRESSION_LENGTH_CHARS_MAX: Final = 2_000
"""An expression as its author writes it."""
EXPRESSION_CANONICAL_LENGTH_CHARS_MAX: Final = 12_000
"""An expression as it is stored. Blanks, parentheses and escapes make it longer than the author's
text, but never longer than this."""
EXPRESSION_DEPTH_MAX: Final = 32
EXPRESSION_NODES_MAX: Final = 500
EXPRESSION_PARENTHESES_MAX: Final = 100
"""Parentheses that are open at the same time, since Python's own bound depends on its release."""

# Processes
NODE_LEASE_SECONDS: Final = 30.0
"""A node that has not renewed its lease for this long is dead."""
NODE_HEARTBEAT_SECONDS: Final = 10.0
NODE_KEPT_SECONDS: Final = 600.0
"""Other processes remove the row of a node this long after its lease expired."""
REBUILD_WHEN_OPENING_SECONDS: Final = 5.0
"""How long opening a database works on indexes whose collation or time zone data changed; a
background job does the rest."""
FORMER_DATASETS_MAX: Final = 100
"""Earlier versions that an index remembers for each dataset that it was built with."""
RANGE_LEASE_SECONDS: Final = 10.0
"""The lease of a job's range; each batch renews it, that is, every few milliseconds."""
CHAIN_LEASE_SECONDS: Final = 30.0
ROLLBACK_WAIT_SECONDS: Final = 5.0
"""How long a rollback waits for another process that changes the chain: one whose caller has left
ends after its present migration."""
TENANT_WORKERS: Final = 4
"""Tenants that are migrated at the same time on PostgreSQL."""
ACTIVATION_WAIT_SECONDS: Final = 10.0
"""How long opening a database waits for other processes, if the setting is not set."""
GATE_WAIT_LOGGED_SECONDS: Final = 1.0
"""A transaction that waited longer than this for the gate is logged."""
GATE_LOCK_TIMEOUT_MS: Final = 250
"""One attempt to take the gate exclusively; it is short, because a waiting exclusive lock stops new
writers."""
CATALOG_IDLE_SECONDS: Final = 10.0
"""PostgreSQL ends a small catalog write, such as a heartbeat, whose process has been silent for
this long, because its row locks keep others from evicting the process. The same holds for an
operation under the exclusive gate."""
GATE_IDLE_SECONDS: Final = 30.0
"""PostgreSQL ends a transaction that holds the gate, and has no node, after this much silence."""
WRITE_BACK_LOCK_TIMEOUT_MS: Final = 20
"""How long writing a converted record back after a read waits for a lock."""
BUSY_TIMEOUT_MS: Final = 30_000
"""How long a SQLite connection waits for a lock."""
LONG_TRANSACTION_SECONDS: Final = 5.0
"""A SQLite transaction that held the write lock for longer than this extends the leases that were
valid when it began by the same time."""
CONNECTIONS_MAX: Final = 20
"""Transactions and snapshots that a process may have open at the same time, by default: each has a
connection. Each thread keeps one more connection for single operations."""
CONNECTION_WAIT_SECONDS: Final = 5.0
"""How long beginning a transaction or snapshot waits for a free connection."""
POSTGRESQL_RELEASE_MIN: Final = 15
"""The oldest release of PostgreSQL on which the tests of storage run."""
CANCEL_SECONDS: Final = 2.0
"""How long a process tries to send a cancel request to a PostgreSQL server."""
CONNECT_SECONDS: Final = 30
"""How long connecting to a PostgreSQL server may take, unless its address has a connect_timeout:
nothing can interrupt it, and a network may carry nothing any more without saying so."""
STRIKE_SECONDS: Final = 0.02
"""How often the operation of a cancelled asyncio task is interrupted, until it ends."""
GIVE_BACK_SECONDS: Final = 1.0
"""How long the end of such an operation waits until a lease that it held is given back: a busy
database has it a little later."""
ASYNC_READERS: Final = 6
"""Threads that single reading operations of `zapdb.aio` share, for each open database."""
ASYNC_WRITERS: Final = 6
"""The same for single writing operations."""
ASYNC_STATEMENTS: Final = 4
"""The same for statements of `db.sql`."""
ASYNC_TASKS: Final = 4
"""The same for calls that may take long: `verify`, `sweep`, `run_jobs`, changes, other tenants."""
ASYNC_SCANS: Final = 4
"""The same for what a service reads of the past: how long that takes depends on the records."""
ASYNC_LONG_CALLS: Final = 8
"""The same for calls of a service that may take minutes: about migration files, rolling back,
counting all records. One has its place before its files are received, so files of so many calls are
in memory."""
ASYNC_LOADED_SIZE_BYTES: Final = 16 * 1024 * 1024
"""An asynchronous iterator stops reading ahead when its large values have this size."""
SERIAL_WAIT_SECONDS: Final = 30
"""How long a serializable snapshot on PostgreSQL waits for a safe moment (DEFERRABLE)."""
WAIT_CHECK_SECONDS: Final = 0.25
"""How often a thread that waits for a lock checks whether it can ever get it."""
LOOP_WAIT_SECONDS: Final = 0.5
"""How long a call on an event loop's thread waits before zapdb checks whether it waits for a
transaction that only that loop can end."""
CATALOG_POLL_SECONDS: Final = 1.0
"""How often an open database polls the catalog for changes."""
CATALOG_WAIT_SECONDS: Final = 10.0
"""How long `wait_for_catalog` waits by default until the process's catalog cache has a seq."""
BACKGROUND_RETRY_SECONDS: Final = 5.0
"""The pause before background jobs are tried again after an error."""
BLOCKED_RETRY_SECONDS: Final = 900.0
"""The pause before a watch tries blocked jobs again: what was in their way may be gone."""
BLOCKED_RETRY_PAUSES: Final = 20
"""The pause is at least as long as so many runs of the job, so trying costs a twentieth."""
METRICS_TENANTS_MAX: Final = 100
"""Tenants that metrics name; further ones are only counted."""
TOMBSTONES_KEPT: Final = 1_000
"""Catalog writes for which tombstones are kept; a process that is further behind loads the whole
catalog."""
PIPELINE_STATEMENTS_MAX: Final = 64
PIPELINE_SIZE_BYTES_MAX: Final = 1 << 20
"""Bounds of one pipeline to PostgreSQL: its statements, and the bytes of their parameters. A larger
parameter is sent in a pipeline of its own."""
PREPARED_STATEMENTS_MAX: Final = 256
"""Statements of pipelines that a connection to PostgreSQL keeps prepared; the least recently used
one is dropped first."""
COMMIT_TOKEN_KEPT_SECONDS: Final = 600.0
"""How long a commit token tells whether its COMMIT took effect."""
COMMIT_TOKEN_PURGE_SECONDS: Final = 60.0
"""How often a process that writes commit tokens deletes expired ones."""
EXCLUSIVE_AFTER_CONFLICTS: Final = 6
"""After this many conflicts, an operation makes every second attempt under the exclusive gate."""
EXCLUSIVE_SECONDS_MAX: Final = 1.0
"""The function of `db.run` does so only if each of its earlier tries took less."""
EXCLUSIVE_LOCK_TIMEOUT_MS: Final = 100
"""How long such an attempt waits for writers that hold the gate; no other writer begins
meanwhile."""

# Trying again
WRITE: Final = RetryPolicy("write", seconds=30.0, tries=20)
"""An operation, or the function of `db.run`, that conflicted with a concurrent transaction. No
further try begins after these seconds, even if a single try spent them waiting for a lock."""
READ: Final = RetryPolicy("read", seconds=30.0, tries=20)
"""A read whose rows can't be decoded because a migration changed its tables meanwhile."""
CATALOG: Final = RetryPolicy("catalog", seconds=900.0, tries=20)
"""Opening a database, planning jobs and sweeping, when the catalog changed meanwhile."""
ESTIMATE: Final = RetryPolicy("estimate", seconds=1.0)
"""Writing a sample that is rolled back, while others keep this process from writing."""
BATCH: Final = RetryPolicy("batch", seconds=120.0, tries=20)
"""A batch of a job that conflicted with a writer."""
SPLIT: Final = RetryPolicy("split", seconds=30.0)
"""Taking a part of another worker's range, when a third worker was faster."""
LEASE: Final = RetryPolicy("lease", seconds=60.0, pause_seconds=0.02, pause_seconds_max=0.5)
"""Taking a lease that another process holds."""
GATE: Final = RetryPolicy("gate", seconds=10.0, pause_seconds=0.5, pause_seconds_max=0.5)
"""Taking the gate exclusively while writers hold it; they go on in the pauses."""
SOURCE_LOCK: Final = RetryPolicy("source lock", seconds=30.0, pause_seconds_max=0.5)
"""Locking the tables of a source that is followed, for the last pass."""
SOURCE_LOCK_TIMEOUT_MS: Final = 700
"""How long one try waits for the first of them; new writers wait behind it."""
SOURCE_LOST: Final = RetryPolicy(
    "source lost", seconds=600.0, pause_seconds=0.2, pause_seconds_max=1.0
)
"""Reaching a source that is followed again, whose server was restarted, or the network was gone."""
SEQUENCE_LOCK_TIMEOUT_MS: Final = 5_000
"""How long drawing numbers of a sequence waits for a transaction that has drawn from it itself
(PostgreSQL): then the operation, or the transaction, has a conflict."""
SEQUENCE_TAKEN: Final = RetryPolicy("sequence", seconds=30.0, tries=5, pause_seconds=0.0)
"""Inserting again with other numbers of a sequence, where those were used explicitly."""
MOMENT_WAIT_SECONDS: Final = 1.0
"""How far in the future a time may be that names a moment: it is waited for, since clocks differ,
and that of SQLite has milliseconds."""
HISTORY_WAIT: Final = RetryPolicy(
    "history wait", seconds=60.0, pause_seconds=0.1, pause_seconds_max=0.5
)
"""Waiting for the follower of a history store to take changes into files."""
HISTORY_PINS: Final = RetryPolicy(
    "history pins", seconds=600.0, pause_seconds=0.1, pause_seconds_max=0.5
)
"""Waiting for readers that have pinned files of a history store which an erasure deletes."""
COMMIT_OUTCOME: Final = RetryPolicy("commit outcome", seconds=10.0, pause_seconds=0.1)
"""Finding out whether a COMMIT took effect, when the database can't be reached."""
ACTIVATION: Final = RetryPolicy("activation", 10.0, pause_seconds=0.2, pause_seconds_max=0.2)
"""Activating a migration that waits until every running process has its file."""
WRITER: Final = RetryPolicy("writer", 30.0, pause_seconds=0.002, pause_seconds_max=0.004)
"""Waiting for SQLite's write lock while another process has it."""
JOURNAL_MODE: Final = RetryPolicy("journal mode", seconds=30.0, pause_seconds=0.01)
"""Switching a new SQLite file to write-ahead logging; one process at a time can do so."""
DUCKDB_FILE: Final = RetryPolicy("duckdb file", seconds=10.0, pause_seconds=0.02)
"""For a DuckDB file that another thread of this process opens or closes at the moment."""
CLOSE: Final = RetryPolicy("close", seconds=5.0, pause_seconds=0.002, pause_seconds_max=0.002)
"""Closing a SQLite connection on which another thread runs a statement."""

# Spark
SPARK_PARTITION_RECORDS: Final = 50_000
"""Records in a partition of `spark.read.format("zapdb")`, unless the option `partitions` says
otherwise. An index answers conditions that match no more than these, in one partition."""
SPARK_PARTITIONS_MAX: Final = 1_000
"""Partitions of a table that is read by Spark."""
SAMPLE_BLOCKS: Final = 1_000
"""Blocks of a table on PostgreSQL whose keys are read to cut it into parts of about equal size.
Of a smaller table, all keys are read."""
SAMPLE_SHARE_MAX: Final = 0.3
"""The part of a table's blocks that is read at most."""
SAMPLE_RECORDS: Final = 20_000
"""Of fewer records in a range, all keys are counted."""
SAMPLE_CUTS: Final = 1_000
"""Into so many parts a sample cuts a range: those that are wanted are made of them."""
SPARK_BATCH_RECORDS: Final = 10_000
"""Records in an Arrow batch that a partition gives to Spark."""
SPARK_MARKS_KEPT_SECONDS: Final = 7 * 24 * 3600.0
"""How long the marks of a Spark write that failed are kept, for a run that goes on with it."""
SPARK_IDLE_SECONDS: Final = 10.0
"""How long a process of Spark keeps a database open for its next task: that comes soon, or late."""
SPARK_CONNECT_SECONDS: Final = 5.0
"""How long a session tries to connect to a Spark master before it says that it can't."""

# Jobs
RANGE_RECORDS: Final = 65_536
"""Records in a planned range."""
OTHERS_POLL_SECONDS: Final = 0.2
"""How often a runner without a range checks whether other processes have finished theirs."""
RANGES_PER_JOB_MAX: Final = 4_096
SPLIT_SECONDS_MIN: Final = 0.5
"""A range is cut in two, where a worker has none, if its own takes that much longer."""
SPLIT_RECORDS_MIN: Final = 2_048
"""It is not cut if fewer records are left: workers would spend the time on claiming."""
SPLIT_LOOK_RECORDS: Final = 65_536
"""Records counted in a range to find its middle; of more, the worker keeps half of these."""
JOB_PRIORITY_MAX: Final = 1_000
"""The highest priority of a job."""
CATALOG_LOOK_SECONDS: Final = 1.0
"""How often a watch of a service looks at the catalog."""
JOB_LOOK_SECONDS: Final = 1.0
"""How often a watch of a job tells how far it is."""
JOB_MEASURE_SECONDS_MAX: Final = 60.0
"""How long a job's rate is measured at most: a worker of the service waits meanwhile."""
BUILD_PAUSE_SHARE: Final = 0.25
"""The pause between two builds of indexes that queries wait for, as a part of the first one's time:
the queries that waited come at once when the index is there."""
BUILD_PAUSE_SECONDS_MAX: Final = 5.0
"""The longest such pause."""
THROTTLE_LOOK_SECONDS: Final = 1.0
"""How often a worker that waits for its throttle renews its lease and looks for changes."""
JOB_LATENCY_MS_MAX: Final = 600_000
"""The highest ceiling of what a small query may take beside a job."""
PROBE_SECONDS: Final = 0.2
"""How often a process that works on a job with a ceiling of latency measures the latency."""
PROBE_FRESH_SECONDS: Final = 5.0
"""How long what it measured is shown as what it measures now."""
PROBE_KEPT_SECONDS: Final = 3_600.0
"""How long the row of a probe is kept after its last measurement."""
SHARE_FIRST: Final = 0.1
"""The share of the time that a worker with a ceiling works before anything was measured."""
SHARE_LEAST: Final = 0.01
"""The share that is left however long queries take: a job always comes to its end."""
SHARE_DECREASE: Final = 0.5
"""By what the share is multiplied after each measurement above the ceiling."""
SHARE_INCREASE: Final = 1.05
"""And after each other one. With the two, after a while, about one measurement of fifteen is above
the ceiling: that is about the 93rd percentile of what queries take."""
BATCH_TARGET_SECONDS: Final = 0.020
"""How long a batch of a job should hold its locks (rule 17)."""
BATCH_RECORDS_FIRST: Final = 256
"""The first batch of a worker; what it takes tells the size of the next one."""
BATCH_RECORDS_MIN: Final = 16
"""The smallest batch after conflicts."""
WRITE_BACK_RECORDS: Final = 250
"""Stale records that one transaction writes back converted after a read."""
BATCH_RECORDS_SLOW_MIN: Final = 128
"""The smallest batch of a slow job without conflicts; smaller ones would spend most time on fixed
costs."""
BATCH_RECORDS_MAX: Final = 4_096
SWEEP_AGE_SECONDS: Final = 3_600.0
"""The age below which a sweep leaves blobs alone; no transaction may live that long."""
SWEEP_SLICE_BLOBS: Final = 100_000
"""Blobs whose ids a sweep holds in memory; it reads all records once for each such slice."""
SWEEP_BATCH_BLOBS: Final = 64
"""Blobs that a sweep deletes in one transaction."""
BATCH_BLOBS: Final = 16
"""New blobs that a job holds before it stores them, inside its transaction."""
CHANGES_PENDING_MAX: Final = 4_096
"""Changes that a transaction collects for the change log before it writes them."""
CHANGES_PENDING_SIZE_BYTES_MAX: Final = 16 * 1024 * 1024
"""The same bound in bytes of the records."""
CHANGES_PAGE: Final = 500
"""Changes that are read from the change log at a time."""
CHANGES_COUNTED_MAX: Final = 100_000
"""Counting stops here: changes that a follower is behind, that wait for a stamp, or that pruning
would delete."""
STAMPED_TENANTS_MAX: Final = 1_000
"""Tenants whose waiting changes get a stamp with one heartbeat of the node that gives them."""
RAISED_TENANTS_MAX: Final = 100
"""Tenants without waiting changes whose logs are stamped up to now with one heartbeat."""
PRUNE_BATCH_CHANGES: Final = 1_000
"""Changes that pruning deletes from the change log in one transaction."""
HISTORY_FILE_SIZE_BYTES: Final = 64 * 1024 * 1024
"""Rows of a checkpoint of the history store, without compression: with more, another file is
begun."""
HISTORY_HELD_SIZE_BYTES: Final = 16 * 1024 * 1024
"""Rows that a writer of such files holds at a time: so its memory grows neither with a transaction
nor with a table. Sorting takes them twice."""
HISTORY_RANGE_RECORDS: Final = 100_000
"""Records of a table that are read in one snapshot for its first checkpoint, and become one
file."""
HISTORY_BATCH_CHANGES_MAX: Final = 200_000
"""Changes after which a batch of the history store ends, with the transaction that they end in."""
HISTORY_PAGE_CHANGES: Final = 5_000
"""Changes that the history store reads from the log at a time."""
HISTORY_LEASE_SECONDS: Final = 30.0
"""The lease of the process that follows the change log for a history store."""
HISTORY_UPKEEP_WAIT_SECONDS: Final = 600.0
"""How long who flushes, purges, erases or moves waits for the follower to pause: one step may write
a large table anew."""
HISTORY_POLL_SECONDS: Final = 1.0
"""How often it looks for changes."""
HISTORY_RETRY_SECONDS: Final = 5.0
"""The pause before it tries again what failed: the directory is not there, or the disk is full."""
HISTORY_ORPHAN_SECONDS: Final = 24 * 3600.0
"""The age from which a file that no row names is deleted from a history store."""
HISTORY_ROW_GROUP_SIZE_BYTES_MAX: Final = 1024 * 1024 * 1024
"""A row group of a file of a store that is rebuilt, when it is decoded: its writer holds
`HISTORY_HELD_SIZE_BYTES` and what comes at once."""
HISTORY_MOMENTS_ROWS_MAX: Final = 4 * 1024 * 1024
"""Rows of a file of moments of such a store."""
HISTORY_MANIFEST_SIZE_BYTES_MAX: Final = 256 * 1024 * 1024
"""A manifest of a history store that is rebuilt; a file takes about 500 bytes of it."""
INSERT_BATCH_RECORDS: Final = 2_000
IMPORT_BLOCK_RECORDS: Final = 20_000
"""Rows of columns (Parquet, Arrow, frames) that an import writes in one transaction."""
IMPORT_BLOCK_SIZE_BYTES: Final = 16 * 1024 * 1024
"""A block of more bytes is written in smaller parts."""
TEXT_ROW_CHARS_MAX: Final = 1 << 28
"""Characters of a row of CSV or JSON that is read, as a line, over several ones, or in an array."""
EXPORT_MANIFEST_SIZE_BYTES_MAX: Final = 64 * 1024 * 1024
"""The manifest of an export that is loaded, and its list of tenants."""
ARROW_VALUES_MAX: Final = 16 * 1024 * 1024
"""Values of a column in a batch of an Arrow file; what it says of these is bounded as Parquet's."""
ARROW_BODY_SIZE_BYTES_MAX: Final = 1024 * 1024 * 1024
"""A batch of such a file, or all of its dictionaries, without compression."""
PARQUET_FOOTER_SIZE_BYTES_MAX: Final = 32 * 1024 * 1024
"""The footer of a Parquet file that is imported or restored, or of a store that is rebuilt."""
PARQUET_COLUMNS_MAX: Final = 10_000
"""Columns of such a file, those inside of structs and lists too."""
PARQUET_DEPTH_MAX: Final = 40
"""Nesting of its columns; a list takes two levels."""
PARQUET_PAGE_SIZE_BYTES_MAX: Final = 512 * 1024 * 1024
"""One of its pages without compression."""
PARQUET_HELD_SIZE_BYTES_MAX: Final = 256 * 1024 * 1024
"""The largest pages of all columns of a row group, which are in memory at once, without
compression; more in a file that has a hundredth of it."""
PARQUET_LIST_VALUES_MAX: Final = 16 * 1024 * 1024
"""Values in the lists of a row group, unless each has a byte of its own in the file."""
PARQUET_BATCH_SIZE_BYTES: Final = 64 * 1024 * 1024
"""What the rows that are read at a time may have, about."""
IMPORT_EXPANSION_MAX: Final = 1_000
"""Bytes of rows that a byte of a Parquet or Arrow file may stand for when it is imported, once
they are more than `IMPORT_EXPANDED_SIZE_BYTES`; a row counts 16 bytes more than its values."""
IMPORT_EXPANDED_SIZE_BYTES: Final = 512 * 1024 * 1024
"""Bytes of rows that the smallest of such files may stand for."""
PAGE_RECORDS_MAX: Final = 1_000
"""Records that a scan fetches at a time."""
ARROW_PAGE_RECORDS: Final = 8_192
"""Records that are read at a time where whole columns of them are wanted."""
ARROW_VALUE_SIZE_BYTES_MAX: Final = 8_192
"""Longer records are fetched by `PAGE_RECORDS_MAX` at a time instead. So a page has 64 MiB."""
PAGE_RECORDS_FIRST: Final = 64
"""Records that a query or lookup fetches first, because many need only a few."""
PAGE_RECORDS_GROWTH: Final = 4
"""How many times larger each next page of a query is, up to the largest."""
RACE_HEAD_START_RECORDS: Final = PAGE_RECORDS_FIRST * (1 + PAGE_RECORDS_GROWTH)
"""If the planner can't tell whether sorting all matches or reading in order is cheaper, a query
tries both: it reads this many records of the first way before it begins the second."""
RACE_TURN_RECORDS: Final = PAGE_RECORDS_MAX
"""How many records each way reads in turn from then on."""
ITERATION_MARKS_SIZE_BYTES: Final = 4 * 1024 * 1024
"""Memory for the records that this process writes while an iteration is under way. Marks beyond it
are in a temporary file of SQLite's, which goes with the iteration."""
ITERATION_TOLD_WRITES_MAX: Final = 10_000
"""Writes that a transaction keeps to tell them to iterations outside of it when it commits. It then
tells those that have begun by now; one that begins before it commits takes these writes as those of
another process."""
QUERY_CONDITIONS_MAX: Final = 1_000
"""Comparisons in one condition of a query: a record may be compared by each of them. The values of
`in_` are one, however many they are."""
QUERY_CONDITION_DEPTH_MAX: Final = 100
"""Nesting of `&`, `|` and `~` in one condition."""
PLAN_SPANS_MAX: Final = 1_000
"""Ranges of an index that one query reads; `in_` lists that would make more are used in part."""
PLAN_BRANCHES_MAX: Final = 16
"""Conditions under `|` that a query reads by ranges of several indexes; with more, it scans."""
PLANS_KEPT_MAX: Final = 256
"""Plans of queries that a process keeps for each table."""
STATEMENTS_KEPT_MAX: Final = 256
"""Texts of statements that a process keeps for each index: by bounds and limit."""
STATEMENTS_NAMED_MAX: Final = 1_024
"""Statements for which a process keeps the text with the schema before its tables' names."""
ESTIMATE_RECORDS_MAX: Final = 100_000
"""Records in the ranges of a query that `explain` counts at most."""
ESTIMATE_SAMPLE_RECORDS: Final = 100
"""Records that `explain` reads to estimate which share of the ranges' records the query returns."""
INCLUDE_RECORDS_MAX: Final = 500
"""Records for which a query with `include` loads the references at a time."""
CURSOR_SIZE_BYTES_MAX: Final = 16 * 1024
"""A cursor's contents, before they are encoded as text."""
ARROW_BATCH_SIZE_BYTES: Final = 64 * 1024 * 1024
"""An Arrow batch ends with the record that makes it this large, blobs included."""
SQL_MEMORY_SIZE_BYTES: Final = 512 * 1024 * 1024
"""Memory that a statement of `db.sql` may use in its process, and the size of its result, by
default."""
SQL_SECONDS: Final = 30.0
"""How long a statement of `db.sql` may take, by default."""
SQL_ROWS: Final = 1_000_000
"""How many rows its result may have, by default."""
SQL_AHEAD_BATCHES_MAX: Final = 8
"""Batches of a table that are sent to a statement's process at a time, after the first ones."""
SQL_AHEAD_SIZE_BYTES: Final = 4 * 1024 * 1024
"""The same bound by the size of the batches."""
JOB_WORKERS_MAX: Final = 1024
"""Threads that one command, or one call of a service, may have work on a job."""
MIGRATION_CHECK_MEMORY_SIZE_BYTES: Final = 1024 * 1024 * 1024
"""Memory that the process may use which checks and proves the migration files sent to a service."""
MIGRATION_CHECK_SECONDS: Final = 300.0
"""How long that may take."""
SENT_FILES_SIZE_BYTES_MAX: Final = 64 * 1024 * 1024
"""The migration files of one call of a service, all together; there are at most `MIGRATIONS_MAX`,
and one of them has at most `DOCUMENT_SIZE_BYTES_MAX`."""
SENT_FILES_SECONDS: Final = 60.0
"""How long it may take to send the migration files of a call, once it has its place."""
LONG_CALLS_OF_ONE_MAX: Final = 4
"""Calls of one principal that may take minutes, under way at once in a service. Those of several
principals wait for each other, at most `ASYNC_LONG_CALLS` at a time."""
SANDBOX_START_SECONDS: Final = 60.0
"""How long it may take to start the process that forks those which run what others wrote:
statements of `db.sql`, and the checks of migration files that a service is sent."""
SANDBOX_END_SECONDS: Final = 5.0
"""How long is waited for such a process to end after killing it."""
SQL_ROWS_SHOWN: Final = 40
"""Rows of a result that `show` prints by default."""
VIOLATIONS_SHOWN_MAX: Final = 50
"""Violations of a document, differences between two migrations, or findings in one report."""
DURATION_DAYS_MAX: Final = 36_525
"""Days of the longest duration that commands take, a hundred years: what is longer is a mistake."""

# The service
SERVICE_REQUEST_SIZE_BYTES_MAX: Final = 16 * 1024 * 1024
"""One message of a request to `zapdb serve`."""
SERVICE_PLAIN_REQUEST_SIZE_BYTES_MAX: Final = 1024 * 1024
"""A request that brings no migration files."""
SERVICE_ANSWER_SIZE_BYTES_MAX: Final = 64 * 1024 * 1024
"""One message of an answer."""
ARGUMENT_LENGTH_CHARS_MAX: Final = 256 * 1024
"""One text that a method of the control plane is given."""
ARGUMENT_ENTRIES_MAX: Final = 4_096
"""Entries of a list that a method is given, if it does not say otherwise."""
ANSWERS_MAX: Final = 2**31 - 1
"""The highest `limit`: how many answers a stream may be asked for."""
PAST_PAGE_RECORDS_MAX: Final = 10_000
"""Records in one page of a past, which is one message."""
PAST_PAGE_SIZE_BYTES_MAX: Final = 16 * 1024 * 1024
"""JSON of the records in such a page: one that would have more ends earlier."""
PLAN_SAMPLE_RECORDS_MAX: Final = 100_000
"""Records on which a plan may measure how long a conversion takes."""
UP_WAIT_SECONDS_MAX: Final = 3_600.0
"""How long `up` may wait for running processes: it has a place of a service meanwhile."""
PASTS_KEPT_MAX: Final = 100
"""Moments of a tenant of which a service keeps what it knows, for those who ask again."""
ARROW_PART_SIZE_BYTES: Final = 1024 * 1024
"""Bytes of Arrow in one message; more of them save little."""
SERVICE_TOKENS_REMEMBERED_MAX: Final = 10_000
"""Verified tokens that a service remembers until they end."""
SERVICE_ANSWERS_KEPT_MAX: Final = 4_096
"""Answers to look-ups that a service keeps until the catalog changes."""
SERVICE_ANSWERS_SIZE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of such answers."""
SERVICE_DRAIN_SECONDS: Final = 10.0
"""How long calls may go on when a service ends; what is under way then is cancelled."""
SERVICE_TIMEOUT_SECONDS_MAX: Final = 10 * 365 * 86_400
"""How long the longest call to a service may be given."""
SERVICE_KEEPALIVE_SECONDS: Final = 20.0
"""How often a service and a client ask each other for a sign of life, while a call is under way."""
SERVICE_KEEPALIVE_WAIT_SECONDS: Final = 20.0
"""How long they wait for it, before they take the connection for lost."""
SERVICE_POLL_SECONDS: Final = 1.0
"""How often a service looks whether it was evicted, and whether its key file has changed."""
CALL_LOG_RETENTION_SECONDS: Final = 90 * 86_400
"""How long the call log keeps a call, if the setting is not set."""
CALL_LOG_CALLS_MAX: Final = 1_000_000
"""Calls that the call log keeps: those that were refused go first, then older ones."""
CALL_LOG_FLUSH_SECONDS: Final = 0.25
"""How long a call may wait until it is written to the call log, with others."""
CALL_LOG_WAITING_MAX: Final = 20_000
"""Calls that wait for a database that does not take them: what comes then is lost, and logged."""
CALL_LOG_PRUNE_SECONDS: Final = 60.0
"""How often a service removes what the call log keeps no longer, and expired requests."""
CALL_LOG_TEXT_LENGTH_MAX: Final = 255
"""Characters of a name in the call log: callers may ask for anything."""
CALL_LOG_TABLES_LENGTH_MAX: Final = 1_024
"""Characters of the names of all tables of a call in the call log."""
REQUEST_KEPT_SECONDS: Final = 86_400.0
"""How long a service knows a request by its idempotency key."""
IDEMPOTENCY_KEY_LENGTH_MAX: Final = 255
