"""The error tree: drawn in the docstring, coded, picklable, and shown with its hint."""

from __future__ import annotations

import builtins
import inspect
import json
import pickle
import re
from decimal import Decimal

import pytest

from zapdb import errors
from zapdb.errors import (
    CorruptRecord,
    InvalidMigration,
    InvalidValue,
    Location,
    MissingExtra,
    NotExhaustive,
    RecordNotFound,
    Violation,
    ZapdbError,
    describe_value,
)

CLASSES = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, ZapdbError) and kind.__module__ == errors.__name__
]
VIOLATIONS = [
    Violation(
        Location("0001_a.yaml", 3, 5), "there is no table 'x' here", "available: y", "  x\n  ^"
    ),
    Violation(Location("0001_a.yaml", 9, 1), "unknown key 'z'"),
]


def make(kind: type[ZapdbError]) -> ZapdbError:
    if issubclass(kind, InvalidMigration):
        return kind(VIOLATIONS)
    place = Location("zapdb.lock", 2)
    return kind("it went wrong", hint="do it again", location=place, table="people", size=3)


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_pickles_whole(kind: type[ZapdbError]) -> None:
    error = make(kind)
    error.add_note("on executor 3")
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        copy = pickle.loads(pickle.dumps(error, protocol))
        assert type(copy) is kind
        assert str(copy) == str(error)
        assert copy.__dict__ == error.__dict__
        assert copy.to_json() == error.to_json()
        assert copy.args == error.args


def test_errors_made_by_their_own_makers_pickle() -> None:
    for error in (
        InvalidValue.of("people.name", "a string", 5),
        CorruptRecord.at("integer", b"\x00\x01", 1),
        MissingExtra.named("spark", "pyspark"),
    ):
        assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_every_error_has_a_code_of_its_own() -> None:
    codes = [kind.code for kind in CLASSES]
    assert len(set(codes)) == len(codes)
    assert all("code" in vars(kind) for kind in CLASSES)
    assert all(re.fullmatch(r"[a-z_]+(\.[a-z_]+)?", code) for code in codes)


def test_every_error_says_how_the_command_line_and_rpc_end() -> None:
    statuses = {
        "INTERNAL",
        "INVALID_ARGUMENT",
        "NOT_FOUND",
        "FAILED_PRECONDITION",
        "ALREADY_EXISTS",
        "PERMISSION_DENIED",
        "UNAUTHENTICATED",
    }
    statuses |= {
        "OUT_OF_RANGE",
        "DATA_LOSS",
        "ABORTED",
        "UNAVAILABLE",
        "UNKNOWN",
        "DEADLINE_EXCEEDED",
        "RESOURCE_EXHAUSTED",
    }
    for kind in CLASSES:
        assert kind.exit_status in (errors.EXIT_ERROR, errors.EXIT_USAGE, errors.EXIT_PENDING)
        assert kind.rpc_status in statuses
    assert errors.PendingMigrations.exit_status == 3
    assert errors.UsageError.exit_status == 2


def test_the_docstring_draws_exactly_this_tree() -> None:
    """Each class under its parent, with the builtin that it also is in parentheses."""
    drawn: dict[str, tuple[str, str]] = {}
    stack: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"    ((?:[│ ]   )*)(?:[├└]── )?([A-Z]\w+)(?: \((\w+)\))?", line)
        if match is None:
            continue
        depth = len(match[1]) // 4 + ("── " in line)
        stack[depth:] = [match[2]]
        drawn[match[2]] = (stack[depth - 1] if depth else "", match[3] or "")
    actual = {}
    for kind in CLASSES:
        inner = [base for base in kind.__bases__ if issubclass(base, ZapdbError)]
        outer = [b.__name__ for b in kind.__bases__ if b not in inner and b is not Exception]
        parent = inner[0].__name__ if inner else ""
        actual[kind.__name__] = (parent, outer[0] if outer else "")
    assert drawn == actual
    assert all(not builtin or hasattr(builtins, builtin) for _, builtin in actual.values())


def test_an_error_shows_place_context_and_hint() -> None:
    assert str(make(RecordNotFound)) == (
        "zapdb.lock:2: it went wrong\n  table: people\n  size: 3\n  hint: do it again"
    )
    assert str(ZapdbError("plain")) == "plain"


def test_a_place_without_a_line_is_the_file() -> None:
    assert str(Location("a.yaml")) == "a.yaml"
    assert str(Location("a.yaml", 3, 7)) == "a.yaml:3:7"


def test_an_invalid_migration_shows_all_violations() -> None:
    error = NotExhaustive(VIOLATIONS)
    assert str(error) == (
        "0001_a.yaml:3:5: there is no table 'x' here\n  x\n  ^\n  hint: available: y\n"
        "0001_a.yaml:9:1: unknown key 'z'"
    )
    shown = json.loads(json.dumps(error.to_json()))
    assert [(v["line"], v["column"], v["message"]) for v in shown["violations"]] == [
        (3, 5, "there is no table 'x' here"),
        (9, 1, "unknown key 'z'"),
    ]
    assert shown["code"] == "migration.not_exhaustive"
    assert shown["location"] == {"file": "0001_a.yaml", "line": 3, "column": 5}


def test_corrupt_bytes_show_offset_and_a_short_prefix() -> None:
    error = CorruptRecord.at("integer", bytes(range(100)), 50)
    assert error.context == {
        "what": "integer",
        "offset": 50,
        "size": 100,
        "bytes": "2e 2f 30 31 32 33 34 35 36 37 38 39 3a 3b 3c 3d",
    }
    assert CorruptRecord.at("integer", b"", 0).context["bytes"] == "(none)"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "None"),
        (True, "True"),
        (255, "int of 8 bits"),
        ("secret", "str of 6 characters"),
        (b"0123456789", "bytes of 10 bytes, 3031323334353637…"),
        (["secret"], "list of length 1"),
        (1.5, "float"),
    ],
)
def test_values_are_described_without_their_contents(value: object, shown: str) -> None:
    assert describe_value(value) == shown


@pytest.mark.parametrize(
    ("value", "begins"),
    [
        ("geheim\x1b" * 30, repr(("geheim\x1b" * 30)[:60])),
        (b"geheim" * 30, repr((b"geheim" * 30)[:60])),
        (17, "17"),
        (10**5000, hex(10**5000 >> ((10**5000).bit_length() - 60)) + "…"),
        (Decimal("1.50"), "Decimal('1.50')"),
        (object(), None),
    ],
    ids=["text", "bytes", "number", "long_number", "decimal", "object"],
)
def test_a_refused_value_is_in_the_context_and_not_in_the_text(value: object, begins: str) -> None:
    error = pickle.loads(pickle.dumps(InvalidValue.of("items.size", "an integer", value)))
    assert error.context.get("refused") == begins
    assert "refused" not in str(error)
    assert "refused" not in error.to_json()["context"]
    assert "geheim" not in str(error) + json.dumps(error.to_json())
