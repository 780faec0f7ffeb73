"""What a terminal shows, and that anything else gets plain text."""

from __future__ import annotations

import io
import re

import pytest
from rich.cells import cell_len
from rich.console import Console

from tests.cli.program import ANSI, MIGRATIONS, Project, strip_ansi
from zapdb.cli.job_bar import make_bar
from zapdb.cli.output import Output
from zapdb.printing import printable


def lines_of(text: str) -> list[str]:
    return strip_ansi(text).splitlines()


def test_a_table_on_a_terminal(current: Project) -> None:
    result = current.run_on_terminal("migrate", "status")
    assert result.status == 0
    assert "\x1b[32mapplied" in result.out
    assert [line.rstrip() for line in lines_of(result.out)] == [
        "number  name        state",
        "───────────────────────────",
        "0001    people      applied",
        "0002    add_age     applied",
        "0003    index_age   applied",
        "0004    split_name  applied",
    ]


COMMANDS = [
    ("migrate", "status"),
    ("convert", "status"),
    ("catalog", "list"),
    ("catalog", "show", "people"),
    ("catalog", "revisions", "--table", "people"),
    ("settings", "list"),
    ("verify",),
]


def test_the_rule_of_a_plain_table_is_no_longer_than_a_line(current: Project) -> None:
    _, rule, *_ = current.run("settings", "list").out.splitlines()
    assert len(rule.split("  ")[-1]) == 80


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("columns", [120, 80, 46])
def test_no_line_is_wider_than_the_terminal(
    current: Project, command: tuple[str, ...], columns: int
) -> None:
    lines = lines_of(current.show(*command, columns=columns))
    assert lines
    assert max(map(cell_len, lines)) <= columns


@pytest.mark.parametrize("columns", [120, 85, 80, 75, 70, 65, 60, 55, 46])
def test_fingerprints_and_times_are_never_broken(current: Project, columns: int) -> None:
    whole = r"0x[0-9a-f]{16}|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
    for command in (("catalog", "list"), ("catalog", "revisions", "--table", "people")):
        wanted = re.findall(whole, current.run(*command).out)
        assert wanted
        shown = current.show(*command, columns=columns)
        assert re.findall(whole, strip_ansi(shown)) == wanted


def test_a_table_that_does_not_fit_is_written_row_by_row(current: Project) -> None:
    lines = lines_of(current.show("catalog", "list", columns=40))
    assert [line.rstrip() for line in lines][:5] == [
        "table        people",
        "key          id",
        "fields       5",
        "indexes      1",
        "revision     4",
    ]


def test_a_bar_is_shown_while_a_job_runs(project: Project) -> None:
    project.write("0001_people")
    project.run("migrate", "up")
    project.fill(20_000)
    project.write()
    project.run("migrate", "up", "--no-build")
    shown = strip_ansi(project.run_on_terminal("convert", "run", columns=100).out)
    assert re.search(r"building index by_age of people ━", shown)
    assert re.search(r"converting people to revision 4 ━", shown)
    assert "built index by_age of people: 20,000 records in " in shown
    assert project.run("convert", "status").status == 0


def test_the_bar_says_how_fast_a_job_is_and_why_it_waits(project: Project) -> None:
    project.write("0001_people")
    project.run("migrate", "up")
    project.fill(1_500)
    project.write("0002_add_age")
    project.run("migrate", "up", "--no-build")
    project.run("convert", "run", "--plan-only")
    project.run("jobs", "throttle", "convert", "--records-per-second", "600")
    shown = strip_ansi(project.run_on_terminal("convert", "run", columns=120).out)
    assert re.search(
        r"converting people to revision 2 [━╸╺]+ +\d+% +[\d,]+/1,500 \d+/s ETA \d+ s", shown
    )
    assert re.search(r"\nrevision 1: [\d,]+, revision 2: [\d,]+", shown)
    assert "\nwaits: throttled to 600 records per second" in shown
    assert shown.rstrip().splitlines()[-1].startswith("converted people to revision 2: 1,500 rec")


def test_a_mirror_counts_what_it_copies(people: Project) -> None:
    result = people.run_on_terminal("mirror", "run", "--to", "sqlite:///mirror.db", "--once")
    assert result.out.endswith("people\n\r20 records\x1b[K\r\x1b[K")


