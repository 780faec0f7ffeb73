"""Alembic environment of zapdb's own fixed tables.

Run from inside zapdb, in a transaction that it holds already: the connection comes with the
configuration. These revisions own the `zapdb_*` tables only; users' tables are made by their
migrations.
"""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"],
    version_table="zapdb_storage_version",
    version_table_schema=context.config.attributes.get("schema"),
    transaction_per_migration=False,
)
context.run_migrations()
