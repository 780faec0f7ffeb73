"""Strict YAML: what is refused, and at which file, line and column exactly."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.documents import show
from zapdb.errors import InvalidMigration, Location
from zapdb.limits import DOCUMENT_DEPTH_MAX, DOCUMENT_SIZE_BYTES_MAX
from zapdb.migrations import document
from zapdb.migrations.document import (
    DocumentText,
    Mapping,
    Scalar,
    Sequence,
    as_plain_data,
    node_of,
    read_document,
)


@pytest.fixture(params=["CSafeLoader", "SafeLoader"], autouse=True)
def _loader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both parsers of PyYAML: an installation without libyaml must be as strict."""
    if not hasattr(yaml, request.param):
        pytest.skip("this PyYAML was built without libyaml")
    monkeypatch.setattr(document, "Loader", getattr(yaml, request.param))


def read(raw: str | bytes) -> Any:
    data = raw if isinstance(raw, bytes) else raw.encode()
    return as_plain_data(read_document(DocumentText("0001_a.yaml", data)))


def refused(raw: str | bytes) -> str:
    with pytest.raises(InvalidMigration) as caught:
        read(raw)
    (violation,) = caught.value.violations
    return show(violation)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 1", {"a": 1}),
        ("a: -17", {"a": -17}),
        ("a: 0", {"a": 0}),
        ("a: true\nb: false\nc: null\nd:\n", {"a": True, "b": False, "c": None, "d": None}),
        ("a: text and more", {"a": "text and more"}),
        ("a: \"no\"\nb: '1e3'", {"a": "no", "b": "1e3"}),
        ("a: |\n  010\n", {"a": "010\n"}),
        ("a: >-\n  12:30:45\n", {"a": "12:30:45"}),
        ("- a\n- [b, {c: d}]", ["a", ["b", {"c": "d"}]]),
        ('"true": 1', {"true": 1}),
        ("a: 1\r\nb: 2\r\n", {"a": 1, "b": 2}),
        ("\ufeffa: 1", {"a": 1}),
        ("---\na: 1\n...\n", {"a": 1}),
        ("%YAML 1.1\n---\na: 1", {"a": 1}),
        ("# c\n\na: 1 # d", {"a": 1}),
        ("a: before(name, ' ')", {"a": "before(name, ' ')"}),
        ("a: 0.0.1\nb: 1-2\nc: 1e\nd: nope\ne: north\nf: 127.0.0.1", None),
        ("a: z1:9c1e\nb: x12:30\nc: e3", None),
        ("a: " + "9" * 160, {"a": int("9" * 160)}),
    ],
)
def test_plain_yaml_is_read(text: str, value: Any) -> None:
    if value is None:  # all text
        value = dict(line.split(": ") for line in text.splitlines())
    assert read(text) == value


AMBIGUOUS = [
    *(
        [
            "no",
            "No",
            "NO",
            "yes",
            "Yes",
            "YES",
            "on",
            "On",
            "ON",
            "off",
            "Off",
            "OFF",
            "y",
            "Y",
            "n",
            "N",
        ]
    ),
    *(["True", "TRUE", "False", "FALSE", "Null", "NULL", "~"]),
    *(["1e3", "1E3", "1.5", "1.", ".5", "1.5e-3", "-1.5", "+1", "-0", "+0", "1_000", "1__0"]),
    *(["010", "-010", "08", "0o17", "0b11", "0x1F", "0xff", "-0x1f", "0x_f", "00"]),
    *(["12:30:45", "1:30", "190:20:30.15", "-1:30", "12:30"]),
    *([".inf", "-.inf", "+.INF", ".nan", ".NaN"]),
    *(["2024-01-01", "2024-1-1", "2001-12-14t21:59:43.10-05:00", "2024-01-01T00:00:00Z"]),
    "2024-01-01 00:00:00",
]


@pytest.mark.parametrize("scalar", AMBIGUOUS)
def test_a_plain_scalar_that_means_two_things_is_refused(scalar: str) -> None:
    message = f"{scalar} means different things to different readers of YAML"
    assert refused(f"a: {scalar}") == f"0001_a.yaml:1:4: {message}"
    assert refused(f"a: 1\nb:\n  - x\n  -   {scalar}\n") == f"0001_a.yaml:4:7: {message}"
    assert refused(f"{{é: [😀, {scalar}]}}") == f"0001_a.yaml:1:9: {message}"
    assert read(f'a: "{scalar}"') == {"a": scalar}


ALIAS = "anchors and aliases are not used here"
MERGE = "merge keys are not used here"
KEY = "a key must be a name"


