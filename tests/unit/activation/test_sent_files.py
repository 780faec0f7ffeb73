"""Files that are read in a process of its own say the same as those read in this one."""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import zapdb
from tests.cli.program import MIGRATIONS
from tests.documents import PEOPLE, document
from tests.unit.migrations.kept import write
from zapdb.activation import sent_file_check, sent_files
from zapdb.activation.sent_file_check import Request
from zapdb.activation.sent_files import check_all_files, list_states, read_given
from zapdb.errors import (
    MigrationConflict,
    MigrationError,
    MigrationLimitExceeded,
    UnknownName,
    ZapdbError,
)
from zapdb.limits import DOCUMENT_SIZE_BYTES_MAX
from zapdb.migrations import SentDirectory, SentFile, load_directory
from zapdb.migrations.lockfile import lock_lines, write_lock
from zapdb.sandbox.inside import wire

FIRST = document(PEOPLE)
RENAME = "{rename_field: {table: people, field: name, to: called}}"
LOSSY = """
  transform:
    table: people
    from: {name: string}
    into: {first: string, last: string}
    up: {first: "before(name, ' ')", last: "after(name, ' ')"}
    down: {name: "join(' ', first, last)"}
"""


def sent(directory: Path) -> SentDirectory:
    paths = (path for path in sorted(directory.iterdir()) if path.is_file())
    files = (SentFile(path.name, path.read_bytes()) for path in paths)
    return SentDirectory(str(directory), tuple(files))


def test_what_is_read_elsewhere_is_the_same() -> None:
    """Each operation, as it would be applied: its structure, what it makes and what it draws."""
    here, there = read_given(write.KEPT, None), read_given(sent(write.KEPT), None)
    assert here.chain.migrations
    assert [m.structure for m in there.chain.migrations] == [
        m.structure for m in here.chain.migrations
    ]
    assert there.chain.migrations == here.chain.migrations
    assert [file.label for file in there.wanted] == [file.label for file in here.wanted]
    assert [file.read() for file in there.files] == [file.read() for file in here.files]
    assert list_states(sent(write.KEPT), None) == list_states(write.KEPT, None)


def test_files_that_begin_after_a_stored_migration_are_read_elsewhere(tmp_path: Path) -> None:
    whole, rest = tmp_path / "whole", tmp_path / "rest"
    for directory in (whole, rest):
        directory.mkdir()
    for name, text in MIGRATIONS.items():
        (whole / f"{name}.yaml").write_text(text, encoding="utf-8")
    write_lock(whole, lock_lines(load_directory(whole)))
    with zapdb.open(f"sqlite:///{tmp_path / 'a.db'}", migrations=whole, apply="auto") as db:
        catalog = db._catalog
        for path in (*sorted(whole.glob("*.yaml"))[2:], whole / "zapdb.lock"):
            (rest / path.name).write_bytes(path.read_bytes())
        (rest / f"{len(MIGRATIONS) + 1:04d}_more.yaml").write_text(
            document("{add_field: {table: people, field: {name: more, type: string, default: x}}}")
        )
        here, there = read_given(rest, catalog), read_given(sent(rest), catalog)
        assert there.chain == here.chain
        assert [file.follows for file in there.files] == [file.follows for file in here.files]
        assert here.files[0].follows is not None
        assert list_states(sent(rest), catalog) == list_states(rest, catalog)
        (rest / "zapdb.lock").write_text("0002_other z1:00\n")
        for given in (rest, sent(rest)):
            with pytest.raises(MigrationConflict, match="begin after another migration"):
                read_given(given, catalog)


def test_what_is_proven_elsewhere_is_not_proven_again(tmp_path: Path) -> None:
    for name, text in MIGRATIONS.items():
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    there = read_given(sent(tmp_path), None, prove=True)
    assert all(m.is_proven for m in there.chain.migrations)
    checked = check_all_files(sent(tmp_path), None, with_lock=False)
    assert checked == check_all_files(tmp_path, None, with_lock=False)


