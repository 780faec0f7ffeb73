"""Which schemas can be served to processes whose files do not end at the position (rule 11): those
of places behind it, and of migrations that were rolled back."""

from __future__ import annotations

from zapdb.activation.tenant_catalog import TableDescriptor, TenantCatalog
from zapdb.catalog.stored_migrations import ChainPlace, is_on_the_chain
from zapdb.errors import PendingMigrations, ServedSchemaUnavailable, UnknownName
from zapdb.migrations.chain import find_parting
from zapdb.schema import TableSchema, fingerprint
from zapdb.storage import Connection

_ALL = "all"


def sees_active(catalog: TenantCatalog, served: ChainPlace) -> bool:
    """Whether a process that is served the schema of a place sees the active one: it is the same
    place, or one on the chain that the tenant has yet to come to, or not stored any more. One that
    was rolled back and applied again is seen until the tenant comes to it, too."""
    if served == catalog.place or not served.migration:
        return True
    return (
        served.position > catalog.position
        and ChainPlace.on(catalog.stored_chain, served.position) == served
        and served not in catalog.list_places_beside()
    )


def find_served_table(
    catalog: TenantCatalog, served: ChainPlace | None, name: str
) -> TableDescriptor:
    """Return the descriptor of the table that has this name at the served place; raises
    `UnknownName`."""
    if served is None or sees_active(catalog, served):
        return catalog.table(name)
    schema = catalog.schema_at(served)
    for table in schema:
        if table.name == name:
            return catalog.table_numbered(table.number, name)
    raise UnknownName.of_table(name, [table.name for table in schema])


def may_use(catalog: TenantCatalog, served: ChainPlace | None, table: TableDescriptor) -> bool:
    """Whether a process uses a table: an active one, or one that is kept, and that the schema has
    which it is served."""
    if table.kept_at is None:
        return True
    if served is None or sees_active(catalog, served):
        return False
    return catalog.schema_at(served).table_numbered(table.schema.number) is not None


def served_names(catalog: TenantCatalog, served: ChainPlace | None) -> tuple[str, ...]:
    """Return the names of the tables at the served place."""
    if served is None or sees_active(catalog, served):
        return tuple(catalog.tables)
    return tuple(table.name for table in catalog.schema_at(served))


def require_active(catalog: TenantCatalog, served: ChainPlace) -> None:
    """Raise `PendingMigrations` if a process that can't migrate the tenant would have to."""
    if catalog.position < served.position and sees_active(catalog, served):
        raise _not_active(catalog, served)


def _not_active(catalog: TenantCatalog, served: ChainPlace) -> PendingMigrations:
    return PendingMigrations(
        "the files contain a migration that is not active for this tenant, and a "
        "read-only process cannot activate it",
        files_end=served.position,
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
    catalog: TenantCatalog, served: ChainPlace | None
) -> ServedFingerprints | None:
    """Return those of the schema that a process is served, if it is one of its own."""
    if served is None:
        return None
    return {table.name: fingerprint(table) for table in catalog.schema_at(served)}


def find_served_again(
    connection: Connection,
    catalog: TenantCatalog,
    served: ChainPlace,
    known: ServedFingerprints | None,
) -> ChainPlace:
    """Return the place whose schema a process is served, now that other migrations are stored: the
    same one, also where it was rolled back and is kept. Where it is gone, since it was forgotten or
    a backup was restored, it is the one with its number that leads to an equal schema; if there is
    none with the number, what is in force is read. Raises `ServedSchemaUnavailable` if another one
    has the number."""
    at, chain = served.position, catalog.chain
    if served in catalog.list_kept_places() or is_on_the_chain(connection, served.migration):
        return served
    if not catalog.stored.is_read:
        catalog.stored.read(connection)  # later, an open transaction would need a second connection
    if not chain.start < at <= catalog.position:
        return ChainPlace(at, 0)
    found = ChainPlace.on(chain, at)
    if find_served_fingerprints(catalog, found) != known:
        raise ServedSchemaUnavailable(
            "the database has another schema there than the files of this process",
            files_end=at,
            found=chain.at(at).label,
            hint="a backup was restored, and another migration was applied to it: close the "
            "database and open it again, with files that fit",
        )
    return found


def require_served(catalog: TenantCatalog, served: ChainPlace, window: str) -> None:
    """Raise `ServedSchemaUnavailable` if the schema of the served place can't be served.

    `window` is how many migrations back a schema is served, or "all".
    """
    if served == catalog.place:
        return
    if served.position <= catalog.chain.start:
        raise ServedSchemaUnavailable(
            "the files end before the squash with which the database begins",
            files_end=served.position,
            squash=catalog.chain.migrations[0].label,
            hint="add the newer files to the directory",
        )
    if sees_active(catalog, served):
        return
    parting = find_parting(catalog.line_to(served), catalog.chain.up_to(catalog.position))
    behind = catalog.position - parting
    if window != _ALL and behind > int(window):
        raise ServedSchemaUnavailable(
            "the files end earlier than this database serves",
            files_end=served.position,
            position=catalog.position,
            served_window=window,
            hint="add the newer files to the directory, or widen the window with "
            "`zapdb settings set served_window`",
        )
    for table in catalog.schema_at(served):
        if catalog.find_numbered(table.number) is None:
            if parting < served.position and not _has_table(catalog, parting, table):
                if ChainPlace.on(catalog.stored_chain, served.position) == served:
                    raise _not_active(catalog, served)  # applied again, for others so far
                raise ServedSchemaUnavailable(
                    "the migration that makes a table of these files was rolled back",
                    files_end=served.position,
                    table=table.name,
                    hint="open the database with the files up to the active migration, or apply "
                    "the rolled-back ones again with `zapdb migrate up --again`",
                )
            dropped = next(
                m
                for m in catalog.chain.after(parting)
                if m.after.table_numbered(table.number) is None
            )
            raise ServedSchemaUnavailable(
                "a table of these files was dropped",
                files_end=served.position,
                table=table.name,
                dropped_by=dropped.label,
                hint="add the newer files to the directory, and deploy code that works "
                "without the table",
            )


def _has_table(catalog: TenantCatalog, position: int, table: TableSchema) -> bool:
    return catalog.chain.schema_at(position).table_numbered(table.number) is not None
