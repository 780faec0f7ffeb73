"""What the application asks of its database, and nothing of the web.

Every method is one transaction, or one read, that any thread may call. What is refused is an error
of zapdb, and the pages say it in words of their own.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args
from uuid import UUID

import zapdb
from examples.todo_app import models
from examples.todo_app.days import WEEK, now_in
from examples.todo_app.models import Item, Language, Priority, Tag, Tagging, TodoList, User
from examples.todo_app.past import log_lists
from zapdb.database import Page, Query
from zapdb.errors import InvalidCursor, RecordNotFound

MIGRATIONS: Final = Path(__file__).parent / "migrations"
PAGE_ITEMS: Final = 20

Due = Literal["overdue", "today", "week", "none"]
State = Literal["open", "done", "all"]
Sort = Literal["newest", "due", "priority", "title", "reminder"]


@dataclass(frozen=True, slots=True)
class Choice:
    """Which items, and in which order."""

    state: State = "open"
    due: Due | None = None
    priority: Priority | None = None
    tag: UUID | None = None
    sort: Sort = "newest"

    @classmethod
    def of(cls, given: Mapping[str, str], **defaults: Any) -> Choice:
        """From the query of a URL; what is no choice is passed over."""
        chosen: dict[str, Any] = dict(defaults)
        options = {"state": get_args(State), "due": get_args(Due), "sort": get_args(Sort)}
        for name, values in options.items():
            if given.get(name) in values:
                chosen[name] = given[name]
        if given.get("priority") in PRIORITIES:
            chosen["priority"] = given["priority"]
        with suppress(KeyError, ValueError):
            chosen["tag"] = UUID(given["tag"])
        return cls(**chosen)


PRIORITIES: Final[tuple[Priority, ...]] = ("high", "normal", "low")
LANGUAGES: Final[Mapping[Language, str]] = {
    "cs": "Čeština",
    "de": "Deutsch",
    "en": "English",
    "es": "Español",
    "sv": "Svenska",
}
"""Each has an index on the titles of items in the order of its alphabet."""


def open_database(url: str) -> zapdb.Database:
    """The database, made or brought up to the migrations beside this file.

    Changes of lists are recorded, for the page that shows their past. In the background it builds
    the indexes that are new, and an hour later it converts the records that are old: until then, a
    rollback finds them as they were.
    """
    db = zapdb.open(url, migrations=MIGRATIONS, apply="auto", models=models)
    db.admin.set_setting("profile", "production")
    log_lists(db)
    return db


class Todo:
    """The tables, and what is done with them."""

    def __init__(self, db: zapdb.Database) -> None:
        self.db = db
        self.users = db.table(User)
        self.lists = db.table(TodoList)
        self.items = db.table(Item)
        self.tags = db.table(Tag)
        self.taggings = db.table(Tagging)

    # Lists

    def lists_of(self, user: User) -> list[TodoList]:
        """In the alphabet of their owner."""
        mine = self.lists.where(self.lists.f.owner == user.id)
        return list(mine.order_by(self.lists.f.title.collated(user.language)))

    def list_of(self, user: User, key: UUID) -> TodoList:
        """Raises `RecordNotFound`, also for a list of somebody else."""
        return self.lists.where(self.lists.f.id == key, self.lists.f.owner == user.id).one()

    # Items

    def items_in(self, user: User, lists: Iterable[UUID], choice: Choice) -> Query[Item]:
        items = self.items
        # Of a single list, the index has all in order; of several, they are merged.
        query = items.where(items.f.list.in_(lists)).include("list")
        if choice.state != "all":
            query = query.where(items.f.done == (choice.state == "done"))
        if choice.priority:
            query = query.where(items.f.priority == choice.priority)
        if choice.tag:
            tagged = self.taggings.where(self.taggings.f.tag == choice.tag)
            query = query.where(items.f.id.in_(tagging.item for tagging in tagged))
        return self._sort(user, self._limit(user, query, choice.due), choice.sort)

    def _limit(self, user: User, query: Query[Item], due: Due | None) -> Query[Item]:
        today, field = now_in(user.zone).date(), self.items.f.due
        match due:
            case "overdue":
                return query.where(field < today)
            case "today":
                return query.where(field == today)
            case "week":
                return query.where(field.between(today, today + WEEK))
            case "none":
                return query.where(field.is_null())
        return query

    def _sort(self, user: User, query: Query[Item], sort: Sort) -> Query[Item]:
        items = self.items
        match sort:
            case "newest":
                return query.order_by("-id")  # they are made in the order of time
            case "due":
                return query.order_by(items.f.due.nulls_last())
            case "reminder":
                return query.where(items.f.reminder >= now_in(user.zone)).order_by("reminder")
            case "priority":
                return query.order_by("-priority")
            case "title":
                return query.order_by(items.f.title.collated(user.language))

    def page_of(self, query: Query[Item], cursor: str | None) -> tuple[Page[Item], bool]:
        """A page, and whether it is the one that the cursor meant: else it is the first."""
        try:
            return query.page(PAGE_ITEMS, cursor), True
        except InvalidCursor:
            return query.page(PAGE_ITEMS), False

    def item_of(self, user: User, key: UUID) -> Item:
        """Raises `RecordNotFound`, also for an item of somebody else."""
        found = self.items.where(self.items.f.id == key).include("list").one()
        within = found.follow("list")
        if within is None or within.owner != user.id:
            raise RecordNotFound("no record has this key", table="items", key=key)
        return found

    def add_item(
        self,
        user: User,
        list_: UUID,
        title: str,
        *,
        due: datetime.date | None = None,
        priority: Priority = "normal",
        reminder: datetime.datetime | None = None,
        labels: Iterable[str] = (),
    ) -> Item:
        def add() -> Item:
            within = self.list_of(user, list_).id
            item = self.items.insert(
                list=within, title=title, due=due, priority=priority, reminder=reminder
            )
            self._tag(user, item.id, labels)
            return item

        return self.db.run(add)

    def edit_item(
        self,
        user: User,
        key: UUID,
        *,
        etag: str,
        changes: Mapping[str, Any],
        labels_seen: Iterable[str],
        labels: Iterable[str],
    ) -> Item:
        """Change an item that still is as its editor saw it, whose etag is given; raises
        `UpdateConflict` if it is not.

        Tags can't be in each other's way: those that the editor added or took away are.
        """

        def edit() -> Item:
            self.item_of(user, key)
            self.list_of(user, changes["list"])
            item = self.items.update(key, if_unchanged=etag, **changes)
            self._tag(user, key, set(labels) - set(labels_seen))
            self._untag(user, key, set(labels_seen) - set(labels))
            return item

        return self.db.run(edit)

    # Tags

    def tags_of(self, user: User) -> list[Tag]:
        mine = self.tags.where(self.tags.f.owner == user.id)
        return list(mine.order_by(self.tags.f.label.collated(user.language)))

    def tags_on(self, items: Iterable[Item]) -> Mapping[UUID, list[Tag]]:
        """The tags of some items, by the items' keys."""
        keys = [item.id for item in items]
        found: dict[UUID, list[Tag]] = defaultdict(list)
        for tagging in self.taggings.where(self.taggings.f.item.in_(keys)).include("tag"):
            tag = tagging.follow("tag")
            if tag is not None:
                found[tagging.item].append(tag)
        return found

    def labels_on(self, item: Item) -> list[str]:
        return [tag.label for tag in self.tags_on([item])[item.id]]

    def _tag(self, user: User, item: UUID, labels: Iterable[str]) -> None:
        for label in labels:
            tag = self._find_tag(user, label) or self.tags.insert(owner=user.id, label=label)
            self.taggings.upsert(item=item, tag=tag.id)

    def _untag(self, user: User, item: UUID, labels: Iterable[str]) -> None:
        for label in labels:
            tag = self._find_tag(user, label)
            if tag is not None:
                self.taggings.delete_many([(item, tag.id)])
                if not self.taggings.where(self.taggings.f.tag == tag.id).exists():
                    self.tags.delete(tag.id)

    def _find_tag(self, user: User, label: str) -> Tag | None:
        """By its label as the index compares them: Garden is garden."""
        return self.tags.where(
            self.tags.f.owner == user.id, self.tags.f.label.matches(label)
        ).first()
