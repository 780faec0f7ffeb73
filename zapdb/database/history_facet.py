"""The history store of an open database: `db.history`; see `zapdb.past.files`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zapdb.catalog.cluster.leases import Owner
from zapdb.catalog.stored_settings import read_settings, switch_log_on
from zapdb.database.history_threads import HistoryThreads
from zapdb.errors import HistoryBehind, HistoryPurged, UsageError
from zapdb.limits import HISTORY_WAIT
from zapdb.past.files.history_manifest import FOLLOWED, read_store
from zapdb.past.reading.moment import (
    Moment,
    When,
    find_moment,
    find_newest_moment,
    require_come,
)
from zapdb.storage.retries import attempts
from zapdb.tables.did_you_mean import Facet
from zapdb.tables.session import Session
from zapdb.values.timestamp import EPOCH

if TYPE_CHECKING:
    from zapdb.past.files.erasing import HistoryErasure
    from zapdb.past.files.manifest_rebuilding import HistoryRebuild
    from zapdb.past.files.moving import HistoryMove
    from zapdb.past.files.purge import HistoryPurge
    from zapdb.past.files.repairing import HistoryRepair
    from zapdb.past.files.stores import HistoryStatus
    from zapdb.past.reading.verification import HistoryVerification


class DatabaseHistory(Facet):
    """The history store: the past of the tables in Parquet files, written behind the change log.

    `db.history` returns it, for the tenant of that database. Needs the extra `sql`.
    """

    def __init__(self, session: Session, threads: HistoryThreads) -> None:
        self._session = session
        self._threads = threads

    def __repr__(self) -> str:
        return f"<history store of {self._session.storage.shown_url}>"

    def start(self, directory: str | PathLike[str] | None = None) -> HistoryStatus:
        """Begin a store in a directory, or go on with a stopped one.

        Its history begins now, with the tables as they are, which `run` or `flush` read first. A
        directory may be shared by the tenants of one database. Raises `UsageError` without a
        directory for a new store, for one that is used by something else, and while the change log
        is off.
        """
        from zapdb.past.files.stores import hold_store, start_store

        session = self._session
        with session.reading() as connection:
            settings = read_settings(connection, session.catalog.tenant)
        if "on" not in settings.values.values():
            raise UsageError(
                "the change log is off, and a history store is made of it",
                hint='db.admin.set_setting("change_log", "on") switches it on',
            )
        place = None if directory is None else Path(directory)
        with hold_store(session.storage, session.catalog.tenant, Owner.here()) as working:
            start_store(working, place)
        return self.status()

    def run(self, stop: threading.Event | None = None) -> None:
        """Follow the change log until `stop` is set, or until the store is stopped; in a thread or
        a process of its own.

        Changes wait until there are many, or one is old: see the settings
        `history_store_flush_changes` and `history_store_flush_seconds`. While another process
        follows, it waits to take its place. Raises `UsageError` without a store, and
        `ChangesPruned`.
        """
        from zapdb.past.files.follower_run import run_store

        session = self._session
        run_store(session.storage, session.catalog.tenant, stop=stop or threading.Event())

    def follow(self) -> HistoryStatus:
        """Follow the change log in a thread of this process until the database is closed.

        So no process of its own is needed, as `run` does; where several processes follow, one
        works, and another takes its place when it ends. If the database can't be reached for a
        while, or the store is stopped and started again, it goes on. Raises `UsageError` without a
        store, and for one that is stopped or broken.
        """
        status = self.status()
        self._session.storage.require_writable()
        if status.state not in FOLLOWED:
            raise UsageError(
                f"the history store is {status.state}",
                directory=status.directory,
                hint="db.history.start() goes on with it, or begins a new timeline",
            )
        self._threads.start(self._session.catalog.tenant)
        return self.status()

    def flush(self) -> HistoryStatus:
        """Take all changes until now into files at once; a process that follows pauses meanwhile.

        Raises `LeaseHeld` if that does not come to the end of its step for ten minutes,
        `HistoryUnreachable` if the directory is not there, `DiskFull`, `ChangesPruned`, and
        `UsageError` without a store and for a stopped one.
        """
        from zapdb.past.files.follower_run import flush_store

        session = self._session
        flush_store(session.storage, session.catalog.tenant)
        return self.status()

    def purge(self, before: When, *, exact: bool = False, dry_run: bool = False) -> HistoryPurge:
        """Delete the oldest part of the store; moments before `before` are refused from then on.

        Whole eras go; so the files of the one that has the moment stay. With `exact`, they are
        written anew without what ended before it. What goes is deleted after
        `history_grace_seconds`. The change log is not pruned by it. Raises `UsageError` without a
        store and for a moment that is not in files yet, and `LeaseHeld`.
        """
        from zapdb.past.files.purge import find_stored_before, purge_store
        from zapdb.past.files.stores import take_over_store

        session = self._session
        with take_over_store(session.storage, session.catalog.tenant) as working:
            kept_from = _find_kept(session, before, partial(find_stored_before, working))
            return purge_store(working, kept_from, exact=exact, dry_run=dry_run)

    def move(self, before: When | None, directory: str | PathLike[str]) -> HistoryMove:
        """Move the files of eras that ended before a moment to another directory.

        They are read there from then on; if it is not there, these moments raise
        `HistoryUnreachable`, and no others. Interrupted, the next call goes on.

        With None, the whole store goes on in the directory, which has to be new. Its former files
        are copied and stay: those of a copied database are still the original's.

        Raises `UsageError` without a store and for a directory that is used by something else,
        `MomentInFuture`, `HistoryUnreachable`, `DiskFull`, `HistoryDamaged` and `LeaseHeld`.
        """
        from zapdb.past.files.moving import move_eras, move_store
        from zapdb.past.files.purge import find_stored_before
        from zapdb.past.files.stores import take_over_store

        session = self._session
        with take_over_store(session.storage, session.catalog.tenant) as working:
            if before is None:
                return move_store(working, Path(directory))
            number = _find_kept(session, before, partial(find_stored_before, working))
            require_come(number, find_newest_moment(session).number)
            return move_eras(working, number, Path(directory))

    def verify(self, *, sample: int = 5) -> HistoryVerification:
        """Read all files of the store and compare them with their digests and rows; and compare the
        tables at `sample` moments with those that the change log leads back to.

        Raises `UsageError` without a store.
        """
        from zapdb.past.reading.verification import verify_store

        return verify_store(self._session, sample)

    def repair(self, *, dry_run: bool = False) -> HistoryRepair:
        """Make files anew that are missing or are not what was written, where that is understood:
        from a copy that was moved, from the change log, or their rows of the manifest from them.

        The rest is left as it is, and named; so is all with `dry_run`. Raises `UsageError` without
        a store, `LeaseHeld`, `HistoryUnreachable` and `DiskFull`.
        """
        from zapdb.past.files.repairing import repair_store
        from zapdb.past.files.stores import require_store, take_over_store

        session = self._session
        require_store(session.storage.connection(), session.catalog.tenant)
        if not dry_run:
            session.storage.require_writable()
        with take_over_store(session.storage, session.catalog.tenant) as working:
            return repair_store(working, dry_run=dry_run)

    def rebuild_manifest(
        self, directory: str | PathLike[str], *, dry_run: bool = False
    ) -> HistoryRebuild:
        """Make the rows anew that say which files of a store hold what, from the store's directory:
        when the database has lost them, or was restored from a backup that is older than the files.

        If the files have moments that the change log does not have, or has otherwise, they are
        written anew up to the last one that both have. With `dry_run`, nothing is changed. Nothing
        is rebuilt, by `UsageError`, from a directory without a manifest, if files are missing or
        are of another database, or if the database has later rows; raises `LeaseHeld`,
        `HistoryDamaged`, `HistoryUnreachable` and `DiskFull`, too.
        """
        from zapdb.past.files.manifest_rebuilding import rebuild_manifest
        from zapdb.past.files.stores import take_over_store

        session = self._session
        if not dry_run:
            session.storage.require_writable()
        with take_over_store(session.storage, session.catalog.tenant) as working:
            return rebuild_manifest(working, Path(directory), dry_run=dry_run)

    def wait(self, until: When | None = None, seconds: float = 60.0) -> HistoryStatus:
        """Wait until the store has all changes up to a moment in files, or up to now.

        Whoever follows takes them when there are many of them, or one is old: see `flush` and
        `history_store_flush_seconds`. Raises `HistoryBehind` if it has not after `seconds`.
        """
        session = self._session
        moment = find_newest_moment(session) if until is None else find_moment(session, until)
        for _ in attempts(HISTORY_WAIT.within(seconds)):
            with self._session.reading() as connection:
                store = read_store(connection, self._session.catalog.tenant)
            if store is None or store.ends >= moment.number:
                return self.status()
        status = self.status()
        raise HistoryBehind(
            "the history store has not taken the changes into files yet",
            seconds=seconds,
            ends=status.ends,
            behind=status.lag.changes,
            problem=status.problem,
            hint="`zapdb history flush` takes them at once; `zapdb history status` says what is in "
            "the way",
        )

    def erase(
        self,
        table: str,
        /,
        *key: Any,
        fields: Sequence[str] = (),
        now: bool = False,
        sweep: bool = True,
    ) -> HistoryErasure:
        """Erase a deleted record from the past for good, by the values of its key: from the change
        log, from what was archived, and from the files of the store, if there is one.

        With `fields`, only their past values are erased, and the record may exist: it stays with
        the values that it has now. An erased value reads as None, or, if the field was ever
        required, as the neutral value of its type, such as 0 or "".

        Large values of changes that were pruned from the log, or not logged, have no owner any
        more. So all that nothing owns are swept in the end, which reads all records of all tables
        with large values; who erases many records leaves that to the last, with `sweep=False` for
        the others.

        Returns the proof of what was deleted. Files that a reader has pinned are deleted when it
        has ended, after `history_grace_seconds` at the latest, or at once with `now`. If the
        process is killed, or a directory is not there, the next process that follows the
        store goes on.
        Raises `UsageError` while the record exists, or a follower of the change log has not read
        its last change, and `LeaseHeld`; for fields, as `erase_fields` does.
        """
        from zapdb.past.files.erasing import erase_fields, erase_record, sweep_unowned

        session = self._session
        session.storage.require_writable()
        place = session.storage, session.catalog.tenant, table
        if fields:
            done = erase_fields(*place, _as_names(fields), key, now=now)
        else:
            done = erase_record(*place, key, now=now)
        return sweep_unowned(session.storage, done) if sweep else done

    def erase_fields(
        self, table: str, /, *fields: str, now: bool = False, sweep: bool = True
    ) -> HistoryErasure:
        """Erase the past values of fields from the past of all records of a table; what records
        have now stays. See `erase`.

        A field is meant by its name, or by the last name that it had. Raises `UsageError` for a
        field of the key, and while records that are not converted hold a dropped one;
        `UnknownField`; and `HistoryBehind` while the files lack a migration of the table.
        """
        from zapdb.past.files.erasing import erase_fields, sweep_unowned

        session = self._session
        session.storage.require_writable()
        if not fields:
            raise UsageError("no field is named", hint='db.history.erase_fields("people", "note")')
        place = session.storage, session.catalog.tenant, table
        done = erase_fields(*place, fields, None, now=now)
        return sweep_unowned(session.storage, done) if sweep else done

    def stop(self) -> HistoryStatus:
        """Stop following, in whatever process. The change log then keeps what the store lacks,
        until it is started again. Raises `UsageError` without a store."""
        from zapdb.past.files.stores import stop_store

        stop_store(self._session.storage, self._session.catalog.tenant)
        return self.status()

    def status(self) -> HistoryStatus:
        """Return what the store holds, and how far it is behind; raises `UsageError` without a
        store."""
        from zapdb.past.files.stores import read_history_status

        with self._session.reading() as connection:
            return read_history_status(connection, self._session.catalog.tenant)


def _as_names(fields: Sequence[str]) -> Sequence[str]:
    return [fields] if isinstance(fields, str) else fields


def _find_kept(session: Session, before: When, find_stored: Callable[[int], int | None]) -> int:
    """Return the number of the moment that is meant. Of a time before the beginning of a pruned
    change log, the store knows it."""
    if isinstance(before, Moment):
        return before.number
    if isinstance(before, int) and not isinstance(before, bool):
        return before
    try:
        return find_moment(session, before).number
    except HistoryPurged:
        found = None
        if isinstance(before, datetime):
            found = find_stored((before - EPOCH) // timedelta(microseconds=1))
        if found is None:
            raise
        return found


def switch_change_log_on(session: Session, name: str, what: str) -> bool:
    """As `switch_log_on`, for the tenant of a session, which obeys it at once."""
    was_off = switch_log_on(session.storage, session.catalog.tenant, name, what)
    if was_off:
        session.reload()
    return was_off
