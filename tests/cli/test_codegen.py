"""`zapdb codegen`: what is written, and what is never overwritten."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.program import Project
from zapdb.migrations.json_schema import json_schema


def test_the_schema_is_printed(project: Project) -> None:
    for arguments in ((), ("--json",)):
        result = project.run("codegen", "json-schema", *arguments)
        assert (result.status, result.err) == (0, "")
        assert result.json == json_schema()


def test_a_terminal_breaks_no_line_of_it(project: Project) -> None:
    shown = project.show("codegen", "json-schema", columns=40)
    assert json.loads(shown) == json_schema()


def test_the_schema_is_written_once(project: Project) -> None:
    result = project.run("codegen", "json-schema", "--output", "schema.json")
    assert (result.status, result.out, result.err) == (0, "written: schema.json\n", "")
    written = Path("schema.json").read_bytes()
    assert json.loads(written) == json_schema()
    assert written.endswith(b"}\n")
    assert b"\r" not in written

    result = project.run("codegen", "json-schema", "-o", "schema.json", "--json")
    assert result.json == {"path": "schema.json", "state": "unchanged"}
    assert Path("schema.json").read_bytes() == written


def test_a_schema_of_another_release_is_replaced(project: Project) -> None:
    project.run("codegen", "json-schema", "-o", "schema.json")
    written = Path("schema.json").read_text()
    Path("schema.json").write_text(written.replace("An operation is", "A change is"))
    result = project.run("codegen", "json-schema", "-o", "schema.json", "--json")
    assert result.json == {"path": "schema.json", "state": "written"}
    assert Path("schema.json").read_text() == written


OTHERS = {
    "text": b"mine",
    "nothing": b"",
    "not UTF-8": b"\xff\xfe",
    "a list": b"[]",
    "another schema": b'{"$schema": "https://json-schema.org/draft/2020-12/schema"}',
    "half of it": json.dumps(json_schema())[:1_000].encode(),
    "nested too deep": b"[" * 100_000,
}


@pytest.mark.parametrize("content", OTHERS.values(), ids=OTHERS.keys())
def test_any_other_file_is_left_alone(project: Project, content: bytes) -> None:
    Path("mine.json").write_bytes(content)
    result = project.run("codegen", "json-schema", "-o", "mine.json")
    assert (result.status, result.out) == (2, "")
    assert result.err == (
        "error: the file already exists, and zapdb did not write it\n"
        "  file: mine.json\n"
        "  hint: give another name, or remove the file first\n"
    )
    assert Path("mine.json").read_bytes() == content
    as_json = project.run("codegen", "json-schema", "-o", "mine.json", "--json")
    assert (as_json.status, as_json.error["code"]) == (2, "usage")


def test_a_place_that_cannot_be_written_is_an_error(project: Project) -> None:
    assert project.run("codegen", "json-schema", "-o", ".").status == 2
    result = project.run("codegen", "json-schema", "-o", "nowhere/schema.json")
    assert (result.status, result.out) == (1, "")
    assert "nowhere/schema.json" in result.err
