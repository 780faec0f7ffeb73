"""Helpers for generated Python source.

Codecs, key builders and conversion programs are source text that is compiled once. The objects that
the text refers to (constants, functions) are bound in a namespace under descriptive names; user
data never becomes source text, only bound objects.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable, Iterable
from typing import Any


class Namespace:
    """The globals of a generated function; equal hints get numbered names."""

    def __init__(self) -> None:
        self.globals: dict[str, Any] = {}
        self._names: dict[int, str] = {}

    def bind(self, value: object, hint: str) -> str:
        """Make `value` available to the source; returns its name there."""
        known = self._names.get(id(value))
        if known is not None and self.globals[known] is value:
            return known
        name, number = hint, 2
        while name in self.globals:
            name, number = f"{hint}_{number}", number + 1
        self.globals[name] = value
        self._names[id(value)] = name
        return name


def indent(lines: Iterable[str], levels: int = 1) -> list[str]:
    """The lines, moved right by `levels` steps of four spaces."""
    return ["    " * levels + line for line in lines]


def compile_function(
    name: str, lines: Iterable[str], namespace: Namespace, filename: str
) -> tuple[Callable[..., Any], str]:
    """Compile the source of one function; return it with its text.

    The text is kept in `linecache`, so that a traceback through generated code shows it.
    """
    text = "\n".join(lines) + "\n"
    label = f"<zapdb {filename}>"
    scope = dict(namespace.globals)
    exec(compile(text, label, "exec"), scope)  # noqa: S102 - user data is bound, never source text
    linecache.cache[label] = (len(text), None, text.splitlines(keepends=True), label)
    function: Callable[..., Any] = scope[name]
    return function, text
