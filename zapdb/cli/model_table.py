"""What a generated class of a table has: the methods whose types depend on the fields."""

from __future__ import annotations

from collections.abc import Iterator
from keyword import iskeyword

from zapdb.cli.model_format import Method
from zapdb.cli.model_types import Types
from zapdb.limits import INSERT_BATCH_RECORDS
from zapdb.schema import TableSchema


def describe_methods(
    table: TableSchema, record: str, types: Types, *, is_async: bool = False
) -> Iterator[Method]:
    """The methods of a table, or of one in `zapdb.aio`, which are coroutine functions."""
    integer, boolean, list_, anything = map(types.name, ("int", "bool", "list", "object"))

    def stream(of: str) -> str:
        return f"Iterable[{of}] | AsyncIterable[{of}]" if is_async else f"Iterable[{of}]"

    key = [f"{_parameter(f.name)}: {types.held(f.type)}" for f in table.key_fields]
    by_key = [*key, "/"]
    # A parameter that can't have the name of its field is given by its place alone.
    named = key if all(_parameter(f.name) == f.name for f in table.key_fields) else by_key
    keys, stream_keys = f"keys: Iterable[{record}Key]", f"keys: {stream(f'{record}Key')}"
    yield "get", named, record, "The record with this key; raises `RecordNotFound`."
    yield "find", named, f"{record} | None", "The record with this key, or None."
    yield (
        "get_many",
        [keys],
        f"{list_}[{record} | None]",
        "The records with these keys in their order, None where there is none.",
    )
    yield "exists", named, boolean, "Whether there is a record with this key."
    yield (
        "insert",
        ["/", f"**values: Unpack[{record}Values]"],
        record,
        "Insert a record and return it.",
    )
    yield (
        "insert_many",
        [
            f"records: {stream(f'{record}Values')}",
            f"batch_records: {integer} = {INSERT_BATCH_RECORDS}",
            f"progress: Callable[[{integer}], {anything}] | None = None",
        ],
        integer,
        "Insert from a stream, batch by batch; returns how many.",
    )
    yield (
        "update",
        [
            *by_key,
            "*",
            f"if_unchanged: {record} | {types.name('str')} | None = None",
            f"**changes: Unpack[{record}Changes]",
        ],
        record,
        "Change fields of a record and return it.",
    )
    yield (
        "upsert",
        ["/", f"**values: Unpack[{record}Upsert]"],
        record,
        "Insert a record, or change the one that has its key already.",
    )
    yield "delete", named, "None", "Delete a record; raises `RecordNotFound`."
    yield "delete_many", [stream_keys], integer, "Delete records by their keys; returns how many."
    files = [f.name for f in table.fields if f.type.may_be_blob]
    if files:
        yield (
            "open",
            [*by_key[:-1], "/", "*", f"field: {_literal(files)}"],
            "OpeningBlock[AsyncFile]" if is_async else "BufferedReader",
            "A string or binary field of a record as a binary file.",
        )


def list_items(table: TableSchema, record: str, types: Types) -> Iterator[tuple[str, str]]:
    """What `items["name"]` gives, by the type of the name: words of Python, all others."""
    for f in table.fields:
        if iskeyword(f.name):
            yield _literal([f.name]), types.field(f.type)
    if not all(iskeyword(f.name) for f in table.fields):
        yield f"{record}Field", "AnyField"


def _literal(names: list[str]) -> str:
    quoted = [f'"{name}"' for name in names]
    return f"Literal[{', '.join(quoted)}]"


def _parameter(name: str) -> str:
    """Return the name of a positional parameter that no keyword and no other parameter has."""
    is_taken = iskeyword(name) or name in ("self", "field", "if_unchanged", "changes")
    return f"{name}_" if is_taken else name
