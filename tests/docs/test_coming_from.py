"""docs/coming-from.md names operations that there are, and leaves none out."""

from __future__ import annotations

import re
from pathlib import Path

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
