"""What the tools of maintainers say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sources import ROOT
from tools import docs
from tools.house import House
from tools.planted import Bug, Package, find_places, list_rounds

CALLS_MAX = {
    "get": 9,
    "insert": 80,
    "update": 82,
    "delete": 68,
    "query by an index": 75,
    "open + up": 5_220,
}
"""How many functions of the package an operation calls on SQLite: work, which no load changes. A
change that needs more says why."""


def run_tool(name: str, *arguments: str) -> str:
    command = [sys.executable, "-m", f"tools.{name}", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def test_an_operation_calls_no_more_than_it_did() -> None:
    found = {name: row[0] for name, row in json.loads(run_tool("walk", "--json")).items()}
    assert {name: found[name] for name, most in CALLS_MAX.items() if found[name] > most} == {}


def test_figures_of_the_house(tmp_path: Path) -> None:
    package = tmp_path / "zapdb"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "base.py").write_text('"""Text."""\n\n# a comment\n\n\nclass Base:\n    pass\n')
    (package / "other.py").write_text("from zapdb.base import Base\n\n\nclass One(Base): ...\n")
    house = House(tmp_path)
    assert house.code_lines() == 4
    assert house.import_lines() == 1
    assert house.bases_with_one_subclass() == ["Base"]
    assert house.with_one_importer() == ["zapdb/base.py"]


@pytest.mark.parametrize(
    ("said", "page"),
    [("TOP", "operations"), ("EXAMPLES", "operations"), ("DEPENDENT", "types")],
)
def test_the_reference_names_what_nothing_is_said_of(
    said: str, page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = getattr(docs, said)
    for name in words:
        monkeypatch.setattr(docs, said, {other: words[other] for other in words if other != name})
        with pytest.raises(SystemExit) as ended:
            list(docs.PAGES[page]())
        assert str(ended.value).startswith(f"nothing is said of {name!r}: add it to {said} of ")
        assert (ROOT / str(ended.value).rpartition(" ")[2]).is_file()


def test_promises_are_the_same_twice() -> None:
    first, second = (run_tool("promises") for _ in range(2))
    assert first == second
    assert "### zapdb migrate up" in first
    assert "zapdb.Table" in first
    assert "index zapdb_" in first


SOURCE = """\
def first(n: int) -> bool:
    if n < 1 and n > -5:
        note(n)
    elif not n:
        return n + 1 == 3
    raise ValueError(n < 2)


class Two:
    def second(self, n: int = 1 + 1) -> bool:
        return n < 1
"""


def test_bugs_are_planted_in_functions_and_nowhere_else() -> None:
    places = find_places("zapdb/one.py", SOURCE)
    assert [(p.bug.function, p.bug.was, p.bug.planted) for p in places] == [
        ("first", "n < 1 and n > -5", "(n < 1 or n > -5)"),
        ("first", "n < 1", "(n <= 1)"),
        ("first", "n > -5", "(n >= -5)"),
        ("first", "note(n)", "pass"),
        ("first", "not n", "(n)"),
        ("first", "n + 1 == 3", "(n + 1 != 3)"),
        ("first", "n + 1", "(n - 1)"),
        ("Two.second", "n < 1", "(n <= 1)"),
    ]
    for place in places:
        planted = SOURCE[: place.start] + place.bug.planted + SOURCE[place.end :]
        assert compile(planted, "one.py", "exec")
        line = SOURCE.split("\n")[place.line - 1]  # where a mark can stand in front
        assert not line.lstrip().startswith("elif")


def test_a_bug_is_found_where_its_function_has_moved(tmp_path: Path) -> None:
    package = tmp_path / "zapdb"
    package.mkdir()
    (package / "other.py").write_text("def before(n):\n    return n < 1\n\n\n" + SOURCE)
    places = Package(tmp_path)
    found = places.find(Bug("zapdb/one.py", "second", 0, "n < 1", "(n <= 1)"))
    assert found is not None
    assert (found.bug.module, found.bug.function) == ("zapdb/other.py", "Two.second")
    assert places.find(Bug("zapdb/one.py", "third", 0, "n < 1", "(n <= 1)")) is None
    assert places.find(Bug("zapdb/one.py", "second", 0, "n < 9", "(n <= 9)")) is None


def test_the_tests_of_a_bug_run_the_short_ones_first_and_all_at_last() -> None:
    tests = {f"tests/test_{n % 3}.py::test_{n}": float(n) for n in range(60)}
    rounds = list(list_rounds(tests))
    assert rounds[0][0] == "tests/test_0.py::test_0"
    assert max(len([t for t in now if "_0.py" in t]) for now in rounds) <= 8
    assert sorted(test for now in rounds for test in now) == sorted(tests)
