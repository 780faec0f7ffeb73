"""The first layout: catalog, counters, sequences, migrations, schemas, schema history, archives,
blobs, zones, ranges, commit tokens, the change log, the manifest of the history store, and what
services were called for.

Until the first release it is changed in place, and gets the next number each time: so a database
that an earlier commit made is told apart, and refused by name.
"""

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = None
branch_labels = None
depends_on = None

LEVEL = 1
"""The cluster level that every live node must support before this revision runs."""

COUNTERS = (
    "seq",
    "horizon",
    "tenant",
    "migration",
    "table",
    "field",
    "index",
    "type",
    "check",
    "entry_table",
    "index_build",
    "zone",
)
CLOCK = ("change", "change_at")
"""The clock row of SQLite. On PostgreSQL a sequence has its part: nobody waits for it (rule 29)."""


def upgrade() -> None:
    op.create_table("zapdb_gate", sa.Column("unused", sa.Integer))
    op.create_table(
        "zapdb_catalog",
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("value", sa.Text),
    )
    op.create_index("zapdb_catalog_seq", "zapdb_catalog", ["seq"], unique=True)
    op.create_table(
        "zapdb_leases",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("since", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
    )
    counters = op.create_table(
        "zapdb_counters",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("value", sa.BigInteger, nullable=False),
    )
    op.bulk_insert(counters, [{"name": name, "value": 0} for name in COUNTERS])
    op.create_table(
        "zapdb_sequences",
        sa.Column("tenant", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("field", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("block_after", sa.BigInteger, nullable=False),
        sa.Column("last", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "zapdb_catalog_versions",
        sa.Column("tenant", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("version", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "zapdb_migrations",
        sa.Column("id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("parent", sa.BigInteger, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("summary", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("structure", sa.LargeBinary, nullable=False),
        sa.Column("numbers", sa.LargeBinary, nullable=False),
        sa.Column("source_hash", sa.LargeBinary, nullable=False),
        sa.Column("stored_at", sa.BigInteger, nullable=False),
        sa.Column("stored_by", sa.Text, nullable=False),
        sa.Column("rolled_back_at", sa.BigInteger),
        sa.Column("rolled_back_by", sa.Text),
    )
    op.create_table(
        "zapdb_schemas",
        sa.Column("table_number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("migration", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "zapdb_schema_history",
        sa.Column("tenant", sa.BigInteger, primary_key=True),
        sa.Column("table_number", sa.BigInteger, primary_key=True),
        sa.Column("revision", sa.BigInteger, primary_key=True),
        sa.Column("event", sa.Text, nullable=False),
        sa.Column("fingerprint", sa.LargeBinary, nullable=False),
        sa.Column("migrated_at", sa.BigInteger, nullable=False),
        sa.Column("migrated_by", sa.Text, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("migration", sa.BigInteger, nullable=False),
        sa.Column("record_format", sa.BigInteger, nullable=False),
        sa.Column("layout_revision", sa.BigInteger, nullable=False),
        sa.Column("first_layout_revision", sa.BigInteger, nullable=False),
        sa.Column("table_schema", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "zapdb_archives",
        sa.Column("tenant", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("table_number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("key", sa.LargeBinary, primary_key=True),
        sa.Column("cell", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("value", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "zapdb_blobs",
        sa.Column("id", sa.LargeBinary, primary_key=True),
        sa.Column("chunk", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("checksum", sa.BigInteger, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "zapdb_zones",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("name", sa.Text, nullable=False, unique=True),
    )
    op.create_table(
        "zapdb_ranges",
        sa.Column("job", sa.Text, primary_key=True),
        sa.Column("range", sa.BigInteger, primary_key=True),
        sa.Column("lower", sa.LargeBinary),
        sa.Column("upper", sa.LargeBinary),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("fence", sa.BigInteger, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Column("resume_after", sa.LargeBinary),
        sa.Column("read", sa.BigInteger, nullable=False),
        sa.Column("written", sa.BigInteger, nullable=False),
        sa.Column("conflicts", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "zapdb_range_revisions",
        sa.Column("tenant", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("table_number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("revision", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("lower", sa.LargeBinary, primary_key=True),
        sa.Column("upper", sa.LargeBinary),
    )
    op.create_table(
        "zapdb_quarantine",
        sa.Column("job", sa.Text, primary_key=True),
        sa.Column("key", sa.LargeBinary, primary_key=True),
        sa.Column("tenant", sa.BigInteger, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("found_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "zapdb_probes",
        sa.Column("job", sa.Text, primary_key=True),
        sa.Column("worker", sa.Text, primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("latency_us", sa.BigInteger, nullable=False),
        sa.Column("share_percent", sa.BigInteger, nullable=False),
        sa.Column("probed_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "zapdb_commit_tokens",
        sa.Column("id", sa.LargeBinary, primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "zapdb_transactions",
        sa.Column("tenant", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("commit_order", sa.BigInteger, nullable=False),
        sa.Column("principal", sa.Text, nullable=False),
        sa.Column("made_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "zapdb_changes",
        sa.Column("tenant", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("transaction_number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("table_number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("key", sa.LargeBinary, primary_key=True),
        sa.Column("event", sa.Text),
        sa.Column("before", sa.LargeBinary),
        sa.Column("after", sa.LargeBinary),
        sa.Column("replaced", sa.Boolean),
        sa.Column("archive_before", sa.LargeBinary),
        sa.Column("archive_after", sa.LargeBinary),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "zapdb_changes_by_key",
        "zapdb_changes",
        ["tenant", "table_number", "key", "transaction_number"],
    )
    op.create_index(
        "zapdb_changes_events",
        "zapdb_changes",
        ["tenant", "transaction_number"],
        postgresql_where=sa.text("event IS NOT NULL"),
        sqlite_where=sa.text("event IS NOT NULL"),
    )
    op.create_index(
        "zapdb_changes_deletions",
        "zapdb_changes",
        ["tenant", "table_number", "key"],
        postgresql_where=sa.text("event IS NULL AND after IS NULL"),
        sqlite_where=sa.text("event IS NULL AND after IS NULL"),
    )
    op.create_table(
        "zapdb_incarnations",
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("server", sa.Text, nullable=False),
        sa.Column("began_by", sa.BigInteger, nullable=False),
        sa.Column("began_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "zapdb_stamps",
        sa.Column("tenant", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("snapshot", sa.Text, nullable=False),
        sa.Column("stamped_at", sa.BigInteger, nullable=False),
        sa.Column("moment", sa.BigInteger, nullable=False),
        sa.Column("visible_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "zapdb_followers",
        sa.Column("tenant", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("bookmark", sa.Text, nullable=False),
        sa.Column("advanced_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "zapdb_history_stores",
        sa.Column("tenant", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("timeline", sa.Text, primary_key=True),
        sa.Column("directory", sa.Text, nullable=False),
        sa.Column("format", sa.BigInteger, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("begins", sa.BigInteger, nullable=False),
        sa.Column("ends", sa.BigInteger, nullable=False),
        sa.Column("ends_bookmark", sa.Text, nullable=False),
        sa.Column("visible_at", sa.BigInteger, nullable=False),
        sa.Column("purged_before", sa.BigInteger, nullable=False),
        sa.Column("started_at", sa.BigInteger, nullable=False),
        sa.Column("flushed_at", sa.BigInteger, nullable=False),
        sa.Column("commits", sa.BigInteger, nullable=False),
        sa.Column("problem", sa.Text),
        sa.Column("former_directories", sa.Text, nullable=False),
    )
    op.create_table(
        "zapdb_history_files",
        sa.Column("tenant", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("timeline", sa.Text, primary_key=True),
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("table_number", sa.BigInteger, nullable=False),
        sa.Column("era", sa.BigInteger, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("first_moment", sa.BigInteger, nullable=False),
        sa.Column("last_moment", sa.BigInteger, nullable=False),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("size_bytes", sa.BigInteger, nullable=False),
        sa.Column("sha256", sa.LargeBinary, nullable=False),
        sa.Column("key_lower", sa.LargeBinary),
        sa.Column("key_upper", sa.LargeBinary),
        sa.Column("directory", sa.Text),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("retired_at", sa.BigInteger),
    )
    op.create_index(
        "zapdb_history_files_by_table",
        "zapdb_history_files",
        ["tenant", "timeline", "table_number", "era"],
    )
    op.create_table(
        "zapdb_history_erasures",
        sa.Column("tenant", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("table_number", sa.BigInteger, nullable=False),
        sa.Column("key", sa.LargeBinary),
        sa.Column("fields", sa.Text, nullable=False),
        sa.Column("resume_after", sa.LargeBinary),
        sa.Column("counted", sa.Text),
        sa.Column("key_sha256", sa.LargeBinary, nullable=False),
        sa.Column("proof", sa.Text, nullable=False),
        sa.Column("requested_at", sa.BigInteger, nullable=False),
        sa.Column("finished_at", sa.BigInteger),
    )
    op.create_table(
        "zapdb_history_eras",
        sa.Column("tenant", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("timeline", sa.Text, primary_key=True),
        sa.Column("table_number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("era", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("first_moment", sa.BigInteger, nullable=False),
        sa.Column("last_moment", sa.BigInteger),
        sa.Column("revision", sa.BigInteger, nullable=False),
        sa.Column("layout_revision", sa.BigInteger, nullable=False),
        sa.Column("live_rows", sa.BigInteger, nullable=False),
        sa.Column("changes", sa.BigInteger, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("doubt", sa.Text),
    )
    op.create_table(
        "zapdb_calls",
        sa.Column("id", sa.LargeBinary, primary_key=True),
        sa.Column("called_at", sa.BigInteger, nullable=False),
        sa.Column("principal", sa.Text, nullable=False),
        sa.Column("method", sa.Text, nullable=False),
        sa.Column("tenant_name", sa.Text, nullable=False),
        sa.Column("tables", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("duration_us", sa.BigInteger, nullable=False),
    )
    op.create_index("zapdb_calls_by_time", "zapdb_calls", ["called_at", "id"])
    op.create_index(
        "zapdb_calls_refused",
        "zapdb_calls",
        ["called_at", "id"],
        postgresql_where=sa.text("status = 'PERMISSION_DENIED'"),
        sqlite_where=sa.text("status = 'PERMISSION_DENIED'"),
    )
    op.create_table(
        "zapdb_requests",
        sa.Column("principal", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("request", sa.LargeBinary, nullable=False),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("answer", sa.LargeBinary),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
    )
    if op.get_bind().dialect.name == "postgresql":
        op.execute(sa.schema.CreateSequence(sa.Sequence("zapdb_commit_order")))
    else:
        op.bulk_insert(counters, [{"name": name, "value": 0} for name in CLOCK])


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute(sa.schema.DropSequence(sa.Sequence("zapdb_commit_order")))
    for table in (
        "requests",
        "calls",
        "history_eras",
        "history_erasures",
        "history_files",
        "history_stores",
        "followers",
        "stamps",
        "incarnations",
        "changes",
        "transactions",
        "commit_tokens",
        "quarantine",
        "probes",
        "range_revisions",
        "ranges",
        "archives",
        "blobs",
        "zones",
        "schema_history",
        "schemas",
        "migrations",
        "catalog_versions",
        "sequences",
        "counters",
        "leases",
        "catalog",
        "gate",
    ):
        op.drop_table(f"zapdb_{table}")
