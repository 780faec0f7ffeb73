"""`zapdb codegen models` and `json-schema`: classes for the tables, for editors and type checkers,
and the JSON Schema of migration files."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from zapdb.cli.configuration import (
    MigrationsOption,
    find_migrations,
    find_migrations_if_any,
    read_pyproject,
)
from zapdb.cli.connecting import TenantOptions
from zapdb.cli.output import Output
from zapdb.errors import EXIT_PENDING, UsageError
from zapdb.files import is_written_into, replace_text_file
from zapdb.migrations import Chain, load_directory
from zapdb.migrations.json_schema import SCHEMA_MARK, json_schema
from zapdb.typed.model_classes import MODELS
from zapdb.typed.model_text import MODELS_MARK, write_module

OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write to this file; only a module that zapdb wrote is replaced.",
    ),
]
NameOption = Annotated[
    list[str] | None,
    typer.Option(
        "--name",
        metavar="NAME=CLASS",
        help="The name of the class for a table's records, or for a type: people=Person. Names "
        "in an existing file are kept; NAME= removes one.",
    ),
]
CheckOption = Annotated[
    bool,
    typer.Option("--check", help="Write nothing; exit status 3 if the file is out of date."),
]


def codegen_models_command(
    options: TenantOptions,
    output: Output,
    file: OutputOption = None,
    check: CheckOption = False,
    name: NameOption = None,
    migrations: MigrationsOption = None,
) -> int:
    """Print a Python module with a class for each table, for editors and type checkers.

    The classes are made from the migration files, or without files from the active schema of the
    database. The same schema gives the same text.

    With `--json`: `{module, migration}`, the text and the number of the last migration; with
    `--output` `{path, state, migration}`; the state is `written` or `unchanged`, with `--check`
    `current`, `outdated` or `missing`.
    """
    output = output.beside(file)
    if check and file is None:
        raise UsageError("--check compares with a file", hint="add --output FILE")
    there = None if file is None else read_generated(file, _is_module)
    names = _read_names(name or [], {} if there is None else _find_names(there))
    chain, position = _load(migrations, options)
    text = write_module(chain, position, names)
    if file is None:
        if output.as_json:
            output.document({"module": text, "migration": position})
        else:
            print(text, end="", flush=True)  # as it is, on a terminal too: to be copied
        return 0
    state = _compare(there, text) if check else update_generated(file, there, text)
    is_pending = state in ("missing", "outdated")
    style = "yellow" if is_pending else "green" if state == "written" else "dim"
    output.write((state, style), f": {file}")
    if is_pending:
        output.write(f"  hint: zapdb codegen models --output {file}")
    output.document({"path": file, "state": state, "migration": position})
    return EXIT_PENDING if is_pending else 0


def _load(migrations: str | None, options: TenantOptions) -> tuple[Chain, int]:
    """Return the chain, and the position on it that the models are for."""
    is_named = options.database is not None or "database" in read_pyproject()
    if find_migrations_if_any(migrations) is None and is_named:
        with options.opened() as (_, catalog):
            return catalog.chain, catalog.position
    chain = load_directory(find_migrations(migrations))
    return chain, chain.end


def _read_names(given: list[str], before: Mapping[str, str]) -> dict[str, str]:
    names = dict(before)
    for one in given:
        table, separator, wanted = one.partition("=")
        if not separator or not table:
            raise UsageError(
                "give a name as NAME=CLASS", name=one, hint="for example people=Person"
            )
        names.pop(table, None)
        if wanted:
            names[table] = wanted
    return dict(sorted(names.items()))


def _is_module(text: str) -> bool:
    return MODELS_MARK in text[:1_000]


def _find_names(text: str) -> dict[str, str]:
    """Return the names of classes in an earlier module; empty if they can't be read."""
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError):
        return {}
    for statement in module.body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == MODELS:
            for call in ast.walk(statement.value):
                if isinstance(call, ast.keyword) and call.arg == "names":
                    return _as_names(call.value)
    return {}


def _as_names(value: ast.expr) -> dict[str, str]:
    try:
        found: Any = ast.literal_eval(value)
    except ValueError:
        return {}
    if not isinstance(found, dict):
        return {}
    return {str(name): str(wanted) for name, wanted in found.items()}


def _compare(there: str | None, text: str) -> str:
    """What a file is beside the text that it should have."""
    if there is None:
        return "missing"
    return "current" if there == text else "outdated"


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
