"""The JSON Schema accepts what the parser's structural stage accepts, and nothing else.

Documents come from `chains`, from the repository, and from the annotations of every operation;
each is changed here and there, so that about half of them are wrong.
"""

from __future__ import annotations

import copy
import dataclasses
import random
import types
import typing
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cbor2
import jsonschema
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.forms import cases
from tests.strategies import NAMES, chains, to_yaml
from zapdb.errors import InvalidMigration, Location
from zapdb.limits import NAME_LENGTH_MAX
from zapdb.migrations import OPERATIONS, Chain
from zapdb.migrations.document import DocumentText, as_plain_data, node_of, read_document
from zapdb.migrations.document_structure import Name, Plain, keys_of, takes_scalar
from zapdb.migrations.json_schema import TOP, json_schema
from zapdb.migrations.parsed_migration import KEYS, OPTIONAL_KEYS, parse_document

ROOT = Path(__file__).parents[2]
VALIDATOR = jsonschema.Draft202012Validator(json_schema())

BAD_NAMES = [
    *("", "A", "aB", "1a", "_a", "a-b", "a b", "ä", "a\n", "\na", "a\nb", "ａ", "٠", "a٠"),
    *("zapdb", "zapdb_x", "zapdbx", "x" * (NAME_LENGTH_MAX + 1), "a\r", "a\u2028"),
]
GOOD_NAMES = ["a", "zapd", "not_zapdb", "x" * NAME_LENGTH_MAX, *NAMES[:3]]
WORDS = [
    "inferred",
    "never",
    "exact",
    "tertiary",
    "discard",
    "archive",
    "wait_for_nodes",
    "1",
    "true",
]
SCALARS: list[Any] = [None, True, False, 0, 1, 2, -1, 10**30, *WORDS]
EMPTY: list[Any] = [{}, [], "", None]
SOME: dict[Any, list[Any]] = {
    str: [*WORDS, "", "1 +"],
    int: [0, -1, 7],
    bool: [True, False],
}
KNOWN_KEYS = sorted(
    {
        *KEYS,
        *OPTIONAL_KEYS,
        *OPERATIONS,
        *(name for kind in OPERATIONS.values() for name in keys_of(kind)),
        *(field.name for kind in OPERATIONS.values() for field in dataclasses.fields(kind)),
        *("location", "value", "expression", "enum", "struct", "name", "descending", "keyword"),
    }
)


def parses(document: Any) -> bool:
    """What the parser says; anything that it raises but a violation is an error of its own."""
    source = DocumentText("a.yaml", b"")
    try:
        parse_document(node_of(document, Location("a.yaml", 1, 1)), source, 1, "a")
    except InvalidMigration:
        return False
    return True


def agree(document: Any) -> bool:
    """Whether it is accepted, which both must see alike."""
    wanted = parses(document)
    found = [f"{e.json_path}: {e.message[:300]}" for e in VALIDATOR.iter_errors(document)]
    assert (not found) == wanted, (document, found)
    return wanted


# --- documents from annotations ------------------------------------------------------------------


class Writer:
    """Writes documents that the annotations allow, whatever they mean."""

    def __init__(self, drawn: random.Random) -> None:
        self.drawn = drawn

    def document(self) -> dict[str, Any]:
        made = {key: self.top(key) for key in KEYS}
        made |= {key: self.top(key) for key in OPTIONAL_KEYS if self.drawn.random() < 0.5}
        return self.shuffle(made)

    def top(self, key: str) -> Any:
        match key:
            case "zapdb":
                return 1
            case "changes":
                return [self.operation() for _ in range(self.drawn.randint(1, 2))]
            case "rollback":
                if self.drawn.random() < 0.5:
                    return "inferred"
                return [self.operation() for _ in range(self.drawn.randint(0, 2))]
        return self.value(TOP[key][0], 3)

    def operation(self) -> Any:
        kind: Any = self.drawn.choice(list(OPERATIONS.values()))
        return {kind.keyword: self.mapping(kind, 3)}

    def mapping(self, kind: Any, depth: int) -> dict[str, Any]:
        keys = [
            key
            for key in keys_of(kind).values()
            if key.is_required or (depth > 0 and self.drawn.random() < 0.6)
        ]
        return self.shuffle({key.name: self.value(key.kind, depth - 1) for key in keys})

    def shuffle(self, mapping: dict[str, Any]) -> dict[str, Any]:
        names = list(mapping)
        self.drawn.shuffle(names)
        return {name: mapping[name] for name in names}

    def value(self, kind: Any, depth: int) -> Any:
        choose = self.drawn.choice
        arguments = typing.get_args(kind)
        sizes = range(choose([0, 1, 1, 2]) if depth > 0 else 0)
        match typing.get_origin(kind):
            case typing.Literal:
                return choose(arguments)
            case origin if origin is tuple:
                return [self.value(arguments[0], depth - 1) for _ in sizes]
            case origin if origin is dict:
                names = self.drawn.sample(GOOD_NAMES, len(sizes))
                return {name: self.value(arguments[1], depth - 1) for name in names}
            case types.UnionType:
                return self.value(arguments[0], depth)
        if kind is Plain:
            return copy.deepcopy(choose([*SCALARS, *EMPTY, [1, {"a": None}], {"Ä": {"-": []}}]))
        if kind is Name:
            return choose(GOOD_NAMES)
        if kind in SOME:
            return choose(SOME[kind])
        if takes_scalar(kind) and self.drawn.random() < 0.3:
            return choose(GOOD_NAMES)
        return self.mapping(kind, depth)


