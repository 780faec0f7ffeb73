"""The lists of CONTRIBUTING.md of what a change touches: what they name is there, and complete."""

from __future__ import annotations

import ast
import re

from tests.support import ROOT

PACKAGE = ROOT / "zapdb"


def files_of(recipe: str) -> list[str]:
    """The paths in the section of CONTRIBUTING.md that begins with a bold text."""
    _, _, text = (ROOT / "CONTRIBUTING.md").read_text().partition(f"**{recipe}:**")
    assert text, recipe
    section = re.split(r"\n(?=\*\*|#)", text)[0]
    found = re.findall(r"`((?:zapdb|tests|docs|native)/[\w./-]*)`", section)
    missing = [path for path in found if not (ROOT / path).exists()]
    assert not missing, recipe
    return found


def modules_with(name: str, of: str) -> set[str]:
    """The modules of the package that import a name."""
    return {
        str(path.relative_to(ROOT))
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
        and node.module is not None
        and node.module.startswith(of)
        and any(one.name == name for one in node.names)
    }


def test_a_value_type() -> None:
    """An ordinary type is named where the list says, and in no other module."""
    listed = set(files_of("To add a value type"))
    found = modules_with("Date", "zapdb.values")
    assert found
    assert found <= listed
    for path in listed - {"zapdb/values/", "zapdb/values/plain_kinds.py"}:
        assert re.search(r"\bdate\b", (ROOT / path).read_text(), re.IGNORECASE), path
