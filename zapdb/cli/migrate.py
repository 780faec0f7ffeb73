"""`zapdb migrate new`, which needs no database, and imports nothing that does."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from zapdb.cli.configuration import MigrationsOption, find_migrations
from zapdb.cli.output import Output
from zapdb.cli.scaffold import create_migration
from zapdb.errors import Location, UsageError
from zapdb.migrations import NumberAllocator, find_file, list_files, load_directory, resolve_files
from zapdb.migrations.did_you_mean_key import KEY_NOTES
from zapdb.migrations.document import DocumentText, node_of
from zapdb.migrations.document_structure import ParsingStopped, ViolationCollector, parse_value
from zapdb.migrations.operations.definitions import PARAMETERS
from zapdb.migrations.operations.field import AddField
from zapdb.migrations.undo import to_yaml
from zapdb.migrations.undo import undo as undo_changes
from zapdb.schema import Schema

_WORD: Final = "[a-z][a-z0-9_]*"
ADDED_FIELD: Final = re.compile(
    rf"(?P<table>{_WORD})\.(?P<field>{_WORD}):(?P<type>{_WORD})"
    rf"(?:\((?P<parameter>{_WORD}|[0-9]+)\))?(?P<optional>\?)?"
    r"(?:=(?P<made>sequence|now(?: [A-Za-z0-9_/+-]+)?))?",
    re.ASCII,
)
_EXAMPLES: Final = (
    "for example people.fax:string?, items.price:decimal(2), items.owner:reference(people), "
    "items.number:integer=sequence, items.created:timestamp=now"
)
_WITH_PARAMETER: Final = {
    "decimal": "decimal(2), for two digits after the point",
    "list": "list(string)",
    "reference": "reference(people), with the table that it leads to",
}
Parts = Mapping[str, str | None]
"""What `ADDED_FIELD` matches, by its groups."""
_PLACE: Final = Location("--add-field")


def describe_added_fields(given: Sequence[str], directory: Path) -> str:
    """Return the YAML of an add_field for each text such as `people.fax:string?`.

    The type may have a parameter, such as `decimal(2)`, `list(string)` or `reference(people)`; a
    question mark makes the field optional; `=sequence`, `=now` or `=now Europe/Vienna` says what
    makes its values at insert. Each must be valid after the migrations of the directory, but for
    the value that existing records get, which stays to be written. Raises `UsageError`.
    """
    numbers = NumberAllocator()
    schema = _load_schema(directory, numbers) if given else Schema()
    lines = []
    for text in given:
        parts = _split(text)
        field = _describe_field(parts)
        schema = _check(text, parts, field, schema).apply(schema, numbers)
        definition = ", ".join(
            f"{key}: {str(value).lower() if value is True else value}"
            for key, value in field.items()
        )
        lines += ["- add_field:", f"    table: {parts['table']}", f"    field: {{{definition}}}"]
        if not parts["optional"]:
            lines.append("    fill: {value: null}  # the value for existing records")
    return "".join(f"{line}\n" for line in lines)


def _load_schema(directory: Path, numbers: NumberAllocator) -> Schema:
    """The tables after the migrations of the directory, which may be missing or empty."""
    if not any(directory.glob("*.y*ml")):
        return Schema()
    chain = resolve_files(list_files(directory), numbers=numbers)
    return chain.schema_at(chain.end)


def _split(text: str) -> Parts:
    """The parts by name; raises `UsageError`."""
    match = ADDED_FIELD.fullmatch(text)
    if match is not None:
        return match.groupdict()
    hint = _EXAMPLES
    guess = _respell(text)
    if ADDED_FIELD.fullmatch(guess):
        hint = f"did you mean {guess!r}?"
    elif re.match(rf"{_WORD}\.{_WORD}:[^=]*=", text):
        hint = "only =sequence, =now and =now ZONE go here; write another default into the file"
    raise UsageError("write a field to add as table.field:type", given=text, hint=hint)


def _respell(text: str) -> str:
    """The text as it may have been meant: without blanks and capitals, with a colon."""
    plain = re.sub(r"\s+", "", text).lower()
    plain = re.sub(r"\|(null|none)\b", "?", plain)
    return plain if ":" in plain else plain.replace("=", ":", 1)


def _describe_field(parts: Parts) -> dict[str, Any]:
    """The field as a migration file has it."""
    kind, parameter, made = str(parts["type"]), parts["parameter"], parts["made"]
    field: dict[str, Any] = {"name": parts["field"], "type": kind}
    if parameter is not None and kind in PARAMETERS:
        field[PARAMETERS[kind]] = int(parameter) if parameter.isdigit() else parameter
    if parts["optional"]:
        field["optional"] = True
    if made == "sequence":
        field["generated"] = made
    elif made is not None:
        field["default"] = made
    return field


def _check(text: str, parts: Parts, field: dict[str, Any], schema: Schema) -> AddField:
    """The operation, valid but for the value of existing records; raises `UsageError`."""
    kind, parameter = str(parts["type"]), parts["parameter"]
    if kind in PARAMETERS and parameter is None:
        hint = f"write {_WITH_PARAMETER[kind]}"
        raise UsageError("this type needs a parameter", type=kind, given=text, hint=hint)
    collector = ViolationCollector(DocumentText(_PLACE.file, b""))
    body = node_of({"table": parts["table"], "field": field | {"optional": True}}, _PLACE)
    with contextlib.suppress(ParsingStopped):
        operation: AddField = parse_value(AddField, body, collector)
        operation.validate(schema, collector)
    for violation in collector.violations:
        raise UsageError(violation.message, given=text, hint=violation.hint)
    if parameter is not None and kind not in PARAMETERS:
        hint = KEY_NOTES["length"] if kind == "string" else f"write {kind} alone"
        raise UsageError("this type has no parameters", type=kind, given=text, hint=hint)
    return operation


def migrate_new_command(
    summary: Annotated[str, typer.Argument(help="What the migration does, in one line.")],
    output: Output,
    migrations: MigrationsOption = None,
    add_field: Annotated[
        list[str] | None,
        typer.Option(
            "--add-field",
            metavar="TABLE.FIELD:TYPE",
            help="Start with a new field, such as people.fax:string? (optional), or "
            "people.joined:timestamp=now. Can be repeated.",
        ),
    ] = None,
    undo: Annotated[
        int | None,
        typer.Option("--undo", min=1, metavar="N", help="Undo migration N."),
    ] = None,
) -> None:
    """Start a migration file with the next number.

    With `--undo`, its changes are the resolved rollback of migration N: fields and tables that N
    added are dropped into the archive, and those that N archived are restored. With `--add-field`,
    fields are added; their tables and types must be those after the files that there are. The JSON
    Schema for editors is written next to the file.

    With `--json`: `{path, number, name}`.
    """
    directory = find_migrations(migrations)
    changes = describe_added_fields(add_field or [], directory)
    if undo is not None:
        find_file(list_files(directory), undo)
        changes += to_yaml(undo_changes(load_directory(directory), undo))
    path = create_migration(directory, summary, changes)
    number, _, name = path.stem.partition("_")
    output.write((str(path), "bold"))
    what = "review its changes" if changes else "write its changes"
    output.write(f"next: {what}, then `zapdb migrate check --write` and `zapdb migrate up`")
    output.document({"path": str(path), "number": int(number), "name": name})
