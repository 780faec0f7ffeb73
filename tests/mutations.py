"""Tampering for tests: plain data with one node changed, and rows with one cell changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

PLAIN: Final = (None, True, -1, 0, 1 << 70, 1.5, "", "zz", b"\0", [], {}, ["a"], {"a": 1})

CELLS: Final = (
    *(None, 0, 1, -1, 5, (1 << 63) - 1, -(1 << 63), 1.5, float("inf"), "", "zz", "7", "\x1b[2J\n"),
    *(b"", b"\0", b"\xff" * 9, b"x" * 100_000, b"{}", "{}", "[]", "null", "ä" * 5_000),
)
"""What SQLite takes in any column, whatever its type, unless the type changes it."""


def mutants(node: Any) -> Iterator[Any]:
    """The data with one node of another type or value, deleted, doubled, renamed, or added."""
    for value in PLAIN:
        if type(value) is not type(node) or value != node:
            yield value
    if isinstance(node, dict):
        yield {**node, "zz": 1}
        for key, value in node.items():
            others = {name: kept for name, kept in node.items() if name != key}
            yield others
            yield from (others | {name: value} for name in ("zz", 7))
            yield from ({**node, key: changed} for changed in mutants(value))
    if isinstance(node, list):
        if len(node) > 1:
            yield node[::-1]
        for at, value in enumerate(node):
            before, after = node[:at], node[at + 1 :]
            yield before + after
            yield [*before, value, value, *after]
            yield from ([*before, changed, *after] for changed in mutants(value))
