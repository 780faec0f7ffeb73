"""Opening a database.

It verifies every stored migration against itself and against the files, brings the tenant to where
the files end, and registers this process as a node. Whatever is wrong is refused before anything is
changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from zapdb.catalog import DEFAULT_TENANT_NAME, ensure_rows
from zapdb.catalog.datasets import datasets_in_use, settle_datasets
from zapdb.catalog.nodes import deregister, register
from zapdb.catalog.retirement import sweep
from zapdb.catalog.settings import read_settings
from zapdb.catalog.tenants import find_tenant
from zapdb.catalog.up import Applied
from zapdb.catalog.zones import append_zones
from zapdb.database.database import Database
from zapdb.database.following import Follower
from zapdb.database.process import Apply, Process, check_pinned, load, read_files, settle
from zapdb.errors import ZapdbError
from zapdb.storage import connect, ensure_layout


def open(
    url: str,
    *,
    migrations: str | Path | None = None,
    apply: Apply = "never",
    tenant: str = DEFAULT_TENANT_NAME,
    serve_as: int | None = None,
    pin: Mapping[str, int] | None = None,
    wait_seconds: float | None = None,
) -> Database:
    """Open a database with the migrations of a directory, for one of its tenants.

    With `apply="auto"`, migrations that the database does not store yet are applied; with "never",
    they are refused, naming the command that applies them. A tenant that is behind what is stored
    is brought up to it. Where the database is ahead of the files, or of `serve_as`, the number of
    one of them, what the application sees has the shape that it had there (rule 11). Where it may
    not take force yet, since running processes do not have the file, that is waited for.

    Without `migrations`, the database is opened as it is, and its shapes are those in force at any
    moment: for tools and prompts, whose code is not written for one shape.

    `pin` maps names of tables to the fingerprint that the program was built for: one whose schema
    by now is none that the files lead to is refused, and so is one that never had the fingerprint.

    Raises `MigrationConflict` where a file differs from what is stored, `InvalidMigration`,
    `NotProven`, `PendingMigrations`, `ActivationPending` after `wait_seconds`,
    `ServedShapeUnavailable`, `FingerprintUnknown`, `UnknownName` for a tenant, `CorruptCatalog`,
    `NotZapdb`, `NewerLayout` and `IncompatibleVersion`.
    """
    files = read_files(migrations, apply, serve_as)
    storage = connect(url)
    try:
        ensure_layout(storage, create=apply == "auto")
        ensure_rows(storage)
        append_zones(storage)
        number = find_tenant(storage.connection(), tenant).number
        wait = wait_seconds
        if wait is None:
            settings = read_settings(storage.connection(), number)
            wait = float(settings.get("activation_wait_seconds"))
        applied: list[Applied] = []
        while True:
            view, pending = settle(storage, number, files, apply, wait, applied)
            node = register(
                storage,
                files.end,
                serves=files.serves,
                pending=pending,
                datasets=datasets_in_use(view),
            )
            try:
                # Only now do others know of this process: a forget, or the activation of a
                # migration that waits for processes, may have been faster.
                current = load(storage, number, view)
                if (current.chain_state, current.position) == (view.chain_state, view.position):
                    check_pinned(storage, current, files, pin or {})
                    current = settle_datasets(storage, current, node)
                    sweep(storage)
                    process = Process(storage, node, files, Follower(storage), pin or {})
                    return Database(process, current, tuple(applied))
            except BaseException:
                with suppress(ZapdbError):
                    deregister(storage, node)
                raise
            deregister(storage, node)
    except BaseException:
        storage.close()
        raise
