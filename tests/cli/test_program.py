"""The program as a whole: its help, its exit statuses, errors, interruption, and how it starts."""

from __future__ import annotations

import inspect
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import zapdb
from tests import processes
from tests.cli.program import Project
from tests.support import GUARD_SECONDS
from zapdb.accelerator import describe_codec
from zapdb.cli import app, commands
from zapdb.cli.connecting import DatabaseOptions, TenantOptions
from zapdb.cli.exclusive_jobs import counted_job
from zapdb.cli.output import Output


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    children = getattr(command, "commands", {})
    for name, child in children.items():
        yield from leaves(child, (*path, name))
    if not children:
        yield path, command


COMMANDS = dict(leaves(app))


def test_the_list_of_commands_says_how_the_help_of_each_begins() -> None:
    alone = {name for name, place in commands.COMMANDS.items() if isinstance(place, str)}
    begins = {name: " ".join(COMMANDS[name,].help.partition("\n\n")[0].split()) for name in alone}
    assert begins == commands.SUMMARIES


def test_a_command_has_the_options_of_the_dataclasses_that_it_takes() -> None:
    def verify(output: Output, options: TenantOptions, table: str = "people") -> str:
        return f"{options.tenant} {table} {output.as_json}"

    spread = commands.spread_options(verify)
    names = ["table", "as_json", "database", "tenant"]
    assert list(inspect.signature(spread).parameters) == names
    assert spread(tenant="acme", database=None, as_json=True, table="todo") == "acme todo True"


def test_these_are_the_commands() -> None:
    assert {" ".join(path) for path in COMMANDS} == {
        "import",
        "init",
        "mirror run",
        "mirror status",
        "migrate new",
        "migrate amend",
        "migrate check",
        "migrate up",
        "migrate status",
        "migrate diff",
        "migrate forget",
        "migrate rollback",
        "migrate graph",
        "migrate lint",
        "migrate plan",
        "migrate prove",
        "migrate rehearse",
        "migrate prune-archive",
        "migrate squash",
        "codegen json-schema",
        "codegen models",
        "convert run",
        "convert status",
        "convert watch",
        "catalog list",
        "catalog show",
        "catalog fingerprint",
        "catalog revisions",
        "catalog prune",
        "catalog watch",
        "changes followers",
        "changes list",
        "changes prune",
        "changes remove-follower",
        "cluster evict",
        "cluster leases",
        "cluster nodes",
        "cluster status",
        "cluster upgrade",
        "history audit",
        "history diff",
        "history erase",
        "history export",
        "history flush",
        "history moments",
        "history move",
        "history purge",
        "history rebuild-manifest",
        "history query",
        "history row",
        "history run",
        "history start",
        "history status",
        "history stop",
        "history table",
        "history restore",
        "history verify",
        "mirror check",
        "tenant create",
        "tenant list",
        "tenant remove",
        "settings list",
        "settings get",
        "settings set",
        "settings unset",
        "settings profile",
        "data export",
        "data get",
        "data list",
        "data put",
        "data discard",
        "jobs cancel",
        "jobs list",
        "jobs pause",
        "jobs priority",
        "jobs resume",
        "jobs show",
        "jobs throttle",
        "jobs watch",
        "metrics",
        "reindex run",
        "reindex status",
        "shell",
        "catalog calls",
        "serve",
        "spark package",
        "token issue",
        "token keys",
        "export",
        "sql",
        "sweep",
        "verify",
    }


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_writes_json_and_says_what_is_in_it(path: tuple[str, ...]) -> None:
    command = COMMANDS[path]
    options = {option for parameter in command.params for option in parameter.opts}
    if path != ("shell",):  # what it writes is for its user to say
        assert "--json" in options
        assert "With `--json`" in command.help
    assert options & {"--database", "--migrations"} or path[0] in ("codegen", "spark", "token")


