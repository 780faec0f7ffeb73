"""Reads the files of a history store by plain Python, as an oracle: no SQL, no reader of zapdb."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from zapdb.catalog.cluster.leases import Owner
from zapdb.catalog.schema_history import read_entries
from zapdb.database import Database
from zapdb.log import (
    followed_moments,
    last_changes,
    logged_before,
    rewinding,
    rewound_records,
)
from zapdb.log.change_log import ChangeLog, ChangeRow
from zapdb.log.followed_moments import follow_moments
from zapdb.log.moments import moments_of
from zapdb.past.files import (
    history_file,
    layers,
    log_batches,
    rewriting,
    states,
)
from zapdb.past.files.file_columns import column_name
from zapdb.past.files.follower_run import flush_store
from zapdb.past.files.history_file import read_digest, read_footer
from zapdb.past.files.history_manifest import (
    HistoryEra,
    HistoryFile,
    HistoryStore,
    list_eras,
    list_history_files,
    read_store,
)
from zapdb.past.files.manifest_files import list_manifests, read_manifest_file
from zapdb.past.files.moment_rows import MOMENTS_SCHEMA
from zapdb.past.files.stores import hold_store, start_store
from zapdb.past.reading import (
    stored_records,
)
from zapdb.records import decode_prefix
from zapdb.tables.queries import (
    past_ways,
)
from zapdb.tables.queries.past_ways import Way

Row = dict[str, Any]
COUNTED = ("inserted", "updated", "deleted", "events")
ROW_COLUMNS = ("from", "until", "operation")
State = dict[str, list[Row]]
"""By table, its records, each by the columns of files."""
AT_A_TIME = (
    (history_file, "ROW_GROUP_ROWS", 3),
    (states, "RANGE_ROWS", 5),
    (rewriting, "HISTORY_FILE_SIZE_BYTES", 1),
    (layers, "LAYERS_MAX", 2),
    (log_batches, "DECODED_ROWS", 2),
    (followed_moments, "HISTORY_PAGE_CHANGES", 3),
    (followed_moments, "FOLLOWED_PAGE", 3),
    (last_changes, "LAST_CHANGES_PAGE", 2),
    (stored_records, "LAST_CHANGES_PAGE", 2),
    (rewinding, "NET_CHANGES_PAGE", 2),
)


def read_little_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files, row groups, ranges of keys, layers and pages of the log are many."""
    for module, name, count in AT_A_TIME:
        monkeypatch.setattr(module, name, count)


HELD: dict[str, tuple[int, int]] = {
    "looked up": (0, 250),
    "held": (20_000, 1),
    "held in part": (5, 1),
}
"""How a table is rewound: how many of the first changes are held, from how many records on."""
WAYS: tuple[str, ...] = (*HELD, "files")


@contextmanager
def forcing(way: str) -> Iterator[Way]:
    """Read pasts that are asked for in the block in one way, where there are both."""
    with pytest.MonkeyPatch.context() as patch:
        is_rewound = way in HELD
        patch.setattr(past_ways, "FILES_LOOKUPS", 10**9 if is_rewound else -(10**9))
        if is_rewound:
            changes, records = HELD[way]
            patch.setattr(logged_before, "HELD_CHANGES_MAX", changes)
            patch.setattr(rewound_records, "HELD_CHANGES_MAX", changes)
            patch.setattr(rewound_records, "HOLDING_PAYS", records)
            patch.setattr(rewound_records, "PAGE_RECORDS_MAX", 7)
        yield "rewound" if is_rewound else "files"


def write_some(db: Database, rnd: random.Random) -> None:
    """Make random changes of items, and of the other tables that there are, in one transaction."""
    with db.transaction() as tx:
        for _ in range(rnd.randint(1, 5)):
            items = tx.table("items")
            keys = [record.id for record in items.scan()]
            chance = rnd.random()
            if chance < 0.5 or not keys:
                items.upsert(id=rnd.randint(1, 30), title=f"t'{rnd.random()}")
            elif chance < 0.7:
                items.update(rnd.choice(keys), title=f"u{rnd.random()}")
            else:
                items.delete(rnd.choice(keys))
        for name in sorted({*tx.tables} - {"items"}):
            if rnd.random() < 0.5:
                table, number = tx.table(name), rnd.randint(1, 9)
                given = {"id": number, "name": f"p{number % 5}", "item": rnd.randint(1, 9)}
                table.upsert(**{field: given[field] for field in table.field_names})