BOMB = "a: &a [x, x]\n" + "".join(
    f"{new}: &{new} [*{old}, *{old}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
BAD: dict[str, dict[str, str]] = {
    "invalid": {"0001_people.yaml": "zapdb: 1\nchanges: []\nsummry: x\n"},
    "no YAML": {"0001_people.yaml": "zapdb: [1\n"},
    "aliases": {"0001_people.yaml": BOMB},
    "too large": {"0001_people.yaml": "#" * (DOCUMENT_SIZE_BYTES_MAX + 1)},
    "deep": {"0001_people.yaml": "[" * 100_000},
    "not exhaustive": {
        "0001_people.yaml": FIRST,
        "0002_less.yaml": document("{drop_field: {table: people, field: name}}"),
    },
    "not proven": {"0001_people.yaml": FIRST, "0002_names.yaml": document(LOSSY)},
    "a gap": {"0001_people.yaml": FIRST, "0003_more.yaml": document(RENAME)},
    "twins": {"0001_people.yaml": FIRST, "0001_more.yaml": document(RENAME)},
    "a stranger": {"people.yaml": FIRST},
    "a first file that is no squash": {"0002_people.yaml": "zapdb: {"},
    "nothing": {},
    "no lock file": {"0001_people.yaml": FIRST},
    "another digest": {"0001_people.yaml": FIRST, "zapdb.lock": "0001_people z1:00\n"},
    "a broken lock file": {"0001_people.yaml": FIRST, "zapdb.lock": "<<<<<<< HEAD\n"},
}


def error_of(work: Callable[[], object]) -> ZapdbError:
    with pytest.raises(ZapdbError) as caught:
        work()
    return caught.value


@pytest.mark.parametrize("files", BAD.values(), ids=BAD)
def test_errors_are_those_of_the_same_files_here(files: dict[str, str], tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    here = error_of(lambda: check_all_files(tmp_path, None))
    there = error_of(lambda: check_all_files(sent(tmp_path), None))
    assert (type(there), str(there)) == (type(here), str(here))
    assert there.to_json() == here.to_json()


def test_a_number_that_no_file_has_is_told_before_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "0001_people.yaml").write_text("zapdb: 1\n", encoding="utf-8")
    for directory in (tmp_path, sent(tmp_path)):
        with pytest.raises(UnknownName):
            read_given(directory, None, to=7)


def test_files_that_take_too_long_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sent_files, "MIGRATION_CHECK_SECONDS", 0.0001)
    error = error_of(lambda: check_all_files(sent(write.KEPT), None))
    assert isinstance(error, MigrationLimitExceeded)
    assert error.hint


def test_files_that_take_too_much_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound is of what the process takes beyond what it has when it begins."""
    monkeypatch.setattr(sent_file_check, "MIGRATION_CHECK_MEMORY_SIZE_BYTES", 1 << 20)
    monkeypatch.setattr(sent_file_check, "answer", lambda _: bytearray(1 << 30))
    ours, theirs = socket.socketpair()
    process = os.fork()
    if process == 0:
        ours.close()
        sent_file_check.run(None, theirs, None)
    theirs.close()
    with ours:
        channel = wire.Channel(ours)
        channel.send(wire.REQUEST, pickle.dumps(Request("check", SentDirectory("m", ()))))
        with pytest.raises(wire.Ended):
            channel.receive(1 << 20)
    _, status = os.waitpid(process, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL


def told(**value: Any) -> tuple[bytes, bytes]:
    return wire.ANSWER, json.dumps(value).encode()


FORGED: dict[str, Sequence[tuple[bytes, bytes]]] = {
    "nothing": [],
    "no JSON": [(wire.ANSWER, b"{")],
    "deep JSON": [(wire.ANSWER, b"[" * 100_000)],
    "an unknown kind": [(b"?", b"{}")],
    "another answer": [told(number=1, name="a", phase="applied", conflict=None)],
    "a file that was not sent": [told(file="../x", number=1, name="x"), (wire.DONE, b"")],
    "a structure that is none": [
        told(file="0001_people.yaml", number=1, name="people", structure="AAAA"),
        (wire.DONE, b""),
    ],
    "an error that is none": [(wire.FAILED, b'{"code": 5}')],
    "an error of nobody": [(wire.FAILED, b"[]")],
}


@pytest.mark.parametrize("messages", FORGED.values(), ids=FORGED)
def test_answers_that_no_check_gives_are_no_answer(
    messages: Sequence[tuple[bytes, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = socket.socketpair()

    class Forger:
        is_interrupted = False
        channel = wire.Channel(ours)

        def __init__(self, *_: object) -> None:
            pass

        def __enter__(self) -> Forger:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def end(self) -> dict[str, Any]:
            return {"signal": 0}

    monkeypatch.setattr(sent_files, "SandboxProcess", Forger)
    with ours, theirs:
        for kind, data in messages:
            theirs.sendall(wire.HEAD.pack(kind, len(data)) + data)
        theirs.shutdown(socket.SHUT_WR)
        directory = SentDirectory("m", (SentFile("0001_people.yaml", FIRST.encode()),))
        error = error_of(lambda: read_given(directory, None))
    assert type(error) is MigrationError
    assert error.message == "the process that checks migration files gave no answer"
