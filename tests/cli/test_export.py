"""`zapdb export`, and `zapdb import` of what it wrote."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from typing import Final

from tests.cli.program import Project


def test_an_export_is_imported_and_verified(current: Project) -> None:
    made = current.run("export", "out")
    assert (made.status, made.err) == (0, "")
    assert made.out == "exported 20 records of 1 table to out\n"
    loaded = current.run("import", "out", "-d", "sqlite:///copy.db")
    assert (loaded.status, loaded.err) == (0, "")
    assert loaded.out.startswith("imported 20 records of 1 table; counts and digests are")
    again = current.run("import", "out", "-d", "sqlite:///copy.db", "--json")
    assert again.json == {
        "source": "out",
        "position": 4,
        "inserted": 0,
        "tables": {"people": 20},
    }
    listed = current.run("data", "export", "people").out
    assert current.run("data", "export", "people", "-d", "sqlite:///copy.db").out == listed


def test_an_export_as_json(current: Project) -> None:
    made = current.run("export", "out", "--format", "csv", "--json").json
    (table,) = made["tables"]
    assert (made["format"], made["position"], table["records"]) == ("csv", 4, 20)
    assert (current.directory / "out" / table["file"]).read_text().startswith("id,")
    assert table["digest"].startswith("t1:")


def test_wrong_use_is_explained(current: Project) -> None:
    assert current.run("export", "out").status == 0
    again = current.run("export", "out")
    assert again.status == 2
    assert "the directory is not empty" in again.err
    other = current.run("import", "out", "--table", "people", "-d", "sqlite:///copy.db")
    assert other.status == 2
    assert "option: --table" in other.err
    with sqlite3.connect("other.db") as connection:
        connection.execute("CREATE TABLE mine (id)")
    connection.close()
    assert current.run("import", "out", "-d", "sqlite:///other.db").status == 1
    taken = current.run("export", "other.db")
    assert (taken.status, "a file is where the directory should be" in taken.err) == (2, True)
    empty = current.run("export", "new", "-d", "sqlite:///none.db")
    assert (empty.status, "hint" in empty.err) == (3, True)


def test_an_import_says_what_an_earlier_run_had_done(current: Project) -> None:
    current.run("export", "out", "--format", "ndjson")
    told = [current.run("import", "out", "-d", "sqlite:///copy.db").out for _ in range(2)]
    assert told[0].startswith("imported 20 records of 1 table; counts and digests are")
    assert told[1].startswith("imported 20 records of 1 table (20 were there already); counts")


def test_a_script_is_plain_sql(current: Project) -> None:
    made = current.run("export", "--sql", "sqlite", "out.sql")
    assert (made.status, made.out) == (0, "exported 20 records of 1 table to out.sql\n")
    with sqlite3.connect(":memory:") as connection:
        connection.executescript((current.directory / "out.sql").read_text())
        assert connection.execute("SELECT count(*), min(age) FROM people").fetchall() == [(20, 7)]
    connection.close()
    described = current.run("export", "--sql", "postgresql", "out.sql", "--json").json
    assert described["records"] == {"people": 20}
    assert current.run("export", "--sql", "oracle", "out.sql").status == 2
    assert current.run("export", "--sql", "sqlite", ".").status == 2


def test_all_tenants_and_the_change_log(current: Project) -> None:
    assert current.run("settings", "set", "change_log", "on").status == 0
    assert current.run("data", "put", "people", "id=1", "age=99").status == 0
    log = current.run("export", "logged", "--change-log")
    assert (log.status, log.err) == (0, "")
    assert "changes to changes.ndjson" in log.out
    lines = (current.directory / "logged" / "changes.ndjson").read_text().splitlines()
    assert json.loads(lines[-1])["after"]["age"] == 99
    assert current.run("tenant", "create", "acme").status == 0
    apart = current.run("export", "all", "--all-tenants")
    assert (apart.status, "at different positions" in apart.err) == (2, True)
    assert current.run("migrate", "up", "--all-tenants").status == 0
    made = current.run("export", "all", "--all-tenants")
    assert (made.status, made.out) == (0, "exported 20 records of 2 tenants to all\n")
    loaded = current.run("import", "all", "-d", "sqlite:///copy.db", "--json")
    assert sorted(loaded.json["tenants"]) == ["acme", "default"]
    for options in (("--tenant", "acme"), ("--change-log",), ("--sql", "sqlite")):
        wrong = current.run("export", "wrong", "--all-tenants", *options)
        assert (wrong.status, "do not go together" in wrong.err) == (2, True)
    wrong = current.run("import", "all", "-d", "sqlite:///copy.db", "--tenant", "acme")
    assert (wrong.status, "tenants/0001" in wrong.err) == (2, True)


def test_a_past_is_exported_and_restored(current: Project) -> None:
    assert current.run("settings", "set", "change_log", "on").status == 0
    for age in (50, 60):
        assert current.run("data", "put", "people", "id=1", f"age={age}").status == 0
    (newest, before, *_) = current.run("history", "moments", "--json").lines
    at = f"#{before['moment']}"
    made = current.run("history", "export", "then", "--at", at)
    assert (made.status, made.err) == (0, "")
    assert made.out == "exported 20 records of 1 table to then\n"
    told = current.run("history", "export", "again", "--at", at, "--json").json["moment"]
    assert (told["number"], told["doubts"]) == (before["moment"], {})
    restored = current.run("history", "restore", "then", "-d", "sqlite:///then.db")
    assert restored.out.startswith(f"restored 20 records of 1 table as of moment {at}; counts")
    imported = current.run("import", "again", "-d", "sqlite:///again.db")
    assert imported.out.startswith(f"imported 20 records of 1 table as of moment {at}; counts")
    for copy in ("then", "again"):
        person = current.run("data", "get", "people", "1", "-d", f"sqlite:///{copy}.db", "--json")
        assert person.json["age"] == 50
    assert newest["moment"] > before["moment"]
    full = current.run("history", "export", "then", "--at", at)
    assert (full.status, "the directory is not empty" in full.err) == (2, True)
    none = current.run("history", "restore", "nowhere", "-d", "sqlite:///none.db")
    assert (none.status, "there is no such directory" in none.err) == (2, True)
    other = current.run("history", "restore", ".", "-d", "sqlite:///none.db")
    assert (other.status, "not a whole export" in other.err) == (2, True)
    early = current.run("history", "export", "new", "--at", "#0")
    assert (early.status, "were not recorded" in early.err) == (1, True)


ALONE: Final = """\
import sys
sys.modules["pyarrow"] = None
from zapdb.cli.program import main
main()
"""


def test_text_needs_no_extra_and_a_missing_one_is_named(current: Project) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", ALONE, *arguments]
        # Not by the nursery, whose processes have imported all packages.
        return subprocess.run(command, cwd=current.directory, capture_output=True, text=True)

    for form in ("csv", "ndjson"):
        made = run("export", form, "--format", form)
        assert (made.returncode, made.stderr) == (0, "")
        loaded = run("import", form, "-d", f"sqlite:///{form}.db")
        assert (loaded.returncode, loaded.stderr) == (0, "")
        assert loaded.stdout.startswith("imported 20 records of 1 table; counts and digests")
    refused = run("export", "out")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "hint: pip install 'zapdb[sql]'; or write text, which needs no package" in refused.stderr
    assert not (current.directory / "out").exists()
    assert current.run("export", "out").status == 0
    refused = run("import", "out", "-d", "sqlite:///out.db")
    assert "package: pyarrow\n  hint: pip install 'zapdb[sql]'" in refused.stderr
    assert not (current.directory / "out.db").exists()
    assert current.run("jobs", "list").out == "no jobs\n"
