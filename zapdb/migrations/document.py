"""Strict YAML: a small, unambiguous subset, read into nodes that know their place.

Refused, each with line and column: duplicate keys, anchors and aliases, tags, merge keys, more than
one document, keys that are not plain names, tabs and everything else YAML refuses, and every plain
scalar that some YAML reads as something else than text (`no`, `1e3`, `12:30:45`, `010`, `1.5`,
`2024-01-01`). Plain `true`, `false`, `null` and decimal integers mean what they say; anything else
that could mean two things wants quotes. Size and depth are bounded.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from zapdb.errors import InvalidMigration, Location, Violation
from zapdb.files import open_regular
from zapdb.limits import DOCUMENT_DEPTH_MAX, DOCUMENT_SIZE_BYTES_MAX
from zapdb.migrations.directory import reason_of

Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_INTEGER: Final = re.compile(r"-?(0|[1-9][0-9]*)", re.ASCII)
AMBIGUOUS: Final = re.compile(
    r"""(?ix) y|n|yes|no|on|off|true|false|null|~
    | [-+]? ( \.[0-9_]+ | [0-9][0-9_]* (\.[0-9_]*)? ) ( e[-+]?[0-9]+ )?   # numbers, 1_000 too
    | [-+]? 0 [box]? [0-9a-f_]+                                           # 0b1, 0o17, 0x1F, 010
    | [-+]? [0-9][0-9_]* (:[0-5]?[0-9])+ (\.[0-9_]*)?                     # 12:30:45 is base 60
    | [-+]? \.inf | \.nan
    | [0-9]{4}-[0-9]{1,2}-[0-9]{1,2} .*                                   # dates
    """,
    re.ASCII,
)


@dataclass(slots=True)  # not frozen, like the others: making one would take twice as long
class Scalar:
    value: str | int | bool | None
    location: Location


@dataclass(slots=True)
class Sequence:
    items: tuple[Node, ...]
    location: Location


@dataclass(slots=True)
class Mapping:
    """`keys` has the location of each key."""

    entries: dict[str, Node]
    keys: dict[str, Location]
    location: Location


Node = Scalar | Sequence | Mapping


def as_plain_data(node: Node) -> Any:
    """The node as plain data, without places."""
    match node:
        case Scalar(value):
            return value
        case Sequence(items):
            return [as_plain_data(item) for item in items]
        case Mapping(entries):
            return {key: as_plain_data(value) for key, value in entries.items()}


def node_of(data: Any, location: Location) -> Node:
    """Plain data as nodes that all stand at `location`: for what comes from no file."""
    if isinstance(data, dict):
        entries = {
            key: Scalar(value, location) if type(value) is str else node_of(value, location)
            for key, value in data.items()
        }
        return Mapping(entries, dict.fromkeys(data, location), location)
    if isinstance(data, list | tuple):
        return Sequence(tuple([node_of(item, location) for item in data]), location)
    return Scalar(data, location)


@dataclass(frozen=True, slots=True)
class DocumentText:
    """A document's text, kept for excerpts in errors."""

    name: str
    raw: bytes

    @classmethod
    def read(cls, path: Path, name: str | None = None) -> DocumentText:
        """Raises `InvalidMigration` for a file that can't be read; too large ones are cut."""
        shown = name or str(path)
        try:
            with open_regular(path) as file:
                return cls(shown, file.read(DOCUMENT_SIZE_BYTES_MAX + 1))
        except OSError as error:
            raise unreadable(shown, reason_of(error)) from None

    def violation(self, location: Location, message: str, hint: str = "") -> Violation:
        """A violation with the line it is about and a caret under the column."""
        lines = _lines_of(self.raw)
        excerpt = ""
        if 0 < location.line <= len(lines):
            line = lines[location.line - 1].replace("\t", " ")
            start = max(0, location.column - 70)
            shown = line[start : start + 100]
            caret = " " * max(0, location.column - 1 - start) + "^"
            excerpt = f"    {shown}\n    {caret}"
        return Violation(location, message, hint, excerpt)

    def refuse(self, location: Location, message: str, hint: str = "") -> InvalidMigration:
        return InvalidMigration([self.violation(location, message, hint)])


def unreadable(name: str, reason: str) -> InvalidMigration:
    return InvalidMigration([Violation(Location(name), f"the file can't be read: {reason}")])


@functools.lru_cache(maxsize=1)
def _lines_of(raw: bytes) -> list[str]:
    """Kept for the next violation: a document may have thousands."""
    return raw.decode(errors="replace").splitlines()


def read_document(source: DocumentText) -> Node:
    """The one document of a file; raises `InvalidMigration`."""
    whole = Location(source.name)
    if len(source.raw) > DOCUMENT_SIZE_BYTES_MAX:
        raise source.refuse(whole, f"a migration file has at most {DOCUMENT_SIZE_BYTES_MAX} bytes")
    try:
        text = source.raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise source.refuse(
            _location_after(source, source.raw[: error.start].decode()),
            f"byte 0x{source.raw[error.start]:02x} is not UTF-8",
            "save the file as UTF-8",
        ) from None
    text = text.removeprefix("\ufeff")
    try:
        return _build(source, iter(yaml.parse(text, Loader=Loader)))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        location = whole if mark is None else Location(source.name, mark.line + 1, mark.column + 1)
        problem = str(error.problem or error.context)
        raise source.refuse(location, f"not YAML: {problem}", _hint_of(problem, text)) from None
    except yaml.reader.ReaderError as error:
        before = text[: text.find(chr(error.character))]
        raise source.refuse(
            _location_after(source, before),
            f"the character U+{error.character:04X} is not allowed in YAML",
            "write an escape sequence in double quotes",
        ) from None


