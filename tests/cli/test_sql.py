"""`zapdb sql`: answers, as text and as JSON, and limits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.program import Project

SOON = ("--seconds", "0.2")


def test_an_answer_is_a_table(current: Project) -> None:
    result = current.run("sql", "SELECT count(*) AS people, 'a\x1b[2J' AS text FROM people")
    assert (result.status, result.err) == (0, "")
    assert [line.split() for line in result.out.splitlines()] == [
        ["people", "│", "text"],
        ["bigint", "│", "varchar"],
        ["───────┼─────────"],
        ["20", "│", "a\\x1b[2J"],
        ["1", "row"],
    ]
    piped = current.run("sql", "-", "--show", "2", stdin="SELECT id FROM people ORDER BY id")
    assert piped.out.endswith("20 rows (2 shown)\n")


def test_an_answer_is_json(current: Project) -> None:
    statement = (
        "SELECT 1 AS a, 9007199254740993 AS a, 1.50, 'nan'::FLOAT, '\\xFF'::BLOB, NULL, true, "
        "{'b': [DATE '2024-05-31']}, MAP {1: TIME '10:00'}, "
        "'00000000-0000-0000-0000-000000000001'::UUID"
    )
    result = current.run("sql", statement, "--json")
    found = json.loads(result.out)
    assert found["columns"][:2] == ["a", "a"]
    assert found["types"][:2] == ["INTEGER", "BIGINT"]
    assert found["rows"] == [
        [
            *(1, "9007199254740993", "1.50", "nan", "/w==", None, True),
            *({"b": ["2024-05-31"]}, {"1": "10:00:00"}, "00000000-0000-0000-0000-000000000001"),
        ]
    ]


@pytest.mark.parametrize(
    ("arguments", "status", "code"),
    [
        (["SELECT * FROM range(9)", "--max-rows", "8"], 1, "sql.limit"),
        (
            ["SELECT levenshtein(repeat('a', 99999), repeat('b', 99999))", "--seconds", "0.2"],
            1,
            "sql.limit",
        ),
        (["SELECT repeat('x', 900000000)", "--max-memory", "64"], 1, "sql.limit"),
        (["SELECT 1", "--max-memory", "0"], 1, "value.invalid"),
        (["SELECT 1", "--spill-to", "nowhere"], 1, "value.invalid"),
        (["SELECT 1", "--show", "-1"], 1, "value.invalid"),
        (["SELECT nothing"], 1, "sql"),
        (["SELECT * FROM read_text('/etc/passwd')"], 1, "sql"),
        (["SELECT date 'infinity'"], 1, "sql"),
        (["DELETE FROM people"], 2, "usage"),
        ([""], 2, "usage"),
    ],
)
def test_what_is_refused(
    current: Project, arguments: list[str], status: int, code: str, tmp_path: Path
) -> None:
    before = current.dump()
    result = current.run("sql", *arguments, "--json")
    assert result.status == status, result.err
    assert json.loads(result.err)["code"] == code
    assert current.dump() == before