@pytest.mark.parametrize(
    ("text", "violation"),
    [
        ("a: 1\na: 2\n", "2:1: the key 'a' stands twice"),
        ("a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n", "5:3: the key 'c' stands twice"),
        ('{a: 1, "a": 2}', "1:8: the key 'a' stands twice"),
        ("a: &x 1\n", f"1:4: {ALIAS}"),
        ("a: &x\n  b: 1\n", f"1:4: {ALIAS}"),
        ("&x a: 1\n", f"1:1: {ALIAS}"),
        ("a: *x\n", f"1:4: {ALIAS}"),
        ("a: [b, *x]\n", f"1:8: {ALIAS}"),
        ("*x : 1\n", f"1:1: {ALIAS}"),
        ("- &a\n  - *a\n", f"1:3: {ALIAS}"),
        ("a: !!str x\n", "1:4: tags are not used here: tag:yaml.org,2002:str"),
        (
            "a: !!python/object/apply:os.system [x]",
            "1:4: tags are not used here: tag:yaml.org,2002:python/object/apply:os.system",
        ),
        ("a: !mine x\n", "1:4: tags are not used here: !mine"),
        ("a: !<x:y> x\n", "1:4: tags are not used here: x:y"),
        ("a: ! x\n", "1:4: tags are not used here: !"),
        ("!!map {a: 1}\n", "1:1: tags are not used here: tag:yaml.org,2002:map"),
        ("!!int a: 1\n", "1:1: tags are not used here: tag:yaml.org,2002:int"),
        ("<<: {a: 1}\n", f"1:1: {MERGE}"),
        ("a:\n  <<: {a: 1}\n", f"2:3: {MERGE}"),
        ("a: 1\n---\nb: 2\n", "2:1: a second document: one file holds one migration"),
        ("---\n---\na: 1\n", "2:1: a second document: one file holds one migration"),
        ("a: 1\n...\n---\n", "3:1: a second document: one file holds one migration"),
        ("", "1:1: the file is empty"),
        ("# nothing\n\n", "1:1: the file is empty"),
        ("---\n", "1:1: the file is empty"),
        ("null\n", "1:1: the file is empty"),
        ("''\n", "1:1: the file is empty"),
        ("1: a\n", f"1:1: {KEY}"),
        ("true: a\n", f"1:1: {KEY}"),
        ("? [a]\n: b\n", f"1:3: {KEY}"),
        ("{a: b, {c: d}: e}", f"1:8: {KEY}"),
        ("no: a\n", "1:1: no means different things to different readers of YAML"),
        ("a: " + "9" * 161, "1:4: the integer is too long"),
        ("a: 1\nb: \x07\n", "2:4: the character U+0007 is not allowed in YAML"),
        ("é: '😀\x00'\n", "1:6: the character U+0000 is not allowed in YAML"),
        ("\ufeffa\x1b: 1", "1:2: the character U+001B is not allowed in YAML"),
    ],
)
def test_this_yaml_is_refused_at_this_place(text: str, violation: str) -> None:
    assert refused(text) == f"0001_a.yaml:{violation}"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("\ta: 1\n", "1:1"),
        ("a:\n\t- 1\n", "2:1"),
        ("a:\n  b: 1\n\tc: 1\n", "3:1"),
        ("a: 1\n b: 2\n", "2:3"),
        ("a: b: c\n", "1:5"),
        ("a: @x\n", "1:4"),
        ("a: `x`\n", "1:4"),
        ("a: %x\n", "1:4"),
        ("a: 'x' y\n", "1:8"),
        ("a: 1\n- b\n", "2:1"),
        ("a: [1, 2\n", "2:1"),
        ('a: "x\n', "2:1"),
        (": a\n", "1:1"),
        ("%YAML 2.0\n---\na: 1\n", "1:1"),
        ("x: [a, b]]\n", "1:10"),
    ],
)
def test_broken_yaml_is_refused_at_its_place(text: str, place: str) -> None:
    assert refused(text).startswith(f"0001_a.yaml:{place}: not YAML: ")


@pytest.mark.parametrize(
    ("raw", "place", "byte"),
    [
        (b"a: \xff\n", "1:4", "ff"),
        (b"a: 1\nb: \xc3\xa9\xe9\n", "2:5", "e9"),
        (b"a: \xed\xa0\x80\n", "1:4", "ed"),
        (b"\xff\xfea\x00:\x00", "1:1", "ff"),
        (b"\r\n\r\na: \xc0\x80", "3:4", "c0"),
    ],
)
def test_a_file_that_is_not_utf8_is_refused_at_its_byte(raw: bytes, place: str, byte: str) -> None:
    assert refused(raw) == f"0001_a.yaml:{place}: byte 0x{byte} is not UTF-8"


