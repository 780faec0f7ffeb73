"""Making the rows of a history store anew, by the manifests in its directory.

The database may have lost them, or may have been restored from a backup that is older than the
files. Each timeline gets the rows of its newest manifest, in one transaction for all of them. What
the manifest does not name is of work that did not end, or was replaced, and does not come back.

Where the files go on behind the change log, or along another one than there is now, what they have
from there on is the past of a database that is no more: they are written anew up to that moment,
from which on the store follows the log again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import pyarrow
from pyarrow import compute, parquet

from zapdb.errors import ChangesPruned, UsageError
from zapdb.files import require_path
from zapdb.limits import (
    HISTORY_MOMENTS_ROWS_MAX,
    HISTORY_ROW_GROUP_SIZE_BYTES_MAX,
    RECORD_KEY_SIZE_BYTES_MAX,
)
from zapdb.log.moments import LoggedMoment
from zapdb.past.files.cleaning import list_store_files
from zapdb.past.files.cutting import cut_end
from zapdb.past.files.directories import writing_to
from zapdb.past.files.file_columns import file_schema, find_columns, find_texts
from zapdb.past.files.file_verification import find_problem
from zapdb.past.files.history_file import (
    ROW_GROUP_ROWS,
    find_keys,
    make_damaged,
    read_untrusted_footer,
    reading_file,
)
from zapdb.past.files.history_manifest import (
    HistoryEra,
    HistoryFile,
    HistoryStore,
    delete_timeline,
    insert_files,
    insert_store,
    list_history_files,
    list_timelines,
    save_era,
)
from zapdb.past.files.manifest_files import (
    ManifestFile,
    list_manifests,
    read_manifest_file,
    write_manifest,
)
from zapdb.past.files.moment_rows import MOMENTS_SCHEMA, read_moments
from zapdb.past.files.stores import require_plain
from zapdb.past.files.working_store import (
    LoadedStore,
    StoreWriter,
    write_follower,
)
from zapdb.records.arrow.bounded_parquet import BoundedFile
from zapdb.storage import Connection, TransactionMode
from zapdb.storage.statements import raise_catalog_version

PRUNED: Final = "the change log was pruned in front of the store"
_PLACE: Final = ("moment", "stamp", "commit_order", "visible_at")


@dataclass(frozen=True, slots=True)
class RebuiltTimeline:
    """A timeline whose rows were made anew: the moments that it has, and its eras and files.

    `cut_from` is the first moment of its files that the change log does not have, or has otherwise;
    they were written anew without what came from then on. None if they agree.
    """

    timeline: str
    begins: int
    ends: int
    eras: int
    files: int
    size_bytes: int
    cut_from: int | None = None


@dataclass(frozen=True, slots=True)
class HistoryRebuild:
    """What was made of a directory: its timelines, the newest first, and how many files there are
    that no row names."""

    directory: str
    timelines: tuple[RebuiltTimeline, ...]
    unnamed: int


def rebuild_manifest(
    working: StoreWriter, directory: Path, *, dry_run: bool = False
) -> HistoryRebuild:
    """Make the rows of all timelines anew that a directory has of this tenant, or say what would
    be.

    Raises `UsageError` for a directory without a manifest, for one of another database, for files
    that are not this tenant's, if a manifest or files are missing, and if the database has later
    rows than the directory; `HistoryDamaged`, `HistoryUnreachable` and
    `DiskFull`.
    """
    require_path(directory)
    directory = require_plain(directory.resolve())
    with working.storage.transaction(TransactionMode.READ) as connection:
        working.load_in(connection)
        known = {store.timeline: store for store in list_timelines(connection, working.tenant)}
    found = find_manifests(working, directory)
    unnamed = _count_unnamed(working, directory, found)
    rebuilds = [_Rebuild(working, one, known.get(one.store.timeline)) for one in found]
    for rebuild in rebuilds:
        rebuild.check()
    if not dry_run:
        _store(working, rebuilds)
    return HistoryRebuild(str(directory), tuple(one.describe() for one in rebuilds), unnamed)


def find_manifests(working: StoreWriter, directory: Path) -> list[ManifestFile]:
    """Return the newest manifest of each timeline in a directory, the newest timeline first.

    Raises `UsageError` if there is none, or one of another database, and `HistoryDamaged`.
    """
    newest = dict[str, ManifestFile]()
    for path in list_manifests(directory, working.tenant):
        one = read_manifest_file(path)
        if one.database != working.database or one.store.tenant != working.tenant:
            raise _foreign(path)
        moved = {str(directory): None, one.store.directory: None}
        files = [replace(f, directory=moved.get(f.directory or "", f.directory)) for f in one.files]
        former = {*one.store.former_directories, one.store.directory} - {str(directory)}
        store = replace(
            one.store, directory=str(directory), former_directories=tuple(sorted(former))
        )
        one = replace(one, store=store, files=files)
        before = newest.get(one.store.timeline)
        if before is None or before.order < one.order:
            newest[one.store.timeline] = one
    if not newest:
        raise UsageError(
            "the directory has no manifest of this tenant's history store",
            directory=str(directory),
            tenant=working.tenant,
            hint="give the directory that the store was started with",
        )
    return [newest[timeline] for timeline in sorted(newest, reverse=True)]


def _count_unnamed(working: StoreWriter, directory: Path, found: Sequence[ManifestFile]) -> int:
    """Return how many files no manifest names. Raises `UsageError` for those of another database,
    and for those of a later commit than the one that may have been under way."""
    commits = {one.store.timeline: one.store.commits for one in found}
    named = {file.place_in(directory) for one in found for file in one.files}
    unnamed = 0
    for path in list_store_files(directory / str(working.tenant)):
        unnamed += path not in named
        if path.suffix != ".parquet":
            continue
        footer, _ = read_untrusted_footer(path)
        if (footer.database, footer.tenant) != (working.database, working.tenant):
            raise _foreign(path)
        if footer.commit > commits.get(footer.timeline, 0) + 1:
            raise UsageError(
                "the newest manifest of the history store is missing",
                path=str(path),
                commit=footer.commit,
                newest=commits.get(footer.timeline, 0),
                hint="restore the directory as it was at one time: an older manifest would bring "
                "back what was replaced, purged and erased since",
            )
    return unnamed


def _foreign(path: Path) -> UsageError:
    return UsageError(
        "the directory has files of another database, or of another tenant",
        path=str(path),
        hint="give the directory of this database's store; move away what is not of it",
    )


class _Rebuild:
    """The rebuilding of one timeline."""

    def __init__(
        self, working: StoreWriter, found: ManifestFile, known: HistoryStore | None
    ) -> None:
        self._working, self._found, self._known = working, found, known
        self.files = list[HistoryFile]()
        self._last: LoggedMoment | None = None
        self._cut_from: int | None = None

    # Looking

    def check(self) -> None:
        """Read the files, and compare them with the log and with the rows that there are."""
        store, known = self._found.store, self._known
        if known is not None and known.commits > store.commits:
            raise UsageError(
                "the database has later rows than the directory has a manifest of",
                directory=store.directory,
                commits=known.commits,
                manifest=store.commits,
                hint="the directory is older than the database: restore it, or use `zapdb history "
                "verify --repair`",
            )
        missing = [f for f in self._found.files if not f.place_in(store.directory).is_file()]
        if missing:
            raise UsageError(
                "files that the manifest names are missing",
                path=str(missing[0].place_in(store.directory)),
                files=len(missing),
                hint="restore them from a backup, or mount the directory that they were moved to",
            )
        for file in self._found.files:
            _require_columns(store, file)
        self.files = [find_keys(f.place_in(store.directory), f) for f in self._found.files]
        for file in self.files:
            _require_as_written(store, file)
        self._compare_with_log()

    def _compare_with_log(self) -> None:
        """Find the last moment that files and log have alike."""
        store, working = self._found.store, self._working
        rows = _read_places(store, self.files)
        with working.storage.transaction(TransactionMode.READ) as connection:
            beginning = working.moments.find_beginning(connection).number

            def differs(row: tuple[int, ...]) -> bool:
                if row[0] <= beginning:
                    return False  # it was pruned, or is directly in front of the log
                found = working.moments.find_number(connection, row[0])
                return row != (found.number, found.stamp, found.commit_order, found.visible_at)

            alike = bisect_left(rows, True, key=differs)
            if alike == len(rows):
                return
            if not alike or rows[alike - 1][0] < store.purged_before:
                raise UsageError(
                    "the files and the change log have no moment in common",
                    begins=store.begins,
                    purged_before=store.purged_before,
                    hint="they are of another past than this database's: begin a store in another "
                    "directory, `zapdb history start DIRECTORY`",
                )
            self._last = working.moments.find_number(connection, rows[alike - 1][0])
            self._cut_from = rows[alike][0]

    # Cutting

    def cut(self) -> ManifestFile:
        """Return the rows; what the log does not have is cut off before."""
        found, last = replace(self._found, files=self.files), self._last
        if last is None:
            return found
        working, place = self._working, last.bookmark
        store = replace(
            found.store, ends=last.number, ends_bookmark=place, visible_at=last.visible_at
        )
        files, eras = self._cut_moments(store, last), list[HistoryEra]()
        for era in found.eras:
            mine = [f for f in self.files if f.place == era.place]
            if era.first_moment > last.number:
                continue
            if era.state != "baseline" and (era.last_moment or store.ends) >= last.number:
                made, era = cut_end(working, store, era, mine, last)
                mine = made
            files += mine
            eras.append(era)
        made_at = working.storage.now_us(working.storage.connection())
        numbered = replace(store, commits=store.commits + 1)
        cut = replace(found, written_at=made_at, store=numbered, eras=eras, files=files)
        with writing_to(store.directory):
            write_manifest(cut)
        return cut

    def _cut_moments(self, store: HistoryStore, last: LoggedMoment) -> list[HistoryFile]:
        """Return the files of moments up to the last one; that which goes on is written anew."""
        kept = list[HistoryFile]()
        for file in self.files:
            if file.kind != "moments" or file.first_moment > last.number:
                continue
            if file.last_moment > last.number:
                rows = read_moments(store.directory, file)
                rows = rows.filter(compute.less_equal(rows.column("moment"), last.number))
                loaded = LoadedStore(store, {})
                file = self._working.write_moments(loaded, file.first_moment, last, [rows])
            kept.append(file)
        return kept

    def describe(self) -> RebuiltTimeline:
        store = self._found.store
        return RebuiltTimeline(
            timeline=store.timeline,
            begins=store.begins,
            ends=store.ends if self._last is None else self._last.number,
            eras=len(self._found.eras),
            files=len(self.files),
            size_bytes=sum(file.size_bytes for file in self.files),
            cut_from=self._cut_from,
        )


def _store(working: StoreWriter, rebuilds: Sequence[_Rebuild]) -> None:
    """Put the rows into the database, and the follower's bookmark with those of the newest."""
    made = [rebuild.cut() for rebuild in rebuilds]
    with working.changing(TransactionMode.DDL) as connection:
        former = {one.store.timeline: _find_former(connection, one) for one in made}
        for one in made:
            delete_timeline(connection, one.store)
        others = list_timelines(connection, working.tenant)
        for one in made:
            is_newest = all(other.timeline < one.store.timeline for other in others)
            is_newest &= one is made[0]
            state = _follow(working, connection, one) if is_newest else one.store
            insert_store(connection, replace(state, former_directories=former[state.timeline]))
            insert_files(connection, one.files)
            for era in one.eras:
                save_era(connection, era)
        # Pasts that are open, in whatever process, drop what they have in memory and look again.
        raise_catalog_version(connection, working.tenant)


