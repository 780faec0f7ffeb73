"""docs/coming-from.md names operations that there are, and leaves none out."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import django.contrib.postgres.constraints
import django.contrib.postgres.indexes
import django.contrib.postgres.operations
import django.db.migrations.operations
import django.db.models.deletion
import pytest
from alembic.operations import Operations

from zapdb.migrations import OPERATIONS

DOCUMENT = Path(__file__).parents[2] / "docs" / "coming-from.md"
ROW = re.compile(r"^\| (?P<there>.*?) \| (?P<here>.*) \|$", re.MULTILINE)
OPERATION = re.compile(r"`([a-z]+_[a-z_]+|transform)`")
PARAMETERS = {"on_delete", "set_null"}


def test_what_is_named_is_there() -> None:
    rows = ROW.findall(DOCUMENT.read_text(encoding="utf-8"))
    assert len(rows) > 60
    named = {name for _, here in rows for name in OPERATION.findall(here)} - PARAMETERS
    assert named <= OPERATIONS.keys()
    shared = {there.strip("`") for there, here in rows if here == "the same"}
    lists = {name for there in shared for name in re.findall("[a-z_]+", there)}
    # What only takes others back is found under those.
    rest = {"create_type", "drop_type", "restore_field", "restore_table", "reorder_field"}
    assert OPERATIONS.keys() - named - lists <= rest


def section(title: str) -> str:
    return DOCUMENT.read_text(encoding="utf-8").split(f"\n## {title}\n")[1].split("\n## ")[0]


def defined_in(module: ModuleType) -> set[str]:
    return {
        name
        for name, value in vars(module).items()
        if name[0].isupper() and getattr(value, "__module__", "") == module.__name__
    }


DJANGO = {
    *django.db.migrations.operations.__all__,
    *defined_in(django.contrib.postgres.operations),
    *django.contrib.postgres.constraints.__all__,
    *django.contrib.postgres.indexes.__all__,
    *(name for name in vars(django.db.models.deletion) if name.isupper()),
} - {"CollationOperation", "NotInTransactionMixin"}  # what others are made of
ALEMBIC = {name for name in dir(Operations) if not name.startswith("_")} - {
    # what its own code is written with
    *("context", "create_module_class_proxy", "f", "get_bind", "get_context"),
    *("implementation_for", "inline_literal", "invoke", "register_operation"),
}


@pytest.mark.parametrize(("title", "there"), [("Django", DJANGO), ("Alembic", ALEMBIC)])
def test_no_operation_of_theirs_is_left_out(title: str, there: set[str]) -> None:
    """Of the releases that the tests are run with."""
    assert len(there) > 15
    named = set(re.findall(r"[A-Za-z_]+", " ".join(re.findall(r"`[^`]+`", section(title)))))
    assert there - named == set()
