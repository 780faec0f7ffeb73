"""The history stores of a database that has one for each tenant: the setting `history_store`.

The setting names a directory, in which each tenant's files are in a directory of its own. A store
begins in the transaction that makes its tenant; where that was made before, when the setting is
set, or else when somebody follows the stores of all tenants. A tenant that has a store already,
wherever that is, keeps it as it is, a stopped one too. Unset, the setting begins no more of them.

The directory has a file that says which database it belongs to, and where that was. Without it the
directory is not there: an empty one is left of a file system that is not mounted. With another
place, this database may be a copy, which must not write beside the original.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from zapdb.catalog import rows, tenants
from zapdb.catalog.cluster.leases import Owner
from zapdb.catalog.row_kinds import DatabaseRow, SettingRow, Tenant
from zapdb.catalog.settings import (
    CHANGE_LOG,
    EVERYWHERE,
    HISTORY_STORE,
    NO_DIRECTORY,
    Scope,
    find_setting,
)
from zapdb.catalog.stored_settings import read_settings, switch_log_on
from zapdb.catalog.tenants import list_tenants
from zapdb.errors import HistoryUnreachable, MissingExtra, UsageError, ZapdbError
from zapdb.files import mode_of_directory, writing_file
from zapdb.past.files.directories import GONE
from zapdb.past.files.history_manifest import list_store_tenants
from zapdb.storage import Connection, Storage, TransactionMode
from zapdb.storage.database_place import read_place

OWNER_FILE: Final = "zapdb-history.json"
START_WAIT_SECONDS: Final = 10.0
"""How long beginning a store waits for another process that begins it, too."""


class _DirectoryOwner(Struct, frozen=True, forbid_unknown_fields=True):
    """Whose a directory is: the id of a database, and where that was (`database_place`)."""

    database: str
    place: str


def read_wanted(connection: Connection) -> Path | None:
    """Return the directory in which each tenant is to have a store; None if the setting is not
    set."""
    row = rows.get(connection, SettingRow, EVERYWHERE.text, HISTORY_STORE)
    return None if row is None or row.value == NO_DIRECTORY else Path(row.value)


def claim_directory(storage: Storage, value: str) -> None:
    """Make the directory that the setting is to name, and write into it whose it is; what the
    setting does not allow, setting it refuses.

    Raises `UsageError` for one that is another database's, or can't be written to, or whose path
    `require_plain` refuses; and `MissingExtra`.
    """
    normal = find_setting(HISTORY_STORE).normalize(value)
    if normal is None or normal == NO_DIRECTORY:
        return
    stores, directory = _load_stores(), Path(normal)
    with storage.transaction(TransactionMode.READ) as connection:
        own = _read_own(connection)
    stores.require_plain(directory.resolve())
    stores.make_store_directory(directory, mode_of_directory(storage.engine.file_mode))
    _require_own(directory, own, is_new=True)
    stores.require_own_files(directory, own.database)
    try:
        with writing_file(directory / OWNER_FILE, storage.engine.file_mode) as file:
            file.write(msgspec.json.encode(own) + b"\n")
    except OSError as error:
        raise UsageError(
            "the directory of the history stores can't be written to",
            directory=str(directory),
            error=str(error),
            hint="give a directory in which this process may write",
        ) from error


def create_tenant(storage: Storage, name: str) -> Tenant:
    """Create a tenant, with its history store where the setting wants one: both or neither.

    Raises `TenantExists`; `HistoryUnreachable`, `DiskFull` and `UsageError` if no store can begin
    in the directory of the setting.
    """
    with storage.transaction(TransactionMode.CATALOG) as connection:
        directory = read_wanted(connection)
        if directory is None:
            return tenants.add_tenant(connection, name)
        stores = _load_stores()
        _require_own(directory, _read_own(connection))
        # A number whose directory is there was given before, in a transaction that did not commit,
        # or after the backup that the database was restored from.
        tenant = tenants.add_tenant(
            connection, name, lambda number: not (directory / str(number)).exists()
        )
        if read_settings(connection, tenant.number).get(CHANGE_LOG) != "on":
            # Nobody writes to the tenant yet, so none has to hear of it by the gate.
            rows.put(connection, SettingRow(Scope(tenant.number).text, CHANGE_LOG, "on"))
        own = stores.make_tenant_directory(storage, tenant.number, directory)
        try:
            stores.begin_new_store(connection, tenant.number, directory)
        except BaseException:
            shutil.rmtree(own, ignore_errors=True)
            raise
        return tenant


def start_wanted_stores(storage: Storage) -> dict[str, ZapdbError]:
    """Begin a store for each tenant that has none, if the setting wants that; return what keeps
    tenants from it, by their names."""
    with storage.transaction(TransactionMode.READ) as connection:
        if read_wanted(connection) is None:
            return {}
        known = list_store_tenants(connection)
        missing = [
            tenant
            for tenant in list_tenants(connection)
            if tenant.number not in known and not tenant.removing
        ]
    refused = dict[str, ZapdbError]()
    for tenant in missing:
        try:
            start_wanted_store(storage, tenant.number, tenant.name)
        except ZapdbError as error:
            refused[tenant.name] = error
    return refused


def start_wanted_store(storage: Storage, tenant: int, name: str) -> None:
    """Begin a tenant's store if the setting wants it and there is none.

    Raises `UsageError` if the change log is switched off for the tenant, and as `create_tenant`
    does, and `LeaseHeld`.
    """
    with storage.transaction(TransactionMode.READ) as connection:
        directory = read_wanted(connection)
        if directory is None or tenant in list_store_tenants(connection):
            return
        _require_own(directory, _read_own(connection))
    stores = _load_stores()
    stores.require_no_unknown_store(directory, tenant)
    switch_log_on(storage, tenant, name, "a history store")
    with stores.hold_store(storage, tenant, Owner.here(), START_WAIT_SECONDS) as working:
        stores.start_store(working, directory)


def refuse_unless_all(refused: dict[str, ZapdbError]) -> None:
    """Raise `UsageError` that names the tenants that have no store."""
    if not refused:
        return
    name, error = next(iter(refused.items()))
    raise UsageError(
        "the setting is stored, and some tenants have no history store yet",
        tenants=", ".join(refused),
        first=f"{name}: {error.message}",
        hint="remove the cause; `zapdb history run --all-tenants` begins their stores then",
    ) from error


def _read_own(connection: Connection) -> _DirectoryOwner:
    row = rows.get(connection, DatabaseRow)
    return _DirectoryOwner("" if row is None else row.id, read_place(connection))


def _require_own(directory: Path, own: _DirectoryOwner, *, is_new: bool = False) -> None:
    """Raise `HistoryUnreachable` if a directory does not say whose it is, unless it is new, and
    `UsageError` if it is not that of this database at this place."""
    path = directory / OWNER_FILE
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_DirectoryOwner)
    except (FileNotFoundError, NotADirectoryError):
        if is_new:
            return
        raise HistoryUnreachable(
            GONE,
            directory=str(directory),
            hint="mount it, or put it back where it was; `zapdb settings set history_store` names "
            "another one",
        ) from None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise HistoryUnreachable(
            "the directory of the history stores does not say whose it is",
            file=str(path),
            error=str(error),
            hint="delete the file if the directory is this database's, and set history_store again",
        ) from error
    if found.database != own.database:
        raise UsageError(
            "the directory has the history stores of another database",
            directory=str(directory),
            hint="give each database a directory of its own: `zapdb settings set history_store`",
        )
    if found.place != own.place:
        raise UsageError(
            "the directory has the history stores of this database at another place, of which it "
            "may be a copy",
            directory=str(directory),
            hint="a copy needs another directory, or none: `zapdb settings set history_store`; if "
            f"the database was moved or restored, delete {path}, and set the directory again",
        )


def _load_stores() -> Any:
    """The module that begins stores; raises `MissingExtra`."""
    try:
        from zapdb.past.files import stores
    except ModuleNotFoundError as missing:
        raise MissingExtra.named("sql", "pyarrow") from missing
    return stores
