"""The lists of CONTRIBUTING.md of what a change touches: what they name is there, and complete."""

from __future__ import annotations

import ast
import re

from tests.support import ROOT
from zapdb.jobs.job_types import JOB_TYPES
from zapdb.migrations import OPERATIONS
from zapdb.service.methods import METHODS

PACKAGE = ROOT / "zapdb"


def files_of(recipe: str) -> list[str]:
    """The paths in the section of CONTRIBUTING.md that begins with a bold text."""
    _, _, text = (ROOT / "CONTRIBUTING.md").read_text().partition(f"**{recipe}")
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


def modules_saying(text: str) -> set[str]:
    """The modules of the package with a literal."""
    return {
        str(path.relative_to(ROOT)) for path in PACKAGE.rglob("*.py") if text in path.read_text()
    }


def test_an_operator() -> None:
    """One that keys may leave open is told apart where the list says, and in no other module."""
    listed = set(files_of("To add an operator"))
    told_apart = modules_saying('"starts with"') | modules_with("Operator", "zapdb.tables.indexes")
    assert told_apart
    assert told_apart <= listed
    for path in listed:
        assert re.search(r"starts.?with", (ROOT / path).read_text()), path


def test_a_job_kind() -> None:
    """One that the schema needs is named where the list says; and each kind by those of all."""
    listed = set(files_of("To add a job kind"))
    assert modules_saying('"validate"') == {path for path in listed if path.startswith("zapdb/")}
    for path in ("zapdb/catalog/row_kinds.py", "zapdb/jobs/job_types.py", "docs/guides/jobs.md"):
        assert path in listed
        text = (ROOT / path).read_text()
        assert not [kind for kind in JOB_TYPES if not re.search(rf'["`]{kind}["`]', text)], path


LEFT_OUT = {
    "tests/strategies.py": {"drop_type"},
    "tests/contract/test_operation_pairs.py": {
        "drop_type",
        "drop_table",
        "restore_table",
        "restore_field",
        "drop_check",
        "drop_reference",
    },
}
"""Operations that a list of tests does not have: random chains leave unused types, and pairs are
about what stays, and is there."""


def test_an_operation() -> None:
    """An ordinary operation is named where the list says, and in no other module; and each one by
    those that have all."""
    listed = set(files_of("To add an operation"))
    rooms = tuple(path for path in listed if path.endswith("/"))
    found = modules_with("RenameIndex", "zapdb.migrations") | modules_saying('"rename_index"')
    assert found
    assert all(path in listed or path.startswith(rooms) for path in found)
    assert LEFT_OUT.keys() <= listed
    for path in (
        "zapdb/migrations/operations/operation_examples.py",
        "tests/unit/migrations/operations/test_random.py",
        *LEFT_OUT,
    ):
        assert path in listed
        text = (ROOT / path).read_text()
        missing = {keyword for keyword in OPERATIONS if not re.search(rf"\b{keyword}\b", text)}
        assert missing == LEFT_OUT.get(path, set()), path


def test_a_method_of_the_service() -> None:
    """An ordinary one is named where the list says, and in no other module."""
    listed = set(files_of("To add a method of the service"))
    rooms = tuple(path for path in listed if path.endswith("/"))
    found = modules_saying("get_fingerprint_history") | modules_saying("GetFingerprintHistory")
    assert "zapdb/service/methods.py" in found
    assert all(path in listed or path.startswith(rooms) for path in found), found - listed
    for path in ("methods", "client", "aio_client"):
        text = (PACKAGE / f"service/{path}.py").read_text()
        names = {f"{method.function.__name__}" for method in METHODS}
        assert [name for name in names if not re.search(rf"\b{name}\b", text)] == [], path
