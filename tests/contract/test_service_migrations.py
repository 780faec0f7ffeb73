"""Migrations over a service say and do the same as against the database, with files that travel."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.program import ADD_AGE, INDEX_AGE, PEOPLE, SPLIT_NAME, Result, run_here
from tests.contract.test_service_commands import run_well, settle
from tests.services import serving_process
from tests.support import PostgresServer
from tests.unit.activation.test_sent_files import BOMB

LOSSY = SPLIT_NAME.replace(
    "      reversibility: lossy\n      because: a single-word name gains a blank\n", ""
)
NO_WAY_BACK = """\
zapdb: 1
summary: Less
changes:
  - drop_field: {table: people, field: fax}
rollback: inferred
"""
ALL = {
    "0001_people.yaml": PEOPLE,
    "0002_add_age.yaml": ADD_AGE,
    "0003_index_age.yaml": INDEX_AGE,
    "0004_split_name.yaml": SPLIT_NAME,
}
STORED = dict(list(ALL.items())[:2])
DIRECTORIES: dict[str, dict[str, str]] = {
    "pending": ALL,
    "stored": STORED,
    "first": dict(list(ALL.items())[:1]),
    "commented": STORED | {"0002_add_age.yaml": "# a comment\n" + ADD_AGE},
    "conflict": ALL | {"0002_add_age.yaml": ADD_AGE.replace("7", "8")},
    "renamed": ALL | {"0002_add_age.yaml": ADD_AGE.replace("name: age", "name: old")},
    "invalid": STORED | {"0003_x.yaml": "zapdb: 1\nchanges: []\nsummry: x\n"},
    "not exhaustive": STORED | {"0003_less.yaml": NO_WAY_BACK},
    "not proven": STORED | {"0003_split.yaml": LOSSY},
    "aliases": STORED | {"0003_bomb.yaml": BOMB},
    "a gap": STORED | {"0004_split_name.yaml": SPLIT_NAME},
    "a stranger": STORED | {"more.yaml": SPLIT_NAME},
    "empty": {},
}


@dataclass(frozen=True)
class Place:
    """A database with two migrations and two tenants, the service over it, and directories."""

    address: str
    service: str
    directories: Path

    def both(self, *command: str) -> tuple[Result, Result]:
        here = run_here([*command, "-d", self.address])
        return settle(here), settle(run_here([*command, "-d", self.service]))


@pytest.fixture(scope="module")
def places() -> Iterator[tuple[dict[object, Place], ExitStack]]:
    with ExitStack() as ended:
        yield {}, ended


@pytest.fixture
def place(
    engine: str,
    request: pytest.FixtureRequest,
    places: tuple[dict[object, Place], ExitStack],
    tmp_path_factory: pytest.TempPathFactory,
) -> Place:
    known, ended = places
    server: PostgresServer | None = None
    if engine == "postgresql":
        server = request.getfixturevalue("postgres")
    if server not in known:
        root = tmp_path_factory.mktemp("served")
        address = f"sqlite:///{root / 'test.db'}"
        if server is not None:
            address = ended.enter_context(server.fresh_database(server.prepared))
        for name, files in DIRECTORIES.items():
            write(root / name, files)
        run_well("migrate", "up", "-d", address, "-m", str(root / "first"))
        run_well("tenant", "create", "behind", "-d", address)
        run_well("migrate", "up", "-d", address, "-m", str(root / "stored"))
        at, _ = ended.enter_context(serving_process(address))
        known[server] = Place(address, f"grpc://{at}", root)
    return known[server]


def write(directory: Path, files: dict[str, str]) -> Path:
    directory.mkdir(exist_ok=True)
    for name, text in files.items():
        (directory / name).write_text(text, encoding="utf-8")
    return directory


COMMANDS = [
    ("status",),
    ("status", "--all-tenants"),
    ("status", "--tenant", "behind"),
    ("diff",),
    ("plan",),
    ("plan", "--sample", "3", "--tenant", "behind"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("directory", [*DIRECTORIES, "missing"])
def test_the_same_is_said_of_the_same_files(
    place: Place, command: tuple[str, ...], directory: str
) -> None:
    for options in ((), ("--json",)):
        given = ("migrate", *command, "-m", str(place.directories / directory), *options)
        here, there = place.both(*given)
        assert there == here
        assert here.out or here.err
