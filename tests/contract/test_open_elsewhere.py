"""`export` and `import` of a database that another process has open and writes to, and of addresses
in the place of files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import processes
from tests.contract.tables import ITEMS
from tests.support import ROOT, Workspace
from zapdb.cli.program import run_program

WRITER = """
import sys
import zapdb

db = zapdb.open(sys.argv[1])
items = db.table("items")
print("open", flush=True)
for line in sys.stdin:
    items.upsert(id=int(line), title="by the other one")
    print("written", flush=True)
db.close()
"""


class Elsewhere:
    """A process that has the database open."""

    def __init__(self, address: str) -> None:
        self.process = processes.Popen(
            [sys.executable, "-c", WRITER, address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self._expect("open")

    def write(self, key: int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{key}\n")
        self.process.stdin.flush()
        self._expect("written")

    def _expect(self, line: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == f"{line}\n"


@pytest.fixture
def elsewhere(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Elsewhere]:
    workspace.write(1, ITEMS)
    workspace.open().close()
    monkeypatch.chdir(tmp_path)
    made = Elsewhere(workspace.address)
    yield made
    made.process.communicate()
    assert made.process.returncode == 0  # whatever was tried


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    status = run_program(arguments)
    shown = capsys.readouterr()
    return status, shown.out + shown.err


@pytest.mark.on_each_engine
def test_it_is_exported_and_imported_while_others_write(
    workspace: Workspace, elsewhere: Elsewhere, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere.write(1)
    address, migrations = workspace.address, str(workspace.directory)
    assert run(capsys, "export", "out", "--format", "ndjson", "-d", address)[0] == 0
    assert run(capsys, "export", "out.sql", "--sql", "sqlite", "-d", address)[0] == 0
    assert run(capsys, "data", "export", "items", "-o", "items.ndjson", "-d", address)[0] == 0
    elsewhere.write(2)
    status, said = run(capsys, "import", "out", "-d", address, "-m", migrations)
    assert (status, "does not have the records that were exported" in said) == (1, True)
    mode = ("--mode", "upsert", "--table", "items")
    assert run(capsys, "import", "items.ndjson", *mode, "-d", address)[0] == 0
    elsewhere.write(3)
    with workspace.follow() as db:
        assert [item.id for item in db.table("items")] == [1, 2, 3]


@pytest.mark.on_each_engine
def test_an_address_is_no_file_to_write(
    workspace: Workspace, elsewhere: Elsewhere, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Least of all one with a password, which would be the name of a directory."""
    to = ("-d", workspace.address)
    secret = "postgresql://app:secret@host/shop"
    for given in (workspace.address, secret, "sqlite:///other.db"):
        for command in (
            ("export", given, *to),
            ("export", given, "--all-tenants", *to),
            ("export", given, "--sql", "sqlite", *to),
            ("data", "export", "items", "-o", given, *to),
            ("history", "start", given, *to),
            ("init", given),
        ):
            status, said = run(capsys, *command)
            assert (status, "address" in said, "secret" in said) == (2, True, False), command
    assert [path for path in tmp_path.iterdir() if ":" in path.name] == []


@pytest.mark.on_each_engine
def test_a_database_of_zapdb_is_no_source_even_if_it_is_the_target(
    workspace: Workspace, elsewhere: Elsewhere, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere.write(1)
    (tmp_path / workspace.address.partition("//")[0] / "x").mkdir(parents=True)
    migrations = str(workspace.directory)
    for more in (("-d", workspace.address), ("--infer",)):
        status, said = run(capsys, "import", workspace.address, *more, "-m", migrations)
        assert (status, "zapdb export" in said) == (2, True), (more, said)
    with workspace.follow() as db:
        assert db.table("items").count() == 1
