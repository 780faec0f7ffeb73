"""Settings in an export, by the names of what they are for: numbers differ between databases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from zapdb.catalog import rows
from zapdb.catalog.row_kinds import SettingRow
from zapdb.catalog.settings import ANY, INDEX_PREFIX, SETTINGS, Scope
from zapdb.database import Database
from zapdb.schema import TableSchema
from zapdb.storage import Connection
from zapdb.transfer.export.manifest import ExportedSetting


def list_exported_settings(
    connection: Connection, tenant: int, tables: Iterable[TableSchema]
) -> Iterator[ExportedSetting]:
    """The settings of a tenant and of the whole database; those of parts that are not in these
    tables are left out, and directories, which are this database's alone."""
    numbered = {schema.number: schema for schema in tables}
    for scope in (ANY, tenant):
        for row in rows.list_rows(connection, SettingRow, scope):
            found = _name(row, numbered)
            if found is not None and not _is_of_one_database(found.name):
                yield found


def _is_of_one_database(name: str) -> bool:
    return name in SETTINGS and SETTINGS[name].takes_directory


def _name(row: SettingRow, tables: Mapping[int, TableSchema]) -> ExportedSetting | None:
    tenant, number, part = row.scope.split("/")
    made = ExportedSetting(row.name, row.value, "database" if tenant == ANY else "tenant")
    if number == ANY:
        return made
    schema = tables.get(int(number))
    if schema is None:
        return None
    if part == ANY:
        return _with(made, schema.name)
    if part.startswith(INDEX_PREFIX):
        at = int(part.removeprefix(INDEX_PREFIX))
        index = next((index.name for index in schema.indexes if index.number == at), None)
        return None if index is None else _with(made, schema.name, index=index)
    field = next((field.name for field in schema.fields if field.number == int(part)), None)
    return None if field is None else _with(made, schema.name, field=field)


def _with(
    made: ExportedSetting, table: str, field: str | None = None, index: str | None = None
) -> ExportedSetting:
    return ExportedSetting(made.name, made.value, made.scope, table, field, index)


def load_settings(db: Database, settings: Iterable[ExportedSetting]) -> None:
    """Set what was exported; a setting of the whole database only where it is not set yet."""
    with db._session.reading() as connection:
        stored = {row.key for row in rows.list_rows(connection, SettingRow, ANY)}
    for one in settings:
        tenant = db._tenant if one.scope == "tenant" else None
        parts = {"table": one.table, "field": one.field, "index": one.index}
        scope: Scope = db.admin._scope(None, one.table, one.field, one.index)
        if (tenant is None and scope.key(one.name) in stored) or _is_of_one_database(one.name):
            continue
        db.admin.set_setting(one.name, one.value, tenant=tenant, **parts)
