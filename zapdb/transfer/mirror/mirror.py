"""A mirror: plain tables of a tenant's current state, each change in them once.

    baseline     a table is made from a snapshot; which transactions that has seen is kept with it
    batch        changes after the bookmark that the baselines have not seen, and the new bookmark
    structure    a table gets other columns, another name, or is dropped; `mirror_structure`
    constraints  NOT NULL and foreign keys, once all is applied; `mirror_constraints`
    filling      columns whose values are others get them, page by page; `source_rows`
    checking     rows are compared with the records, page by page; `checking`

Each is a transaction of the target, so that a mirror that dies goes on where its tables are.

The structure of a table follows the active schema at once, however many changes of older schemas
the log still has. A record of such a change is read as it is now instead.
"""

from __future__ import annotations

import hashlib
import logging
import platform
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from zapdb.catalog import rows
from zapdb.catalog.row_kinds import DatabaseRow
from zapdb.database import ChangeFollower, Database
from zapdb.database.history_facet import switch_change_log_on
from zapdb.errors import (
    ChangesPruned,
    CorruptCatalog,
    StorageError,
    UsageError,
)
from zapdb.jobs.exclusive import ProgressReporter
from zapdb.log.change_log import START, Bookmark, ChangeLog
from zapdb.log.stamps import LogSnapshot
from zapdb.transfer.mirror.batch import ChangeBatch, LongField, TableChanges, collect_batch, rows_of
from zapdb.transfer.mirror.checking import CheckPass, FarBehind, check_page
from zapdb.transfer.mirror.mirror_constraints import (
    Lacking,
    drop_foreign_keys,
    drop_keys,
    find_lacking,
)
from zapdb.transfer.mirror.mirror_structure import (
    MirrorReport,
    StructureWork,
    find_broken,
    has_other_columns,
)
from zapdb.transfer.mirror.source_rows import SchemaMoved, fill_page, list_mirrored, take_changes
from zapdb.transfer.mirror.state import (
    AT_ONCE,
    MirroredTable,
    MirrorSource,
    MirrorState,
    begin_state,
    read_state,
    save_bookmark,
    save_foreign_keys,
    save_table,
)
from zapdb.transfer.mirror.target import (
    Constraint,
    ConstraintChange,
    KeysViolated,
    MirrorTarget,
    TargetBlocked,
    TargetBusy,
    TargetFailed,
    TargetSession,
)

logger = logging.getLogger("zapdb.mirror")

PROBLEM_RETRY_SECONDS: Final = 10.0
"""How often a mirror tries to go on with a table that something is in the way of."""
SUSPICION_SECONDS: Final = 60.0
"""How often all rows are compared because others have written to the target."""
CHECK_EVERY_SECONDS: Final = 86_400
"""How often all rows are compared anyway."""
FOLLOW_SECONDS: Final = 1.0
"""How often the follower in the database is moved on, which is a write there."""


@dataclass
class _Step:
    """What one transaction of the target has done."""

    bookmark: Bookmark
    done: MirrorReport = field(default_factory=MirrorReport)
    built: set[int] = field(default_factory=set)
    is_any: bool = True
    lacking: Lacking = field(default_factory=Lacking)
    """Where there was nothing else to do."""