def _find_former(connection: Connection, made: ManifestFile) -> tuple[str, ...]:
    """Return the directories that a timeline's files were in, by its rows and its manifest, and are
    not any more."""
    found = {*made.store.former_directories}
    for row in list_timelines(connection, made.store.tenant):
        if row.timeline == made.store.timeline:
            found |= {row.directory, *row.former_directories}
            files = list_history_files(connection, row, state=None)
            found |= {file.directory for file in files if file.directory is not None}
    found -= {made.store.directory, *(file.directory for file in made.files)}
    return tuple(sorted(found))


def _follow(working: StoreWriter, connection: Connection, made: ManifestFile) -> HistoryStore:
    """Return the row of the newest timeline, which goes on behind its end if the log does."""
    is_unfinished = any(era.state == "baseline" for era in made.eras)
    try:
        write_follower(connection, working.log, made.store)
    except ChangesPruned:
        return replace(made.store, state="broken", problem=PRUNED)
    return replace(made.store, state="baseline" if is_unfinished else "follows", problem=None)


def _require_columns(store: HistoryStore, file: HistoryFile) -> None:
    """Raise `HistoryDamaged` for a file that can't be read within bounds, or has not the columns of
    its table. What reads it later, by row groups, or all keys or moments at once, has memory for
    that."""
    path = file.place_in(store.directory)
    _, schema = read_untrusted_footer(path)
    with reading_file(path, file):
        there = parquet.read_schema(path)
    if file.kind == "moments":
        wanted = MOMENTS_SCHEMA
    elif schema is None:
        raise make_damaged(path, file, "it lacks the schema of its table")
    else:
        try:
            names = find_columns(there, schema)
        except pyarrow.ArrowInvalid as error:
            raise make_damaged(path, file, str(error)) from error
        wanted = file_schema(schema, find_texts(schema, names))
    if not there.remove_metadata().equals(wanted):
        raise make_damaged(path, file, "it has other columns than its table")
    with reading_file(path, file), BoundedFile(path) as bounded:
        if not _fits(bounded, file):
            raise make_damaged(path, file, "its row groups or keys are too large")


