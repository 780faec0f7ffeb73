"""The cluster's level: every live process can read data of this level, and no newer data are
written (rule 10).

Each release supports the levels up to its own. The database's level only rises, and only to a level
that all live nodes support. With the setting `raise_level` at `auto` it rises automatically; else
when a migration or a storage version needs it, or when an operator raises it. A process whose
release ends below the level is refused. Raising the level takes the gate, and the row's lock keeps
processes from registering meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Literal

from zapdb import release
from zapdb.catalog import feed, principal, rows
from zapdb.catalog.cluster import nodes
from zapdb.catalog.cluster.nodes import Node
from zapdb.catalog.row_kinds import LevelRow
from zapdb.catalog.stored_settings import read_settings
from zapdb.errors import ConcurrencyError, IncompatibleVersion
from zapdb.formats import LEVELS
from zapdb.migrations import Migration
from zapdb.storage import Connection, Storage, TransactionMode
from zapdb.storage.storage_version import list_upgrades, pending_upgrades, upgrade_storage

logger = logging.getLogger("zapdb.level")

Policy = Literal["auto", "on_demand"]


def read_level(connection: Connection) -> int:
    """Return the current level as of the connection's snapshot; 0 before the first rows are
    written."""
    return _level_of_row(rows.get(connection, LevelRow))


def _level_of_row(row: LevelRow | None) -> int:
    return 0 if row is None else row.level


def check_level(connection: Connection, *, lock: bool = False) -> int:
    """Return the level; raises `IncompatibleVersion` if this release is too old for the
    database."""
    return require_supported(rows.get(connection, LevelRow, lock=lock))


def require_supported(row: LevelRow | None) -> int:
    """Do the same for a row that was read before."""
    return _require(row, release.__version__, release.LEVEL)


def admit_level(connection: Connection, name: str, supported: int) -> int:
    """The same for a process of another release, whose name and highest level are given; the level
    stays as it is until the transaction ends."""
    return _require(rows.get(connection, LevelRow, lock=True), name, supported)


def _require(row: LevelRow | None, name: str, supported: int) -> int:
    level = _level_of_row(row)
    if level > supported:
        raise IncompatibleVersion(
            "the database uses features that this release does not know",
            release=name,
            level_supported=supported,
            level_needed=level,
            hint="use a newer release of zapdb",
        )
    return level


def first_level() -> int:
    """Return the level of a new database: the lowest that its storage version needs, so that older
    releases may join."""
    return max(upgrade.level for upgrade in list_upgrades())


def level_of(migrations: Iterable[Migration]) -> int:
    """Return the level that storing these migrations needs."""
    needed = [1]
    for migration in migrations:
        needed.append(LEVELS["document"][migration.version])
        operations = (*migration.changes, *migration.rollback)
        needed += (release.OPERATION_LEVELS.get(operation.keyword, 1) for operation in operations)
    return max(needed)


def read_policy(connection: Connection) -> Policy:
    """Return the setting `raise_level`."""
    return "auto" if read_settings(connection, 0).get("raise_level") == "auto" else "on_demand"


def level_possible(connection: Connection) -> int:
    """Return the highest level that this release and all live nodes support."""
    live = [node.row.level for node, alive in nodes.list_nodes(connection) if alive]
    return min([release.LEVEL, *live])


def require_level(storage: Storage, level: int) -> None:
    """Raise the level to at least this one, if it is lower.

    Raises `IncompatibleVersion` if this release or live nodes do not support it; the error names
    the nodes.
    """
    if check_level(storage.connection()) < level:
        with storage.transaction(TransactionMode.DDL) as connection:
            raise_level(connection, level)


def raise_level(connection: Connection, level: int) -> None:
    """Raise the level inside a DDL transaction. Nodes whose lease has expired are evicted first."""
    current = check_level(connection, lock=True)
    expired = require_reachable(connection, level)
    if current >= level:
        return
    for node in expired:  # it may only be suspended
        nodes.evict(connection, node)
    now = connection.storage.now_us(connection)
    rows.put(connection, LevelRow(level, now, principal.current()))
    feed.upgrade_row_formats(connection)
    logger.warning("the level of the database rose from %d to %d", current, level)


def require_reachable(connection: Connection, level: int) -> list[Node]:
    """Return the nodes whose lease has expired and that do not support a level to which the
    database's could be raised; raises `IncompatibleVersion` if this release or a live node does
    not support it."""
    if level > release.LEVEL:
        raise IncompatibleVersion(
            "this operation needs a newer release",
            release=release.__version__,
            level_supported=release.LEVEL,
            level_needed=level,
            hint="use a newer release of zapdb",
        )
    current = check_level(connection)
    if current >= level:
        return []
    found = [one for one in nodes.list_nodes(connection) if one[0].row.level < level]
    unsupporting = [_describe(node) for node, alive in found if alive]
    if unsupporting:
        raise IncompatibleVersion(
            "some running processes do not support the cluster level that is needed",
            level=current,
            level_needed=level,
            nodes="; ".join(unsupporting),
            hint="restart them with a newer release, or evict them with `zapdb cluster evict NODE`",
        )
    return [node for node, alive in found if not alive]


def _describe(node: Node) -> str:
    return f"{node}, release {node.row.release}, level {node.row.level}"


def try_raise_level(storage: Storage) -> None:
    """With `raise_level: auto`, raise the level to the highest that all support; if that is not
    possible now, a later call tries again."""
    if read_policy(storage.connection()) != "auto":
        return
    with storage.transaction(TransactionMode.READ) as connection:
        possible, current = level_possible(connection), read_level(connection)
    if 0 < current < possible:
        try:
            require_level(storage, possible)
        except (ConcurrencyError, IncompatibleVersion) as error:
            logger.info("the level stays as it is for now: %s", error)


def upgrade_storage_with_level(storage: Storage) -> bool:
    """Upgrade zapdb's own tables, raising the level that they need; returns whether it did.

    Raises `IncompatibleVersion` while live nodes do not support it: this release then continues
    with the present storage version.
    """
    pending = pending_upgrades(storage)
    if not pending:
        return False
    with storage.transaction(TransactionMode.DDL) as connection:
        raise_level(connection, max(upgrade.level for upgrade in pending))
        upgrade_storage(connection)
    return True


def try_upgrade_storage(storage: Storage) -> None:
    """Upgrade the storage before migrations are applied; if that is not possible now, the old
    version stays."""
    try:
        upgrade_storage_with_level(storage)
    except (ConcurrencyError, IncompatibleVersion) as error:
        logger.warning("the storage version stays as it is for now: %s", error)
