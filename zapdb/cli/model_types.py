"""The types of fields as Python writes them: what records hold, what is given, what is compared."""

from __future__ import annotations

import builtins
from collections.abc import Collection

from zapdb.cli.model_names import Names
from zapdb.schema import TableSchema
from zapdb.values import Binary, Decimal, Enum, Json, List, Reference, String, Struct, ValueType


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

    def key(self, table: TableSchema) -> str:
        """The key as it is given as one value: that of its one field, or a tuple."""
        parts = [self.held(f.type) for f in table.key_fields]
        return parts[0] if len(parts) == 1 else f"{self.name('tuple')}[{', '.join(parts)}]"
