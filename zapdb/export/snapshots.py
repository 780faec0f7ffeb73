"""What exports share: what is active in a snapshot, and files that appear when they are whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from zapdb.activation import TenantCatalog
from zapdb.database.session import Session
from zapdb.errors import RollbackInProgress, UsageError


def read_catalog(session: Session) -> TenantCatalog:
    """What is active in a snapshot; raises `RollbackInProgress`, and `UsageError` if the database
    was opened with files that end before that."""
    with session.using():
        catalog = session.catalog
    if session.served_position is not None and session.served_position < catalog.position:
        raise UsageError(
            "the database was opened with migration files that end before the active migration",
            served=session.served_position,
            active=catalog.position,
            hint="open it without migrations: zapdb.open(url)",
        )
    if catalog.rolling_back is not None:
        raise RollbackInProgress(
            "a migration is being rolled back",
            migration=catalog.rolling_back.number,
            hint="wait until it is finished, or finish it: `zapdb migrate rollback`",
        )
    return catalog


@contextmanager
def written_whole(path: Path) -> Iterator[IO[bytes]]:
    """A file that gets its name when all of it is written and on disk."""
    partial_path = path.with_name(f"{path.name}.partial")
    try:
        with partial_path.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        partial_path.replace(path)
    except BaseException:
        partial_path.unlink(missing_ok=True)
        raise
