"""What the tools of maintainers say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.sources import ROOT
from tools.house import House

CALLS_MAX = {
    "get": 9,
    "insert": 145,
    "update": 160,
    "delete": 135,
    "query by an index": 75,
    "open + up": 7_900,
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


def test_promises_are_the_same_twice() -> None:
    first, second = (run_tool("promises") for _ in range(2))
    assert first == second
    assert "### zapdb migrate up" in first
    assert "zapdb.Table" in first
    assert "index zapdb_" in first