def _hint_of(problem: str, text: str) -> str:
    """The hint for what YAML refuses."""
    if "cannot start any token" in problem and "\t" in text:
        return "indent with blanks; YAML refuses tabs"
    if "mapping values are not allowed" in problem:
        return "quote a text that has a colon followed by a blank; else check the indentation"
    return "check the indentation, brackets and quotes"


def _location_after(source: DocumentText, before: str) -> Location:
    lines = before.split("\n")
    return Location(source.name, len(lines), len(lines[-1]) + 1)


def _build(source: DocumentText, events: Iterator[Any]) -> Node:
    """Nodes of the event stream, with a stack of our own, so that no nesting exhausts Python's."""
    stack: list[_Open] = []
    root: Node | None = None
    for event in events:
        location = Location(source.name, event.start_mark.line + 1, event.start_mark.column + 1)
        if isinstance(event, yaml.DocumentStartEvent) and root is not None:
            raise source.refuse(location, "a second document: one file holds one migration")
        _require_plain(source, event, location)
        match event:
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                if len(stack) >= DOCUMENT_DEPTH_MAX:
                    raise source.refuse(location, f"nested more than {DOCUMENT_DEPTH_MAX} deep")
                stack.append(_Open(source, location, isinstance(event, yaml.MappingStartEvent)))
                continue
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                node = stack.pop().close()
            case yaml.ScalarEvent():
                node = Scalar(_resolve(source, event, location), location)
            case _:
                continue
        if stack:
            stack[-1].add(node)
        else:
            root = node
    if root is None or (isinstance(root, Scalar) and root.value in (None, "")):
        raise source.refuse(Location(source.name, 1, 1), "the file is empty")
    return root


def _require_plain(source: DocumentText, event: Any, location: Location) -> None:
    """Refuse what is YAML, and not used here."""
    if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
        raise source.refuse(location, "anchors and aliases are not used here", "write it out")
    if getattr(event, "tag", None):
        raise source.refuse(location, f"tags are not used here: {event.tag}")


class _Open:
    """A mapping or sequence whose end has not come yet."""

    def __init__(self, source: DocumentText, location: Location, is_mapping: bool) -> None:
        self.source = source
        self.location = location
        self.is_mapping = is_mapping
        self.items: list[Node] = []
        self.keys: dict[str, Location] = {}

    def add(self, node: Node) -> None:
        if self.is_mapping and len(self.items) % 2 == 0:
            self._check_key(node)
        self.items.append(node)

    def _check_key(self, key: Node) -> None:
        if not isinstance(key, Scalar) or not isinstance(key.value, str):
            hint = "quote it if it is one"
            if isinstance(key, Scalar) and key.value is None:
                hint = "a field that may be null says optional: true; quote null if it is a name"
            raise self.source.refuse(key.location, "a key must be a name", hint)
        if key.value == "<<":
            raise self.source.refuse(key.location, "merge keys are not used here", "write it out")
        first = self.keys.setdefault(key.value, key.location)
        if first is not key.location:
            raise self.source.refuse(
                key.location,
                f"the key {key.value!r} stands twice",
                f"the first one is at {first}",
            )

    def close(self) -> Node:
        if not self.is_mapping:
            return Sequence(tuple(self.items), self.location)
        entries = dict(zip(self.keys, self.items[1::2], strict=True))
        return Mapping(entries, self.keys, self.location)


def _resolve(source: DocumentText, event: Any, location: Location) -> str | int | bool | None:
    text: str = event.value
    if event.style:  # quoted or a block: text, whatever it looks like
        return text
    match text:
        case "true":
            return True
        case "false":
            return False
        case "null" | "":
            return None
    if _INTEGER.fullmatch(text) and text != "-0":
        if len(text) > 160:
            raise source.refuse(location, "the integer is too long")
        return int(text)
    if AMBIGUOUS.fullmatch(text):
        raise source.refuse(
            location,
            f"{text} means different things to different readers of YAML",
            _spelled_out(text),
        )
    return text


def _spelled_out(text: str) -> str:
    """The hint for a plain scalar that could mean two things: what each meaning is written as."""
    quoted = f'write "{text}" for text'
    if text.isalpha():
        word = {"y": "true", "yes": "true", "on": "true", "true": "true"}.get(text.lower(), "false")
        return f"write {'null' if text.lower() == 'null' else word}, or {quoted[6:]}"
    if text.isdigit():
        return f"write {int(text)} for the number, or {quoted[6:]}"
    return f"{quoted}; decimals, floats, dates and times are written as texts, too"