def test_windows_line_ends_count_as_one_line() -> None:
    assert refused("a: 1\r\nb: no\r\n").startswith("0001_a.yaml:2:4: ")
    assert refused("a: 1\rb: no\r").startswith("0001_a.yaml:2:4: ")


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("[" * 2_000, DOCUMENT_DEPTH_MAX + 1),
        ("[" * DOCUMENT_DEPTH_MAX + "[" + "]" * (DOCUMENT_DEPTH_MAX + 1), DOCUMENT_DEPTH_MAX + 1),
        ("{a: " * 2_000, 4 * DOCUMENT_DEPTH_MAX + 1),
        ("- " * 2_000 + "a", 2 * DOCUMENT_DEPTH_MAX + 1),
        ("[" * (DOCUMENT_SIZE_BYTES_MAX - 1), DOCUMENT_DEPTH_MAX + 1),
    ],
    ids=["brackets", "one too many", "braces", "dashes", "a megabyte"],
)
def test_deep_nesting_is_refused_where_it_is_too_deep(text: str, column: int) -> None:
    started = time.process_time()
    assert refused(text) == f"0001_a.yaml:1:{column}: nested more than 32 deep"
    assert time.process_time() - started < 2


def test_the_deepest_nesting_is_read() -> None:
    value = read("[" * DOCUMENT_DEPTH_MAX + "]" * DOCUMENT_DEPTH_MAX)
    for _ in range(DOCUMENT_DEPTH_MAX - 1):
        (value,) = value
    assert value == []


def test_a_file_has_a_largest_size(tmp_path: Path) -> None:
    text = "a: '" + "x" * (DOCUMENT_SIZE_BYTES_MAX - 5) + "'"
    assert len(text) == DOCUMENT_SIZE_BYTES_MAX
    assert read(text)
    assert refused(text + "\n") == "0001_a.yaml: a migration file has at most 1048576 bytes"
    huge = tmp_path / "huge.yaml"
    with huge.open("wb") as file:
        file.truncate(1 << 40)  # a terabyte of nothing
    with pytest.raises(InvalidMigration, match="a migration file has at most"):
        read_document(DocumentText.read(huge))


def test_many_keys_take_time_in_proportion(request: pytest.FixtureRequest) -> None:
    # PyYAML's own parser takes seconds for 30,000, whatever the keys
    size = 30_000 if "CSafeLoader" in request.node.name else 3_000
    text = "".join(f"k{at}: 1\n" for at in range(size))
    started = time.process_time()
    assert len(read(text)) == size
    assert refused(text + "k77: 2\n") == f"0001_a.yaml:{size + 1}:1: the key 'k77' stands twice"
    assert time.process_time() - started < 5


def test_nodes_know_their_places() -> None:
    root = read_document(DocumentText("a.yaml", b"a: 1\nlist:\n  - {b: 'c'}\n"))
    assert isinstance(root, Mapping)
    assert root.location == Location("a.yaml", 1, 1)
    assert root.keys == {"a": Location("a.yaml", 1, 1), "list": Location("a.yaml", 2, 1)}
    assert root.entries["a"] == Scalar(1, Location("a.yaml", 1, 4))
    items = root.entries["list"]
    assert isinstance(items, Sequence)
    assert items.location == Location("a.yaml", 3, 3)
    (item,) = items.items
    assert isinstance(item, Mapping)
    assert item.entries["b"] == Scalar("c", Location("a.yaml", 3, 9))


def test_plain_data_becomes_nodes_and_back() -> None:
    data = {"a": [1, True, None, "x", {"b": []}]}
    place = Location("<stored>")
    node = node_of(data, place)
    assert as_plain_data(node) == data
    assert isinstance(node, Mapping)
    assert node.keys == {"a": place}
    assert node_of((1,), place) == node_of([1], place)


def test_a_violation_shows_its_line_with_a_caret() -> None:
    with pytest.raises(InvalidMigration) as caught:
        read("a: 1\nb:\n  - no\n")
    assert str(caught.value) == (
        "0001_a.yaml:3:5: no means different things to different readers of YAML\n"
        "      - no\n"
        "        ^\n"
        '  hint: write false, or "no" for text'
    )


def test_a_long_line_is_shown_around_the_caret() -> None:
    source = DocumentText("a.yaml", ("x" * 200 + "!" + "y" * 200).encode())
    excerpt = source.violation(Location("a.yaml", 1, 201), "here").excerpt
    line, caret = excerpt.splitlines()
    assert len(line) == 104
    assert line[caret.index("^")] == "!"


def test_a_place_outside_of_the_text_has_no_excerpt() -> None:
    source = DocumentText("a.yaml", b"a: 1\n")
    for line in (0, 2, 99):
        assert source.violation(Location("a.yaml", line, 1), "there").excerpt == ""


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")  # whose reader would wait for a writer
    for path in (tmp_path / "none.yaml", tmp_path, tmp_path / "pipe.yaml", Path("/dev/zero")):
        with pytest.raises(InvalidMigration, match="the file can't be read") as caught:
            DocumentText.read(path)
        assert caught.value.location == Location(str(path))
    (tmp_path / "a.yaml").write_bytes(b"a: 1\r\n")
    assert DocumentText.read(tmp_path / "a.yaml") == DocumentText(
        str(tmp_path / "a.yaml"), b"a: 1\r\n"
    )
    assert DocumentText.read(tmp_path / "a.yaml", "shown").name == "shown"
