"""The text of a module of models. The same schema and names give the same text."""

from __future__ import annotations

import builtins
import re
from collections.abc import Collection, Iterator, Mapping
from keyword import iskeyword
from typing import Final

from zapdb.limits import INSERT_BATCH_RECORDS
from zapdb.migrations import Chain
from zapdb.schema import Field, Schema, TableSchema
from zapdb.typed.model_classes import MODELS, describe_models, describe_type
from zapdb.typed.model_format import (
    WIDTH,
    Method,
    dict_of,
    docstring,
    head,
    is_wide,
    method,
    on_one_line,
    quote_literal,
    subscript,
    tuple_of,
    wrap,
)
from zapdb.typed.model_names import ASYNC, Names, name_classes
from zapdb.values import (
    Binary,
    Decimal,
    Enum,
    Json,
    List,
    Reference,
    String,
    Struct,
    StructValue,
    ValueType,
)

MODELS_MARK: Final = "Written by `zapdb codegen models`"
"""This text marks a module as generated."""
IMPORTS: Final = {
    "collections.abc": ("AsyncIterable", "Callable", "Iterable"),
    "io": ("BufferedReader",),
    "typing": (
        "TYPE_CHECKING",
        "Any",
        "BinaryIO",
        "Literal",
        "NotRequired",
        "TypeAlias",
        "TypedDict",
        "Unpack",
        "overload",
    ),
    "zapdb.models": (
        "AnyField",
        "AsyncFile",
        "AsyncTable",
        "BytesLike",
        "FieldOf",
        "ListLike",
        "Model",
        "Models",
        "OpeningBlock",
        "Table",
        "TableModel",
        "TypedField",
        "TypedOrderedField",
        "TypedStringField",
    ),
}
"""By module, in the order that linters ask for: classes before functions."""
CHECKED_BY: Final = (
    "# Methods are declared, and inherited; they take the fields of their table, which is less",
    "# than what any table takes.",
    '# mypy: disable-error-code="override"',
    "# pyright: reportIncompatibleMethodOverride=false",
    "# pyright: reportIncompatibleVariableOverride=false",
    "# pyright: reportReturnType=false",
)
"""What type checkers are told of the module."""
_RESERVED: Final = frozenset({MODELS}.union(*IMPORTS.values()))
"""What no generated class is called."""


def write_module(chain: Chain, position: int, given: Mapping[str, str]) -> str:
    """The module for the schema at a position; `given` are names of classes, by table or type.

    Raises `UnknownName` and `UsageError` for names that can't be had.
    """
    schema = chain.schema_at(position)
    writer = _Writer(schema, name_classes(schema, given, _RESERVED))
    last = chain.at(position).label if position > chain.start else "no migration"
    body = [
        *writer.models(last, given),
        *writer.aliases(),
        *(line for kind in schema.types for line in writer.struct(kind)),
        *(line for t in schema for line in writer.table(t, _describe_history(chain, position, t))),
    ]
    return "\n".join(
        [
            *wrap(f'"""Models of the tables as of {last}.'),
            "",
            f"{MODELS_MARK}: not to be changed by hand. `zapdb.open(..., models=...)`",
            "compares it with the database.",
            '"""',
            "",
            *CHECKED_BY,
            "",
            *["# fmt: off", ""] * is_wide(body),
            "from __future__ import annotations",
            *_import(_find_words(body), writer.types),
            "",
            *body,
            "",
        ]
    )


def _describe_history(chain: Chain, position: int, table: TableSchema) -> list[str]:
    """Which migrations made the table and changed it last, with what they say of themselves."""
    made = changed = None
    before = None
    for migration in chain.up_to(position).migrations:
        after = migration.after.table_numbered(table.number)
        if after is not None and after != before:
            made, changed = made or migration, migration
        before = after
    if made is None or changed is None:
        return []
    told = [f"Made by {made.label}: {on_one_line(made.summary)}"]
    if changed is not made:
        told.append(f"Changed last by {changed.label}: {on_one_line(changed.summary)}")
    return told


def _find_words(body: list[str]) -> set[str]:
    """The words of a text that may be names of imports: none of those in docstrings, nor names of
    fields, which have no capitals."""
    code = re.sub(r'""".*?"""', "", "\n".join(body), flags=re.DOTALL)
    words = {word for word in re.findall(r"\w+", code) if not word.islower()}
    return words | ({"overload"} if "    @overload" in body else set())