@pytest.mark.parametrize("path", [(), ("migrate",), *COMMANDS], ids=" ".join)
def test_help_is_shown(project: Project, path: tuple[str, ...]) -> None:
    for option in ("--help", "-h"):
        result = project.run(*path, option)
        assert result.status == 0
        assert f"Usage: {' '.join(['zapdb', *path])}" in result.out
        assert result.err == ""


@pytest.mark.parametrize("path", [(), ("migrate",), ("catalog",)], ids=" ".join)
def test_a_group_without_a_command_shows_help_and_is_wrong_usage(
    project: Project, path: tuple[str, ...]
) -> None:
    result = project.run(*path)
    assert result.status == 2
    assert "Commands" in result.out


def test_version(project: Project) -> None:
    result = project.run_process("--version")
    expected = f"zapdb {zapdb.__version__} ({describe_codec()})\n"
    assert (result.status, result.out) == (0, expected)


@pytest.mark.parametrize(
    ("arguments", "message", "command"),
    [
        (["migrate", "foo"], "there is no command 'foo'", "zapdb migrate"),
        (["migrate", "up", "--foo"], "no such option: --foo", "zapdb migrate up"),
        (["catalog", "revisions", "--limit", "0"], "invalid value", "zapdb catalog revisions"),
        (["catalog", "show"], "missing argument 'table'", "zapdb catalog show"),
        (["migrate", "up", "--to", "0"], "invalid value for '--to'", "zapdb migrate up"),
        (["convert", "run", "--engine", "x"], "invalid value for '--engine'", "zapdb convert run"),
        (["verify", "extra"], "got unexpected extra argument", "zapdb verify"),
    ],
)
def test_wrong_arguments_are_wrong_usage(
    project: Project, arguments: list[str], message: str, command: str
) -> None:
    result = project.run(*arguments)
    assert (result.status, result.out) == (2, "")
    assert result.err.lower().startswith(f"error: {message}")
    assert result.err.endswith(
        (f"run `{command} --help`\n", f"`{command} --help` lists the commands\n")
    )

    result = project.run(*arguments, "--json")
    assert (result.status, result.out) == (2, "")
    assert result.error["code"] == "usage"
    assert result.error["message"].lower().startswith(message)


def test_an_error_goes_to_standard_error_without_traceback_or_colour(project: Project) -> None:
    result = project.run_process("catalog", "list")
    assert (result.status, result.out) == (3, "")
    assert result.err == (
        "error: the database is empty: no migration was ever applied\n"
        "  database: sqlite:///test.db\n"
        "  hint: run `zapdb migrate up`, or open it with apply='auto'\n"
    )


def test_an_error_is_json_where_json_was_asked_for(project: Project) -> None:
    result = project.run_process("catalog", "list", "--json")
    assert (result.status, result.out) == (3, "")
    assert result.error == {
        "code": "migration.pending",
        "message": "the database is empty: no migration was ever applied",
        "hint": "run `zapdb migrate up`, or open it with apply='auto'",
        "location": None,
        "context": {"database": "sqlite:///test.db"},
    }


def test_what_the_operating_system_refuses_is_an_error(project: Project) -> None:
    (project.directory / "file").write_text("")
    result = project.run("migrate", "new", "People", "-m", "file")
    assert (result.status, result.out) == (1, "")
    assert result.err == (
        "error: the operating system reported an error: File exists\n  file: file\n"
    )
    assert project.run("migrate", "new", "People", "-m", "file", "--json").error["code"] == "error"


