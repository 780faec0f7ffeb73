"""Files that a person names: what commands write replaces no device, pipe, link, source or
database."""

from __future__ import annotations

import json
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from tests import processes
from tests.cli.program import Project, Result
from zapdb.cli.program import app

CSV = "id,first,last,fax,age\n1,Ada,L,x,y\n"


@dataclass(frozen=True)
class Writing:
    """A command that writes a file, and the options that may name it."""

    option: str
    arguments: tuple[str, ...]
    status: int = 0
    makes_only_new: bool = False
    suffix: str = ""


WRITING = {
    "data export": Writing("--output", ("data", "export", "people", "--output")),
    "data export, CSV": Writing("-o", ("data", "export", "people", "-f", "csv", "-o")),
    "data export, Parquet": Writing("-o", ("data", "export", "people", "-f", "parquet", "-o")),
    "export --sql sqlite": Writing("target", ("export", "--sql", "sqlite")),
    "export --sql postgresql": Writing("target", ("export", "--sql", "postgresql")),
    "codegen models": Writing("--output", ("codegen", "models", "--output")),
    "codegen json-schema": Writing("--output", ("codegen", "json-schema", "--output")),
    "token keys": Writing("--public", ("token", "keys", "keys.json", "--public")),
    "spark package": Writing("archive", ("spark", "package"), suffix=".zip"),
    "import": Writing(
        "--skipped",
        ("import", "rows.csv", "--table", "people", "--on-error", "skip", "--skipped"),
        status=3,
    ),
    "data discard": Writing(
        "--save", ("data", "discard", "people", "1", "-y", "--save"), makes_only_new=True
    ),
}
READ = {"--token-file", "--tokens", "--client-ca", "--tls-ca", "--tls-cert", "--tls-key"}
"""Options that name what is read: of services and those who call them."""
EVERY = sorted(name for name, writing in WRITING.items() if not writing.makes_only_new)


@pytest.fixture
def run(current: Project) -> Callable[[str, Path | str], Result]:
    def call(name: str, path: Path | str) -> Result:
        return current.run(*WRITING[name].arguments, str(path))

    (current.directory / "rows.csv").write_text(CSV)
    current.run("token", "keys", "keys.json", "--add")
    return call


def list_commands(found: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    if not hasattr(found, "list_commands"):
        yield " ".join(path), found
        return
    for name in found.list_commands(None):
        yield from list_commands(found.commands[name], (*path, name))


def test_every_command_that_writes_a_named_file_is_here() -> None:
    named = {
        (name, parameter.opts[0])
        for name, command in list_commands(app)
        for parameter in command.params
        if "FILE" in (parameter.metavar or "") and parameter.type_descriptor.annotation is Path
    }
    known = {(name, writing.option) for name, writing in WRITING.items()}
    named = {one for one in named if one[1] not in READ}
    assert named - {("export", "target")} == {one for one in known if one in named}
    assert len(named) == 8


@pytest.mark.parametrize("name", [name for name in EVERY if not WRITING[name].suffix])
def test_a_device_stays_a_device(run: Callable[[str, Path | str], Result], name: str) -> None:
    before = Path("/dev/null").stat()
    assert run(name, "/dev/null").status == WRITING[name].status
    after = Path("/dev/null").stat()
    assert (after.st_mode, after.st_rdev) == (before.st_mode, before.st_rdev)
    assert stat.S_ISCHR(after.st_mode)
    full = run(name, "/dev/full")
    assert full.status == 1
    assert "No space left on device" in full.err
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)


@pytest.mark.parametrize("name", EVERY)
def test_the_reader_of_a_pipe_gets_what_a_file_gets(
    run: Callable[[str, Path | str], Result], name: str, tmp_path: Path
) -> None:
    suffix, read = WRITING[name].suffix, list[bytes]()
    pipe, file = tmp_path / f"pipe{suffix}", tmp_path / f"file{suffix}"
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    assert run(name, pipe).status == WRITING[name].status
    reader.join(20)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert run(name, file).status == WRITING[name].status
    skip = 2 if name.startswith("export --sql") else 0  # the time of day
    if not suffix:  # a zip file differs where it can't be gone back in
        assert read[0].splitlines()[skip:] == file.read_bytes().splitlines()[skip:]
    assert len(read[0]) > 20


@pytest.mark.parametrize("name", [name for name in EVERY if not WRITING[name].suffix])
def test_standard_output_has_the_file_alone_and_what_came_before_and_after(
    run: Callable[[str, Path | str], Result], current: Project, name: str, tmp_path: Path
) -> None:
    """A report is on standard error then: in the file it would be among what was asked for."""
    file, found = tmp_path / "file", tmp_path / "found"
    assert run(name, file).status == WRITING[name].status
    command = [sys.executable, "-m", "zapdb", *WRITING[name].arguments, "/dev/stdout", "--json"]
    with found.open("wb", buffering=0) as stream:
        stream.write(b"before\n")
        done = processes.run(command, cwd=current.directory, stdout=stream, stderr=PIPE, text=True)
        stream.write(b"after\n")
    assert done.returncode == WRITING[name].status
    begin, end = done.stderr.index("{"), done.stderr.rindex("}") + 1
    assert json.loads(done.stderr[begin:end])
    written = found.read_bytes()
    assert (written[:7], written[-6:]) == (b"before\n", b"after\n")
    skip = 2 if name.startswith("export --sql") else 0  # the time of day
    assert written[7:-6].splitlines()[skip:] == file.read_bytes().splitlines()[skip:]


@pytest.mark.parametrize("name", EVERY)
def test_a_link_and_a_mode_are_kept(
    run: Callable[[str, Path | str], Result], name: str, tmp_path: Path
) -> None:
    real, link = (tmp_path / f"{kind}{WRITING[name].suffix}" for kind in ("real", "link"))
    assert run(name, real).status == WRITING[name].status
    real.chmod(0o600)
    link.symlink_to(real.name)
    assert run(name, link).status == WRITING[name].status
    assert link.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.glob("*partial*")) == []


@pytest.mark.parametrize("name", sorted(WRITING))
def test_no_database_and_no_source_is_written_over(
    run: Callable[[str, Path | str], Result], current: Project, name: str, tmp_path: Path
) -> None:
    database = next(current.directory.glob("*.db"))
    link, other = (tmp_path / f"{kind}{WRITING[name].suffix}" for kind in ("link", "other.db"))
    link.symlink_to(database)
    other.write_bytes(b"SQLite format 3\0" + bytes(84))
    wal = Path(f"{other}-wal")
    wal.write_bytes(b"")
    for path in (link, other) if WRITING[name].suffix else (database, link, other, wal):
        before, head = path.stat().st_ino, path.read_bytes()[:16]
        assert run(name, path).status in (1, 2), path
        assert (path.stat().st_ino, path.read_bytes()[:16]) == (before, head)
    assert current.sql("SELECT count(*) FROM zapdb_records_1")[0][0] > 0
    assert link.is_symlink()
    source = current.directory / "rows.csv"
    if name == "import":
        refused = run(name, source)
        assert (refused.status, source.read_text()) == (2, CSV)
        assert "this file is the source" in refused.err
        notes = tmp_path / "notes.txt"
        notes.write_text("what I want to keep\n")
        assert run(name, notes).status == 2
        assert notes.read_text() == "what I want to keep\n"
