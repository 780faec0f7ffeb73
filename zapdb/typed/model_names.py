"""The names of generated classes: items become `Item`, unless `--name` gives another name.

A few rules of English spelling turn plurals into singulars, and are wrong for some words. The
option `--name movies=Movie` corrects them, and is kept in the generated file.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from keyword import iskeyword
from typing import Final

from zapdb.errors import UnknownName, UsageError
from zapdb.schema import Schema
from zapdb.values import Struct

CLASS_NAME: Final = re.compile(r"[A-Z][A-Za-z0-9]*", re.ASCII)
PLURALS: Final = {
    "children": "child",
    "men": "man",
    "movies": "movie",
    "people": "person",
    "series": "series",
    "species": "species",
    "women": "woman",
}
ENDINGS: Final = (
    ("ies", "y"),
    ("sses", "ss"),
    ("ches", "ch"),
    ("shes", "sh"),
    ("xes", "x"),
    ("ss", "ss"),
    ("us", "us"),
    ("is", "is"),
    ("s", ""),
)
RECORD_SUFFIXES: Final = ("", "Field", "Key", "Values", "Changes", "Upsert")
ASYNC: Final = "Async"
"""Before the name of a table's class, the class of the table in `zapdb.aio`."""
STRUCT_SUFFIXES: Final = ("", "Values", "Like")


@dataclass(frozen=True, slots=True)
class Names:
    """The names of classes: of records by table, of tables by table, and of declared types."""

    records: Mapping[str, str]
    tables: Mapping[str, str]
    types: Mapping[str, str]


def name_classes(schema: Schema, given: Mapping[str, str], taken: Collection[str]) -> Names:
    """Names for all that a schema has; those in `given`, by table or type, are taken as they are.

    Raises `UnknownName` and `UsageError` for a name that is given for nothing, or can't be had.
    """
    _check_given(schema, given)
    used = set(taken)
    # What is given comes first: it has its name whatever the others would be called.
    records, tables, types = dict[str, str](), dict[str, str](), dict[str, str]()
    table_names = {table.name for table in schema}
    for is_given in (True, False):
        for name in (table.name for table in schema):
            if (name in given) is is_given:
                usual = _candidates(given, name, to_singular(name), "Record")
                records[name] = _take(usual, RECORD_SUFFIXES, used)
                usual = _candidates({}, name, f"{name}_table", "Table")
                tables[name] = _take(usual, ("",), used, ("", ASYNC))
        for kind in schema.types:
            name = kind.declared_name
            if (name in given and name not in table_names) is is_given:
                suffixes = STRUCT_SUFFIXES if isinstance(kind, Struct) else ("",)
                usual = _candidates(given if is_given else {}, name, name, "Type")
                types[name] = _take(usual, suffixes, used)
    return Names(records, tables, types)


def _check_given(schema: Schema, given: Mapping[str, str]) -> None:
    known = {table.name for table in schema} | {kind.declared_name for kind in schema.types}
    for name, wanted in given.items():
        if name not in known:
            there = ", ".join(sorted(known))
            raise UnknownName("there is no such table or type", name=name, tables_and_types=there)
        if not CLASS_NAME.fullmatch(wanted) or iskeyword(wanted):
            raise UsageError("the name of a class must be in CamelCase", table=name, name=wanted)


def _candidates(given: Mapping[str, str], name: str, usual: str, suffix: str) -> Iterator[str]:
    if name in given:
        yield given[name]
        raise UsageError("two classes would have the same name", table=name, name=given[name])
    yield to_camel(usual)
    yield to_camel(name) + suffix
    number = 2
    while True:
        yield f"{to_camel(name)}{suffix}{number}"
        number += 1


def _take(
    candidates: Iterator[str],
    suffixes: Collection[str],
    used: set[str],
    prefixes: Collection[str] = ("",),
) -> str:
    """The first candidate that is free with all prefixes and suffixes; they are taken then."""
    for candidate in candidates:
        wanted = {before + candidate + behind for before in prefixes for behind in suffixes}
        if not wanted & used and not iskeyword(candidate):
            used |= wanted
            return candidate
    raise AssertionError("candidates never end")


def to_camel(name: str) -> str:
    """`todo_items` as `TodoItems`."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def to_singular(name: str) -> str:
    """Return a table's name with its last word as a singular, if it looks like a plural."""
    before, separator, word = name.rpartition("_")
    if word in PLURALS:
        return before + separator + PLURALS[word]
    for ending, replacement in ENDINGS:
        if word.endswith(ending) and len(word) > len(ending) + 1:
            return before + separator + word[: -len(ending)] + replacement
    return name