class Mirror:
    """Keeps a target like the tenant of an open database; not safe to share between threads."""

    def __init__(
        self, db: Database, target: MirrorTarget, *, foreign_keys: bool | None = None
    ) -> None:
        """With `foreign_keys` None, a mirror has them that was begun with them, as by default."""
        self.db = db
        self.target = target
        self._foreign_keys = foreign_keys
        self._refused: dict[Constraint, float] = {}
        """Constraints that the target refused, and when they are tried again."""
        self.report = MirrorReport()
        self.source = read_source(db)
        self.passes: dict[int, CheckPass] = {}
        """The comparisons that are under way, by table number."""
        self.pace = ProgressReporter()
        """The job that it is."""
        self._remade: set[int] = set()
        """The tables that have to be made anew, by number."""
        self._long: dict[int, set[str]] = {}
        self._retry_at: dict[int, float] = {}
        self._at = (0, "")
        self._just_made: set[int] = set()
        self._follower: ChangeFollower | None = None
        self._followed_at = 0.0
        self._is_checked = False
        self._is_touched = False
        self._suspected_at = -SUSPICION_SECONDS
        self._known: dict[int, MirroredTable] = {}
        """The tables as the last step left them."""
        self._version = 0

    def require_place(self) -> None:
        """Raise `UsageError` for a target that is no place for this mirror, before anything is
        begun; not for one that can't be reached now."""
        with suppress(TargetBusy, TargetFailed):
            if self.target.is_there():
                with self.target.transaction() as session:
                    state = read_state(session)
                    if state is not None:
                        self._require_own(state)

    # The change log

    def switch_on(self) -> bool:
        """Switch the change log on for the tenant, those of its tables that come later too, unless
        that is configured; return whether it was off. Raises `UsageError` if it is configured as
        off for the tenant."""
        return switch_change_log_on(self.db._session, self.db._tenant, "a mirror")

    def _follow(self, bookmark: Bookmark, *, now: bool) -> None:
        """Keep the changes after a bookmark from being pruned."""
        follower = self._follower
        assert follower is not None, "it is taken when the state is read"
        if not now and time.monotonic() - self._followed_at < FOLLOW_SECONDS:
            return
        if follower.bookmark != bookmark:
            follower.advance(bookmark)
        self._followed_at = time.monotonic()

    # Steps

    def step(self) -> bool:
        """Do the next piece of work in one transaction of the target; False if there is none.

        Raises `TargetBusy` if the target can't be reached now, and `UsageError` for one that is no
        place for this mirror.
        """
        self._at = (0, "")
        try:
            with self.target.transaction() as session:
                state = read_state(session) or self._begin(session)
                self._require_own(state)
                self._take_follower(state.follower)
                step = self._work(session, state)
        except LongField as found:
            self._long.setdefault(found.number, set()).add(found.field)
            return True
        except SchemaMoved:
            self.db._session.reload()
            return True
        except (TargetBlocked, KeysViolated) as error:
            self._give_way(error)
            return True
        except TargetBusy:
            self._is_checked = False
            raise
        except TargetFailed:
            if not self._is_checked:
                raise
            self._is_checked = False  # a table may have been changed while the mirror ran
            return True
        self._is_checked = True
        self._remade -= step.built
        self._just_made = step.built
        self.report.add(step.done)
        for lost in step.done.lost:
            logger.warning("%s is gone, since the table was made again", lost)
        self._follow(step.bookmark, now=not step.is_any)
        return step.is_any or self._constrain(step.lacking)

    def _begin(self, session: TargetSession) -> MirrorState:
        """Begin in an empty place. What was a mirror at the same place before has no follower any
        more, or the log would be kept for it."""
        bookmark, beginning = self.db.change_log.end(), begin_name(self.target)
        for former in self.db.change_log.followers():
            if former.name.startswith(beginning):
                self.db.change_log.follower(former.name).remove()
        name = beginning + uuid.uuid4().hex[:10]
        self._take_follower(name)
        self._follow(bookmark, now=True)
        stamped_at, now = self._stamped_at(bookmark), self._now()
        wanted = self._foreign_keys is not False
        state = MirrorState(self.source, name, bookmark, stamped_at, now, {}, foreign_keys=wanted)
        begin_state(session, state)
        return state

    def _take_follower(self, name: str) -> None:
        if self._follower is None or self._follower.name != name:
            self._follower = self.db.change_log.follower(name)

    def _require_own(self, state: MirrorState) -> None:
        if state.source != self.source:
            raise UsageError(
                "the target is the mirror of another database, or of another tenant",
                target=self.target.shown,
                hint="give each mirror a schema or a file of its own, or drop this one first",
            )

    def _work(self, session: TargetSession, state: MirrorState) -> _Step:
        step = _Step(state.bookmark)
        if self._foreign_keys not in (None, state.foreign_keys):
            save_foreign_keys(session, state, bool(self._foreign_keys))
        if not self._is_checked:
            self._look_for_damage(session, state, step)
        if self.is_touched():
            self._suspect(session, state)
        self._known = state.tables
        if self._change_structure(session, state, step):
            return step
        try:
            self._require_same_log(state)
            batch = collect_batch(
                self.db.change_log.read(state.bookmark), state, self.pace.batch_records_max
            )
        except (ChangesPruned, UsageError) as error:  # or it is an older copy of the database
            logger.warning("all tables of the mirror are read again: %s", error)
            self._begin_again(session, state, step)
            return step
        if batch.is_ahead:
            self.db._session.reload()
        if batch.changes:
            self._apply(session, state, batch, step)
            stamped_at = self._stamped_at(batch.bookmark)
            save_bookmark(session, state, batch.bookmark, stamped_at, self._now())
            step.bookmark = batch.bookmark
        step.is_any = bool(batch.changes or batch.is_ahead or step.done.broken)
        step.is_any |= self._tend(session, state, step)
        if not step.is_any:
            step.lacking = find_lacking(session, state, self.db._session.catalog)
        return step

    def _require_same_log(self, state: MirrorState) -> None:
        """Raise `UsageError` if the database is a restored copy that does not know the bookmark.

        A copy from before the mirror began has no follower of its name. In any other, a stamp of
        the bookmark's number was made after the restoration, so it has another time.
        """
        assert self._follower is not None, "it is taken when the state is read"
        is_known = state.bookmark == START or self._follower._is_stored
        if is_known and state.stamped_at:
            found = self._stamped_at(state.bookmark)
            is_pruned = self.db.change_log.begin().stamp >= state.bookmark.stamp
            is_known = found == state.stamped_at or (not found and is_pruned)
        if not is_known:
            raise UsageError(
                "the database was restored, and the mirror was ahead of it",
                database=self.db._storage.shown_url,
                bookmark_stamp=state.bookmark.stamp,
            )

    def _stamped_at(self, bookmark: Bookmark) -> int:
        """The time of a bookmark's stamp; 0 if it has none."""
        storage = self.db._storage
        log = ChangeLog(storage, self.db._session.catalog.tenant)
        return log.read_time(storage.connection(), bookmark.stamp) or 0

    def _now(self) -> int:
        storage = self.db._storage
        return storage.now_us(storage.connection())

    def describe_problems(self) -> str:
        """Which tables are not kept, and why, in one line; empty without any."""
        texts = [f"{name}: {text}" for name, text in self.report.problems.items() if text]
        return f"tables are not kept: {'; '.join(texts)}" if texts else ""

    def has_other_tables(self) -> bool:
        """Whether the tables may be others than after the last step, though nothing changed in
        them; also if it is time to try again what something was in the way of."""
        version = self.db._session.catalog.version
        has_moved, self._version = version != self._version, version
        times = (*self._retry_at.values(), *self._refused.values())
        return has_moved or any(at <= time.monotonic() for at in times)

    def is_touched(self) -> bool:
        """Whether others have written to the target, so that all rows are to be compared."""
        self.target.look()
        self._is_touched |= self.target.was_touched()
        is_time = time.monotonic() - self._suspected_at > SUSPICION_SECONDS
        return self._is_touched and is_time

    def compare_due(self) -> bool:
        """Compare one page of a table whose rows were last compared long ago; False if there is
        none."""
        due = self.find_due()
        if due is None:
            return False
        step = _Step(START)
        try:
            with self.target.transaction() as session:
                state = read_state(session)
                is_there = state is not None and due in state.tables
                if state is None or not is_there or not state.tables[due].is_kept:
                    return False
                self._compare(session, state, due, step)
                self._known = dict(state.tables)
        except (SchemaMoved, LongField):
            return False
        except KeysViolated as error:
            self._give_way(error)
            return True
        self.report.add(step.done)
        return True

    def find_due(self) -> int | None:
        """The table that is to be compared next."""
        if self.passes:
            return next(iter(self.passes))
        limit = self._now() - CHECK_EVERY_SECONDS * 1_000_000
        old = [t for t in self._known.values() if t.is_kept and t.checked_at < limit]
        return min(old, key=lambda table: table.checked_at).number if old else None

    # Constraints

    def _constrain(self, lacking: Lacking) -> bool:
        """Add a constraint that the rows satisfy at the end of the log, or take away those that are
        not wanted; False if there is none."""
        if lacking.unwanted:
            with self.target.transaction() as session:
                if self._are_as_left(session, {key.table for key in lacking.unwanted}):
                    drop_keys(session, lacking.unwanted)
            return True
        now = time.monotonic()
        due = [one for one in lacking.constraints if self._refused.get(one, now) <= now]
        if not due:
            return False
        added = due[:1]
        try:
            with self.target.transaction() as session:
                if session.only_declares_keys:  # the table is written anew once
                    added = [one for one in due if one.table == due[0].table]
                if self._are_as_left(session, {due[0].table}):
                    self._add_constraints(session, due[0].table, added)
        except (TargetFailed, TargetBlocked, TargetBusy) as error:
            self._refuse(due[0], error)
        else:
            for one in added:
                self._refused.pop(one, None)
        return True

    def _are_as_left(self, session: TargetSession, names: set[str]) -> bool:
        """Whether nobody has changed the columns of tables since the mirror looked; what differs is
        made again by the next step."""
        state = read_state(session)
        tables = [] if state is None else [t for t in state.tables.values() if t.name in names]
        is_same = not any(table.is_kept and has_other_columns(session, table) for table in tables)
        self._is_checked &= is_same
        return is_same

    def _add_constraints(
        self, session: TargetSession, name: str, wanted: Sequence[Constraint]
    ) -> None:
        session.constrain(name, ConstraintChange.adding(wanted))
        state = read_state(session)
        for table in list(state.tables.values()) if state is not None else ():
            if state is not None and table.name == name:
                save_table(session, state, replace(table, columns=session.observe(table.name)))

    def _refuse(self, wanted: Constraint, error: Exception) -> None:
        """Go on without a constraint, and try it again later. Where rows are in its way, others
        have changed them, so they are compared first."""
        if wanted not in self._refused:
            logger.warning("%s of %s can't be added: %s", wanted.shown, wanted.table, error)
            self._is_touched |= isinstance(error, TargetFailed)
        self._refused[wanted] = time.monotonic() + PROBLEM_RETRY_SECONDS

    def _give_way(self, error: TargetBlocked | KeysViolated) -> None:
        """Go on without a table until what is in the way is gone, or without foreign keys until all
        tables agree again."""
        if isinstance(error, TargetBlocked):
            self._note_problem(str(error))
            return
        with self.target.transaction() as session:
            state = read_state(session)
            if state is None or not drop_foreign_keys(session, state):  # others have added one
                raise TargetFailed(str(error)) from error

    # Tables

    def _look_for_damage(self, session: TargetSession, state: MirrorState, step: _Step) -> None:
        """Have tables made anew or compared that are not as the mirror left them."""
        for number, part in find_broken(session, state).items():
            table = state.tables[number]
            step.done.broken.append(table.name)
            if number in self._just_made and part == "columns":
                raise StorageError(
                    "a table of the mirror was changed as soon as it was made",
                    target=self.target.shown,
                    table=table.name,
                    hint="another program writes to it: let it read only",
                )
            if part == "columns":
                self._remade.add(number)
            else:
                save_table(session, state, replace(table, checked_at=AT_ONCE))

    def _suspect(self, session: TargetSession, state: MirrorState) -> None:
        """Have all rows compared at once."""
        self._is_touched, self._suspected_at = False, time.monotonic()
        for table in list(state.tables.values()):
            if table.is_kept:
                save_table(session, state, replace(table, checked_at=AT_ONCE))

    def _change_structure(self, session: TargetSession, state: MirrorState, step: _Step) -> bool:
        work = StructureWork(
            self.db,
            session,
            state,
            self._remade,
            self._long,
            self._now(),
            self.pace,
            step.done,
            step.built,
        )
        now = time.monotonic()
        waiting = {number for number, at in self._retry_at.items() if at > now}
        wanted = list_mirrored(self.db._session.catalog)
        try:
            is_any = work.next_step(wanted, waiting)
        finally:
            self._at = work.at
        if is_any:
            self._retry_at.pop(work.at[0], None)
        return is_any

    def _note_problem(self, text: str) -> None:
        """Leave a table as it is, and go on with the others; it is tried again later."""
        number, name = self._at
        if not number:
            raise StorageError(
                "the mirror's target reported an error", target=self.target.shown, error=text
            )
        with self.target.transaction() as session:
            state = read_state(session) or self._begin(session)
            known = state.tables.get(number) or MirroredTable(number, name, 0, LogSnapshot(0, ()))
            save_table(session, state, replace(known, problem=text, is_stale=True, filling=None))
        self._retry_at[number] = time.monotonic() + PROBLEM_RETRY_SECONDS
        self.report.problems[known.name] = text

    def _begin_again(self, session: TargetSession, state: MirrorState, step: _Step) -> None:
        """Go on from the end of the log, with all rows read again."""
        bookmark = self.db.change_log.end()
        self._follow(bookmark, now=True)
        for table in list(state.tables.values()):
            save_table(session, state, replace(table, is_stale=True, consistent_at=START))
        save_bookmark(session, state, bookmark, self._stamped_at(bookmark), self._now())
        step.bookmark = bookmark

    # Batches

    def _apply(
        self, session: TargetSession, state: MirrorState, batch: ChangeBatch, step: _Step
    ) -> None:
        for number, changes in batch.tables.items():
            if number not in batch.stale:
                self._apply_table(session, state, state.tables[number], changes, step)
        for number in batch.stale:
            save_table(session, state, replace(state.tables[number], is_stale=True))
        step.done.changes += batch.changes
        step.done.untold = max(step.done.untold, batch.changes)
        step.done.batches += 1

    def _apply_table(
        self,
        session: TargetSession,
        state: MirrorState,
        table: MirroredTable,
        changes: TableChanges,
        step: _Step,
    ) -> None:
        descriptor = list_mirrored(self.db._session.catalog).get(table.number)
        if descriptor is None or descriptor.revision != table.revision:
            raise SchemaMoved
        new = take_changes(self.db, session, table, descriptor.schema, changes)
        if changes.older:
            table = replace(table, consistent_at=max(table.consistent_at, self.db.change_log.end()))
        deleted = session.delete(table.name, new.plain, new.keys)
        inserted = session.insert(
            table.name,
            new.plain,
            step.done.measured(rows_of(new.records, new.plain, table.number)),
        )
        if state.bookmark < table.consistent_at:
            table = replace(table, rows=table.rows + inserted - deleted)
        else:
            table = replace(table, rows=table.rows + inserted - new.there)
            if deleted != new.there:  # others have deleted or added some
                table = replace(table, checked_at=AT_ONCE)
                step.done.broken.append(table.name)
        save_table(session, state, table)

    # Rows that are not changes

    def _tend(self, session: TargetSession, state: MirrorState, step: _Step) -> bool:
        """Fill one page of columns, and compare one page of a table that others changed."""
        is_any = False
        for table in list(state.tables.values()):
            if not table.is_kept:
                continue
            if table.filling is not None:
                fill_page(self.db, session, state, table)
                is_any = True
            elif table.checked_at == AT_ONCE:
                is_any |= self._compare(session, state, table.number, step)
        return is_any

    def _compare(
        self, session: TargetSession, state: MirrorState, number: int, step: _Step
    ) -> bool:
        """Compare one page; False if more changes are waiting than that admits."""
        found = replace(self.passes.get(number) or CheckPass())
        before = found.found
        try:
            check_page(self.db, session, state, number, found)
        except FarBehind:
            return False
        if found.is_done:
            self.passes.pop(number, None)
        else:
            self.passes[number] = found
        step.done.repaired += found.found - before
        return True


def begin_name(target: MirrorTarget) -> str:
    """What the names of the followers begin with that mirrors at one address have had; a file is
    another one on each host."""
    place = target.shown if target.engine == "postgresql" else f"{platform.node()} {target.shown}"
    return f"mirror {target.engine} {hashlib.sha256(place.encode()).hexdigest()[:10]} "


def read_source(db: Database) -> MirrorSource:
    """Which database and tenant an open database is."""
    with db._session.reading() as connection:
        row = rows.get(connection, DatabaseRow)
    if row is None:
        raise CorruptCatalog(
            "the catalog's `database` row is missing", hint="restore it from a backup"
        )
    return MirrorSource(row.id, db._session.catalog.tenant)