def _import(words: set[str], types: Types) -> Iterator[str]:
    """The imports of what the text is made of."""
    standard = sorted(types.imports)
    if standard:
        yield ""
        yield from standard
    is_first = not standard
    for module, names in IMPORTS.items():
        used = [name for name in names if name in words]
        if not used:
            continue
        if is_first or module == "zapdb.models":
            yield ""
        is_first = False
        line = f"from {module} import {', '.join(used)}"
        if len(line) <= WIDTH:
            yield line
        else:
            yield from (f"from {module} import (", *(f"    {name}," for name in used), ")")


class _Writer:
    """Writes the parts of one module."""

    def __init__(self, schema: Schema, names: Names) -> None:
        self._schema = schema
        self._names = names
        structs = [kind for kind in schema.types if isinstance(kind, Struct)]
        parts = {m.name for kind in structs for m in kind.members}
        self.types = Types(names, parts.union(*({f.name for f in t.fields} for t in schema)))

    def models(self, migration: str, given: Mapping[str, str]) -> Iterator[str]:
        """What the module was made of."""
        described = describe_models(self._schema, migration, given)
        yield f"{MODELS} = Models("
        yield f"    migration={quote_literal(described.migration)},"
        yield "    tables={" + "}," * (not described.tables)
        for name, model in described.tables.items():
            yield f"        {quote_literal(name)}: TableModel("
            yield f"            fingerprint=0x{model.fingerprint:016X},"
            yield from tuple_of("            key=", model.key)
            yield from dict_of("            fields=", model.fields)
            yield "        ),"
        if described.tables:
            yield "    },"
        yield "    types={" + "}," * (not described.types)
        for name, members in described.types.items():
            yield from dict_of(f"        {quote_literal(name)}: ", members)
        if described.types:
            yield "    },"
        yield from dict_of("    names=", described.names)
        yield ")"

    def aliases(self) -> Iterator[str]:
        """Yield the aliases of enums, then of keys; an alias comes after the aliases that it
        uses."""
        for kind in self._schema.types:
            if isinstance(kind, Enum):
                name = self._names.types[kind.declared_name]
                members = [quote_literal(member) for _, member in kind.members]
                yield ""
                yield from subscript(f"{name}: TypeAlias = Literal", members)
                yield f'"""A member of the enum {kind.declared_name}."""'
        written = set[str]()
        for table in self._schema:
            yield from self._key(table, written)

    def _key(self, table: TableSchema, written: set[str]) -> Iterator[str]:
        if table.name in written:
            return
        written.add(table.name)
        for f in table.key_fields:
            target = None
            if isinstance(f.type, Reference):
                target = self._schema.table_named(f.type.table)
            if target is not None:
                yield from self._key(target, written)
        name = f"{self._names.records[table.name]}Key"
        parts = [self.types.held(f.type) for f in table.key_fields]
        yield ""
        if len(parts) == 1:
            yield f"{name}: TypeAlias = {parts[0]}"
        else:
            yield from subscript(f"{name}: TypeAlias = {self.types.name('tuple')}", parts)
        yield f'"""The key of a record of {table.name}."""'

    def struct(self, kind: Enum | Struct) -> Iterator[str]:
        if isinstance(kind, Enum):
            return
        name = self._names.types[kind.declared_name]
        said = [
            f"{m.name}: {describe_type(m.type)}" + ", optional" * m.optional for m in kind.members
        ]
        yield from head(
            f"@{MODELS}.struct({quote_literal(kind.declared_name)})",
            f"class {name}(Model[None, None]):",
        )
        yield from docstring(f"A value of the struct {kind.declared_name}.", said)
        held = {m.name: self.types.held(m.type) + " | None" * m.optional for m in kind.members}
        yield from self._attributes(held)
        given = {
            m.name: _entry(
                self.types.given(m.type) + " | None" * m.optional, is_needed=not m.optional
            )
            for m in kind.members
        }
        yield from self._typed_dict(
            f"{name}Values", f"A value of the struct {kind.declared_name}, as a mapping.", given
        )
        yield from head(f"{name}Like: TypeAlias = {name} | {name}Values")

    def table(self, table: TableSchema, history: list[str]) -> Iterator[str]:
        record, name = self._names.records[table.name], self._names.tables[table.name]
        yield from head(
            f"@{MODELS}.record({quote_literal(table.name)})",
            f'class {record}(Model["{name}", "{ASYNC}{name}"]):',
        )
        said = [f"{f.name}: {_describe(table, f)}" for f in table.fields]
        yield from docstring(f"A record of {table.name}.", [*history, "", *said])
        held = {f.name: self.types.held(f.type) + " | None" * f.optional for f in table.fields}
        columns = {
            f.name: f"FieldOf[{self.types.field(f.type)}, {held[f.name]}]" for f in table.fields
        }
        yield from self._attributes(columns)
        yield from self._follow(table)
        yield from self._values(table, record)
        literals = [quote_literal(f.name) for f in table.fields if not iskeyword(f.name)]
        if literals:
            yield from ("", "")
            yield from subscript(f"{record}Field: TypeAlias = Literal", literals)
        for is_async in (False, True):
            yield from self._table_class(table, is_async=is_async)

    def _table_class(self, table: TableSchema, *, is_async: bool) -> Iterator[str]:
        """The class of a table, or of one in `zapdb.aio`, with what depends on its fields."""
        record, name = self._names.records[table.name], self._names.tables[table.name]
        base, about = "Table", f"The table {table.name}."
        if is_async:
            base, about = "AsyncTable", f"The table {table.name} in zapdb.aio."
            name = f"{ASYNC}{name}"
        yield from head(f"class {name}({base}[{record}]):")
        yield from docstring(about)
        yield from ("", "    if TYPE_CHECKING:")
        indent = " " * 8
        fields = f"{self.types.name('type')}[{record}]"
        yield from method(("f", [], fields, ""), self.types.property, indent=indent)
        items = list(list_items(table, record, self.types))
        overload = self.types.overload if len(items) > 1 else ""
        for field_name, kind in items:
            parameters = [f"name: {field_name}", "/"]
            yield from method(("__getitem__", parameters, kind, ""), overload, indent=indent)
        if overload:
            yield from method(("__getitem__", ["name: Any", "/"], "Any", ""), indent=indent)
        for one in describe_methods(table, record, self.types, is_async=is_async):
            is_awaited = is_async and one[0] != "open"  # which gives a block, too
            yield from method(one, is_async=is_awaited, indent=indent)

    def _attributes(self, held: Mapping[str, str]) -> Iterator[str]:
        yield ""
        shown = {name: kind for name, kind in held.items() if not iskeyword(name)}
        for name, kind in shown.items():
            is_method = hasattr(StructValue, name)
            pragma = "  # type: ignore[assignment]  # a method, too" * is_method
            yield f"    {name}: {kind}{pragma}"
        if not shown:
            yield "    __slots__ = ()"

    def _follow(self, table: TableSchema) -> Iterator[str]:
        """What the references of a record lead to."""
        targets = {f.name: f.type.table for f in table.fields if isinstance(f.type, Reference)}
        if not targets or table.field_named("follow") is not None:
            return
        for name, target in targets.items():
            result = f"{self._names.records[target]} | None"
            parameters = [f"path: Literal[{quote_literal(name)}]"]
            yield from method(("follow", parameters, result, ""), self.types.overload)
        path = f"path: {self.types.name('str')}"
        yield from method(("follow", [path], "Any", ""), self.types.overload)
        about = "The record that a reference leads to, which the query included."
        yield from method(("follow", [path], "Any", about))

    def _values(self, table: TableSchema, record: str) -> Iterator[str]:
        """What is given to `insert`, `update` and `upsert`."""

        def entry(f: Field, *, is_needed: bool) -> str:
            kind = self.types.written(f.type) + " | None" * f.optional
            return _entry(kind, is_needed=is_needed)

        def is_needed(f: Field) -> bool:
            return not (f.optional or f.has_default or f.generated)

        new = {f.name: entry(f, is_needed=is_needed(f)) for f in table.fields}
        key = {f.name: entry(f, is_needed=is_needed(f)) for f in table.key_fields}
        others = [f for f in table.fields if f.number not in table.key]
        changes = {f.name: entry(f, is_needed=False) for f in others}
        yield from self._typed_dict(f"{record}Values", f"A new record of {table.name}.", new)
        upserted = key | changes
        changes.pop("if_unchanged", None)  # to `update`, that is the record as it was
        about = f"Changes of a record of {table.name}."
        yield from self._typed_dict(f"{record}Changes", about, changes)
        about = f"A record of {table.name} that is changed or new: its key, and what is given."
        base = "TypedDict"
        if not any(map(iskeyword, upserted)):
            base = f"{record}Changes"
            upserted = {n: kind for n, kind in upserted.items() if n not in changes}
        yield from self._typed_dict(f"{record}Upsert", about, upserted, base)

    def _typed_dict(
        self, name: str, about: str, entries: Mapping[str, str], base: str = "TypedDict"
    ) -> Iterator[str]:
        if not any(map(iskeyword, entries)):
            yield from head(f"class {name}({base}):")
            yield from docstring(about)
            if entries:
                yield ""
            yield from (f"    {key}: {kind}" for key, kind in entries.items())
            return
        # Words of Python's own can't be written in the body of a class.
        yield from head(f"{name} = TypedDict(")
        yield f"    {quote_literal(name)},"
        yield "    {"
        yield from (
            f"        {quote_literal(key)}: {quote_literal(kind)}," for key, kind in entries.items()
        )
        yield "    },"
        yield ")"
        yield from docstring(about, indent="")


