"""The stored settings: reading them, setting them, and the changes that they refuse.

Each is a row of the catalog with the key of its scope. A setting that binds writers is set under
the gate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from zapdb.catalog import principal, rows
from zapdb.catalog.cache import LoadedRows, SomeRows
from zapdb.catalog.row_kinds import SettingRow, Tenant
from zapdb.catalog.rows import load_row
from zapdb.catalog.settings import (
    ANY,
    CHANGE_LOG,
    EVERYWHERE,
    ON_DATASET_CHANGE,
    SETTINGS,
    Scope,
    Setting,
    Settings,
    find_setting,
    scope_of_index,
)
from zapdb.catalog.stored_migrations import list_stored, read_chain, read_chain_state
from zapdb.errors import CorruptCatalog, SchemaChangesRefused, UsageError
from zapdb.formats import require_word
from zapdb.log.pending_changes import CHANGE_LOG_OFF, CHANGE_LOG_ON, OF_TENANT, append_event
from zapdb.storage import Connection, Storage, TransactionMode
from zapdb.storage.cells import as_number, as_text, checked
from zapdb.storage.fixed_tables import CATALOG
from zapdb.storage.statements import raise_catalog_version


def read_settings(source: Connection | LoadedRows, tenant: int) -> Settings:
    """Return the settings of a tenant, from a connection or from a process's cache; raises
    `CorruptCatalog` for a value that its setting can't have, and `IncompatibleVersion` for one that
    only a later release may have."""
    return _collect(tenant, _list_rows(_load(source, tenant), tenant))


def _load(source: Connection | LoadedRows, tenant: int) -> LoadedRows:
    if isinstance(source, LoadedRows):
        return source
    return SomeRows.read(source, [SettingRow], ANY, tenant)


def _list_rows(found: LoadedRows, tenant: int) -> list[SettingRow]:
    return [*found.list(SettingRow, ANY), *found.list(SettingRow, tenant)]


HISTORY_SQL: Final = (
    "SELECT key, value FROM zapdb_catalog WHERE kind = 'setting' AND value IS NOT NULL"
    " AND key LIKE {mark}"
)


def read_history_settings(source: Connection | LoadedRows, tenant: int) -> Settings:
    """Return the settings of a tenant with `change_log` alone; read at every schema change."""
    if isinstance(source, LoadedRows):
        return _collect(
            tenant, [row for row in _list_rows(source, tenant) if row.name == CHANGE_LOG]
        )
    connection = source
    found = connection.fetch_all(
        HISTORY_SQL.format(mark=connection.storage.placeholder), (f"%/{CHANGE_LOG}",)
    )
    return _collect(
        tenant,
        (
            load_row(SettingRow, key, text)
            for key, text in checked((CATALOG.c.key, CATALOG.c.value), found)
            if key.split("/")[0] in (ANY, str(tenant))
        ),
    )


def _collect(tenant: int, found: Iterable[SettingRow]) -> Settings:
    return Settings(tenant, {row.key: _checked(row) for row in found})


def _checked(row: SettingRow) -> str:
    setting = SETTINGS.get(row.name)
    # An unknown setting is of a later release, and is ignored.
    if setting is not None and setting.normalize(row.value) != row.value:
        repair = "set it again with `zapdb settings set`"
        if setting.values == setting.choices:
            require_word(row.value, setting.choices, repair=repair, key=row.key)
        raise CorruptCatalog(
            "a stored setting has an invalid value",
            key=row.key,
            value=row.value,
            values=", ".join(setting.values),
            hint=repair,
        )
    return row.value


def write_setting(connection: Connection, name: str, value: str, scope: Scope = EVERYWHERE) -> int:
    """Set a value, inside a transaction of the setting's `mode`; returns the change's seq.

    Raises `UsageError` for a value or a scope that the setting does not allow.
    """
    setting = _find_for(name, scope)
    normal = setting.normalize(value)
    if normal is None:
        raise UsageError(
            "the setting does not allow this value",
            setting=name,
            value=value,
            values=", ".join(setting.values),
        )
    before = _read_switched(connection, setting, scope)
    seq = rows.put(connection, SettingRow(scope.text, name, normal))
    _announce_to_writers(connection, setting, scope, before)
    _check_policies(connection, name, scope)
    return seq


def unset_setting(connection: Connection, name: str, scope: Scope = EVERYWHERE) -> int:
    """Remove the value that is set for exactly this scope, inside a transaction of the setting's
    `mode`; returns the seq. Raises `UsageError` if the value that applies then is not allowed."""
    setting = _find_for(name, scope)
    before = _read_switched(connection, setting, scope)
    seq = rows.delete(connection, SettingRow, scope.key(name))
    _announce_to_writers(connection, setting, scope, before)
    _check_policies(connection, name, scope)
    return seq


def switch_log_on(storage: Storage, tenant: int, name: str, what: str) -> bool:
    """Switch the change log on for a tenant, those of its tables that come later too, unless that
    is configured; return whether it was off.

    Raises `UsageError` if it is configured as off for the tenant; `what` needs it.
    """
    scope = Scope(tenant)
    value, origin = read_settings(storage.connection(), tenant).find(CHANGE_LOG, scope)
    if value == "on":
        return False
    if origin == "tenant":
        raise UsageError(
            f"the change log is switched off for the tenant, and {what} needs it",
            tenant=name,
            hint="`zapdb settings set change_log on`, with --tenant",
        )
    with storage.transaction(TransactionMode.DDL) as connection:
        write_setting(connection, CHANGE_LOG, "on", scope)
    return True


def _check_policies(connection: Connection, name: str, scope: Scope) -> None:
    """Raise `UsageError` if unique indexes would be rewritten in the background: while some keys
    are old and some new, equal values may have unequal keys (rule 26)."""
    if name != ON_DATASET_CHANGE:
        return
    settings = read_settings(connection, scope.tenant or 0)
    chain = read_chain(list_stored(connection, read_chain_state(connection)))
    for table in chain.schema_at(chain.end):
        for index in table.indexes:
            if not (index.unique and table.datasets_of(index)):
                continue
            at = scope_of_index(scope.tenant, table, index)
            concerned = scope.key(name) in [wider.key(name) for wider in at.wider()]
            if concerned and settings.find(name, at)[0] == "rewrite":
                raise UsageError(
                    "a unique index cannot be rewritten in the background",
                    setting=name,
                    table=table.name,
                    index=index.name,
                    hint="until it is done, equal values could have unequal keys; first "
                    f"run `zapdb settings set {name} rebuild --table {table.name} "
                    f"--index {index.name}`",
                )


def _announce_to_writers(
    connection: Connection, setting: Setting, scope: Scope, before: Mapping[int, str]
) -> None:
    """Make every process reload its tenant catalog, so that its next transaction uses the setting.

    For each tenant, an event of the change log says where it begins and where it ends; if tables
    have a value of their own, an event for each of the others.
    """
    if not setting.takes_gate:
        return
    assert connection.mode is setting.mode, "it is set under the gate"
    raise_catalog_version(connection, scope.tenant)
    who = principal.current()
    for tenant, value in _read_switched(connection, setting, scope).items():
        if setting.name == CHANGE_LOG and value != before[tenant]:
            what = CHANGE_LOG_ON if value == "on" else CHANGE_LOG_OFF
            for table in _list_switched(connection, tenant, scope):
                append_event(connection, who, (tenant, table, b"", what, None, b""))


def _list_switched(connection: Connection, tenant: int, scope: Scope) -> list[int]:
    """Return the tables of a tenant for which `change_log` was switched in a scope; those with a
    value of their own go on as they were, and so does what can be asked of their past."""
    if scope.table is not None:
        return [scope.table]
    names = [row.key for row in rows.list_rows(connection, SettingRow) if row.name == CHANGE_LOG]
    found = connection.fetch_all(
        "SELECT table_number, event FROM zapdb_schema_history"
        f" WHERE tenant = {int(tenant)} ORDER BY table_number, revision"
    )
    last = {as_number(table): as_text(event) for table, event in found}
    own = {t for t in last if {Scope(of, t).key(CHANGE_LOG) for of in (tenant, None)} & {*names}}
    return sorted(t for t in {*last} - own if last[t] != "drop") if own else [OF_TENANT]


def _read_switched(connection: Connection, setting: Setting, scope: Scope) -> dict[int, str]:
    """Return the value of a setting that binds writers, for each tenant of the scope."""
    if not setting.takes_gate:
        return {}
    tenants = (
        [tenant.number for tenant in rows.list_rows(connection, Tenant)]
        if scope.tenant is None
        else [scope.tenant]
    )
    values = {row.key: row.value for row in rows.list_rows(connection, SettingRow)}
    return {
        tenant: Settings(tenant, values).find(setting.name, Scope(tenant, scope.table))[0]
        for tenant in tenants
    }


def _find_for(name: str, scope: Scope) -> Setting:
    setting = find_setting(name)
    if scope.level not in setting.scopes:
        raise UsageError(
            f"the setting cannot be set for {'an' if scope.level == 'index' else 'a'} "
            f"{scope.level}",
            setting=name,
            scopes=", ".join(setting.scopes),
        )
    return setting


def require_schema_changes_allowed(
    connection: Connection, tenant: int | None = None, *, also_of_chain: bool = False
) -> None:
    """Raise `SchemaChangesRefused` if `schema_changes` is `refuse` for a tenant, or for the chain,
    which all tenants share.

    Called inside the transaction that would change the schema.
    """
    settings = read_settings(connection, 0 if tenant is None else tenant)
    if also_of_chain:
        _require_allowed(settings, None)
    _require_allowed(settings, tenant)


def _require_allowed(settings: Settings, tenant: int | None) -> None:
    value, origin = settings.find("schema_changes", Scope(tenant))
    if value == "refuse":
        context: dict[str, Any] = {} if tenant is None else {"tenant": tenant}
        option = " --tenant NAME" if origin == "tenant" else ""
        raise SchemaChangesRefused(
            "a setting refuses schema changes",
            setting="schema_changes",
            **context,
            hint=f"run `zapdb settings set schema_changes allow{option}` to allow them again",
        )
