"""All versions of a table's records up to a moment, as SQL reads them: the rows of its files, and
the changes behind them from the log.

They go back to the last migration that made other stored values, or other names of members: what
was there then has the operation `baseline`. All have the schema of the moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Final

import pyarrow

from zapdb.catalog.schema_history import read_entries
from zapdb.errors import HistoryBehind, HistoryDamaged, HistoryNotStored
from zapdb.log.change_log import ChangeRow
from zapdb.log.followed_moments import follow_changes
from zapdb.log.moments import LoggedMoment
from zapdb.past.files.file_columns import (
    FROM,
    KEY,
    OPERATION,
    UNTIL,
    HistoryRows,
    MadeRow,
    RowOperation,
    column_name,
)
from zapdb.past.files.history_erasures import list_half_erased
from zapdb.past.files.history_manifest import HistoryEra, list_eras, list_history_files
from zapdb.past.files.table_revisions import can_share_era
from zapdb.past.reading.past_session import PastSession
from zapdb.past.reading.schema_at import TableAt
from zapdb.past.reading.stored_files import (
    EraFile,
    EraFiles,
    RelationFiles,
    relate_files,
)
from zapdb.past.reading.stored_state import StoredState
from zapdb.records import Attachments, decode_prefix
from zapdb.storage import BlobStatements
from zapdb.storage.cells import reading
from zapdb.storage.fixed_tables import CHANGES, HISTORY_ERAS
from zapdb.storage.identifiers import make_uuid7
from zapdb.tables.changes import fetch_logged, within_snapshot
from zapdb.values import Integer, String, ValueType

OWN_COLUMNS: Final[tuple[tuple[str, ValueType], ...]] = (
    (FROM, Integer()),
    (UNTIL, Integer()),
    (OPERATION, String()),
)
"""The columns of a version beside those of the table: the moments since which and until before
which it was so (null: until now), and what made it."""

_OPERATIONS: Final = (
    f"CASE {OPERATION} WHEN {RowOperation.INSERT:d} THEN 'insert'"
    f" WHEN {RowOperation.DELETE:d} THEN 'delete'"
    f" WHEN {RowOperation.CHECKPOINT:d} THEN 'baseline' ELSE 'update' END"
)


class StoredVersions:
    """What a statement reads of the versions of one table."""

    def __init__(self, session: PastSession, then: TableAt) -> None:
        self.schema = then.schema
        self._session, self._then = session, then
        state = session.find_stored(then)
        if state is None or state.era is None:
            raise HistoryNotStored(
                "versions of records are read from a history store, which the table is not in",
                table=then.schema.name,
                hint="begin one with `zapdb history start`, or flush it; table.history(key) reads "
                "the change log",
            )
        with within_snapshot(session) as connection:
            entries = read_entries(connection, session.catalog.tenant, then.schema.number)
        self._logged = {entry.revision: entry for entry in entries}
        if not self._can_share(state.era):
            raise HistoryBehind(
                "a migration that the history store has not come to yet made the values of the "
                "table, or their names",
                table=then.schema.name,
                hint="ask again when it has: `zapdb history status` shows how far it is",
            )
        self._state = state
        self._files = list[EraFile]()

    def find_damage(self) -> HistoryDamaged | None:
        """Compare all bytes of the offered files with their digests."""
        found = (file.find_damage() for file in self._files)
        return next((damage for damage in found if damage is not None), None)

    def _can_share(self, era: HistoryEra) -> bool:
        """Return whether the rows of an era are as those of the moment."""
        then = self._then
        with reading(HISTORY_ERAS.name):
            began = self._logged[era.revision]
        return can_share_era(began, then.layout_revision, then.schema)

    def offer(self) -> tuple[str, dict[str, RelationFiles], dict[str, Any]]:
        """Return the SELECT of its columns, the files of the relations that it reads, and tables.

        Raises `HistoryDamaged`.
        """
        number, fields = self.schema.number, self.schema.fields
        files, arms = dict[str, RelationFiles](), list[str]()
        names = [column_name(field) for field in fields]
        for at, held in enumerate(self._list_eras()):
            for file in held.files:
                file.require_whole()
            self._files += held.files
            kept = "" if at == 0 else f" WHERE {OPERATION} <> {RowOperation.CHECKPOINT:d}"
            for one in relate_files(held.files, f"zapdb_versions_files_{number}", files):
                arms.append(self._arm(one.name, zip(one.columns, names, strict=True)) + kept)
        tail, tables = f"zapdb_versions_tail_{number}", dict[str, Any]()
        rows = tables[tail] = self._read_tail()
        erased = self._list_erased()
        if erased:
            gone = f"zapdb_versions_erased_{number}"
            tables[gone] = pyarrow.table({KEY: pyarrow.array(erased, pyarrow.binary())})
            arms = [f"SELECT * FROM ({arm}) a ANTI JOIN {gone} USING ({KEY})" for arm in arms]
        there = rows.schema.names
        paired = [(name if name in there else f"{name}_text", name) for name in names]
        arms.append(self._arm(tail, paired))
        keys = {column_name(field) for field in self.schema.key_fields}
        listed = ", ".join(  # a deletion has no values: its key is that of the record before
            f"any_value({name}) OVER (PARTITION BY {KEY}) AS {name}" if name in keys else name
            for name in names
        )
        until = f"lead({FROM}) OVER (PARTITION BY {KEY} ORDER BY {FROM}) AS {UNTIL}"
        every = " UNION ALL ".join(arms)
        sql = (
            f"SELECT {listed}, {FROM}, {until}, {_OPERATIONS} AS {OPERATION} FROM ({every}) v"
            f" WHERE {FROM} <= {int(self._session.moment.number)}"
        )
        return sql, files, tables

    def _list_erased(self) -> list[bytes]:
        """Return the keys of which the log has nothing any more, and files still may have rows."""
        session = self._session
        if self._state.tail is None:  # it is in files as a whole, or not at all
            return []
        with within_snapshot(session) as connection:
            return list_half_erased(connection, session.catalog.tenant, self.schema.number)

    def _arm(self, relation: str, columns: Iterable[tuple[str, str]]) -> str:
        values = ", ".join(f"{held} AS {name}" for held, name in columns)
        return f"SELECT {KEY}, {FROM}, {OPERATION}, {values} FROM {relation}"

    def _list_eras(self) -> Iterator[EraFiles]:
        """Yield the eras that led to that of the moment without another layout in between."""
        store, found = self._state.store, list[HistoryEra]()
        with within_snapshot(self._session) as connection:
            eras = list_eras(connection, store, self.schema.number)
            files = list_history_files(connection, store, table=self.schema.number)
        for era in reversed(eras):
            assert self._state.era is not None
            if era.era > self._state.era.era:
                continue
            is_next = not found or era.last_moment == found[-1].first_moment - 1
            if not is_next or not self._can_share(era):
                break
            if era.state == "baseline" or (found and era.state != "sealed"):
                break
            found.append(era)
        for era in reversed(found):
            mine = tuple(file for file in files if file.era == era.era)
            state = StoredState(store, era, mine, self._state.moment, None)
            yield EraFiles(state, self.schema)

    def _read_tail(self) -> Any:
        """Return the changes behind the files up to the moment, as a `pyarrow.Table`."""
        session = self._session
        rows = HistoryRows(self.schema, session.catalog.zones)
        since = self._state.tail
        if since is not None:
            blobs = BlobStatements(session.storage)
            for revision, made in _sort(self._follow(since)):
                if revision is None:
                    rows.add_deletions(made)
                    continue
                with reading(CHANGES.name):
                    schema = self._logged[revision].schema
                rows.add_records(
                    schema, made, lambda key, value: Attachments(blobs.load, make_uuid7)
                )
        return rows.take()

    def _follow(self, since: LoggedMoment) -> Iterator[tuple[int, ChangeRow]]:
        session, until = self._session, self._session.moment
        log, fetch = session.moments.log, partial(fetch_logged, session)
        for made, rows in follow_changes(log, fetch, since, until.stamp):
            if made.moment.number > until.number:
                return
            for row in rows:
                if row.table == self.schema.number and row.event is None:
                    yield made.moment.number, row


def _sort(rows: Iterator[tuple[int, ChangeRow]]) -> list[tuple[int | None, list[MadeRow]]]:
    """Return changes by the revision of their records; None: deletions."""
    found: dict[int | None, list[MadeRow]] = {}
    for number, row in rows:
        revision, operation = None, RowOperation.DELETE
        if row.after is not None:
            revision, _ = decode_prefix(row.after, 0)
            operation = RowOperation.INSERT if row.before is None else RowOperation.UPDATE
        made = MadeRow(row.key, row.after or b"", number, operation)
        found.setdefault(revision, []).append(made)
    return list(found.items())
