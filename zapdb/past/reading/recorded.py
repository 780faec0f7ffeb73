"""An answer about the past that is empty because nothing was recorded is refused."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime
from typing import Any, TypeVar

from zapdb.catalog.settings import CHANGE_LOG
from zapdb.catalog.stored_settings import read_history_settings
from zapdb.errors import HistoryGap
from zapdb.past.reading.moment import When, find_moment, find_newest_moment
from zapdb.tables.changes import within_snapshot
from zapdb.tables.session import Session

Told = TypeVar("Told")


def is_recording(session: Session, tables: Collection[int] | None) -> bool:
    """Whether the change log is on for one of some tables, by number; without any, for one of the
    tenant's, or for those that come."""
    numbers = tables
    if numbers is None:
        numbers = [descriptor.schema.number for descriptor in session.catalog.tables.values()]
    with within_snapshot(session) as connection:
        settings = read_history_settings(connection, session.catalog.tenant)
    asked = [*numbers] if tables else [None, *numbers]
    return any(settings.get(CHANGE_LOG, number) == "on" for number in asked)


def require_recorded(
    session: Session,
    found: Iterator[Told],
    tables: Collection[int] | None = None,
    until: When | None = None,
) -> Iterator[Told]:
    """Yield what is found up to a moment. Raises `HistoryGap` if that is nothing, while the change
    log is off: whether anything was changed since its last moment is not known."""
    is_empty = True
    for one in found:
        is_empty = False
        yield one
    if is_empty and not is_recording(session, tables) and _is_behind_all(session, until):
        raise make_unrecorded()


def make_unrecorded(**context: Any) -> HistoryGap:
    return HistoryGap(
        "the change log is off, and it has nothing of what is asked",
        **context,
        hint="`zapdb settings set change_log on`, or db.admin.set_setting('change_log', 'on'), "
        "records changes from then on",
    )


def _is_behind_all(session: Session, until: When | None) -> bool:
    """Whether a question that ends there also asks for what comes after the log's last moment."""
    if until is None:
        return True
    newest = find_newest_moment(session).number
    return isinstance(until, datetime) and find_moment(session, until).number == newest