def begin(db: Database, directory: Path) -> HistoryStore:
    """Begin a store and take into files what is there."""
    with hold_store(db._storage, db._catalog.tenant, Owner.here(), 10) as working:
        start_store(working, directory)
    return flush(db)


def flush(db: Database) -> HistoryStore:
    flush_store(db._storage, db._catalog.tenant)
    with db._session.reading() as connection:
        store = read_store(connection, db._catalog.tenant)
    assert store is not None
    return store


def read_manifest(db: Database) -> tuple[HistoryStore, list[HistoryEra], list[HistoryFile]]:
    with db._session.reading() as connection:
        store = read_store(connection, db._catalog.tenant)
        assert store is not None
        return store, list_eras(connection, store), list_history_files(connection, store)


def current_state(db: Database) -> State:
    """The tables as they are now, in the columns that files have."""
    found: State = {}
    for descriptor in db._catalog.tables.values():
        schema = descriptor.schema
        names = {f.name: column_name(f) for f in schema.fields}
        arrow = db.table(schema.name).to_arrow().read_all()
        arrow = arrow.rename_columns([names[name] for name in arrow.column_names])
        found[str(schema.number)] = _in_order(_to_rows(arrow))
    return found


def stored_state(db: Database, moment: int) -> State:
    """The tables at a moment, from the files alone."""
    store, eras, history_file = read_manifest(db)
    assert store.begins <= moment <= store.ends
    found: State = {}
    for era in eras:
        if not era.holds(moment):
            continue
        assert era.state != "baseline"
        rows: dict[bytes, Row] = {}
        mine = [f for f in history_file if (f.table_number, f.era) == (era.table_number, era.era)]
        found_rows: list[Row] = []
        for file in mine:
            found_rows += _rows_in(file.place_in(store.directory))
        for row in sorted(found_rows, key=lambda row: row["_from"]):
            if row["_from"] <= moment:
                rows[row["_key"]] = row
        kept = [row for row in rows.values() if row["_operation"] != 2]
        found[str(era.table_number)] = _in_order(
            [{name: value for name, value in row.items() if name[0] == "f"} for row in kept]
        )
    return found


def _rows_in(path: Path) -> list[Row]:
    found = path.stat()
    return _rows_as_written(path, found.st_ino, found.st_mtime_ns, found.st_size)


@lru_cache(128)
def _rows_as_written(path: Path, *_: int) -> list[Row]:
    """Each state of a store reads most of its files again. Fields are told by their ids: files of
    an era have the names of its beginning."""
    read = parquet.read_table(path)
    return _to_rows(read.rename_columns([_number_of(one) for one in read.schema]))


def _number_of(column: Any) -> str:
    stored = (column.metadata or {}).get(b"PARQUET:field_id")
    return str(column.name) if stored is None else f"f{int(stored)}"


def _to_rows(table: Any) -> list[Row]:
    columns = [_to_values(table.column(name).combine_chunks()) for name in table.column_names]
    return [dict(zip(table.column_names, row, strict=True)) for row in zip(*columns, strict=True)]


def _to_values(array: Any) -> list[Any]:
    """Values that can be compared: no NaN, and no datetime, which not all instants are."""
    if pyarrow.types.is_floating(array.type):
        return [repr(value) for value in array.to_pylist()]
    if pyarrow.types.is_timestamp(array.type):
        return list(array.cast(pyarrow.int64()).to_pylist())
    if pyarrow.types.is_struct(array.type):
        parts = [_to_values(array.field(at)) for at in range(array.type.num_fields)]
        is_there = array.is_valid().to_pylist()
        rows = zip(*parts, strict=True)
        return [row if there else None for there, row in zip(is_there, rows, strict=True)]
    return list(array.to_pylist())


def _in_order(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=repr)


