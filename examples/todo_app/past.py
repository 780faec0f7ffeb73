"""What a list looked like: its moments by the change log, and the list at one of them."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Any, Final
from uuid import UUID

import zapdb

MOMENTS_MAX: Final = 200
"""As many places as the slider has."""
CHANGES_MAX: Final = 20_000
"""Changes of all lists that are looked through for those of one."""
LOGGED: Final = ("lists", "items")
"""The tables whose past can be asked for; sessions are nobody's business."""


@dataclass(frozen=True, slots=True)
class ListChange:
    """What became of an item, in words; of the list itself if `item` is None."""

    item: UUID | None
    words: str
    title: str
    is_gone: bool


@dataclass(frozen=True, slots=True)
class ListMoment:
    """A moment at which a list was changed, when and by whom."""

    number: int
    made_at: datetime.datetime
    principal: str
    changes: tuple[ListChange, ...]


@dataclass(frozen=True, slots=True)
class PastList:
    """A list as it was at a moment; `gone` are the items that went at that moment."""

    title: str
    items: list[Any]
    gone: list[Any]


def log_lists(db: zapdb.Database) -> None:
    """Have changes of lists and items recorded from now on."""
    for table in LOGGED:
        db.admin.set_setting("change_log", "on", tenant="default", table=table)


class ListPast:
    """The past of lists, which any thread may ask for."""

    def __init__(self, db: zapdb.Database) -> None:
        self.db = db

    def moments_of(self, key: UUID, until: int | None) -> list[ListMoment]:
        """The newest moments of a list, or those up to one; oldest first."""
        audited = islice(self.db.audit(until=until), CHANGES_MAX)
        found = (made for made in audited if _is_of(made, key))
        grouped = groupby(found, lambda made: made.moment.number)
        moments = [_summarize(number, list(changes), key) for number, changes in grouped]
        return moments[:MOMENTS_MAX][::-1]

    def read(self, key: UUID, moment: ListMoment) -> PastList:
        """Raises `HistoryUnavailable` if a migration has changed stored values since."""
        past = self.db.at(moment.number)
        found = past.table("lists").find(key)
        items = list(past.table("items").where(list=key).order_by("done", "-id"))
        went = [change.item for change in moment.changes if change.is_gone]
        before = self.db.at(moment.number - 1).table("items").get_many(went) if went else []
        gone = [item for item in before if item is not None]
        return PastList("" if found is None else found.title, items, gone)


def _is_of(made: Any, key: UUID) -> bool:
    if made.table == "lists":
        return bool(made.key == (key,))
    records = (made.before, made.after) if made.table == "items" else ()
    return any(one is not None and one.list == key for one in records)


def _summarize(number: int, audited: list[Any], key: UUID) -> ListMoment:
    first = audited[0]
    changes = tuple(_make_change(made, key) for made in reversed(audited))
    return ListMoment(number, first.made_at, first.principal, changes)


def _make_change(made: Any, key: UUID) -> ListChange:
    before, after = made.before, made.after
    title = (after or before).title
    if made.table == "lists":
        words = {"insert": "List begun", "delete": "List deleted"}.get(made.operation, "Renamed to")
        return ListChange(None, words, title, is_gone=False)
    item = made.key[0]
    if before is None:
        return ListChange(item, "Added", title, is_gone=False)
    if after is None:
        return ListChange(item, "Deleted", title, is_gone=True)
    if before.list != after.list:
        is_away = after.list != key
        return ListChange(item, "Moved away" if is_away else "Moved here", title, is_gone=is_away)
    words = "Done" if after.done else "Open again"
    if made.fields != ("done",):
        words = _name_fields(made.fields)
    return ListChange(item, words, title, is_gone=False)


def _name_fields(fields: Iterable[str]) -> str:
    return f"New {', '.join(fields)}"