def _fits(bounded: BoundedFile, file: HistoryFile) -> bool:
    """Whether the row groups of a file, and its keys, are as large as a writer's at most."""
    is_of_moments = file.kind == "moments"
    if is_of_moments and bounded.rows > HISTORY_MOMENTS_ROWS_MAX:
        return False
    for number, rows in enumerate(bounded.row_groups):
        if rows > ROW_GROUP_ROWS:
            return False
        size = 0
        for batch in bounded.read(ROW_GROUP_ROWS, [number]):
            size += batch.nbytes
            lengths = [0] if is_of_moments else compute.binary_length(batch.column(0))
            key_size = compute.max(lengths).as_py() or 0
            if size > HISTORY_ROW_GROUP_SIZE_BYTES_MAX or key_size > RECORD_KEY_SIZE_BYTES_MAX:
                return False
    return True


def _require_as_written(store: HistoryStore, file: HistoryFile) -> None:
    path = file.place_in(store.directory)
    problem = find_problem(path, file)
    if problem is not None:
        raise make_damaged(path, file, problem)


def _read_places(store: HistoryStore, files: Sequence[HistoryFile]) -> list[tuple[int, ...]]:
    """Return number, stamp, commit order and time of each moment in files, in order."""
    found = list[tuple[int, ...]]()
    for file in files:
        if file.kind == "moments":
            rows = read_moments(store.directory, file, _PLACE)
            at = len(_PLACE) - 1
            times = compute.fill_null(rows.column(at).cast(pyarrow.int64()), 0)
            columns = [rows.column(n).to_pylist() for n in range(at)]
            found += zip(*columns, times.to_pylist(), strict=True)
    return sorted(found)
