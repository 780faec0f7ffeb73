"""What other libraries call it: errors for their methods and operators name zapdb's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn

from zapdb.errors import UnknownAttribute, UnsupportedOperation, suggest

_IN_PYTHON: Final = "compute it in Python, or with db.sql('SELECT …')"
_ONE_OR_NONE: Final = "where(title='Milk').first() returns a record or None, one() exactly one"
_FIRST: Final = "order_by('-due').first() returns the first record in an order, or None"
_INCLUDE: Final = "include('list') also loads the records that a reference refers to"
_INSERT: Final = "insert(title=…) inserts a record"
_INSERT_MANY: Final = "insert_many([{'title': …}, …]) inserts many records"
_GET_OR_INSERT: Final = (
    "db.run(lambda: items.where(title='Milk').first() or items.insert(title='Milk')); by the key, "
    "upsert(id=…, title=…)"
)
_GET_OR_INSERT_IN_TASKS: Final = (
    "await db.run(f), where f is `async def f()` and returns await items.where(title='Milk')"
    ".first() or await items.insert(title='Milk'); by the key, upsert(id=…, title=…)"
)
_NAMED: Final = "where(done=False) selects the records with these values"
_ORDER: Final = "order_by('-due') sets the order"
_PAGE: Final = "page(size, cursor) returns page after page, limit(20) the first records"
_WHOLE: Final = "records have all their fields: [r.title for r in query], or use db.sql('SELECT …')"
_MIGRATION: Final = "tables change by migrations: `zapdb migrate new`"

_HABITS: Final = {
    "add": _INSERT,
    "aggregate": "use count(), min('due'), max('due') or sum('price'); for others, db.sql",
    "alter": _MIGRATION,
    "annotate": _IN_PYTHON,
    "avg": "divide sum('price') by count(), or use db.sql('SELECT avg(…) …')",
    "bulk_create": _INSERT_MANY,
    "bulk_insert": _INSERT_MANY,
    "bulk_update": "where(…).update(done=True) updates many records",
    "columns": "field_names contains the names, and f the fields",
    "commit": "each call commits itself; `with db.transaction() as tx:` commits several together",
    "create": _INSERT,
    "delete_all": "where().delete() deletes all records",
    "distinct": "a query returns each record once; for values, db.sql('SELECT DISTINCT …')",
    "drop": f"{_MIGRATION}, with drop_table",
    "earliest": "order_by('due').first() returns the first record in an order, or None",
    "exclude": "where(~(items.f.done == True)) excludes records; so does !=",
    "fetchall": "all() returns a list; you can also iterate over the query",
    "fetchone": "first() returns a record, or None",
    "fields": "field_names contains the names, and f the fields",
    "filter": "where(items.f.due < today, done=False) selects records",
    "filter_by": _NAMED,
    "find_all": _NAMED,
    "find_by": "where(title='Milk').first() returns one record, or None",
    "find_one": "where(title='Milk').first() returns one record, or None",
    "get": _ONE_OR_NONE,
    "get_or_create": _GET_OR_INSERT,
    "get_or_none": "find(key) returns a record, or None; so does where(title='Milk').first()",
    "group_by": _IN_PYTHON,
    "having": _IN_PYTHON,
    "in_bulk": "get_many([key, …]) returns the records of many keys",
    "index": "using('by_title') reads an index, in its order",
    "insert_one": _INSERT,
    "iterator": "iterating over a query streams it: for item in query",
    "join": _INCLUDE,
    "joinedload": _INCLUDE,
    "last": "order_by(…).reverse().first() returns the last record",
    "latest": _FIRST,
    "len": "count() counts",
    "list": "all() returns a list",
    "none": "use an empty list",
    "objects": "call the table's own methods: where(…), get(…), all()",
    "offset": _PAGE,
    "one_or_none": _ONE_OR_NONE,
    "only": _WHOLE,
    "options": _INCLUDE,
    "order": _ORDER,
    "prefetch_related": _INCLUDE,
    "query": "where(…) returns a query, and so does order_by(…)",
    "remove": "delete(key) deletes a record, delete_where(…) all that match a condition",
    "replace": "upsert(id=…, title=…) updates the record with this key, or inserts it",
    "save": "records are immutable: update(key, title=…) changes the stored record",
    "scalar": "first() returns a record, or None; its fields are attributes",
    "scalar_one": _ONE_OR_NONE,
    "scalars": "all() returns a list of records; their fields are attributes",
    "schema": "`zapdb catalog show TABLE` shows it; field_names contains the names of the fields",
    "select": "where(…) selects records, with all their fields",
    "select_related": _INCLUDE,
    "size": "count() counts",
    "skip": _PAGE,
    "sort": _ORDER,
    "sort_by": _ORDER,
    "take": "limit(20) returns the first records",
    "truncate": "where().delete() deletes all records",
    "update_or_create": "upsert(id=…, title=…) updates the record with this key, or inserts it; by "
    "other fields, update(record.id, …) what where(title='Milk').first() found, in db.run",
    "values": _WHOLE,
    "values_list": _WHOLE,
}
"""What replaces a name that people try on a table or a query."""


DATABASE_HABITS: Final = {
    "add": "db.table('items').insert(title=…) inserts a record",
    "atomic": "`with db.transaction() as tx:` begins one",
    "autocommit": "a call outside of db.transaction() commits itself",
    "begin": "`with db.transaction() as tx:` begins one",
    "begin_nested": "`with db.transaction():` inside a transaction is a savepoint",
    "commit": "the end of `with db.transaction() as tx:` commits it; a call outside commits itself",
    "connect": "the database is already open: db.table('items')",
    "connection": "db manages its connections itself: db.table('items'), db.transaction()",
    "create_all": "`zapdb migrate up` applies migrations, and so does zapdb.open(…, apply='auto')",
    "create_table": "write a migration: `zapdb migrate new`",
    "cursor": "db.table('items').where(…) returns records, db.sql('SELECT …') rows",
    "dispose": "close() closes it; so does the end of `with zapdb.open(…) as db:`",
    "drop_all": "`zapdb migrate rollback` rolls migrations back",
    "engine": "db manages its connections itself: db.table('items'), db.transaction()",
    "execute": "db.sql('SELECT …') reads by SQL; db.table('items') has insert, update and delete",
    "flush": "each call writes at once; the end of `with db.transaction():` commits",
    "metadata": "db.tables contains the names of the tables; `zapdb catalog show TABLE` shows one",
    "migrate": "`zapdb migrate up` applies migrations, and so does zapdb.open(…, apply='auto')",
    "query": "db.table('items').where(…) returns records, db.sql('SELECT …') rows",
    "refresh": "db.table('items').get(key) reads a record again",
    "rollback": "an error that leaves `with db.transaction() as tx:` rolls it back",
    "savepoint": "`with db.transaction():` inside a transaction is a savepoint",
    "scalars": "db.table('items').where(…).all() returns a list of records",
    "select": "db.table('items').where(…) returns records, db.sql('SELECT …') rows",
    "session": "call the database's own methods: db.table('items'), db.transaction()",
}
"""What replaces a name that people try on a database."""


_FIELD_HABITS: Final = {
    "any_": "in_([…]) is true for one of several values",
    "asc": "a field alone means ascending: order_by({field})",
    "collate": "{field}.collated('en') compares and orders under a collation",
    "contains": "zapdb searches prefixes only: {field}.startswith('…'); for others, db.sql",
    "desc": "for descending order, write -{field} or {field}.descending()",
    "distinct": _IN_PYTHON,
    "endswith": "zapdb searches prefixes only: {field}.startswith('…'); for others, db.sql",
    "eq": "write {field} == …",
    "exact": "write {field} == …",
    "gt": "write {field} > …",
    "gte": "write {field} >= …",
    "icontains": "zapdb searches prefixes only: {field}.startswith('…'); for others, db.sql",
    "iexact": "{field}.collated('und', 'secondary') == … ignores case",
    "ilike": "{field}.collated('und', 'secondary') == … ignores case; for patterns, db.sql",
    "is_": "write {field} == …, or {field}.is_null()",
    "is_not": "write {field} != …",
    "is_not_null": "write {field} != None",
    "isnot": "write {field} != …",
    "isnull": "write {field}.is_null()",
    "istartswith": "zapdb searches prefixes only, with their case: {field}.startswith('…')",
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
"""What replaces a name that people try on a field."""

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
        return f"a condition can use fields of its own table only: {field} == …, {field}.in_([…])"
    name, _, direction = text.partition(" ")
    if name in there and direction.lower() in ("asc", "desc"):
        return f"write {'-' * (direction.lower() == 'desc')}{name}"
    return suggest(given, there)


def hint_for_key(table: str, names: Iterable[str], given: Iterable[str]) -> str:
    """The hint for names that are not those of the key; `names` are the fields of the table."""
    given = list(given)
    if given and set(given) <= set(names):
        told = ", ".join(f"{name}=…" for name in given)
        return (
            f"{table}.where({told}) selects records by any fields: .first(), .one(), .exists(), "
            ".update(…), .delete()"
        )
    return "give all of them by name, or all of them in order"


def hint_for_condition(table: str) -> str:
    return f"{table}.where(condition) selects records: .first(), .one(), .exists(), .delete()"


_IN_TASKS: Final = (
    ("`with ", "`async with "),
    ("        with tx.", "        async with tx."),
    ("this thread is in", "the task is in"),
    (" zapdb.open(", " zapdb.aio.open("),
    (": for item in query", ": async for item in query"),
    ("`for item in", "`async for item in"),
    ("iterate over the query", "iterate with `async for`"),
    (_GET_OR_INSERT, _GET_OR_INSERT_IN_TASKS),
)


def in_tasks(error: UnknownAttribute) -> UnknownAttribute:
    """The error with a hint as a program writes it with `zapdb.aio`."""
    error.hint = told_for_tasks(error.hint)
    return error


def told_for_tasks(text: str) -> str:
    """A text about `zapdb`, as one about `zapdb.aio`."""
    for theirs, ours in _IN_TASKS:
        text = text.replace(theirs, ours)
    return text


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
        "there is no such attribute", of=_kind_of(owner), attribute=name, hint=hint
    )


def no_table_by_item(owner: object, name: object) -> UnsupportedOperation:
    """The error for `db["items"]`, for `"items" in db`, and for iterating a database."""
    shown = name if isinstance(name, str) else "items"
    return UnsupportedOperation(
        "a database has no items",
        of=_kind_of(owner),
        hint=f"the table is db.table({shown!r}); db.tables contains all names",
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
        of=_kind_of(owner),
        attribute=name,
        table=table,
        hint=hint,
    )


def _kind_of(owner: object) -> str:
    """What an object is for whoever uses it, with zapdb or with zapdb.aio."""
    return type(owner).__name__.removeprefix("Async").lower()


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
                hint="count() counts its records; all() returns them as a list",
            )

        def __bool__(self) -> bool:
            raise UnsupportedOperation(
                "tables and queries are neither true nor false",
                of=self,
                hint="exists() says whether there is a record; write `is None` for a missing one",
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
        hint = "first() returns the first record, one() the only one; all() returns a list"
    elif place.start in (None, 0) and isinstance(place.stop, int) and place.stop >= 0:
        hint = f"limit({place.stop}) returns the first {place.stop} records"
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
        hint = "insert_many([{'title': …}, …]) inserts many records"
    return UnsupportedOperation("values need the names of their fields", table=table, hint=hint)


def require_many(given: object, table: str, call: str) -> None:
    """Raise `UnsupportedOperation` for one value where a call takes a list of them."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise UnsupportedOperation(
            "a list is needed, even for one value", table=table, hint=f"write {call}([…])"
        )