def check_store(db: Database, since: int | None = None) -> None:
    """Files are what their rows say, and each change of the log is in exactly one of them (H3); of
    those behind a moment, if the store was purged, or the log pruned."""
    store, eras, history_file = read_manifest(db)
    begins = store.begins if since is None else since
    directory, changes, moments = Path(store.directory), Counter[Any](), list[Row]()
    first = {(era.table_number, era.era): era.first_moment for era in eras}
    for file in history_file:
        path = file.place_in(directory)
        assert read_digest(path) == file.sha256
        footer, _ = read_footer(path)
        assert (footer.timeline, footer.table, footer.era, footer.kind, footer.last_moment) == (
            file.timeline,
            file.table_number,
            file.era,
            file.kind,
            file.last_moment,
        )
        read = parquet.read_table(path)
        assert read.num_rows == file.rows
        if file.kind == "moments":
            assert read.schema.equals(MOMENTS_SCHEMA)
            moments += read.select(["moment", *COUNTED]).to_pylist()
            continue
        keys = read.column("_key").to_pylist()
        if keys:
            assert (min(keys), max(keys)) == (file.key_lower, file.key_upper)
        place = list(zip(keys, read.column("_from").to_pylist(), strict=True))
        assert place == sorted(set(place))
        made = list(zip(*(read.column(f"_{x}").to_pylist() for x in ROW_COLUMNS), strict=True))
        _check_rows(file, made, first[file.table_number, file.era])
        changes.update(
            (file.table_number, *one)
            for one, (*_, operation) in zip(place, made, strict=True)
            if operation != 3 and one[1] > begins
        )
    assert set(changes.values()) <= {1}
    for path in list_manifests(directory, store.tenant):
        read_manifest_file(path)  # by which it could be rebuilt: no moment is missing
    told = sorted(moments, key=lambda row: row["moment"])
    assert since is not None or told[0]["moment"] == begins
    assert [row for row in told if row["moment"] > begins] == _logged_moments(db, store, begins)
    logged = {one for one in _logged_changes(db, store, eras) if one[2] > begins}
    extra, missing = sorted(set(changes) - logged)[:3], sorted(logged - set(changes))[:3]
    assert (extra, missing) == ([], [])


def _check_rows(file: HistoryFile, made: list[tuple[int, int | None, int]], begins: int) -> None:
    """A file has the rows that files of its kind have: (from, until, operation) of each."""
    for since, until, operation in made:
        assert begins <= since <= file.last_moment
        assert (since == begins) == (operation == 3)
        assert until is None or since < until <= file.last_moment
        if file.kind == "checkpoint":
            assert (until, operation == 2) == (None, False)
        elif file.kind == "ended":
            assert until is not None or operation == 2
        else:
            assert file.first_moment <= since


def _logged_moments(db: Database, store: HistoryStore, begins: int) -> list[Row]:
    """What each transaction of the log behind a moment did, in order."""
    made = [m for m in db.moments(since=begins) if begins < m.number <= store.ends]
    return [
        {"moment": m.number}
        | {name: sum(getattr(one, name) for one in m.changes) for name in COUNTED}
        for m in reversed(made)
    ]


def _logged_changes(
    db: Database, store: HistoryStore, eras: list[HistoryEra]
) -> set[tuple[int, bytes, int]]:
    """The changes of the log that must be in segments: those of moments that an era holds, but for
    its first one, and the last ones of an era that was sealed, which the next one begins with. What
    a roll back writes has another layout before that is in force."""
    log = ChangeLog(db._storage, db._catalog.tenant)
    fetch = db._storage.connection().fetch_all
    newest = log.read_newest(db._storage.connection())
    first = moments_of(log).find_beginning(db._storage.connection())
    numbers = {m.place: m.moment.number for m in follow_moments(log, fetch, first, newest)}
    entries = read_entries(db._storage.connection(), db._catalog.tenant)
    layouts = {(e.table_number, e.revision): e.layout_revision for e in entries}
    found = set()
    for row in log.read(fetch, first.bookmark, newest):
        moment = numbers[row.transaction.stamp, row.transaction.commit_order]
        holding = [
            era
            for era in eras
            if era.table_number == row.table
            and moment > era.first_moment
            and (era.holds(moment) or (era.state == "sealed" and era.holds(moment - 1)))
            and era.layout_revision in _list_layouts(layouts, row)
        ]
        if row.event is None and holding and moment <= store.ends:
            found.add((row.table, row.key, moment))
    return found


def _list_layouts(layouts: dict[tuple[int, int], int], row: ChangeRow) -> set[int]:
    """The layout that a change has; any one if it is a deletion, or an event."""
    if row.after is None or row.event is not None:
        return set(layouts.values())
    return {layouts[row.table, decode_prefix(row.after, 0)[0]]}


def digests(db: Database) -> dict[str, bytes]:
    """The digests of all live files, by path."""
    store, _, history_file = read_manifest(db)
    return {file.path: read_digest(Path(store.directory) / file.path) for file in history_file}
