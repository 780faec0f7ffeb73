"""`zapdb codegen json-schema`: the JSON Schema of migration files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from zapdb.cli.output import Output
from zapdb.errors import UsageError
from zapdb.files import is_written_into, replace_text_file
from zapdb.migrations.json_schema import SCHEMA_MARK, json_schema


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
    state = update_generated(file, read_generated(file, _is_schema), text)
    style = "green" if state == "written" else "dim"
    output.write((state, style), f": {file}")
    output.document({"path": file, "state": state})


def _is_schema(text: str) -> bool:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(content, dict) and content.get("$comment") == SCHEMA_MARK


def read_generated(path: Path, is_ours: Callable[[str], bool]) -> str | None:
    """Return the text of a file that zapdb wrote, or None; raises `UsageError` for another file. A
    pipe or a device has none."""
    if is_written_into(path):
        return None
    try:
        text = path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except (IsADirectoryError, UnicodeDecodeError):
        text = ""
    if not is_ours(text):
        raise UsageError(
            "the file already exists, and zapdb did not write it",
            file=path,
            hint="give another name, or remove the file first",
        )
    return text


def update_generated(path: Path, there: str | None, text: str) -> str:
    """Write the text unless the file has it; return `written` or `unchanged`."""
    if there == text:
        return "unchanged"
    replace_text_file(path, text)
    return "written"
