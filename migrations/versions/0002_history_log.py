"""The history log: changes of records and schemas, logical timestamps, followers' bookmarks."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

LEVEL = 2
"""The cluster level that every live node must support before this revision runs."""

COUNTERS = ("change", "change_at")
"""The clock row of SQLite. On PostgreSQL a sequence has its part: nobody waits for it (rule 29)."""


def upgrade() -> None:
    op.create_table(
        "zapdb_transactions",
        sa.Column("tenant", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("position", sa.BigInteger, nullable=False),
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
        sqlite_with_rowid=False,
    )
    op.create_table(
        "zapdb_stamps",
        sa.Column("tenant", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("snapshot", sa.Text, nullable=False),
        sa.Column("stamped_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "zapdb_followers",
        sa.Column("tenant", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("bookmark", sa.Text, nullable=False),
        sa.Column("moved_at", sa.BigInteger, nullable=False),
    )
    if op.get_bind().dialect.name == "postgresql":
        op.execute(sa.schema.CreateSequence(sa.Sequence("zapdb_positions")))
    else:
        counters = sa.table("zapdb_counters", sa.column("name"), sa.column("value"))
        op.bulk_insert(counters, [{"name": name, "value": 0} for name in COUNTERS])


def downgrade() -> None:
    for table in ("followers", "stamps", "changes", "transactions"):
        op.drop_table(f"zapdb_{table}")
    if op.get_bind().dialect.name == "postgresql":
        op.execute(sa.schema.DropSequence(sa.Sequence("zapdb_positions")))
    op.execute("DELETE FROM zapdb_counters WHERE name IN ('change', 'change_at')")
