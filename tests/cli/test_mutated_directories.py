"""A directory that begins after a stored migration is checked as one that has all files.

Each line of its `zapdb.lock` that has no file stands for the file. So where something is wrong with
such a directory or its lock, every command says of it what it says of a whole directory with which
the same is wrong, and it says so through a service, too.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import pytest

import zapdb
from tests import forms
from tests.cli.program import Result, run_here
from tests.contract.tables import ADD_COLOR, ADD_WEIGHT, DROP_NOTE, INDEX_SIZE, ITEMS
from tests.documents import document
from tests.services import served
from zapdb.errors import EXIT_PENDING, MigrationConflict, ZapdbError
from zapdb.migrations import load_directory
from zapdb.migrations.directory import FILE
from zapdb.migrations.lockfile import lock_lines

CHAIN = (ITEMS, ADD_COLOR, ADD_WEIGHT, INDEX_SIZE, DROP_NOTE)
STORED = 4
FIRST = 3
"""Of the files of the directory that begins after a stored migration."""
OTHERWISE = document("add_field: {table: items, field: {name: other, type: string, default: x}}")


@dataclass(frozen=True)
class Content:
    """What is in a directory: files by name, and the lines of the lock file."""

    files: tuple[tuple[str, str], ...]
    lines: tuple[str, ...]

    def write(self, directory: Path) -> Path:
        directory.mkdir()
        for name, text in self.files:
            (directory / name).write_text(text, encoding="utf-8")
        (directory / FILE).write_text("".join(f"{line}\n" for line in self.lines))
        return directory

    def begin_at(self, number: int) -> Content:
        return replace(self, files=tuple(f for f in self.files if number_of(f[0]) >= number))

    def edit_file(self, number: int, edit: FileEdit) -> Content:
        edited = (edit(*f) if number_of(f[0]) == number else (f,) for f in self.files)
        return replace(self, files=tuple(f for files in edited for f in files))

    def edit_line(self, number: int, edit: LineEdit) -> Content:
        edited = (edit(line) if number_of(line) == number else (line,) for line in self.lines)
        return replace(self, lines=tuple(line for lines in edited for line in lines))


FileEdit = Callable[[str, str], tuple[tuple[str, str], ...]]
LineEdit = Callable[[str], tuple[str, ...]]


def number_of(name: str) -> int:
    return int(name[:4])


EDITS: dict[str, tuple[FileEdit, LineEdit]] = {
    "another": (
        lambda name, text: ((name, OTHERWISE),),
        lambda line: (line.replace("z1:", "z1:0"),),
    ),
    "lost": (lambda name, text: (), lambda line: ()),
    "twice": (
        lambda name, text: ((name, text), (name.replace("test", "again"), text)),
        lambda line: (line, line),
    ),
    "renamed": (
        lambda name, text: ((name.replace("test", "renamed"), text),),
        lambda line: (line.replace("test", "renamed"),),
    ),
    "renumbered": (
        lambda name, text: ((f"0009{name[4:]}", text),),
        lambda line: (f"0009{line[4:]}",),
    ),
    "broken": (lambda name, text: ((name, "zapdb: ["),), lambda line: (line.split()[0],)),
}


@dataclass(frozen=True)
class Case:
    """What is wrong with the directory of the rest, and the same with the whole one."""

    name: str
    of_rest: Callable[[Content], Content]
    of_whole: Callable[[Content], Content]


def list_cases() -> Iterator[Case]:
    for number in range(1, len(CHAIN) + 1):
        for kind, (of_file, of_line) in EDITS.items():
            yield from edit_one(number, kind, of_file, of_line)
        if number < len(CHAIN):
            yield swap(number)
    last = len(CHAIN)
    for more in (last + 1, last + 2):
        yield alike(f"file {more} more", lambda c, more=more: add_file(c, more))
        yield alike(f"line {more} more", lambda c, more=more: add_line(c, more))
    yield alike("nothing", lambda content: content)
    yield alike("all lines behind the first file lost", cut_lines)


def alike(name: str, change: Callable[[Content], Content]) -> Case:
    return Case(name, change, change)


def edit_one(number: int, kind: str, of_file: FileEdit, of_line: LineEdit) -> Iterator[Case]:
    def on_line(content: Content) -> Content:
        return content.edit_line(number, of_line)

    def on_file(content: Content) -> Content:
        return content.edit_file(number, of_file)

    def on_both(content: Content) -> Content:
        return on_file(on_line(content))

    name = f"{number} {kind}"
    if number < FIRST:
        # A name may be any: a whole directory has the new one twice.
        yield Case(f"line {name}", on_line, on_both if kind == "renamed" else on_file)
        return
    if (number, kind) == (FIRST, "lost"):  # what is left begins after the next one
        yield Case(f"file {name}", on_file, lambda content: content)
    else:
        yield alike(f"file {name}", on_file)
    if kind != "broken":  # see the test of lock files that can't be read
        yield alike(f"line {name}", on_line)
        yield alike(f"file and line {name}", on_both)


def swap(number: int) -> Case:
    def swap_lines(content: Content) -> Content:
        lines = list(content.lines)
        at = next(at for at, line in enumerate(lines) if number_of(line) == number)
        lines[at : at + 2] = lines[at + 1], lines[at]
        return replace(content, lines=tuple(lines))

    def swap_files(content: Content) -> Content:
        texts = {number_of(name): text for name, text in content.files}
        texts[number], texts[number + 1] = texts[number + 1], texts[number]
        return replace(
            content, files=tuple((name, texts[number_of(name)]) for name, _ in content.files)
        )

    name = f"lines {number} and {number + 1} swapped"
    return Case(name, swap_lines, swap_lines if number >= FIRST else swap_files)


def add_file(content: Content, number: int) -> Content:
    return replace(content, files=(*content.files, (f"{number:04d}_more.yaml", OTHERWISE)))


def add_line(content: Content, number: int) -> Content:
    return replace(content, lines=(*content.lines, f"{number:04d}_more z1:00"))


def cut_lines(content: Content) -> Content:
    return replace(content, lines=tuple(line for line in content.lines if number_of(line) < FIRST))


CASES = [*list_cases()]


@dataclass(frozen=True)
class World:
    """A database that stores four migrations, one that stores five, one with four that a service
    serves, and what is in a directory of all five."""

    database: Path
    all_stored: Path
    served: str
    service: str
    whole: Content

    def copy(self, to: Path) -> str:
        shutil.copyfile(self.database, to)
        return f"sqlite:///{to}"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    place = tmp_path_factory.mktemp("world")
    files = place / "files"
    files.mkdir()
    for number, operation in enumerate(CHAIN, 1):
        (files / f"{number:04d}_test.yaml").write_text(document(operation), encoding="utf-8")
    lines = tuple(map(str, lock_lines(load_directory(files))))
    paths = sorted(files.glob("*.yaml"))
    whole = Content(tuple((p.name, p.read_text(encoding="utf-8")) for p in paths), lines)
    stored, everything = place / "stored.db", place / "all.db"
    assert (
        run_here(["migrate", "up", "-d", f"sqlite:///{everything}", "-m", str(files)]).status == 0
    )
    paths[-1].unlink()
    assert run_here(["migrate", "up", "-d", f"sqlite:///{stored}", "-m", str(files)]).status == 0
    copy = f"sqlite:///{place / 'served.db'}"
    shutil.copyfile(stored, place / "served.db")
    with served(copy) as service:
        yield World(stored, everything, copy, f"grpc://{service.address}", whole)


LOOKS = ("check", "status", "diff", "plan")
"""Commands that change nothing."""


def say(command: str, address: str, directory: Path) -> Result:
    return run_here(["migrate", command, "--json", "-d", address, "-m", str(directory)])


def judge(world: World, directory: Path, tmp_path: Path) -> dict[str, str]:
    """What each way of using a directory says of it: the code of an error, or "ok"."""
    found = {name: code_of(say(name, f"sqlite:///{world.database}", directory)) for name in LOOKS}
    address = world.copy(tmp_path / f"{directory.name}.db")
    found["up"] = code_of(say("up", address, directory))
    address = world.copy(tmp_path / f"{directory.name}.db")
    found["open, applying"] = open_with(address, directory, "auto")
    found["open"] = open_with(f"sqlite:///{world.all_stored}", directory, "never")
    return found


@pytest.mark.parametrize("case", forms.some(CASES, 5), ids=lambda case: case.name)
def test_the_same_is_said_as_of_a_whole_directory(world: World, case: Case, tmp_path: Path) -> None:
    rest = case.of_rest(world.whole.begin_at(FIRST)).write(tmp_path / "rest")
    whole = case.of_whole(world.whole).write(tmp_path / "whole")
    said = judge(world, rest, tmp_path)
    assert is_refused(said) == is_refused(judge(world, whole, tmp_path))
    for name in LOOKS:
        assert say(name, world.service, rest) == say(name, world.served, rest)
    assert dry_run(world.service, rest) == said["up"]


def is_refused(said: dict[str, str]) -> dict[str, bool]:
    return {name: code != "ok" for name, code in said.items()}


def code_of(result: Result) -> str:
    """What is wrong, as a command says it."""
    if result.status in (0, EXIT_PENDING):
        return "ok"
    return json.loads(result.err.splitlines()[0])["code"] if result.err else "different"


def open_with(address: str, directory: Path, apply: Literal["auto", "never"]) -> str:
    try:
        zapdb.open(address, migrations=directory, apply=apply).close()
    except ZapdbError as error:
        return error.code
    return "ok"


def dry_run(service: str, directory: Path) -> str:
    try:
        with zapdb.connect(service) as client:
            list(client.migrations.up(directory, dry_run=True))
    except ZapdbError as error:
        return error.code
    return "ok"


@pytest.mark.parametrize("lines", [(), ("0001_test",), ("<<<<<<< HEAD",), ("0002_test z1:0 for",)])
def test_a_lock_file_that_says_nothing_is_refused_by_all(
    world: World, lines: tuple[str, ...], tmp_path: Path
) -> None:
    """Of a whole directory only `check` reads it; of this one it says where it begins."""
    content = world.whole.begin_at(FIRST)
    directory = replace(content, lines=(*lines, *content.lines[2:])).write(tmp_path / "rest")
    assert "ok" not in judge(world, directory, tmp_path).values()


@pytest.mark.parametrize("number", range(1, FIRST))
def test_the_line_that_is_wrong_is_named(world: World, number: int, tmp_path: Path) -> None:
    content = world.whole.begin_at(FIRST).edit_line(number, EDITS["another"][1])
    with pytest.raises(MigrationConflict) as caught:
        zapdb.open(f"sqlite:///{world.all_stored}", migrations=content.write(tmp_path / "rest"))
    line = content.lines[number - 1]
    assert line in caught.value.context.values()
    assert caught.value.context["stored"] == line.replace("z1:0", "z1:", 1)