def _entry(kind: str, *, is_needed: bool) -> str:
    return kind if is_needed else f"NotRequired[{kind}]"


def _describe(table: TableSchema, f: Field) -> str:
    """A field in words."""
    said = describe_type(f.type) + ", optional" * f.optional + ", generated" * bool(f.generated)
    said += ", has a default" * f.has_default
    if f.number in table.key:
        said += "; the key" if len(table.key) == 1 else "; part of the key"
    return said + f"; by getattr(record, '{f.name}')" * iskeyword(f.name)


# --- the types of fields as Python writes them ---


class Types:
    """Type expressions of one module.

    `shadowed` are names of fields: inside a class, a field `date` hides what else is called so.
    """

    def __init__(self, names: Names, shadowed: Collection[str]) -> None:
        self._names = names
        self._shadowed = frozenset(shadowed)
        self.imports: set[str] = set()
        """The `import` lines that what was asked for so far needs."""

    def name(self, plain: str) -> str:
        """A builtin, or a name of a module such as `datetime.date`, however fields are called."""
        first = plain.partition(".")[0]
        if first == "Any":
            return plain
        is_shadowed = first in self._shadowed
        if hasattr(builtins, first):
            if not is_shadowed:
                return plain
            self.imports.add("import builtins as _builtins")
            return f"_builtins.{plain}"
        self.imports.add(f"import {first} as _{first}" if is_shadowed else f"import {first}")
        return f"_{plain}" if is_shadowed else plain

    @property
    def overload(self) -> str:
        """The decorator of several signatures."""
        if "overload" not in self._shadowed:
            return "overload"
        self.imports.add("import typing as _typing")
        return "_typing.overload"

    @property
    def property(self) -> str:
        """The decorator of a property."""
        return self.name("property")

    def held(self, kind: ValueType) -> str:
        """What a record holds."""
        match kind:
            case Enum() | Struct():
                return self._names.types[kind.declared_name]
            case Reference(table):
                return f"{self._names.records[table]}Key"
            case List(items):
                return f"{self.name('list')}[{self.held(items)}]"
        return self.name(kind.held_as)

    def given(self, kind: ValueType) -> str:
        """What may be given for it, inside a list or struct, or to compare it with."""
        match kind:
            case Struct():
                return f"{self.held(kind)}Like"
            case List(items):
                return f"ListLike[{self.given(items)}]"
            case Decimal():
                return f"{self.held(kind)} | {self.name('int')}"
            case Binary():
                return "BytesLike"
        return self.held(kind)

    def written(self, kind: ValueType) -> str:
        """What may be given for a field: of binaries, an open file."""
        return "BytesLike | BinaryIO" if isinstance(kind, Binary) else self.given(kind)

    def field(self, kind: ValueType) -> str:
        """A field, for conditions."""
        if isinstance(kind, String):
            return "TypedStringField"
        compared = "Any" if isinstance(kind, Json) else self.given(kind)
        return f"{'TypedOrderedField' if kind.indexable else 'TypedField'}[{compared}]"


# --- the methods of a table whose types depend on its fields ---


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
