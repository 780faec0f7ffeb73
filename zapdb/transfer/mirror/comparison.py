"""All rows of a mirror compared with the records, beside a mirror that runs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from zapdb.database import Database
from zapdb.transfer.mirror.batch import LongField
from zapdb.transfer.mirror.checking import CheckPass, FarBehind, check_page
from zapdb.transfer.mirror.mirror_constraints import drop_foreign_keys, find_lacking
from zapdb.transfer.mirror.mirror_status import require_mirror, require_place
from zapdb.transfer.mirror.mirror_structure import find_broken
from zapdb.transfer.mirror.source_rows import SchemaMoved
from zapdb.transfer.mirror.state import MirrorState
from zapdb.transfer.mirror.target import (
    KeysViolated,
    MirrorTarget,
    TargetBusy,
    TargetFailed,
    TargetSession,
    explain,
)

COLUMNS_CHANGED = "others have changed or dropped it: `zapdb mirror run` makes it again"
NOT_KEPT = "it is not kept now: see `zapdb mirror status`"
MOVED = "its schema has changed: run `zapdb mirror run`, and check again"
FAR_BEHIND = "the mirror is too far behind: run `zapdb mirror run`, and check again"


@dataclass(frozen=True, slots=True)
class TableComparison:
    """A table that was compared: rows that it lacked or had with other values, and rows of no
    record. With a `problem`, it was not compared to the end."""

    name: str
    compared: int
    damaged: int
    foreign: int
    problem: str = ""

    @property
    def found(self) -> int:
        return self.damaged + self.foreign


def compare_mirror(
    db: Database, target: MirrorTarget, *, repair: bool = False
) -> list[TableComparison]:
    """Compare all tables, page by page; with `repair`, put right what differs.

    Raises `UsageError` for a target that is not this database's mirror, and `StorageError`.
    """
    try:
        require_place(target)
        with target.transaction() as session:
            state = require_mirror(session, target, db)
            broken = find_broken(session, state)
        tables = sorted(state.tables.values(), key=lambda table: table.name)
        return [
            _failed(table.name, COLUMNS_CHANGED)
            if broken.get(table.number) == "columns"
            else _compare(db, target, table.number, table.name, CheckPass(repair))
            for table in tables
        ]
    except (TargetBusy, TargetFailed) as error:
        raise explain(target, error, "the mirror's target can't be read") from error


def _failed(name: str, problem: str, done: CheckPass | None = None) -> TableComparison:
    found = done or CheckPass()
    return TableComparison(name, found.compared, found.damaged, found.foreign, problem)


def _compare(
    db: Database, target: MirrorTarget, number: int, name: str, done: CheckPass
) -> TableComparison:
    lacks = ""
    try:
        while not done.is_done:
            page = replace(done)
            try:
                with target.transaction() as session:
                    state = require_mirror(session, target, db)
                    table = state.tables.get(number)
                    if table is None or not table.is_kept or table.filling is not None:
                        return _failed(name, NOT_KEPT, done)
                    check_page(db, session, state, number, page)
                    lacks = _describe_lacking(session, state, db, name)
            except KeysViolated:  # rows of other tables are put right later
                with target.transaction() as session:
                    state = require_mirror(session, target, db)
                    if not drop_foreign_keys(session, state):  # others have added a foreign key
                        raise
                continue
            done = page
    except (SchemaMoved, LongField):
        return _failed(name, MOVED, done)
    except FarBehind:
        return _failed(name, FAR_BEHIND, done)
    return TableComparison(name, done.compared, done.damaged, done.foreign, lacks)


def _describe_lacking(session: TargetSession, state: MirrorState, db: Database, name: str) -> str:
    lacking = find_lacking(session, state, db._session.catalog).constraints
    texts = [one.shown for one in lacking if one.table == name]
    return f"it lacks {'; '.join(texts)}: `zapdb mirror run` adds it" if texts else ""
