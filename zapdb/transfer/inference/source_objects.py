"""What a source has besides ordinary tables: what is looked up here is said, since it is lost.

Each kind is one query, whose rows are a subject and a word on it. So that nothing is copied twice,
tables whose rows another table has are known here, too: partitions, and the tables behind SQLite's
virtual ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import sqlalchemy as sa
from sqlalchemy import exc

from zapdb.transfer.inference.inferred import Note
from zapdb.transfer.inference.source_database import MYSQL


@dataclass(frozen=True, slots=True)
class SourceObjects:
    """`notes` say what is left out or another thing."""

    notes: list[Note] = field(default_factory=list)
    roots: Mapping[str, str] = field(default_factory=dict)
    """For partitions of PostgreSQL, and for tables that inherit all of their columns, the table
    that has their rows."""
    parents: frozenset[str] = frozenset()
    """Tables that others with more columns inherit from; their own rows are `ONLY` theirs."""
    virtual: frozenset[str] = frozenset()
    """Virtual tables of SQLite, and the tables that these keep their contents in."""
    caseless: frozenset[tuple[str, str]] = frozenset()
    """Columns, by table, whose unique texts are equal whatever their case."""

    def is_table(self, name: str) -> bool:
        """Whether a table is one of its own, with rows that no other table has."""
        return name not in self.roots and name not in self.virtual


def find_objects(connection: sa.Connection) -> SourceObjects:
    dialect = connection.dialect.name
    if dialect == "postgresql":
        return _find_in_postgresql(connection)
    if dialect == "sqlite":
        return _find_in_sqlite(connection)
    return _find_in_mysql(connection) if dialect in MYSQL else SourceObjects()


def _read(connection: sa.Connection, queries: Mapping[str, str]) -> Iterator[Note]:
    for text, query in queries.items():
        for row in connection.execute(sa.text(query)):
            yield Note(str(row[0]), text.format(*row[1:]), is_left_out=True)


# PostgreSQL

_HERE: Final = "current_schema()::regnamespace"
_POSTGRESQL: Final = {
    "a trigger": "SELECT relname || '.' || tgname FROM pg_trigger JOIN pg_class c ON c.oid ="
    f" tgrelid WHERE NOT tgisinternal AND relnamespace = {_HERE} AND NOT relispartition"
    " ORDER BY 1",
    "a rule": "SELECT tablename || '.' || rulename FROM pg_rules"
    " WHERE schemaname = current_schema() ORDER BY 1",
    "a policy of row security": "SELECT tablename || '.' || policyname FROM pg_policies"
    " WHERE schemaname = current_schema() ORDER BY 1",
    "a materialized view; its query and its rows are not imported": "SELECT matviewname"
    " FROM pg_matviews WHERE schemaname = current_schema() ORDER BY 1",
    "a foreign table; its rows are not imported": "SELECT relname FROM pg_class"
    f" WHERE relkind = 'f' AND relnamespace = {_HERE} ORDER BY 1",
    "an exclusion constraint: {0}": "SELECT relname || '.' || conname, pg_get_constraintdef(o.oid)"
    " FROM pg_constraint o JOIN pg_class c ON c.oid = conrelid"
    f" WHERE contype = 'x' AND relnamespace = {_HERE} AND NOT relispartition ORDER BY 1",
    "functions and procedures ({0})": "SELECT 'the schema ' || current_schema(), count(*)"
    f" FROM pg_proc WHERE pronamespace = {_HERE} AND NOT EXISTS (SELECT FROM pg_depend"
    " WHERE objid = pg_proc.oid AND classid = 'pg_proc'::regclass AND deptype = 'e')"
    " HAVING count(*) > 0",
    "another schema, whose tables ({0}) are not looked at; ?options=-csearch_path={1} behind the "
    "address has them": (
        "SELECT 'the schema ' || nspname, count(*), nspname FROM pg_class c"
        f" JOIN pg_namespace n ON n.oid = relnamespace AND n.oid <> {_HERE}"
        " WHERE relkind IN ('r', 'p') AND nspname <> 'information_schema' AND nspname !~ '^pg_'"
        " GROUP BY nspname ORDER BY 1"
    ),
}
_CHANGED_IN_POSTGRESQL: Final = {
    "foreign keys that are deferrable ({0}); here each write satisfies its references": (
        "SELECT relname, count(*) FROM pg_constraint o JOIN pg_class c ON c.oid = conrelid"
        f" WHERE contype = 'f' AND condeferrable AND relnamespace = {_HERE} AND NOT relispartition"
        " GROUP BY relname ORDER BY 1"
    ),
}
_PARTITIONS: Final = (
    "SELECT relname, (SELECT r.relname FROM pg_class r WHERE r.oid = pg_partition_root(c.oid))"
    f" FROM pg_class c WHERE relispartition AND relkind IN ('r', 'p') AND relnamespace = {_HERE}"
)
_HEIRS: Final = (
    "SELECT c.relname, p.relname, EXISTS (SELECT FROM pg_attribute WHERE attrelid = c.oid"
    " AND attnum > 0 AND NOT attisdropped AND attinhcount = 0) FROM pg_inherits"
    " JOIN pg_class p ON p.oid = inhparent JOIN pg_class c ON c.oid = inhrelid"
    f" WHERE p.relkind = 'r' AND p.relnamespace = {_HERE} AND c.relnamespace = {_HERE}"
    " ORDER BY 1, 2"
)
_CASELESS_IN_POSTGRESQL: Final = (
    "SELECT relname, attname FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid"
    " JOIN pg_type t ON t.oid = atttypid LEFT JOIN pg_collation l ON l.oid = attcollation"
    f" WHERE relnamespace = {_HERE} AND relkind IN ('r', 'p') AND attnum > 0"
    " AND (typname = 'citext' OR NOT coalesce(collisdeterministic, true))"
)


def _find_in_postgresql(connection: sa.Connection) -> SourceObjects:
    notes = list(_read(connection, _POSTGRESQL))
    notes += [Note(n.subject, n.text) for n in _read(connection, _CHANGED_IN_POSTGRESQL)]
    roots: dict[str, str] = {one[0]: one[1] for one in connection.execute(sa.text(_PARTITIONS))}
    whole, parents = _find_heirs(
        [(c, p, bool(own)) for c, p, own in connection.execute(sa.text(_HEIRS))]
    )
    roots |= whole
    for root in sorted(set(roots.values())):
        count = sum(of == root for of in roots.values())
        notes.append(Note(root, f"it and its {count} parts are one table here"))
    notes += [
        Note(name, "rows of tables that inherit from it are rows of those alone")
        for name in sorted(parents)
    ]
    caseless = frozenset((t, c) for t, c in connection.execute(sa.text(_CASELESS_IN_POSTGRESQL)))
    return SourceObjects(notes, roots, parents, caseless=caseless)


def _find_heirs(
    found: Sequence[tuple[str, str, bool]],
) -> tuple[dict[str, str], frozenset[str]]:
    """From (child, parent, whether the child has columns of its own) the children whose rows are
    read with the topmost parent, and the parents whose rows are read without those of children:
    where any child below the same table has columns of its own, or two parents."""
    parents = dict[str, set[str]]()
    for child, parent, _ in found:
        parents.setdefault(child, set()).add(parent)

    def top(name: str) -> str:
        return top(min(parents[name])) if name in parents else name

    is_apart = {top(c) for c, _, has_own in found if has_own or len(parents[c]) > 1}
    whole = {child: top(child) for child in parents if top(child) not in is_apart}
    return whole, frozenset(parent for _, parent, _ in found if top(parent) in is_apart)


# SQLite

_SQLITE: Final = {
    "a trigger": "SELECT tbl_name || '.' || name FROM sqlite_master WHERE type = 'trigger'"
    " ORDER BY 1",
}
_SQLITE_TABLES: Final = (
    "SELECT name, type FROM pragma_table_list WHERE schema = 'main' AND type IN ('virtual',"
    " 'shadow') ORDER BY 1"
)
_CASELESS_IN_SQLITE: Final = (
    "SELECT t.name, x.name FROM sqlite_master t JOIN pragma_index_list(t.name) i"
    " JOIN pragma_index_xinfo(i.name) x WHERE t.type = 'table' AND i.\"unique\" AND x.key"
    " AND upper(x.coll) <> 'BINARY' AND x.name IS NOT NULL"
)


def _find_in_sqlite(connection: sa.Connection) -> SourceObjects:
    notes = list(_read(connection, _SQLITE))
    found = connection.execute(sa.text(_SQLITE_TABLES)).all()
    shadows = [name for name, kind in found if kind == "shadow"]
    for name in [name for name, kind in found if kind == "virtual"]:
        count = sum(shadow.startswith(f"{name}_") for shadow in shadows)
        behind = f", and the {count} tables behind it" if count else ""
        notes.append(Note(name, f"a virtual table{behind}", is_left_out=True))
    caseless = frozenset((t, c) for t, c in connection.execute(sa.text(_CASELESS_IN_SQLITE)))
    return SourceObjects(notes, virtual=frozenset(name for name, _ in found), caseless=caseless)


# MySQL and MariaDB

_MYSQL: Final = {
    "a trigger": "SELECT concat(event_object_table, '.', trigger_name)"
    " FROM information_schema.triggers WHERE trigger_schema = database() ORDER BY 1",
    "a routine": "SELECT routine_name FROM information_schema.routines"
    " WHERE routine_schema = database() ORDER BY 1",
    "an event": "SELECT event_name FROM information_schema.events"
    " WHERE event_schema = database() ORDER BY 1",
    "the value that each update gives it: {0}": "SELECT concat(table_name, '.', column_name),"
    " extra FROM information_schema.columns WHERE table_schema = database()"
    " AND extra LIKE '%on update%' ORDER BY 1",
}
_CASELESS_IN_MYSQL: Final = (
    "SELECT DISTINCT s.table_name, s.column_name FROM information_schema.statistics s"
    " JOIN information_schema.columns c ON c.table_schema = s.table_schema"
    " AND c.table_name = s.table_name AND c.column_name = s.column_name"
    " WHERE s.table_schema = database() AND s.non_unique = 0 AND c.collation_name LIKE '%\\_ci'"
)


def _find_in_mysql(connection: sa.Connection) -> SourceObjects:
    notes = list[Note]()
    for text, query in _MYSQL.items():
        try:
            notes += _read(connection, {text: query})
        except exc.DBAPIError as error:  # a role may not read all of these, a server lack some
            why = f"whether there is {text} can't be read: {error.orig}"
            notes.append(Note("the source", why, is_left_out=True))
    caseless = frozenset((t, c) for t, c in connection.execute(sa.text(_CASELESS_IN_MYSQL)))
    return SourceObjects(notes, caseless=caseless)
