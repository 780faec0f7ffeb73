"""Whatever depends on a value's type is decided in one way, and for every type."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import zapdb
from zapdb.imports.coercion import coercer_of
from zapdb.migrations.boundary_values import ordinary_values, values_of
from zapdb.records.arrow.columns import column_of
from zapdb.values import VALUE_TYPES, Decimal, ValueType

CONCERNS = (coercer_of, column_of, ordinary_values)
"""What has a function for each type, registered in the module of the concern."""

NAMES = {kind.__name__ for kind in VALUE_TYPES.values()}
LISTED_MAX = 8
"""More types than these are a list of all of them in another form."""
LISTS = {
    ("values/__init__.py", "VALUE_TYPES"): "the registry itself",
    ("expressions/functions.py", "TEXTABLE"): "the argument types of one function of expressions",
    ("expressions/functions.py", "FUNCTIONS"): "the argument types of all functions, each a few",
}

KINDS = pytest.mark.parametrize("kind", VALUE_TYPES.values(), ids=VALUE_TYPES)


def concern_name(concern: Any) -> str:
    return str(concern.__name__)


@KINDS
@pytest.mark.parametrize("concern", CONCERNS, ids=concern_name)
def test_every_concern_has_every_type(concern: Any, kind: type[ValueType]) -> None:
    assert concern.dispatch(kind) is not concern.dispatch(ValueType)


@KINDS
def test_every_type_says_what_is_the_same_for_all_who_ask(kind: type[ValueType]) -> None:
    assert not inspect.isabstract(kind)
    assert hasattr(kind, "text_form")
    assert kind.neutral is not ValueType.neutral


ORDERED = [kind for kind in VALUE_TYPES.values() if kind.has_python_order]


@pytest.mark.parametrize("kind", ORDERED, ids=lambda kind: kind.name)
def test_values_with_the_order_of_python_have_that_of_their_index_keys(
    kind: type[ValueType],
) -> None:
    made: Any = kind(2) if kind is Decimal else kind()  # type: ignore[call-arg]  # its scale
    values = values_of(made)
    assert sorted(values) == sorted(values, key=made.encode_index_key)
    assert len(set(values)) == len({made.encode_index_key(value) for value in values})


def test_no_concern_is_left_out() -> None:
    found = set()
    for module in modules():
        for name, value in vars(importlib.import_module(module)).items():
            registered = getattr(value, "registry", {})
            if any(isinstance(kind, type) and issubclass(kind, ValueType) for kind in registered):
                found.add(name)
    assert found == set(map(concern_name, CONCERNS))


def modules() -> Iterator[str]:
    """The modules that name many value types."""
    for module in pkgutil.walk_packages(zapdb.__path__, "zapdb."):
        path = Path(zapdb.__path__[0], *module.name.split(".")[1:])
        source = path / "__init__.py" if module.ispkg else path.with_suffix(".py")
        if source.exists() and "singledispatch" in source.read_text():  # else it is in C
            yield module.name


def test_the_types_are_listed_in_one_place() -> None:
    """Neither a chain of cases, nor a table, nor a tuple has (nearly) all of them a second time."""
    root, found = Path(zapdb.__path__[0]), {}
    for path in sorted(root.rglob("*.py")):
        for name, part in parts_of(ast.parse(path.read_text())):
            named = {n.id for n in ast.walk(part) if isinstance(n, ast.Name)} & NAMES
            if len(named) > LISTED_MAX:
                found[str(path.relative_to(root)), name] = named
    assert found.keys() == LISTS.keys()


def parts_of(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Functions, and what is assigned in modules and classes, by name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node
    bodies = [tree.body, *(n.body for n in tree.body if isinstance(n, ast.ClassDef))]
    for node in (node for body in bodies for node in body):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            yield ast.unparse(target), node.value
