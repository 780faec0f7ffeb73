"""Imports point one way, and the layers before storage are pure."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sources import PACKAGE, ROOT, modules

ORDER = [
    {"_native", "accelerator", "errors", "files", "formats", "limits", "printing", "release"}
    | {"answers", "logs", "memo", "metrics"},
    {"datasets"},
    {"values"},
    {"schema", "expressions"},
    {"records"},
    {"migrations"},
    {"storage"},
    {"sandbox"},
    {"log"},
    {"catalog"},
    {"activation"},
    {"tables"},
    {"jobs"},
    {"past"},
    {"sql"},
    {"imports"},
    {"typed"},
    {"database"},
    {"transfer"},
    {"control"},
    {"aio", "spark", "testing"},
    {"service"},
    {"cli", "models"},
]
RANK = {layer: rank for rank, layers in enumerate(ORDER) for layer in layers}
PURE = {layer for layer in RANK if RANK[layer] < RANK["storage"]}
IMPURE = {"sqlite3", "sqlalchemy", "alembic", "psycopg", "time", "random", "secrets", "socket"}

MIXED = ORDER[0] | {"cli"}
"""What may import its neighbours: the foundation, and the command line that serves them all."""

MODULES = sorted(PACKAGE.rglob("*.py"))


def layer_of(path: Path) -> str:
    """`values` for everything below zapdb/values; empty for zapdb/__init__.py, and for that of
    zapdb.aio, which shows `connect` of the service."""
    if path == PACKAGE / "aio" / "__init__.py":
        return ""
    first = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return {"__init__": "", "__main__": "cli"}.get(first, first)


def imports_in(node: ast.AST, package: str) -> Iterator[tuple[int, str]]:
    """Line and absolute name of everything imported, inside functions and for types, too."""
    if isinstance(node, ast.Import):
        yield from ((node.lineno, alias.name) for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            parents = package.split(".")[: -(node.level - 1) or None]
            base = ".".join([*parents, *filter(None, [node.module])])
        yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)
    if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        function = node.func
        called = function.attr if isinstance(function, ast.Attribute) else ""
        called = function.id if isinstance(function, ast.Name) else called
        if called in ("import_module", "__import__"):
            yield node.lineno, str(node.args[0].value)
    for part in ast.iter_child_nodes(node):
        yield from imports_in(part, package)


def wrong_imports(tree: ast.Module, layer: str, package: str) -> list[str]:
    """What is wrong with the imports of a module of this layer."""
    wrong = []
    for line, name in imports_in(tree, package):
        parts = name.split(".")
        if parts[0] == "pyspark" and layer != "spark":
            wrong.append(f"{line}: {layer} imports {name}")
        if layer in PURE and parts[0] in IMPURE:
            wrong.append(f"{line}: {layer} is pure and imports {name}")
        if parts[0] != "zapdb" or not layer:
            continue
        target = parts[1] if len(parts) > 1 else ""
        if target not in RANK:
            # `from zapdb import open` reaches everything, and so points backwards from anywhere
            # but the outermost layer
            if RANK[layer] < len(ORDER) - 1:
                wrong.append(f"{line}: {layer} imports the whole package")
        elif RANK[target] > RANK[layer] or (
            RANK[target] == RANK[layer] and target != layer and layer not in MIXED
        ):
            wrong.append(f"{line}: {layer} imports {name}")
    return wrong


def test_imports_point_one_way() -> None:
    wrong = []
    for module in modules():
        path = ROOT / module.path
        package = ".".join(path.relative_to(ROOT).parent.parts)
        found = wrong_imports(module.tree, layer_of(path), package)
        wrong += [f"{module.path}:{text}" for text in found]
    assert wrong == []


def test_every_module_belongs_to_a_known_layer() -> None:
    assert {layer_of(path) for path in MODULES} <= {*RANK, ""}
    assert set(RANK) == {layer_of(path) for path in MODULES} - {""} | {"_native"}
    assert {"values", "schema", "expressions", "records", "migrations"} <= {
        layer_of(path) for path in MODULES
    }


@pytest.mark.parametrize("package", ["zapdb", "zapdb.spark"])
def test_what_is_imported_late_is_where_type_checkers_find_it(package: str) -> None:
    """`_HOMES` names modules in texts, which neither an import nor mypy looks at."""
    (tree,) = (module.tree for module in modules() if module.name == package)
    homes: dict[str, tuple[str, str]] = {}
    typed: dict[str, tuple[str, str]] = {}
    for node in tree.body:
        match node:
            case ast.AnnAssign(target=ast.Name("_HOMES"), value=ast.expr() as value):
                for name, home in ast.literal_eval(value).items():
                    its_home = (f"{package}.{home[0]}", home[1])
                    homes[name] = (home, name) if isinstance(home, str) else its_home
            case ast.If(test=ast.Name("TYPE_CHECKING")):
                for part in node.body:
                    assert isinstance(part, ast.ImportFrom), ast.unparse(part)
                    assert part.module is not None
                    for alias in part.names:
                        typed[alias.asname or alias.name] = (part.module, alias.name)
    assert homes
    assert homes.items() <= typed.items()


@pytest.mark.parametrize(
    ("text", "layer", "wrong"),
    [
        ("import zapdb.schema", "values", "1: values imports zapdb.schema"),
        ("from zapdb import schema", "values", "1: values imports zapdb.schema"),
        (
            "from zapdb.schema import TableSchema",
            "values",
            "1: values imports zapdb.schema.TableSchema",
        ),
        (
            "from ..schema import TableSchema",
            "values",
            "1: values imports zapdb.schema.TableSchema",
        ),
        ("from .. import schema", "values", "1: values imports zapdb.schema"),
        ("def f():\n import zapdb.cli", "jobs", "2: jobs imports zapdb.cli"),
        ("class A:\n def f(self):\n  import zapdb.jobs", "jobs", None),
        ("import zapdb.models", "spark", "1: spark imports zapdb.models"),
        ("import zapdb", "values", "1: values imports the whole package"),
        ("from zapdb import open", "database", "1: database imports the whole package"),
        ("from zapdb import open", "cli", None),
        ("import zapdb.spark", "cli", None),
        ("import zapdb.cli", "spark", "1: spark imports zapdb.cli"),
        ("import zapdb.values", "schema", None),
        ("import zapdb.limits", "datasets", None),
        (
            "import importlib\nimportlib.import_module('zapdb.cli')",
            "jobs",
            "2: jobs imports zapdb.cli",
        ),
        ("if TYPE_CHECKING:\n import zapdb.schema", "values", "2: values imports zapdb.schema"),
        ("if TYPE_CHECKING:\n pass\nelse:\n import zapdb.cli", "jobs", "4: jobs imports zapdb.cli"),
        ("import pyspark.sql", "jobs", "1: jobs imports pyspark.sql"),
        ("def f():\n from pyspark import sql", "cli", "2: cli imports pyspark.sql"),
        ("import pyspark.sql", "spark", None),
        ("import time", "records", "1: records is pure and imports time"),
        ("def f():\n from sqlalchemy import text", "migrations", None),
        ("import time, sqlite3", "storage", None),
    ],
)
def test_the_walk_finds_what_is_wrong(text: str, layer: str, wrong: str | None) -> None:
    found = wrong_imports(ast.parse(text), layer, f"zapdb.{layer}")
    if "sqlalchemy" in text:
        assert found == ["2: migrations is pure and imports sqlalchemy.text"]
    else:
        assert found == ([] if wrong is None else [wrong])
