"""The Reconstruction Invariant of RFC 001, by nothing of zapdb's but its stored bytes.

Files are read by DuckDB alone, found by their rows in the database; the log is decoded, and put
into a table as the RFC has it. Both are asked with the RFC's own query: the newest version of each
key before a time, unless it is a deletion.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow

import zapdb
from zapdb.database import Database
from zapdb.past.files.history_manifest import path_of
from zapdb.schema import TableSchema
from zapdb.tables.change_decoding import RecordChange

Rows = list[dict[str, Any]]

RECONSTRUCTION = """
WITH ranked_by_age_within_key AS (
  SELECT *, row_number() OVER (PARTITION BY synthetic_key ORDER BY logical_timestamp DESC)
    AS rank_in_key
  FROM ({versions}) WHERE logical_timestamp < {query_timestamp}
)
SELECT {columns} FROM ranked_by_age_within_key
WHERE rank_in_key = 1 AND NOT is_deleted ORDER BY synthetic_key
"""
"""As the RFC has it; `<` leaves out the moment itself."""


class FilesOracle:
    """The past of a flushed store, by the bytes of its files."""

    def __init__(self, db: Database) -> None:
        self._db, self._duck = db, duckdb.connect()
        fetch = db._storage.connection().fetch_all
        tenant = self._tenant = db._catalog.tenant
        ((timeline, directory),) = fetch(
            f"SELECT timeline, directory FROM zapdb_history_stores WHERE tenant = {tenant}"
        )
        self._directory = Path(directory)
        mine = f"tenant = {tenant} AND timeline = '{timeline}'"
        self._eras = fetch(
            f"SELECT table_number, era, first_moment FROM zapdb_history_eras WHERE {mine}"
        )
        self._files = fetch(
            "SELECT table_number, era, kind, id FROM zapdb_history_files"
            f" WHERE {mine} AND state = 'live' AND kind IN ('checkpoint', 'ended', 'segment')"
        )

    def read(self, table: int, fields: dict[str, int], moment: int) -> Rows:
        """The records of a table, by the numbers of its fields."""
        era = max(era for number, era, first in self._eras if number == table and first <= moment)
        paths = [
            str(self._directory / path_of(self._tenant, number, kind, name))
            for number, of, kind, name in self._files
            if (number, of) == (table, era)
        ]
        if not paths:
            return []
        versions = (
            "SELECT _key AS synthetic_key, _from AS logical_timestamp,"
            " _operation = 2 AS is_deleted, * FROM read_parquet($1, union_by_name => true)"
        )
        named = self._duck.execute(
            "SELECT DISTINCT field_id, name FROM parquet_schema($1) WHERE field_id IS NOT NULL",
            [paths],
        ).fetchall()
        names = dict(named)
        assert len(names) == len(named), "all files of an era have the same names"
        sql = RECONSTRUCTION.format(
            versions=versions,
            query_timestamp=moment + 1,
            columns=", ".join(f'"{names[number]}"' for number in fields.values()),
        )
        found = self._duck.execute(sql, [paths])
        return [dict(zip(fields, row, strict=True)) for row in found.fetchall()]


class LogOracle:
    """The past by the changes of the log, as versions that the RFC's handlers would have written:
    each is a whole record under the schema of its time."""

    def __init__(self, db: Database) -> None:
        self._duck, self._versions = duckdb.connect(), list[tuple[Any, dict[str, Any] | None]]()
        numbers = {moment.bookmark.commit_order: moment.number for moment in db.moments()}
        rows = []
        for change in db.change_log.read():
            if isinstance(change, RecordChange):
                schema = change.schema_after or change.schema_before
                assert schema is not None
                place, gone = len(self._versions), change.after is None
                moment = numbers[change.bookmark.commit_order]
                rows.append((schema.number, change.bookmark.key, moment, gone, place))
                self._versions.append((schema, None if gone else zapdb.asdict(change.after)))
        names = ("table_number", "synthetic_key", "logical_timestamp", "is_deleted", "place")
        columns = [list(column) for column in zip(*rows, strict=True)]
        self._duck.register("versions", pyarrow.table(dict(zip(names, columns, strict=True))))

    def read(self, schema: TableSchema, moment: int) -> Rows:
        """The records of a table, each with the fields that its version had with the type that
        they have in the schema: what later migrations made of it, the log does not tell."""
        sql = RECONSTRUCTION.format(
            versions=f"SELECT * FROM versions WHERE table_number = {schema.number}",
            query_timestamp=moment + 1,
            columns="place",
        )
        found = []
        for (place,) in self._duck.execute(sql).fetchall():
            of, values = self._versions[place]
            types = {one.number: one for one in of.fields}
            shared = {
                one.name: values[types[one.number].name]
                for one in schema.fields
                if one.number in types and types[one.number].type == one.type
            }
            found.append(shared)
        return found


def check_reconstruction(db: Database, states: dict[int, dict[str, Rows]]) -> int:
    """Compare past states with what both oracles say; the store is flushed. Returns how many
    tables were compared."""
    files, log, compared = FilesOracle(db), LogOracle(db), 0
    for moment, state in states.items():
        past = db.at(moment)
        for name, rows in state.items():
            schema = past.schema(name)
            fields = {one.name: one.number for one in schema.fields}
            assert files.read(schema.number, fields, moment) == rows, (moment, name)
            logged = log.read(schema, moment)
            assert len(logged) == len(rows), (moment, name)
            for version, row in zip(logged, rows, strict=True):
                assert version.items() <= row.items(), (moment, name)
            compared += len(rows) > 0
    return compared
