"""What generated models consist of at run time, and whether they match a database.

`zapdb codegen models` writes a module for one application. Its classes are for editors and type
checkers: at run time a class of records *is* the class that the codec makes records of (see
`records.record`), so models cost nothing, and records are the same with and without them.

The module describes in words each table and declared type that it was generated from. These words
are compared with the process's served schema when it opens a database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Generic, TypeVar, dataclass_transform

from zapdb.errors import ModelsMismatch, UsageError
from zapdb.migrations import Chain
from zapdb.records import Record, record_class
from zapdb.records.record import RecordType
from zapdb.schema import Field, Schema, TableSchema, fingerprint
from zapdb.tables.queries.fields import FieldExpression
from zapdb.values import Decimal, Enum, List, Reference, Struct, StructValue, ValueType
from zapdb.values.struct_value import struct_class

A = TypeVar("A")
C = TypeVar("C")
T = TypeVar("T")

MODELS: Final = "MODELS"
"""What a generated module calls its `Models`."""
_SHOWN_MAX: Final = 20
"""Of the differences between models and a database."""


@dataclass_transform(frozen_default=True)
class Model(StructValue, Generic[T, A]):
    """Base of the classes that a generated module declares; `T` is the table's, `A` that of the
    table in `zapdb.aio`; both are None for a struct.

    Frozen to type checkers, since setting an attribute changes no record of the database.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class TableModel:
    """A table as a generated module declares it: its key, and its fields in words, in declared
    order."""

    fingerprint: int
    key: tuple[str, ...]
    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Models:
    """What a module was made of. `names` are the requested names of classes, by table or type;
    `types` are the members of declared types, with an empty description for members of enums."""

    migration: str
    tables: Mapping[str, TableModel]
    types: Mapping[str, Mapping[str, str]]
    names: Mapping[str, str]

    def record(self, table: str) -> Callable[[type[C]], type[C]]:
        """Put the class of the records of a table in the place of its declaration; its attributes
        are the fields of the table, for conditions: `Item.due < today`."""
        real = record_class(table, tuple(self.tables[table].fields))
        give_fields(real)
        return _standing_for(real)

    def struct(self, name: str) -> Callable[[type[C]], type[C]]:
        """Put the class of the values of a struct in the place of its declaration."""
        return _standing_for(struct_class(StructValue, name, tuple(self.types[name])))


class FieldsOfModel(RecordType):
    """The metaclass of a class of records: the class's attributes are fields, its records' are
    values."""


def give_fields(real: type[Record]) -> None:
    """Make attributes of a class of records fields: `Item.due`.

    They are properties of its own metaclass, which come before what the class itself has. A field
    that is called `mro` gets none, since Python asks a class for that: it is `items.f.mro`.
    """
    if isinstance(real, FieldsOfModel):
        return
    fields = {name: _field_property(real._name, name) for name in real._fields if name != "mro"}
    made = type(f"{real.__name__}Fields", (FieldsOfModel,), fields)
    real.__class__ = made  # type: ignore[method-assign]  # mypy knows no classes of classes


def _field_property(table: str, name: str) -> property:
    return property(lambda _: FieldExpression(table, name))


def _standing_for(real: type[StructValue]) -> Callable[[type[C]], type[C]]:
    def put(declared: type[C]) -> type[C]:
        if real.__doc__ is None:
            real.__doc__ = declared.__doc__
        return real  # type: ignore[return-value]  # it has the attributes that are declared

    return put


def describe_models(schema: Schema, migration: str, names: Mapping[str, str]) -> Models:
    """What a module that is made of a schema says of it."""
    return Models(
        migration,
        {table.name: describe_table(table) for table in schema},
        {kind.declared_name: describe_members(kind) for kind in schema.types},
        names,
    )


def describe_table(table: TableSchema) -> TableModel:
    key = tuple(f.name for f in table.key_fields)
    return TableModel(fingerprint(table), key, {f.name: _describe(f) for f in table.fields})


def describe_members(kind: Enum | Struct) -> dict[str, str]:
    """The members of a declared type in words."""
    if isinstance(kind, Enum):
        return {name: "" for _, name in kind.members}
    return {m.name: describe_type(m.type) + ", optional" * m.optional for m in kind.members}


