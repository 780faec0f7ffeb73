"""Checks at run time: compiled once for a table, called for each record that is written.

A check is total (rule 18), so all that calling it can raise is what loading a blob raises. Only the
blobs of fields that it reads on its way are loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from zapdb.expressions import Emitter, Type, names_in, parse_expression
from zapdb.records import Record
from zapdb.schema import Check, TableSchema
from zapdb.values import Boolean
from zapdb.values.generated_source import Namespace, compile_function, indent
from zapdb.values.struct_value import part_source


@dataclass(frozen=True, slots=True)
class CompiledCheck:
    """A check as writers and validation use it; `fields` are the names that it reads."""

    check: Check
    fields: tuple[str, ...]
    holds: Callable[[Record], bool]
    source: str


def compile_check(table: TableSchema, check: Check) -> CompiledCheck:
    """The check as a function of a record that has at least the fields it reads."""
    expression, names = parse_expression(check.expression), Namespace()
    read = names_in(expression)
    fields = tuple(f.name for f in table.fields if f.name in read)
    types = {f.name: Type(f.type, f.optional) for f in table.fields}
    emitter = Emitter(types, {n: part_source("record", n) for n in fields}, names, "")
    result = emitter.emit(expression, Type(Boolean()))
    body = ["def holds(record):", *indent([f"return {result}"])]
    holds, source = compile_function("holds", body, names, f"check {table.name}.{check.name}")
    return CompiledCheck(check, fields, holds, source)
