"""The root of the tree: message, hint, location and context, as text and as plain data."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Final

from zapdb.errors.describing import REFUSED
from zapdb.limits import ERROR_VALUE_CHARS_MAX
from zapdb.printing import one_line

EXIT_ERROR = 1


EXIT_USAGE = 2


EXIT_PENDING = 3


@dataclass(frozen=True, slots=True)
class Location:
    """A place in a file; line and column count from 1, and 0 means the whole file or line."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        if not self.line:
            return self.file
        place = f"{self.file}:{self.line}"
        return f"{place}:{self.column}" if self.column else place


class ZapdbError(Exception):
    """The root of all errors that zapdb raises on purpose."""

    code: ClassVar[str] = "error"
    exit_status: ClassVar[int] = EXIT_ERROR
    rpc_status: ClassVar[str] = "INTERNAL"
    of_each: Mapping[int, ZapdbError] = MappingProxyType({})
    """Of a call for many records: what is wrong with those that are wrong whatever becomes of the
    others, by their places from 0. Errors that travel leave it behind."""

    def __init__(
        self,
        message: str,
        *,
        hint: str = "",
        location: Location | None = None,
        **context: Any,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.location = location
        self.context = context

    def __str__(self) -> str:
        lines = [f"{self.location}: {self.message}" if self.location else self.message]
        for key, value in self._shown():
            first, *rest = INDENTED.split(shorten_context(value))
            lines += [f"  {key}: {first}", *rest]
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(map(one_line, lines))  # a value never makes a line of its own

    def _shown(self) -> Iterator[tuple[str, Any]]:
        return ((key, value) for key, value in self.context.items() if key != REFUSED)

    def __reduce__(self) -> tuple[Any, ...]:
        state = {name: value for name, value in self.__dict__.items() if name != "of_each"}
        return _rebuild, (type(self), state)

    def to_json(self) -> dict[str, Any]:
        """Return the error as plain data, for `--json` and for the wire."""
        place = self.location
        return {
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "location": None
            if place is None
            else {"file": place.file, "line": place.line, "column": place.column},
            "context": {key: str(value) for key, value in self._shown()},
        }


def describe_error(error: ZapdbError) -> str:
    """Return in a line what is wrong, such as why a record can't be read."""
    what = error.context.get("what")
    text = error.message if what is None else f"{error.message}: {what}"
    return one_line(text, ERROR_VALUE_CHARS_MAX)


INDENTED: Final = re.compile(r"\n(?=    )")
"""The line ends of a value that are kept: the next line is indented further than zapdb's own."""


def shorten_context(value: Any) -> str:
    """As much of a value as the text of an error has."""
    text = str(value)
    return text if len(text) <= ERROR_VALUE_CHARS_MAX else f"{text[:ERROR_VALUE_CHARS_MAX]}…"


def _rebuild(kind: type[ZapdbError], state: dict[str, Any]) -> ZapdbError:
    error = kind.__new__(kind)
    error.args = (state["message"],)
    error.__dict__.update(state)
    return error