def describe_type(kind: ValueType) -> str:
    """A type in words; what a declared type is made of is said elsewhere."""
    match kind:
        case Decimal(scale):
            return f"decimal with {scale} digits after the point"
        case List(items):
            return f"list of {describe_type(items)}"
        case Reference(table, _, key):
            return f"reference to {table} ({', '.join(map(describe_type, key))})"
    return str(kind)


def _describe(f: Field) -> str:
    """Describe what a program depends on of a field, which excludes the value of its default."""
    text = describe_type(f.type) + ", optional" * f.optional + ", generated" * bool(f.generated)
    return text + ", has a default" * f.has_default


def table_name(table: object) -> Any:
    """The name of a table that is given by its name or by the class of its records."""
    if isinstance(table, type) and issubclass(table, Record):
        return table._name
    return table


def check_class(table: object, made: type[Record]) -> None:
    """Raise `ModelsMismatch` if a class of records is not the class of the table's schema."""
    if isinstance(table, type) and table is not made:
        fields = getattr(table, "_fields", ())
        raise ModelsMismatch(
            "the class is not the class of the table's records",
            table=made._name,
            fields=", ".join(made._fields),
            model=", ".join(fields) or "(no model)",
            hint="generate the models again with `zapdb codegen models`, and pass them "
            "to zapdb.open",
        )


def find_models(module: ModuleType | None, served_position: int | None) -> Models | None:
    """Return what a generated module was made of; raise `UsageError` for any other module, and if
    no migration files define the process's served schema."""
    if module is None:
        return None
    found = getattr(module, MODELS, None)
    if not isinstance(found, Models):
        raise UsageError(
            "models must be a module that `zapdb codegen models` wrote",
            models=getattr(module, "__name__", type(module).__name__),
            hint="import the module, and pass the module itself: zapdb.open(…, models=models)",
        )
    if served_position is None:
        raise UsageError(
            "models need migration files, and none were given",
            models=module.__name__,
            hint="pass migrations=, the directory of the files",
        )
    return found


def check_models(module: ModuleType | None, chain: Chain, served_position: int | None) -> None:
    """Compare a module with this process's served schema, the one at `served_position`.

    Tables that the module lacks are allowed, and so are other indexes, checks and default values:
    the module does not depend on them. Raises `ModelsMismatch`, which names every table and field
    that differs, and the errors of `find_models`.
    """
    models = find_models(module, served_position)
    if models is None or module is None or served_position is None:
        return
    found = list(_compare(models, chain.schema_at(served_position)))
    if not found:
        return
    shown = found[:_SHOWN_MAX]
    if len(found) > len(shown):
        shown.append(f"… and {len(found) - len(shown):,} more")
    raise ModelsMismatch(
        "the models do not match the schema of this process",
        models=module.__name__,
        made_of=models.migration,
        schema=chain.at(served_position).label,
        differences="".join(f"\n    {line}" for line in shown),
        hint=f"run `zapdb codegen models --output {_find_file(module)}`",
    )


def _find_file(module: ModuleType) -> str:
    """Where a module was read from, as one would write it here."""
    path = getattr(module, "__file__", None)
    if not path:
        return "FILE"
    here = Path.cwd()
    return str(Path(path).relative_to(here) if Path(path).is_relative_to(here) else path)


def _compare(models: Models, schema: Schema) -> Iterator[str]:
    types = set[str]()
    for name, model in models.tables.items():
        table = schema.table_named(name)
        if table is None:
            yield f"{name}: there is no such table"
        elif model.fingerprint != fingerprint(table):
            now = describe_table(table)
            yield from _compare_parts(name, model.fields, now.fields)
            if model.key != now.key:
                yield f"{name}: the key is {_join(now.key)}, in the models {_join(model.key)}"
            types.update(models.types)
    for name in models.types:
        if name in types:
            kind = schema.type_named(name)
            now_members = {} if kind is None else describe_members(kind)
            yield from _compare_parts(name, models.types[name], now_members)


def _compare_parts(name: str, mine: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    found = False
    for part in {**mine, **now}:
        if mine.get(part) != now.get(part):
            found = True
            here, there = _say(now.get(part)), _say(mine.get(part))
            yield f"{name}.{part}: {here}, in the models {there}"
    if not found and any(mine.values()) and list(mine) != list(now):
        yield f"{name}: the order is {_join(now)}, in the models {_join(mine)}"


def _say(described: str | None) -> str:
    return "not there" if described is None else described or "there"


def _join(names: object) -> str:
    assert isinstance(names, tuple | Mapping)
    return ", ".join(names)
