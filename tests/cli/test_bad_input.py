"""Bad input: refused with a place and a hint, and nothing in the database changes.

Each case is met by every command that has anything to do with it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.program import MIGRATIONS, PEOPLE, Project, Result
from zapdb.storage.storage_version import STORAGE_VERSION

UP, STATUS, CHECK, VERIFY = (
    ("migrate", "up"),
    ("migrate", "status"),
    ("migrate", "check"),
    ("verify",),
)
FORGET = ("migrate", "rollback", "--yes")
DATABASE_COMMANDS = [
    UP,
    STATUS,
    FORGET,
    VERIFY,
    ("convert", "run"),
    ("convert", "status"),
    ("catalog", "list"),
    ("catalog", "show", "people"),
    ("catalog", "revisions", "--table", "people"),
    ("settings", "set", "on_read", "write_back"),
]
NEEDS_MIGRATIONS = [UP, STATUS, FORGET, VERIFY]
READS_MAYBE_NONE = [command for command in DATABASE_COMMANDS if command not in NEEDS_MIGRATIONS]
"""They need what the tables are, which stands apart from the migrations."""


def refuse(project: Project, command: tuple[str, ...], status: int = 1) -> str:
    """The error that the command is refused with; the database stays as it is, row by row."""
    before = project.dump()
    result = project.run(*command)
    assert result.status == status
    assert result.err.startswith("error: ")
    assert project.dump() == before
    assert project.database.exists() == bool(before)

    as_json = project.run(*command, "--json")
    assert as_json.status == status
    assert as_json.error["message"] in result.err
    assert as_json.error["hint"] in result.err
    assert project.dump() == before
    return result.err


def ids(commands: list[tuple[str, ...]]) -> list[str]:
    return [" ".join(command) for command in commands]


def over(*commands: tuple[str, ...]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("command", commands, ids=ids(list(commands)))


# Files and database disagree


@over(UP, VERIFY)
def test_a_migration_edited_after_it_was_stored(current: Project, command: tuple[str, ...]) -> None:
    current.file("0002_add_age").write_text(
        MIGRATIONS["0002_add_age"].replace("name: age", "name: years")
    )
    message = refuse(current, command)
    assert message.startswith(
        "error: migrations/0002_add_age.yaml:1:1: "
        "the file differs from the migration that the database stored\n"
        "  stored: 0002_add_age z1:"
    )
    assert (
        "    people.age: name 'age' stored, 'years' in the file\n"
        "    rollback of people.age: field 'age' stored, 'years' in the file\n"
        "  hint: revert the file and write the change as a new migration "
        '(`zapdb migrate new "…"`), or roll back the stored ones from 0002_add_age on '
        "(`zapdb migrate rollback`)\n"
    ) in message


def test_status_of_a_migration_edited_after_it_was_stored(current: Project) -> None:
    current.file("0002_add_age").write_text(
        MIGRATIONS["0002_add_age"].replace("name: age", "name: years")
    )
    before = current.dump()
    result = current.run(*STATUS)
    assert result.status == 1
    assert "0002    add_age     conflict\n" in result.out
    assert "  hint: revert the file" in result.err
    assert current.dump() == before


# The database was tampered with


@over(*NEEDS_MIGRATIONS)
def test_a_stored_migration_missing_in_the_middle(
    current: Project, command: tuple[str, ...]
) -> None:
    current.sql("DELETE FROM zapdb_migrations WHERE number = 2")
    assert refuse(current, command) == (
        "error: a stored migration is missing\n"
        "  number: 2\n"
        "  stored: 1, 3, 4\n"
        "  hint: the zapdb_migrations table was tampered with: restore it from a backup\n"
    )


@over(*NEEDS_MIGRATIONS)
def test_a_stored_migration_that_is_not_behind_the_one_before(
    current: Project, command: tuple[str, ...]
) -> None:
    current.sql("UPDATE zapdb_migrations SET parent = 1 WHERE number = 3")
    assert refuse(current, command) == (
        "error: a stored migration is not behind the one before it\n"
        "  migration: 0003_index_age\n"
        "  hint: the zapdb_migrations table was tampered with: restore it from a backup\n"
    )


@over(*READS_MAYBE_NONE)
def test_a_damaged_migration_is_told_where_it_is_read_and_changes_nothing_else(
    current: Project, command: tuple[str, ...]
) -> None:
    whole = current.run(*command)
    current.sql("UPDATE zapdb_migrations SET structure = x'a0' WHERE number = 3")
    result = current.run(*command)
    if result.status:
        assert refuse(current, command).startswith(
            "error: a stored migration does not match its own digest\n"
        )
    else:
        assert (result.out, result.err) == (whole.out, whole.err)


@over(*NEEDS_MIGRATIONS)
def test_a_stored_structure_whose_digest_does_not_match(
    current: Project, command: tuple[str, ...]
) -> None:
    current.sql("UPDATE zapdb_migrations SET structure = x'a0' WHERE number = 3")
    message = refuse(current, command)
    assert message.startswith(
        "error: a stored migration does not match its own digest\n"
        "  migration: 0003_index_age\n"
        "  stored: z1:"
    )
    assert message.endswith(
        "  hint: the zapdb_migrations table was tampered with: restore this row from a backup\n"
    )


# Files that are wrong by themselves


def later(text: str | bytes, name: str = "0005_wrong") -> Callable[[Project], None]:
    def write(project: Project) -> None:
        data = text if isinstance(text, bytes) else text.encode()
        project.file(name).write_bytes(data)

    return write


DROP_WITHOUT_RESTORE = """\
zapdb: 1
summary: Nobody has a fax any more
changes:
  - drop_field: {table: people, field: fax}
