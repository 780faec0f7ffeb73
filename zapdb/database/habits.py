"""What other libraries call it: the errors for methods of theirs name zapdb's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from zapdb.errors import UnknownAttribute, suggest

_HABITS: Final = {
    "add": "insert(title=…) makes a record",
    "bulk_create": "insert_many([…]) makes many records",
    "commit": "each call is committed by itself; `with db.transaction():` makes several one",
    "create": "insert(title=…) makes a record",
    "fetchall": "all() gives a list, and a query can be iterated",
    "filter": "where(items.f.due < today, done=False) gives the records for which that is true",
    "filter_by": "where(done=False) gives the records with these values",
    "find_by": "where(title='Milk').first() gives one record, or None",
    "get_or_create": "upsert(id=…, title=…) changes a record or makes it",
    "index": "using('by_title') reads by an index, in its order",
    "join": "include('list') loads the records that a reference leads to, too",
    "objects": "a table has the methods itself: where(…), get(…), all()",
    "offset": "page(size, cursor) gives one page after the other",
    "order": "order_by('-due') names the order",
    "query": "where(…) is a query, and so is order_by(…)",
    "remove": "delete(key) deletes a record, delete_where(…) those for which a condition is true",
    "save": "records are values: update(key, title=…) changes the one that is stored",
    "select": "where(…) gives records, with all their fields",
    "sort": "order_by('-due') names the order",
}
"""By a name that people try, what does it here."""


DATABASE_HABITS: Final = {
    "add": "db.table('items').insert(title=…) makes a record",
    "begin": "`with db.transaction() as tx:` begins one",
    "commit": "the end of `with db.transaction() as tx:` commits it; a call outside commits itself",
    "connect": "a database is open already: db.table('items')",
    "create_all": "`zapdb migrate up` applies migrations, and so does zapdb.open(…, apply='auto')",
    "create_table": "write a migration: `zapdb migrate new`",
    "cursor": "db.table('items').where(…) gives records, db.sql('SELECT …') rows",
    "execute": "db.sql('SELECT …') reads by SQL; db.table('items') has insert, update and delete",
    "migrate": "`zapdb migrate up` applies migrations, and so does zapdb.open(…, apply='auto')",
    "query": "db.table('items').where(…) gives records, db.sql('SELECT …') rows",
    "rollback": "an error that leaves `with db.transaction() as tx:` rolls it back",
    "session": "a database has the methods itself: db.table('items'), db.transaction()",
}
"""By a name that people try on a database, what does it here."""


def no_database_attribute(
    owner: object, name: str, tables: Iterable[str], facets: Mapping[str, type]
) -> UnknownAttribute:
    """The error for an attribute that a database or a handle does not have.

    `facets` are the attributes whose classes have what not every application needs.
    """
    facet = next((found for found, kind in facets.items() if hasattr(kind, name)), None)
    if name in tables:
        hint = f"the table is db.table({name!r})"
    elif name in DATABASE_HABITS:
        hint = DATABASE_HABITS[name]
    elif facet is not None:
        hint = f"it is db.{facet}.{name}"
    else:
        hint = suggest(name, [one for one in dir(type(owner)) if not one.startswith("_")])
    return UnknownAttribute(
        "there is no such attribute", of=type(owner).__name__.lower(), attribute=name, hint=hint
    )


def no_attribute(owner: object, name: str, table: str, fields: Iterable[str]) -> UnknownAttribute:
    """The error for an attribute that a table or a query does not have."""
    if name in _HABITS:
        hint = _HABITS[name]
    elif name in fields:
        hint = f"the field is {table}.f.{name}, or {table}[{name!r}]"
    else:
        hint = suggest(name, [one for one in dir(type(owner)) if not one.startswith("_")])
    return UnknownAttribute(
        "there is no such attribute",
        of=type(owner).__name__.lower(),
        attribute=name,
        table=table,
        hint=hint,
    )
