"""Undoing a migration by a new one: its resolved rollback, as changes that have rollbacks of their
own.

A rollback removes the newest migration and leaves no trace in the files. An undo does the opposite
of any migration that no later one depends on. It is reviewed and deployed like every other
migration, and can be undone itself, because it archives the values that it drops.
"""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any, Final

import yaml

from zapdb.errors import InvalidMigration, Location, UsageError
from zapdb.migrations.chain import Chain
from zapdb.migrations.document import DocumentText
from zapdb.migrations.document_structure import ABSENT, Plain, key_of
from zapdb.migrations.migration import Migration
from zapdb.migrations.operations import NumberAllocator, Operation
from zapdb.migrations.operations.field import AddField, DropField, Restore
from zapdb.migrations.operations.operation import Fill
from zapdb.migrations.operations.table import DropTable
from zapdb.migrations.parsed_migration import ParsedMigration
from zapdb.migrations.resolution import resolve
from zapdb.schema import Schema


def undo(chain: Chain, number: int) -> tuple[Operation, ...]:
    """The changes that take migration `number` of the chain back, after the chain's end.

    Raises `UsageError` where later migrations rest on it, saying which change can't be made.
    """
    undone = chain.at(number)
    changes = tuple(_archive_drops(operation, undone) for operation in undone.rollback)
    following = chain.end + 1
    source = DocumentText(f"the undo of {undone.label}", b"")
    place = Location(source.name)
    parsed = ParsedMigration(following, "undo", "", changes, None, source, place)
    try:
        resolve(parsed, chain.schema_at(chain.end), NumberAllocator(step=-1))
    except InvalidMigration as error:
        first = error.violations[0]
        raise UsageError(
            "the migration cannot be undone directly: later migrations depend on it",
            migration=undone.label,
            problem=first.message,
            hint="; ".join(filter(None, [first.hint, "or write the change with `migrate new`"])),
        ) from error
    return changes


def _archive_drops(operation: Operation, undone: Migration) -> Operation:
    """An operation of a rollback as a change: what it drops is archived, so nothing is lost."""
    match operation:
        case DropField(restore=restore) if restore is ABSENT:
            otherwise = _fill_of(operation, undone)
            return replace(operation, restore=Restore(archive=True, otherwise=otherwise))
        case DropTable(records="discard"):
            return replace(operation, records="archive")
    return operation


def _fill_of(dropped: DropField, undone: Migration) -> Fill:
    """What records got when the migration added the field; ABSENT for null."""
    schema: Schema = undone.after
    table = schema.table_named(dropped.table)
    field = None if table is None else table.field_named(dropped.field)
    for change in undone.changes:
        is_meant = isinstance(change, AddField) and change.table == dropped.table
        if is_meant and change.field.name == dropped.field and change.fill is not ABSENT:  # type: ignore[attr-defined]  # it is an AddField
            return change.fill  # type: ignore[attr-defined,no-any-return]  # it is an AddField
    if field is None or not field.has_constant:
        return ABSENT  # type: ignore[no-any-return]  # stands for an absent key of any kind
    return Fill(Plain(field.plain_default))


_WORDS: Final = ("null", "true", "false", "yes", "no", "on", "off", "y", "n")
"""What some reader of YAML or other takes for something else than text."""


LINE_LENGTH_MAX: Final = 96


class _Dumper(yaml.SafeDumper):
    """Text that is read back as text is quoted, whatever reads it."""


def _dump_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    is_word = text.isascii() and text.replace("_", "").isalnum() and text[:1].isalpha()
    is_plain = is_word and text.lower() not in _WORDS
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if is_plain else '"')


_Dumper.add_representer(str, _dump_text)


def to_yaml(operations: tuple[Operation, ...]) -> str:
    """The operations as they stand under `changes:` in a document, one item each."""
    items = [{operation.keyword: _describe(operation)} for operation in operations]
    return yaml.dump(
        items,
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=None,
        width=LINE_LENGTH_MAX,
    )


def _describe(value: Any) -> Any:
    """A value as an author would write it: what is as it would be anyway is left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            key_of(field): _describe(getattr(value, field.name))
            for field in dataclasses.fields(value)
            if "location" not in field.metadata and not _is_default(value, field)
        }
    if isinstance(value, tuple):
        return [_describe(item) for item in value]
    if isinstance(value, dict):
        return {key: _describe(item) for key, item in value.items()}
    return value


def _is_default(value: Any, field: dataclasses.Field[Any]) -> bool:
    held = getattr(value, field.name)
    if field.default_factory is not dataclasses.MISSING:
        return bool(held == field.default_factory())
    return held is field.default or (held == field.default and type(held) is type(field.default))
