"""`zapdb codegen json-schema`: the JSON Schema of migration files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from zapdb.cli.output import Output
from zapdb.errors import UsageError
from zapdb.files import create_text_file, is_written_into, replace_text_file
from zapdb.migrations.json_schema import SCHEMA_MARK, json_schema

State = Literal["written", "unchanged"]


def codegen_json_schema_command(
    output: Output,
    file: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Write to this file; only a schema that zapdb wrote is replaced.",
        ),
    ] = None,
) -> None:
    """Print the JSON Schema of migration files, for editors.

    An editor with the YAML language server uses it for files that begin with `#
    yaml-language-server: $schema=FILE`.

    With `--json`: the schema, or with `--output` `{path, state}`, and the state is `written` or
    `unchanged`.
    """
    output = output.beside(file)
    text = json.dumps(json_schema(), indent=2) + "\n"
    if file is None:
        print(text, end="", flush=True)  # as it is, on a terminal too: to be copied
        return
    state = _write(file, text)
    style = "green" if state == "written" else "dim"
    output.write((state, style), f": {file}")
    output.document({"path": file, "state": state})


def _write(path: Path, text: str) -> State:
    if is_written_into(path):
        replace_text_file(path, text)
        return "written"
    try:
        create_text_file(path, text)
        return "written"
    except FileExistsError:
        there = _read_generated(path)
    if there == text:
        return "unchanged"
    replace_text_file(path, text)
    return "written"


def _read_generated(path: Path) -> str:
    """Return the text of a schema that zapdb wrote; raises `UsageError` for any other file."""
    try:
        text = path.read_bytes().decode("utf-8")
        content = json.loads(text)
    except (IsADirectoryError, ValueError, RecursionError):
        content = None
    if not isinstance(content, dict) or content.get("$comment") != SCHEMA_MARK:
        raise UsageError(
            "the file already exists, and zapdb did not write it",
            file=path,
            hint="give another name, or remove the file first",
        )
    return text