rollback: inferred
"""

WRONG_FILES = {
    "two files with one number": (
        later(PEOPLE, "0004_twin"),
        "error: migrations/0004_twin.yaml: two migrations have the number 4; the other is "
        "0004_split_name.yaml\n"
        "  hint: if both come from branches, rename the later one to the next free number, "
        "0005\n",
    ),
    "a gap": (
        later(PEOPLE, "0006_wrong"),
        "error: migrations/0006_wrong.yaml: migration 5 is missing before this one\n"
        "  hint: bring the file back from version control, or renumber this one\n",
    ),
    "a name that is none": (
        later(PEOPLE, "5-wrong"),
        "error: migrations/5-wrong.yaml: this is not the name of a migration file\n"
        "  hint: call it NNNN_name.yaml, with a to z, 0 to 9 and _ in the name\n",
    ),
    "a change without a rollback that can be inferred": (
        later(DROP_WITHOUT_RESTORE),
        "error: migrations/0005_wrong.yaml:4:5: no rollback can be inferred: what was in "
        "people.fax is lost\n"
        "      - drop_field: {table: people, field: fax}\n"
        "        ^\n"
        "  hint: say what a rollback puts there: add restore: {archive: true, "
        "otherwise: {value: …}}, restore: {value: …} or restore: {expression: …}\n",
    ),
    "an unknown key": (
        later(DROP_WITHOUT_RESTORE.replace("field: fax", "feld: fax, field: fax")),
        "error: migrations/0005_wrong.yaml:4:33: unknown key 'feld'\n"
        "      - drop_field: {table: people, feld: fax, field: fax}\n"
        "                                    ^\n"
        "  hint: did you mean 'field'? available: table, field, restore, archived_by\n",
    ),
    "two things wrong": (
        later("zapdb: 1\nsummary: [x]\nchanges: x\nrollback: inferred\n"),
        "error: migrations/0005_wrong.yaml:2:10: a summary is text\n"
        "    summary: [x]\n"
        "             ^\n"
        "  hint: quote it\n"
        "error: migrations/0005_wrong.yaml:3:10: a list of operations is needed here\n"
        "    changes: x\n"
        "             ^\n"
        "  hint: begin each with a dash: - create_table: {…}\n",
    ),
    "not UTF-8": (
        later(b"zapdb: 1\nsummary: caf\xe9\n"),
        "error: migrations/0005_wrong.yaml:2:13: byte 0xe9 is not UTF-8\n"
        "    summary: caf\ufffd\n"
        "                ^\n"
        "  hint: save the file as UTF-8\n",
    ),
    "not YAML": (
        later("zapdb: 1\nsummary: [\n"),
        "error: migrations/0005_wrong.yaml:3:1: not YAML: did not find expected node content\n"
        "  hint: check the indentation, brackets and quotes\n",
    ),
    "a character that a terminal obeys": (
        later("zapdb: 1\nsummary: \x1b[31m\n"),
        "error: migrations/0005_wrong.yaml:2:10: the character U+001B is not allowed in YAML\n"
        "    summary: \\x1b[31m\n"
        "             ^\n"
        "  hint: write an escape sequence in double quotes\n",
    ),
}


@over(UP, CHECK, ("migrate", "check", "--write"))
@pytest.mark.parametrize("case", WRONG_FILES)
def test_a_file_that_is_wrong(current: Project, command: tuple[str, ...], case: str) -> None:
    write, expected = WRONG_FILES[case]
    write(current)
    assert refuse(current, command) == expected
    assert not (current.migrations / "zapdb.lock").exists()


@pytest.mark.parametrize("case", WRONG_FILES)
def test_no_database_is_made_for_a_file_that_is_wrong(project: Project, case: str) -> None:
    project.write()
    write, expected = WRONG_FILES[case]
    write(project)
    assert refuse(project, UP) == expected


# A directory without migrations


@over(UP, STATUS, CHECK)
def test_a_directory_that_is_not_there(current: Project, command: tuple[str, ...]) -> None:
    message = refuse(current, (*command, "-m", "elsewhere"), status=2)
    assert message == (
        "error: the migration directory does not exist\n"
        "  directory: elsewhere\n"
        '  hint: create it and its first file with `zapdb migrate new "…" '
        "--migrations DIRECTORY`\n"
    )


@over(UP, STATUS, CHECK)
def test_a_directory_without_migrations(current: Project, command: tuple[str, ...]) -> None:
    Path("empty").mkdir()
    Path("empty", "notes.txt").write_text("no migration")
    assert refuse(current, (*command, "-m", "empty"), status=2) == (
        "error: the directory contains no migrations\n"
        "  directory: empty\n"
        '  hint: write the first one with `zapdb migrate new "…"`\n'
    )


# A database that is not zapdb's


def refuse_untouched(project: Project, command: tuple[str, ...]) -> str:
    before = project.database.read_bytes()
    files = sorted(project.directory.iterdir())
    result: Result = project.run(*command)
    assert result.status == 1
    assert result.out == ""
    assert project.database.read_bytes() == before
    assert sorted(project.directory.iterdir()) == files
    return result.err


@over(*DATABASE_COMMANDS)
def test_a_database_with_other_tables(project: Project, command: tuple[str, ...]) -> None:
    project.write()
    with sqlite3.connect(project.database) as connection:
        connection.execute("CREATE TABLE customers (name)")
    connection.close()
    assert refuse_untouched(project, command) == (
        "error: the database contains tables of something else\n"
        "  database: sqlite:///test.db\n"
        "  tables: customers\n"
        "  hint: give zapdb a database of its own, or on PostgreSQL a schema of its own "
        "(…?schema=zapdb)\n"
    )


@over(*DATABASE_COMMANDS)
def test_a_file_that_is_no_database(project: Project, command: tuple[str, ...]) -> None:
    project.write()
    project.database.write_bytes(b"no database at all\n" * 100)
    assert refuse_untouched(project, command) == (
        "error: the file is not a SQLite database\n"
        "  database: sqlite:///test.db\n"
        "  hint: give the path of a zapdb database, or of a file that does not exist yet\n"
    )


@over(*DATABASE_COMMANDS)
def test_a_newer_storage_version(current: Project, command: tuple[str, ...]) -> None:
    current.sql("UPDATE zapdb_storage_version SET version_num = '9999'")
    assert refuse(current, command) == (
        "error: the database has a newer storage version than this release knows\n"
        "  database: sqlite:///test.db\n"
        "  storage_version: 9999\n"
        f"  known: {STORAGE_VERSION}\n"
        "  release: 0.1.0\n"
        "  hint: use a zapdb release that knows storage version 9999\n"
    )


@over(*DATABASE_COMMANDS)
def test_a_newer_level(current: Project, command: tuple[str, ...]) -> None:
    level = """replace(value, '"level":1', '"level":99')"""
    current.sql(f"UPDATE zapdb_catalog SET value = {level} WHERE kind = 'level'")
    assert refuse(current, command) == (
        "error: the database uses features that this release does not know\n"
        "  release: 0.1.0\n"
        "  level_supported: 1\n"
        "  level_needed: 99\n"
        "  hint: use a newer release of zapdb\n"
    )


@over(*(command for command in DATABASE_COMMANDS if command not in (UP, STATUS)))
def test_a_database_that_is_not_there(project: Project, command: tuple[str, ...]) -> None:
    project.write()
    assert refuse(project, command, status=3) == (
        "error: the database is empty: no migration was ever applied\n"
        "  database: sqlite:///test.db\n"
        "  hint: run `zapdb migrate up`, or open it with apply='auto'\n"
    )
    assert not project.database.exists()


def test_a_directory_of_the_database_that_is_not_there(project: Project) -> None:
    project.write()
    result = project.run(*UP, "-d", "sqlite:///nowhere/test.db")
    assert (result.status, result.out) == (1, "")
    assert result.err == (
        "error: the database file cannot be opened\n"
        "  database: sqlite:///nowhere/test.db\n"
        "  hint: its directory must exist and be writable\n"
    )


def test_a_directory_in_place_of_the_database(current: Project) -> None:
    result = current.run("data", "list", "people", "-d", f"sqlite:///{current.directory}")
    assert result.status == 1
    assert "cannot read or write the database file" in result.err
    assert "hint: give the path of a file, not of a directory" in result.err