# --- mutations -----------------------------------------------------------------------------------


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inner: Any = ()
    if isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    for key, part in inner:
        yield from places(part, (*path, key))


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def mutate(document: Any, drawn: random.Random) -> Any:
    """A copy of the document with one thing changed; it may still be right."""
    document = copy.deepcopy(document)
    paths = list(places(document))
    path = drawn.choice(paths)
    there = at(document, path)
    if isinstance(there, dict) and drawn.random() < 0.6:
        change_keys(there, drawn)
        return document
    changed = change_value(there, drawn)
    if drawn.random() < 0.1:  # something else of the document
        changed = copy.deepcopy(at(document, drawn.choice(paths)))
    if not path:
        return changed
    at(document, path[:-1])[path[-1]] = changed
    return document


def change_keys(mapping: dict[str, Any], drawn: random.Random) -> None:
    names = list(mapping)
    match drawn.choice(["remove", "remove", "unknown", "known", "rename", "empty", "twin"]):
        case "remove" if names:
            del mapping[drawn.choice(names)]
        case "rename" if names:
            mapping[drawn.choice(BAD_NAMES + GOOD_NAMES)] = mapping.pop(drawn.choice(names))
        case "known":
            mapping[drawn.choice(KNOWN_KEYS)] = copy.deepcopy(drawn.choice(SCALARS + EMPTY))
        case "twin" if mapping.keys() <= OPERATIONS.keys():
            kind = drawn.choice(list(OPERATIONS.values()))
            mapping[kind.keyword] = Writer(drawn).mapping(kind, 1)
        case "empty":
            mapping.clear()
        case _:
            mapping[drawn.choice(["extra", "Ä", *BAD_NAMES])] = 1


def change_value(value: Any, drawn: random.Random) -> Any:
    match drawn.choice(["scalar", "name", "empty", "wrap", "mapping", "repeat", "swap"]):
        case "scalar":
            return drawn.choice(SCALARS)
        case "name":
            return drawn.choice(BAD_NAMES + GOOD_NAMES)
        case "wrap":
            return [value]
        case "mapping":
            return {drawn.choice(GOOD_NAMES + KNOWN_KEYS): value}
        case "repeat" if isinstance(value, list):
            return value * 2
        case "swap" if isinstance(value, list):
            return {f"a{number}": item for number, item in enumerate(value)}
        case "swap" if isinstance(value, dict):
            return list(value.values())
        case "swap" if value is not None:
            return str(value)
    return copy.deepcopy(drawn.choice(EMPTY))


# --- the property --------------------------------------------------------------------------------

randoms = st.randoms(use_true_random=False)


@settings(deadline=None, max_examples=cases(2_000))
@given(randoms)
def test_parser_and_schema_agree_on_what_annotations_allow(drawn: random.Random) -> None:
    """For every operation there is, with all of its keys."""
    document = Writer(drawn).document()
    assert agree(document)
    for _ in range(3):
        agree(mutate(document, drawn))
    agree(mutate(mutate(document, drawn), drawn))


@settings(deadline=None, max_examples=cases(400))
@given(chains(), randoms)
def test_parser_and_schema_agree_on_chains(chain: Chain, drawn: random.Random) -> None:
    for migration in chain.migrations:
        content = cbor2.loads(migration.structure)
        document = {
            "zapdb": content["zapdb"],
            "summary": migration.summary,
            "changes": content["changes"],
            "rollback": drawn.choice(["inferred", content["rollback"]]),
        }
        assert agree(document)
        assert (
            as_plain_data(read_document(DocumentText("a.yaml", to_yaml(document).encode())))
            == document
        )
        for _ in range(4):
            agree(mutate(document, drawn))


def test_parser_and_schema_agree_on_the_documents_of_this_repository() -> None:
    """Mutations, the same at every run; many are accepted, and many are not."""
    drawn = random.Random(5)
    kept = ROOT / "tests/unit/migrations/kept"
    paths = [*sorted((ROOT / "examples").rglob("*.yaml")), *sorted(kept.glob("*.yaml"))]
    documents = [as_plain_data(read_document(DocumentText.read(path))) for path in paths]
    counts: Counter[bool] = Counter()
    count = max(cases(2_000), 4 * len(documents))
    for number in range(count):
        document = documents[number % len(documents)]
        assert number >= len(documents) or agree(document)
        counts[agree(mutate(document, drawn))] += 1
    assert min(counts[True], counts[False]) > count / 10
