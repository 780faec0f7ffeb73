"""What other libraries call it: errors for their methods and operators name zapdb's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn

from zapdb.errors import UnknownAttribute, UnsupportedOperation, suggest

_IN_PYTHON: Final = "compute it in Python, or by db.sql('SELECT …')"
_ONE_OR_NONE: Final = "where(title='Milk').first() gives a record or None, one() exactly one"
_FIRST: Final = "order_by('-due').first() gives the first record in an order, or None"
_INCLUDE: Final = "include('list') loads the records that a reference refers to, too"
_INSERT: Final = "insert(title=…) makes a record"
_INSERT_MANY: Final = "insert_many([{'title': …}, …]) makes many records"
_NAMED: Final = "where(done=False) gives the records with these values"
_ORDER: Final = "order_by('-due') names the order"
_PAGE: Final = "page(size, cursor) gives one page after the other, limit(20) the first records"
_WHOLE: Final = "records have all their fields: [r.title for r in query], or db.sql('SELECT …')"
_MIGRATION: Final = "tables change by migrations: `zapdb migrate new`"

_HABITS: Final = {
    "add": _INSERT,
    "aggregate": "count(), min('due'), max('due') and sum('price') are there; for others, db.sql",
    "alter": _MIGRATION,
    "annotate": _IN_PYTHON,
    "avg": "sum('price') and count() are there; db.sql('SELECT avg(…) …') has the others",
    "bulk_create": _INSERT_MANY,
    "bulk_insert": _INSERT_MANY,
    "bulk_update": "where(…).update(done=True) changes many records",
    "columns": "field_names has the names, and f the fields",
    "commit": "each call is committed by itself; `with db.transaction():` makes several one",
    "create": _INSERT,
    "delete_all": "where().delete() deletes all records",
    "distinct": "each record is there once; db.sql('SELECT DISTINCT …') has values",
    "drop": f"{_MIGRATION}, with drop_table",
    "earliest": "order_by('due').first() gives the first record in an order, or None",
    "exclude": "where(~(items.f.done == True)) leaves records out, and so does !=",
    "fetchall": "all() gives a list, and a query can be iterated",
    "fetchone": "first() gives a record, or None",
    "fields": "field_names has the names, and f the fields",
    "filter": "where(items.f.due < today, done=False) gives the records for which that is true",
    "filter_by": _NAMED,
    "find_all": _NAMED,
    "find_by": "where(title='Milk').first() gives one record, or None",
    "find_one": "where(title='Milk').first() gives one record, or None",
    "get": _ONE_OR_NONE,
    "get_or_create": "upsert(id=…, title=…) changes a record or makes it",
    "get_or_none": "find(key) gives a record, or None",
    "group_by": _IN_PYTHON,
    "having": _IN_PYTHON,
    "in_bulk": "get_many([key, …]) gives the records of many keys",
    "index": "using('by_title') reads by an index, in its order",
    "insert_one": _INSERT,
    "iterator": "iterating a query streams it already: for item in query",
    "join": _INCLUDE,
    "joinedload": _INCLUDE,
    "last": "reverse().first() gives the last record in the order of order_by",
    "latest": _FIRST,
    "len": "count() counts",
    "list": "all() gives a list",
    "none": "a list, [], is an empty result",
    "objects": "a table has the methods itself: where(…), get(…), all()",
    "offset": _PAGE,
    "one_or_none": _ONE_OR_NONE,
    "only": _WHOLE,
    "options": _INCLUDE,
    "order": _ORDER,
    "prefetch_related": _INCLUDE,
    "query": "where(…) is a query, and so is order_by(…)",
    "remove": "delete(key) deletes a record, delete_where(…) those for which a condition is true",
    "replace": "upsert(id=…, title=…) changes a record or makes it",
    "save": "records are values: update(key, title=…) changes the one that is stored",
    "scalar": "first() gives a record, or None; its fields are attributes",
    "scalar_one": _ONE_OR_NONE,
    "scalars": "all() gives a list of records; their fields are attributes",
    "schema": "`zapdb catalog show TABLE` shows it; field_names has the names of the fields",
    "select": "where(…) gives records, with all their fields",
    "select_related": _INCLUDE,
    "size": "count() counts",
    "skip": _PAGE,
    "sort": _ORDER,
    "sort_by": _ORDER,
    "take": "limit(20) gives the first records",
    "truncate": "where().delete() deletes all records",
    "update_or_create": "upsert(id=…, title=…) changes a record or makes it",
    "values": _WHOLE,
    "values_list": _WHOLE,
}
"""By a name that people try on a table or a query, what does it here."""


DATABASE_HABITS: Final = {
    "add": "db.table('items').insert(title=…) makes a record",
    "atomic": "`with db.transaction() as tx:` begins one",
    "autocommit": "a call outside of db.transaction() commits itself",
    "begin": "`with db.transaction() as tx:` begins one",
    "begin_nested": "`with db.transaction():` inside a transaction is a savepoint",
    "commit": "the end of `with db.transaction() as tx:` commits it; a call outside commits itself",
    "connect": "a database is open already: db.table('items')",
    "connection": "db has its connections itself: db.table('items'), db.transaction()",
    "create_all": "`zapdb migrate up` applies migrations, and so does zapdb.open(…, apply='auto')",
    "create_table": "write a migration: `zapdb migrate new`",
    "cursor": "db.table('items').where(…) gives records, db.sql('SELECT …') rows",
    "dispose": "close() closes it, and so does the end of `with zapdb.open(…) as db:`",
    "drop_all": "`zapdb migrate rollback` takes migrations back",
    "engine": "db has its connections itself: db.table('items'), db.transaction()",
    "execute": "db.sql('SELECT …') reads by SQL; db.table('items') has insert, update and delete",
    "flush": "each call writes at once; the end of `with db.transaction():` commits",
    "metadata": "db.tables has the names of the tables, `zapdb catalog show TABLE` the rest",
    "migrate": "`zapdb migrate up` applies migrations, and so does zapdb.open(…, apply='auto')",
    "query": "db.table('items').where(…) gives records, db.sql('SELECT …') rows",
    "refresh": "db.table('items').get(key) reads a record again",
    "rollback": "an error that leaves `with db.transaction() as tx:` rolls it back",
    "savepoint": "`with db.transaction():` inside a transaction is a savepoint",
    "scalars": "db.table('items').where(…).all() gives a list of records",
    "select": "db.table('items').where(…) gives records, db.sql('SELECT …') rows",
    "session": "a database has the methods itself: db.table('items'), db.transaction()",
}
"""By a name that people try on a database, what does it here."""


_FIELD_HABITS: Final = {
    "any_": "in_([…]) is true for one of several values",
    "asc": "a field by itself is the ascending order: order_by({field})",
    "collate": "{field}.collated('en') compares and orders under a collation",
    "contains": "only a prefix can be searched: {field}.startswith('…'); for others, db.sql",
    "desc": "the descending order is -{field}, or {field}.descending()",
    "distinct": _IN_PYTHON,
    "endswith": "only a prefix can be searched: {field}.startswith('…'); for others, db.sql",
    "eq": "write {field} == …",
    "exact": "write {field} == …",
    "gt": "write {field} > …",
    "gte": "write {field} >= …",
    "icontains": "only a prefix can be searched: {field}.startswith('…'); for others, db.sql",
    "iexact": "{field}.collated('und', 'secondary') == … ignores case",
    "ilike": "{field}.collated('und', 'secondary') == … ignores case; for patterns, db.sql",
    "is_": "write {field} == …, or {field}.is_null()",
    "is_not": "write {field} != …",
    "is_not_null": "write {field} != None",
    "isnot": "write {field} != …",
    "isnull": "write {field}.is_null()",
    "istartswith": "only a prefix with its case can be searched: {field}.startswith('…')",
    "label": _WHOLE,
    "like": "for a prefix, write {field}.startswith('…'); for patterns, db.sql",
    "lower": "{field}.collated('und', 'secondary') == … ignores case",
    "lt": "write {field} < …",
    "lte": "write {field} <= …",
    "match": "write {field}.matches('…') for equality under the index's collation; else db.sql",
    "ne": "write {field} != …",
    "not_in": "write ~{field}.in_([…])",
    "notin_": "write ~{field}.in_([…])",
    "nullslast": "write {field}.nulls_last()",
    "range": "write {field}.between(low, high)",
    "regex": "use db.sql('SELECT …') for regular expressions",
    "upper": "{field}.collated('und', 'secondary') == … ignores case",
}
"""By a name that people try on a field, what does it here."""

_LOOKUPS: Final = {"in": "write {field}.in_([…])", "startswith": "write {field}.startswith('…')"}
"""What Django writes behind two underscores, and no attribute can be called or is called."""


def no_field_attribute(field: object, name: str, names: Iterable[str]) -> UnknownAttribute:
    """The error for an attribute that a field does not have; `names` are those that it has."""
    habit = _FIELD_HABITS.get(name)
    return UnknownAttribute(
        "there is no such attribute",
        of="field",
        attribute=name,
        field=field,
        hint=habit.format(field=in_python(field)) if habit else suggest(name, names),
    )


def in_python(field: object) -> str:
    """A field as a program writes it: `items.f.due` for items.due."""
    table, _, name = str(field).partition(".")
    return f"{table}.f.{name}"


def hint_for_field(table: str, given: object, fields: Iterable[str]) -> str:
    """The hint for what is no field of a table: a lookup of Django's, or an order of SQL's."""
    there = list(fields)
    text = str(given)
    if text == table:
        return f"{table}.name is the table's name; its fields are {table}.f.{there[0]}, …"
    name, _, lookup = text.partition("__")
    if lookup and name in there:
        known = _LOOKUPS.get(lookup) or _FIELD_HABITS.get(lookup)
        field = f"{table}.f.{name}"
        if known is not None:
            return known.format(field=field)
        return f"a condition is about fields of its own table: {field} == …, {field}.in_([…])"
    name, _, direction = text.partition(" ")
    if name in there and direction.lower() in ("asc", "desc"):
        return f"write {'-' * (direction.lower() == 'desc')}{name}"
    return suggest(given, there)


def no_database_attribute(
    owner: object, name: str, tables: Iterable[str], facets: Mapping[str, type], table: type
) -> UnknownAttribute:
    """The error for an attribute that a database or a handle does not have.

    `facets` are the attributes whose classes have what not every application needs; `table` is the
    class of tables.
    """
    facet = next((found for found, kind in facets.items() if hasattr(kind, name)), None)
    if name in tables:
        hint = f"the table is db.table({name!r})"
    elif name in DATABASE_HABITS:
        hint = DATABASE_HABITS[name]
    elif facet is not None:
        hint = f"it is db.{facet}.{name}"
    elif hasattr(table, name):
        hint = f"it belongs to a table: db.table('items').{name}"
    else:
        hint = suggest(name, _public(owner))
    return UnknownAttribute(
        "there is no such attribute", of=type(owner).__name__.lower(), attribute=name, hint=hint
    )


def no_table_by_item(owner: object, name: object) -> UnsupportedOperation:
    """The error for `db["items"]`, for `"items" in db`, and for iterating a database."""
    shown = name if isinstance(name, str) else "items"
    return UnsupportedOperation(
        "a database has no items",
        of=type(owner).__name__.lower(),
        hint=f"the table is db.table({shown!r}); db.tables has the names of all",
    )


def no_attribute(owner: object, name: str, table: str, fields: Iterable[str]) -> UnknownAttribute:
    """The error for an attribute that a table or a query does not have."""
    if name in _HABITS:
        hint = _HABITS[name]
    elif name in fields:
        hint = f"the field is {table}.f.{name}, or {table}[{name!r}]"
    else:
        hint = suggest(name, _public(owner))
    return UnknownAttribute(
        "there is no such attribute",
        of=type(owner).__name__.lower(),
        attribute=name,
        table=table,
        hint=hint,
    )


def _public(owner: object) -> list[str]:
    return [one for one in dir(type(owner)) if not one.startswith("_")]


class Facet:
    """A part of a database that has attributes of its own; errors suggest the closest of them."""

    if not TYPE_CHECKING:  # to a type checker, a class with `__getattr__` has every attribute

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                raise AttributeError(name)
            raise UnknownAttribute(
                "there is no such attribute",
                of=repr(self),
                attribute=name,
                hint=suggest(name, _public(self)),
            )


class Uncounted:
    """What is iterated, and has no length, place or truth of its own: tables and queries."""

    if not TYPE_CHECKING:  # a type checker would take it for a sequence

        def __len__(self) -> NoReturn:
            raise UnsupportedOperation(
                "tables and queries have no length",
                of=self,
                hint="count() counts its records; all() gives them as a list",
            )

        def __bool__(self) -> bool:
            raise UnsupportedOperation(
                "tables and queries are neither true nor false",
                of=self,
                hint="exists() tells whether there is a record; write `is None` for a missing one",
            )

        def __reversed__(self) -> NoReturn:
            raise UnsupportedOperation(
                "reversed() does not work on tables and queries",
                of=self,
                hint="order_by('due').reverse(), or order_by('-due')",
            )

        def _refuse_to_combine(self, other: object) -> NoReturn:
            raise UnsupportedOperation(
                "queries cannot be combined",
                of=self,
                hint="combine the conditions: where((items.f.done == True) | (items.f.due < 3))",
            )

        __and__ = __or__ = __xor__ = __add__ = __sub__ = _refuse_to_combine


def no_place(owner: object, place: Any) -> UnsupportedOperation:
    """The error for `query[place]`, with the call that gives these records."""
    if not isinstance(place, slice):
        hint = "first() gives the first record, one() the only one; all() gives a list"
    elif place.start in (None, 0) and isinstance(place.stop, int) and place.stop >= 0:
        hint = f"limit({place.stop}) gives the first {place.stop} records"
    else:
        hint = _PAGE
    return UnsupportedOperation(
        "tables and queries cannot be indexed by a number", of=owner, hint=hint
    )


def not_a_record(owner: object, table: str, key: Iterable[str]) -> UnsupportedOperation:
    """The error for `7 in query`, with the call that looks for a key."""
    named = ", ".join(f"{name}=…" for name in key)
    return UnsupportedOperation(
        "tables and queries contain records, nothing else",
        of=owner,
        hint=f"{table}.exists({named}) and query.where({named}).exists() look for a key",
    )


def not_by_name(table: str, call: str, given: object) -> UnsupportedOperation:
    """The error for values that are given without the names of their fields; `call` is the call up
    to its values, such as `insert(`."""
    hint = f"name the fields: {call}title=…)"
    if isinstance(given, Mapping):
        hint = f"write two asterisks before a dict: {call}**values)"
    elif isinstance(given, list):
        hint = "insert_many([{'title': …}, …]) makes many records"
    return UnsupportedOperation(
        "values are given by the names of their fields", table=table, hint=hint
    )


def require_many(given: object, table: str, call: str) -> None:
    """Raise `UnsupportedOperation` for one value where a call takes a list of them."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise UnsupportedOperation(
            "a list is needed, even for one value", table=table, hint=f"write {call}([…])"
        )
