"""Indexes: created and dropped, each the inverse of the other; no record changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import icu

from zapdb.datasets import Collation, Strength, is_known_locale
from zapdb.errors import Location
from zapdb.limits import INDEX_COMPONENTS_MAX
from zapdb.migrations.document_structure import (
    ABSENT,
    Name,
    ParsingStopped,
    ViolationCollector,
    located,
)
from zapdb.migrations.operations.constraints import can_find_referrers
from zapdb.migrations.operations.operation import NumberAllocator, Operation, TableOperation
from zapdb.schema import Index, IndexComponent, Schema, TableSchema


@dataclass(frozen=True)
class CollationDefinition:
    locale: str
    strength: Strength = "tertiary"
    numeric: bool = False
    location: Location = located()

    def build(self) -> Collation:
        return Collation(self.locale, self.strength, self.numeric)


@dataclass(frozen=True)
class IndexField:
    """Strings sort under `collation`, or by code point without one."""

    field: Name
    collation: CollationDefinition = ABSENT
    descending: bool = False
    location: Location = located()

    def normalize(self) -> IndexField:
        if self.collation is ABSENT:
            return self
        locale = normal_locale(self.collation.locale)
        return replace(self, collation=replace(self.collation, locale=locale))

    @classmethod
    def of(cls, table: TableSchema, component: IndexComponent) -> IndexField:
        collation: CollationDefinition = ABSENT
        if component.collation is not None:
            given = component.collation
            collation = CollationDefinition(given.locale, given.strength, given.numeric)
        name = Name(table.field_numbered(component.field).name)
        return cls(name, collation, component.descending)


@dataclass(frozen=True)
class CreateIndex(TableOperation):
    """A new index; no record changes, its entries are built in the background."""

    keyword = "create_index"

    index: Name
    fields: tuple[IndexField, ...]
    unique: bool = False
    location: Location = located()

    @classmethod
    def of(cls, table: TableSchema, index: Index) -> CreateIndex:
        """The operation that makes this index again."""
        fields = tuple(IndexField.of(table, component) for component in index.components)
        return cls(Name(table.name), Name(index.name), fields, index.unique)

    def validate(self, schema: Schema, collector: ViolationCollector) -> None:
        table = self.find_table(schema, collector)
        if table.index_named(self.index) is not None:
            collector.report(
                self.place, f"there is an index {self.index!r} on {table.name!r} already"
            )
        if not 1 <= len(self.fields) <= INDEX_COMPONENTS_MAX:
            collector.report(self.place, f"an index has 1 to {INDEX_COMPONENTS_MAX} fields")
        if len({component.field for component in self.fields}) != len(self.fields):
            collector.report(self.place, "a field stands in an index once")
        for component in self.fields:
            try:
                self._validate_component(table, component, collector)
            except ParsingStopped:
                continue

    def _validate_component(
        self, table: TableSchema, component: IndexField, collector: ViolationCollector
    ) -> None:
        field = self.find_field(table, component.field, collector)
        if not field.type.indexable:
            collector.report(component.location, f"a {field.type} can't be indexed")
        if component.collation is not ABSENT:
            if field.type.name != "string":
                collector.report(component.location, "only strings have a collation")
            locale, place = component.collation.locale, component.collation.location
            if not is_known_locale(locale):
                collector.report(
                    place,
                    f"no collation for the locale {locale!r}",
                    "use und for the order of no language in particular",
                )
            else:
                for violation, hint in check_locale(locale):
                    collector.report(place, violation, hint)

    def normalize(self, schema: Schema, number: int) -> Operation:
        return replace(self, fields=tuple(component.normalize() for component in self.fields))

    def apply(self, schema: Schema, numbers: NumberAllocator) -> Schema:
        table = self.table_in(schema)
        components = []
        for component in self.fields:
            field = table.field_named(component.field)
            assert field is not None
            collation = None if component.collation is ABSENT else component.collation.build()
            components.append(IndexComponent(field.number, collation, component.descending))
        created = Index(numbers.allocate("index"), self.index, tuple(components), self.unique)
        return schema.with_table(table.with_indexes((*table.indexes, created)))

    def invert(
        self, before: Schema, number: int, collector: ViolationCollector
    ) -> tuple[Operation, ...]:
        return (DropIndex(self.table, self.index),)


@dataclass(frozen=True)
class DropIndex(TableOperation):
    """An index goes; a rollback builds it again from the records."""

    keyword = "drop_index"

    index: Name
    location: Location = located()

    def validate(self, schema: Schema, collector: ViolationCollector) -> None:
        table = self.find_table(schema, collector)
        index = self.find_index(table, self.index, collector)
        rest = [other for other in table.indexes if other is not index]
        for key in table.foreign_keys:
            if not can_find_referrers(table, key.field, rest):
                name = table.field_numbered(key.field).name
                collector.report(
                    self.place,
                    f"the reference of {name!r} needs the index {self.index!r}",
                    f"put a drop_reference of {name!r} before this change",
                )

    def apply(self, schema: Schema, numbers: NumberAllocator) -> Schema:
        table = self.table_in(schema)
        rest = tuple(i for i in table.indexes if i.name != self.index)
        return schema.with_table(table.with_indexes(rest))

    def invert(
        self, before: Schema, number: int, collector: ViolationCollector
    ) -> tuple[Operation, ...]:
        table = self.table_in(before)
        index = table.index_named(self.index)
        assert index is not None
        return (CreateIndex.of(table, index),)


# What may stand behind the @ of a collation's locale.
#
# ICU ignores unknown keywords, and tailorings that the locale does not have: with
# `de@collation=x`, words sort as in plain `de`, without an error. So both are refused here.

ATTRIBUTES: Final = {
    "colAlternate": "non-ignorable, shifted",
    "colBackwards": "no, yes",
    "colCaseFirst": "lower, no, upper",
    "colCaseLevel": "no, yes",
    "colNormalization": "no, yes",
    "colReorder": "space, punct, symbol, currency, digit and codes of scripts, with - between them",
    "kv": "space, punct, symbol, currency",
}
"""Keywords with their values for people, as ICU reads them (`setAttributes` in its `coll.cpp`)."""
FIELDS: Final = {"colnumeric": "numeric", "colstrength": "strength"}
"""Keywords for options that a collation has apart from its locale; a keyword would override the
option."""


def check_locale(locale: str) -> Iterator[tuple[str, str]]:
    """Yield each error in the keywords of a locale that is otherwise known, with a hint."""
    base, at, given = locale.partition("@")
    spelled = {name.lower(): name for name in ("collation", *ATTRIBUTES)}
    seen = set()
    for part in given.split(";") if at else ():
        name, _, value = (text.strip() for text in part.partition("="))
        keyword = name.lower()
        if not name or not value:
            yield (
                f"{part!r} is no keyword of a locale",
                "write locale@keyword=value, and ; before another keyword",
            )
        elif keyword in FIELDS:
            yield f"{name!r} does not belong into the locale", f"give {FIELDS[keyword]}: beside it"
        elif keyword not in spelled:
            yield f"no keyword {name!r} for collations", f"known: {', '.join(spelled.values())}"
        elif keyword in seen:
            yield f"the keyword {name!r} stands twice in the locale", "give it once"
        elif keyword == "collation":
            known = _collations_of(base)
            if value.lower() not in known:
                yield (
                    f"no collation {value!r} for the locale {base!r}",
                    f"known: {', '.join(known)}",
                )
        elif not _is_accepted(base, keyword, value):
            yield f"no value {value!r} for {name!r}", f"known: {ATTRIBUTES[spelled[keyword]]}"
        seen.add(keyword)


def normal_locale(locale: str) -> str:
    """One spelling of a valid locale: keywords in order, each as it is listed here, small values.

    What the data of some ICU say means the same (`de@collation=standard` and `de`) is not the same.
    """
    base, _, given = locale.partition("@")
    spelled = {name.lower(): name for name in ("collation", *ATTRIBUTES)}
    pairs = (part.partition("=") for part in given.split(";") if given)
    keywords = sorted(
        f"{spelled[name.strip().lower()]}={value.strip().lower()}" for name, _, value in pairs
    )
    base = "und" if base == "root" else base
    return f"{base}@{';'.join(keywords)}" if keywords else base


def _collations_of(base: str) -> list[str]:
    """The tailorings that the locale has or inherits."""
    values = icu.Collator.getKeywordValuesForLocale("collation", icu.Locale(base), False)
    return sorted(str(value) for value in values)


def _is_accepted(base: str, keyword: str, value: str) -> bool:
    try:
        icu.Collator.createInstance(icu.Locale(f"{base}@{keyword}={value}"))
    except icu.ICUError:
        return False
    return True
