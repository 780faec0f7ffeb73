"""The lock file: one line per migration, checked against the files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.documents import PEOPLE, document, resolve_documents
from zapdb.errors import LockfileMismatch
from zapdb.migrations import Chain
from zapdb.migrations.directory import FILE, LockLine, read_lines_before, read_lock
from zapdb.migrations.lockfile import HEADER, check_lock, lock_lines, write_lock
from zapdb.migrations.squash import squash

TEXTS = [
    document(PEOPLE),
    document("rename_field: {table: people, field: name, to: title}"),
    document("add_field: {table: people, field: {name: fax, type: string, default: x}}"),
]
CHAIN = resolve_documents(*TEXTS)


@pytest.fixture
def locked(tmp_path: Path) -> Path:
    assert write_lock(tmp_path, lock_lines(CHAIN)) == 3
    return tmp_path


def refused(directory: Path, chain: Chain = CHAIN) -> LockfileMismatch:
    with pytest.raises(LockfileMismatch) as caught:
        check_lock(directory, chain)
    return caught.value


def test_a_lock_file_has_a_line_per_migration(locked: Path) -> None:
    first, second, third = CHAIN.migrations
    assert (locked / FILE).read_text(encoding="utf-8") == (
        f"{HEADER}\n0001_test {first.digest}\n0002_test {second.digest}\n0003_test {third.digest}\n"
    )
    assert HEADER.startswith("#")
    assert "\n" not in HEADER
    assert read_lock(locked) == [LockLine(m.label, m.digest) for m in CHAIN.migrations]
    check_lock(locked, CHAIN)


def test_writing_tells_how_many_lines_are_new_or_changed(locked: Path) -> None:
    assert write_lock(locked, lock_lines(CHAIN)) == 0
    edited = resolve_documents(TEXTS[0], TEXTS[1], TEXTS[2].replace("fax", "phone"))
    assert write_lock(locked, lock_lines(edited)) == 1
    assert write_lock(locked, lock_lines(edited.up_to(2))) == 0
    assert write_lock(locked, lock_lines(edited)) == 1


def test_comments_blank_lines_and_windows_line_ends_mean_nothing(locked: Path) -> None:
    path = locked / FILE
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_bytes("\r\n".join(["", *(f"{line}  # why" for line in lines), "", ""]).encode())
    check_lock(locked, CHAIN)


def test_a_missing_lock_file_is_a_mismatch(tmp_path: Path) -> None:
    assert read_lock(tmp_path) is None
    assert refused(tmp_path).message == "there is no lock file"


def test_a_migration_that_is_not_locked_yet_is_named(locked: Path) -> None:
    longer = resolve_documents(*TEXTS, document("rename_table: {table: people, to: persons}"))
    error = refused(locked, longer)
    assert error.message == "a migration is not in the lock file yet"
    assert error.context["migration"] == "0004_test"


def test_an_edited_migration_is_named_with_both_digests(locked: Path) -> None:
    edited = resolve_documents(TEXTS[0], TEXTS[1].replace("title", "label"), TEXTS[2])
    error = refused(locked, edited)
    assert error.message == "a migration differs from its locked digest"
    assert error.context["migration"] == "0002_test"
    assert error.context["locked"] == f"0002_test {CHAIN.migrations[1].digest}"
    assert error.context["found"] == edited.migrations[1].digest
    assert error.hint.startswith("revert the file")


def test_a_locked_migration_without_a_file_is_named(locked: Path) -> None:
    error = refused(locked, CHAIN.up_to(2))
    assert error.message == "a migration in the lock file has no file"
    assert error.context["migration"] == "0003_test"


def test_lines_in_another_order_are_a_mismatch(locked: Path) -> None:
    path = locked / FILE
    header, first, second, third = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([header, second, first, third]), encoding="utf-8")
    assert refused(locked).context["migration"] == "0001_test"


@pytest.mark.parametrize("line", ["0004_test", "0004_test z1:00 more"])
def test_a_broken_line_is_refused_at_its_number(locked: Path, line: str) -> None:
    with (locked / FILE).open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")
    error = refused(locked)
    assert error.message == (
        "a line of the lock file does not consist of a migration and its digest"
    )
    assert error.context["file"] == f"{locked / FILE}:5"


def test_a_merge_conflict_is_refused_where_it_begins(locked: Path) -> None:
    path = locked / FILE
    header, first, second, third = path.read_text(encoding="utf-8").splitlines()
    conflict = ["<<<<<<< HEAD", second, "=======", third, ">>>>>>> branch"]
    path.write_text("\n".join([header, first, *conflict]), encoding="utf-8")
    error = refused(locked)
    assert error.context["file"] == f"{path}:3"
    assert error.hint.startswith("settle the merge")
    assert write_lock(locked, lock_lines(CHAIN)) == 3
    check_lock(locked, CHAIN)


def test_a_lock_file_that_is_not_utf8_is_refused(locked: Path) -> None:
    (locked / FILE).write_bytes(b"\xff\xfe")
    assert refused(locked).message == "the lock file is not UTF-8"


def test_the_line_of_a_squash_has_the_last_digest_that_it_stands_for(tmp_path: Path) -> None:
    made = Chain((squash(CHAIN, 2), *CHAIN.after(2)))
    _, second, third = CHAIN.migrations
    write_lock(tmp_path, lock_lines(made))
    assert (tmp_path / FILE).read_text(encoding="utf-8").splitlines()[1:] == [
        f"0002_squashed {made.migrations[0].digest} for {second.digest}",
        f"0003_test {third.digest}",
    ]
    assert read_lock(tmp_path) == lock_lines(made)
    check_lock(tmp_path, made)
    squashed, plain = lock_lines(made)[0], lock_lines(CHAIN)[1]
    assert squashed.is_same_as(plain)
    assert plain.is_same_as(squashed)
    assert not replace(squashed, digest="z1:00").is_same_as(squashed)
    assert not lock_lines(CHAIN)[0].is_same_as(squashed)


LINES = ("0001_a z1:1", "0002_b z1:2", "0003_c z1:3")


@pytest.mark.parametrize(
    "lines",
    [
        (LINES[1], LINES[0], LINES[2]),
        (LINES[0], LINES[2], LINES[1]),
        (LINES[0], LINES[1], LINES[1]),
        (LINES[0], LINES[0], LINES[1]),
        (LINES[0], "0002_b z1:2 for z1:9"),
        ("0000_z z1:0", LINES[0], LINES[1]),
        ("first z1:0", LINES[1]),
        (LINES[2], LINES[1]),
    ],
)
def test_lines_before_the_files_are_numbered_one_after_another(
    tmp_path: Path, lines: tuple[str, ...]
) -> None:
    (tmp_path / FILE).write_text("\n".join(lines), encoding="utf-8")
    with pytest.raises(LockfileMismatch, match="not where it belongs"):
        read_lines_before(tmp_path, 3)


def test_the_lines_before_the_files_are_those_of_smaller_numbers(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("\n".join(LINES), encoding="utf-8")
    assert [line.label for line in read_lines_before(tmp_path, 3)] == ["0001_a", "0002_b"]
    assert read_lines_before(tmp_path, 5) == ()
    (tmp_path / FILE).write_text("\n".join(LINES[1:]), encoding="utf-8")
    assert [line.label for line in read_lines_before(tmp_path, 4)] == ["0002_b", "0003_c"]
    (tmp_path / FILE).unlink()
    assert read_lines_before(tmp_path, 3) == ()