@pytest.mark.parametrize(("closed", "status"), [("1", 2), ("2", 0), ("0", 0), ("0 1 2", 2)])
def test_a_closed_standard_stream_is_no_traceback(
    people: Project, closed: str, status: int
) -> None:
    """Nor is it the number of a file that the command opens, to which others would write."""
    close = "; ".join(f"os.close({number})" for number in closed.split())
    program = f"import os, sys; {close}; os.execv(sys.executable, sys.argv[1:])"
    command = [sys.executable, "-m", "zapdb", "data", "list", "people"]
    ended = processes.run(
        [sys.executable, "-c", program, *command],
        cwd=people.directory,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == status, ended.stderr
    assert "Traceback" not in ended.stderr
    if closed == "1":
        assert "standard output is closed, so nothing was done" in ended.stderr
    elif closed in "02":
        assert "Ada" in ended.stdout


def test_output_that_nobody_reads_any_more_is_no_traceback(people: Project) -> None:
    reader = processes.Popen(["true"], stdin=subprocess.PIPE)
    reader.wait()
    assert reader.stdin is not None
    process = processes.Popen(
        [sys.executable, "-m", "zapdb", "catalog", "revisions", "--table", "people"],
        cwd=people.directory,
        stdout=reader.stdin,
        stderr=subprocess.PIPE,
        text=True,
    )
    reader.stdin.close()
    _, err = process.communicate(timeout=GUARD_SECONDS)
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [
        (["--help"], {"alembic", "rich.progress", "pyspark", "psycopg"}),
        (["migrate", "status"], {"alembic", "rich.progress", "pyspark", "psycopg"}),
        (["migrate", "new", "X"], {"alembic", "rich.progress", "pyspark", "psycopg"}),
    ],
    ids=["help", "status", "new"],
)
def test_what_a_command_does_not_need_is_not_loaded(
    project: Project, arguments: list[str], unwanted: set[str]
) -> None:
    project.write("0001_people")
    script = (
        "import sys, zapdb.cli.program as program\n"
        f"program.run_program({arguments!r})\n"
        f"print(sorted({unwanted!r} & sys.modules.keys()), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stderr == "[]\n"


def wait_while_running(process: subprocess.Popen[str], holds: Callable[[], object]) -> None:
    """Until something holds, however long a process that runs takes to bring it about."""
    while not holds():
        assert process.poll() is None, "it ended before"
        time.sleep(0.002)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_ctrl_c_ends_a_job_cleanly_and_the_next_run_goes_on(project: Project, workers: str) -> None:
    project.write("0001_people")
    project.run("migrate", "up")
    project.fill(60_000)
    project.write("0002_add_age")
    project.run("migrate", "up")
    # So that it is under way for long, however late that is seen.
    project.run("settings", "set", "job_records_per_second", "1000")
    with project.start("convert", "run", "--workers", workers) as process:
        wait_while_running(
            process, lambda: project.sql("SELECT 1 FROM zapdb_ranges WHERE read > 0")
        )
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert (process.returncode, out) == (130, "")
    assert err == (
        "nothing is lost: `zapdb convert run` continues where this stopped\ninterrupted\n"
    )
    ((read,),) = project.sql("SELECT sum(read) FROM zapdb_ranges")
    assert 0 < read < 60_000

    project.run("settings", "unset", "job_records_per_second")
    (job,) = project.run("convert", "run", "--json").json["jobs"]
    assert job["read"] == 60_000 - read
    assert project.run("convert", "status").status == 0


def test_every_error_object_is_one_line(project: Project) -> None:
    project.write("0001_people")
    project.file("0001_people").write_text("zapdb: 1\nchanges: []\nsummry: x\n")
    result = project.run("migrate", "check", "--json")
    assert result.status == 1
    (line,) = result.err.splitlines()
    found = json.loads(line)
    assert [violation["message"] for violation in found["violations"]] == [
        "the key 'summary' is missing",
        "the key 'rollback' is missing",
        "a migration changes something",
        "unknown key 'summry'",
    ]
    assert re.fullmatch(r"[a-z.]+", found["code"])


def test_ctrl_c_in_an_import_says_that_the_next_one_goes_on(
    current: Project, capsys: pytest.CaptureFixture[str]
) -> None:
    options = DatabaseOptions(f"sqlite:///{current.database}")

    def interrupt(*, is_resumable: bool) -> None:
        with counted_job(options, "import", "people.csv", is_resumable=is_resumable):
            raise KeyboardInterrupt

    for is_resumable in (True, False):
        with pytest.raises(KeyboardInterrupt):
            interrupt(is_resumable=is_resumable)
    assert capsys.readouterr().err == (
        "nothing is lost: the same command goes on where this stopped\n"
    )