def test_why_a_job_waits_is_told_without_a_terminal(project: Project) -> None:
    project.write("0001_people")
    project.run("migrate", "up")
    project.fill(1_000)
    project.write("0002_add_age")
    project.run("migrate", "up", "--no-build")
    project.run("convert", "run", "--plan-only")
    project.run("jobs", "throttle", "convert", "--records-per-second", "500")
    result = project.run("convert", "run", "--json")
    told = "throttled to 500 records per second"
    assert result.err == f"waiting: converting people to revision 2: {told}\n"
    assert result.json["jobs"][0]["waits"] == [told]


def test_an_error_on_a_terminal_is_wrapped_but_its_excerpt_is_not(project: Project) -> None:
    project.write()
    kex = f"      kex: {'[a, b, c, d]':40}# a long line"
    text = MIGRATIONS["0001_people"].replace("      key:", f"{kex}\n      key:")
    project.file("0001_people").write_text(text)
    result = project.run_on_terminal("migrate", "check", columns=46)
    assert result.status == 1
    assert "\x1b[1;31merror: " in result.out
    assert "\x1b[1;32m  hint: " in result.out
    assert lines_of(result.out) == [
        "error: migrations/0001_people.yaml:6:7:",
        "       unknown key 'kex'",
        f"    {kex}",
        "          ^",
        "  hint: did you mean 'key'? available: table,",
        "        key, fields",
    ]


def test_the_question_is_asked_on_a_terminal(current: Project) -> None:
    result = current.run_on_terminal("migrate", "rollback", typed="y\n")
    assert result.status == 0
    shown = strip_ansi(result.out)
    assert "roll back 0004_split_name? [y/N] " in shown
    assert "rolled back 0004_split_name, " in shown


def test_code_is_coloured_on_a_terminal_only(current: Project) -> None:
    command = ("catalog", "show", "people", "--code")
    shown, plain = current.show(*command, columns=200), current.run(*command).out
    assert ANSI.search(shown)
    assert not ANSI.search(plain)
    assert [line.rstrip() for line in lines_of(shown)] == [
        line.rstrip() for line in plain.splitlines()
    ]


@pytest.mark.parametrize(
    "command", [*COMMANDS, ("migrate", "up"), ("convert", "run")], ids=" ".join
)
def test_what_is_piped_is_plain(people: Project, command: tuple[str, ...]) -> None:
    result = people.run(*command)
    assert result.status in (0, 3)
    assert result.err == ""
    assert not re.search(r"[\x1b\r━─]", result.out)
    assert all(line == line.rstrip() for line in result.out.splitlines())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Größe 東京\n", "Größe 東京\n"),
        ("\x1b[31m\x07\r\x00", "\\x1b[31m\\x07\\r\\x00"),
        ("a\u202eb\udcff", "a\\u202eb\\udcff"),
    ],
)
def test_what_a_terminal_would_obey_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_other_peoples_text_is_escaped(project: Project) -> None:
    project.write("0001_people")
    project.run("migrate", "up")
    # As somebody else may have stored it: documents that say so are refused.
    project.sql("UPDATE zapdb_migrations SET summary = ?", "\x1b[31mred\u202e")
    result = project.run("migrate", "rollback", stdin="n")
    assert result.out.startswith("0001_people: \\x1b[31mred\\u202e\n")


@pytest.mark.parametrize("columns", [110, 80, 40])
def test_a_terminal_of_any_width_shows_the_numbers_of_a_bar(columns: int) -> None:
    with io.StringIO() as stream:
        output = Output(False)
        output.console = Console(file=stream, width=columns)
        bar = make_bar(output, "{task.fields[rate]}", "{task.fields[left]}")
        title = "converting people to revision 3"
        task = bar.add_task(title, total=60_000, rate="734/s", left="ETA 45 s")
        bar.update(task, completed=21_322)
        output.console.print(*bar.get_renderables())
        shown = stream.getvalue()
    for part in (title, "36%", "21,322/60,000", "734/s", "ETA 45 s"):
        assert part in shown, shown
    assert max(map(cell_len, shown.splitlines())) <= columns
