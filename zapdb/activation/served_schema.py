"""Which schemas can be served to processes whose files end before the position (rule 11)."""

from __future__ import annotations

from zapdb.activation.tenant_catalog import TableDescriptor, TenantCatalog
from zapdb.errors import PendingMigrations, ServedSchemaUnavailable, UnknownName
from zapdb.schema import fingerprint

_ALL = "all"


def find_served_table(
    catalog: TenantCatalog, served_position: int | None, name: str
) -> TableDescriptor:
    """Return the descriptor of the table that has this name at the served position; raises
    `UnknownName`."""
    if served_position is None or served_position >= catalog.position:
        return catalog.table(name)
    schema = catalog.chain.schema_at(served_position)
    for table in schema:
        if table.name == name:
            return catalog.table_numbered(table.number, name)
    raise UnknownName.of_table(name, [table.name for table in schema])


def served_names(catalog: TenantCatalog, served_position: int | None) -> tuple[str, ...]:
    """Return the names of the tables at the served position."""
    if served_position is None or served_position >= catalog.position:
        return tuple(catalog.tables)
    return tuple(table.name for table in catalog.chain.schema_at(served_position))


def require_active(catalog: TenantCatalog, served_position: int) -> None:
    """Raise `PendingMigrations` if a process that can't migrate the tenant would have to."""
    if catalog.position < served_position:
        raise PendingMigrations(
            "the files contain a migration that is not active for this tenant, and a "
            "read-only process cannot activate it",
            files_end=served_position,
            position=catalog.position,
            hint="run `zapdb migrate up`, or open the database once without read_only; "
            "serve_as=N serves the schema of an earlier file",
        )


def require_same_line(catalog: TenantCatalog, served_position: int) -> None:
    """Raise `PendingMigrations` if the tenant has yet to follow a rollback, and the schema at the
    served position lies behind it."""
    if catalog.is_due and served_position > catalog.find_parting(catalog.stored_chain):
        require_not_due(catalog)


def require_not_due(catalog: TenantCatalog) -> None:
    """Raise `PendingMigrations` if a tenant has yet to follow a rollback: what comes next does not
    lead from where it is."""
    if catalog.is_due:
        raise PendingMigrations(
            "a migration is active for this tenant that was rolled back",
            migration=catalog.chain.at(catalog.position).label,
            hint="run `zapdb migrate up`, or open the database: the tenant follows the rollback",
        )


ServedFingerprints = dict[str, int]
"""Of the tables of a served schema, by name. Numbers are no part of them: a migration that was
rolled back and is stored again has others."""


def find_served_fingerprints(
    catalog: TenantCatalog, served_position: int | None
) -> ServedFingerprints | None:
    """Return those of the schema that a process serves, if it serves one of its own."""
    if served_position is None:
        return None
    return {table.name: fingerprint(table) for table in catalog.chain.schema_at(served_position)}


def require_served_schema(
    catalog: TenantCatalog, served_position: int, served: ServedFingerprints | None
) -> None:
    """Raise `ServedSchemaUnavailable` if another migration is in the place of the one that leads to
    the schema that a process serves: a backup was restored, and that one was applied to it. A
    process whose migration was only rolled back reads what is in force."""
    chain = catalog.chain
    if not chain.start < served_position <= catalog.position:
        return
    if find_served_fingerprints(catalog, served_position) != served:
        raise ServedSchemaUnavailable(
            "the database has another schema there than the files of this process",
            files_end=served_position,
            found=chain.at(served_position).label,
            hint="a backup was restored, and another migration was applied to it: close the "
            "database and open it again, with files that fit",
        )


def require_served(catalog: TenantCatalog, served_position: int, window: str) -> None:
    """Raise `ServedSchemaUnavailable` if the schema at the served position can't be served.

    `window` is how many migrations back a schema is served, or "all".
    """
    behind = catalog.position - served_position
    if behind <= 0:
        return
    if served_position <= catalog.chain.start:
        raise ServedSchemaUnavailable(
            "the files end before the squash with which the database begins",
            files_end=served_position,
            squash=catalog.chain.migrations[0].label,
            hint="add the newer files to the directory",
        )
    if window != _ALL and behind > int(window):
        raise ServedSchemaUnavailable(
            "the files end earlier than this database serves",
            files_end=served_position,
            position=catalog.position,
            served_window=window,
            hint="add the newer files to the directory, or widen the window with "
            "`zapdb settings set served_window`",
        )
    for table in catalog.chain.schema_at(served_position):
        if all(descriptor.schema.number != table.number for descriptor in catalog.tables.values()):
            dropped = next(
                m
                for m in catalog.chain.after(served_position)
                if m.after.table_numbered(table.number) is None
            )
            raise ServedSchemaUnavailable(
                "a table of these files was dropped",
                files_end=served_position,
                table=table.name,
                dropped_by=dropped.label,
                hint="add the newer files to the directory, and deploy code that works "
                "without the table",
            )
