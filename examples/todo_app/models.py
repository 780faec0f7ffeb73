"""Models of the tables as of 0010_numbers.

Written by `zapdb codegen models`: not to be changed by hand. `zapdb.open(..., models=...)`
compares it with the database.
"""

# Methods are declared, and inherited; they take the fields of their table, which is less
# than what any table takes.
# mypy: disable-error-code="override"
# pyright: reportIncompatibleMethodOverride=false
# pyright: reportIncompatibleVariableOverride=false
# pyright: reportReturnType=false

from __future__ import annotations

import builtins as _builtins
import datetime
import uuid
from collections.abc import AsyncIterable, Callable, Iterable
from io import BufferedReader
from typing import (
    TYPE_CHECKING,
    Any,
    BinaryIO,
    Literal,
    NotRequired,
    TypeAlias,
    TypedDict,
    Unpack,
    overload,
)

from zapdb.models import (
    AnyField,
    AsyncFile,
    AsyncTable,
    BytesLike,
    FieldOf,
    Model,
    Models,
    OpeningBlock,
    Table,
    TableModel,
    TypedOrderedField,
    TypedStringField,
)

MODELS = Models(
    migration="0010_numbers",
    tables={
        "users": TableModel(
            fingerprint=0xC26802249F27443E,
            key=("id",),
            fields={
                "id": "uuid, generated",
                "name": "string",
                "zone": "string",
                "language": "language, has a default",
                "home": "reference to lists (uuid), optional",
            },
        ),
        "lists": TableModel(
            fingerprint=0x7F5AAE654EA150FE,
            key=("id",),
            fields={
                "id": "uuid, generated",
                "owner": "reference to users (uuid)",
                "title": "string",
            },
        ),
        "items": TableModel(
            fingerprint=0x672A44553CF99CBE,
            key=("id",),
            fields={
                "id": "uuid, generated",
                "list": "reference to lists (uuid)",
                "title": "string",
                "done": "boolean, has a default",
                "priority": "priority, has a default",
                "due": "date, optional",
                "notes": "string, has a default",
                "reminder": "zoned_timestamp, optional",
                "number": "integer, optional, generated",
                "added": "timestamp, optional, has a default",
            },
        ),
        "tags": TableModel(
            fingerprint=0xD9811CAF8DA28D8B,
            key=("id",),
            fields={
                "id": "uuid, generated",
                "owner": "reference to users (uuid)",
                "label": "string",
            },
        ),
        "taggings": TableModel(
            fingerprint=0x8529839AA43603D2,
            key=("item", "tag"),
            fields={
                "item": "reference to items (uuid)",
                "tag": "reference to tags (uuid)",
            },
        ),
        "sessions": TableModel(
            fingerprint=0x69AE1DB35620C9A6,
            key=("digest",),
            fields={
                "digest": "binary",
                "user": "reference to users (uuid)",
                "until": "timestamp",
            },
        ),
    },
    types={
        "priority": {
            "low": "",
            "normal": "",
            "high": "",
        },
        "language": {
            "en": "",
            "cs": "",
            "de": "",
            "es": "",
            "sv": "",
        },
    },
    names={
        "lists": "TodoList",
    },
)

Priority: TypeAlias = Literal["low", "normal", "high"]
"""A member of the enum priority."""

Language: TypeAlias = Literal["en", "cs", "de", "es", "sv"]
"""A member of the enum language."""

UserKey: TypeAlias = uuid.UUID
"""The key of a record of users."""

TodoListKey: TypeAlias = uuid.UUID
"""The key of a record of lists."""

ItemKey: TypeAlias = uuid.UUID
"""The key of a record of items."""

TagKey: TypeAlias = uuid.UUID
"""The key of a record of tags."""

TaggingKey: TypeAlias = tuple[ItemKey, TagKey]
"""The key of a record of taggings."""

SessionKey: TypeAlias = bytes
"""The key of a record of sessions."""


@MODELS.record("users")
class User(Model["UsersTable", "AsyncUsersTable"]):
    """A record of users.

    Made by 0001_lists: People, their lists, and what is to be done
    Changed last by 0007_home_list: The list that opens after signing in

    id: uuid, generated; the key
    name: string
    zone: string
    language: language, has a default
    home: reference to lists (uuid), optional
    """

    id: FieldOf[TypedOrderedField[uuid.UUID], uuid.UUID]
    name: FieldOf[TypedStringField, str]
    zone: FieldOf[TypedStringField, str]
    language: FieldOf[TypedOrderedField[Language], Language]
    home: FieldOf[TypedOrderedField[TodoListKey], TodoListKey | None]

    @overload
    def follow(self, path: Literal["home"]) -> TodoList | None: ...

    @overload
    def follow(self, path: str) -> Any: ...

    def follow(self, path: str) -> Any:
        """The record that a reference leads to, which the query included."""


class UserValues(TypedDict):
    """A new record of users."""

    id: NotRequired[uuid.UUID]
    name: str
    zone: str
    language: NotRequired[Language]
    home: NotRequired[TodoListKey | None]


class UserChanges(TypedDict):
    """Changes of a record of users."""

    name: NotRequired[str]
    zone: NotRequired[str]
    language: NotRequired[Language]
    home: NotRequired[TodoListKey | None]


class UserUpsert(UserChanges):
    """A record of users that is changed or new: its key, and what is given."""

    id: NotRequired[uuid.UUID]


UserField: TypeAlias = Literal["id", "name", "zone", "language", "home"]


class UsersTable(Table[User]):
    """The table users."""

    if TYPE_CHECKING:

        @property
        def f(self) -> type[User]: ...

        def __getitem__(self, name: UserField, /) -> AnyField: ...

        def get(self, id: uuid.UUID) -> User:
            """The record with this key; raises `RecordNotFound`."""

        def find(self, id: uuid.UUID) -> User | None:
            """The record with this key, or None."""

        def get_many(self, keys: Iterable[UserKey]) -> _builtins.list[User | None]:
            """The records with these keys in their order, None where there is none."""

        def exists(self, id: uuid.UUID) -> bool:
            """Whether there is a record with this key."""

        def insert(self, /, **values: Unpack[UserValues]) -> User:
            """Insert a record and return it."""

        def insert_many(
            self,
            records: Iterable[UserValues],
            batch_records: int = 2000,
            progress: Callable[[int], object] | None = None,
        ) -> int:
            """Insert from a stream, batch by batch; returns how many."""

        def update(
            self,
            id: uuid.UUID,
            /,
            *,
            if_unchanged: User | str | None = None,
            **changes: Unpack[UserChanges],
        ) -> User:
            """Change fields of a record and return it."""

        def upsert(self, /, **values: Unpack[UserUpsert]) -> User:
            """Insert a record, or change the one that has its key already."""

        def delete(self, id: uuid.UUID) -> None:
            """Delete a record; raises `RecordNotFound`."""

        def delete_many(self, keys: Iterable[UserKey]) -> int:
            """Delete records by their keys; returns how many."""

        def open(
            self,
            id: uuid.UUID,
            /,
            *,
            field: Literal["name", "zone"],
        ) -> BufferedReader:
            """A string or binary field of a record as a binary file."""


class AsyncUsersTable(AsyncTable[User]):
    """The table users in zapdb.aio."""

    if TYPE_CHECKING:

        @property
        def f(self) -> type[User]: ...

        def __getitem__(self, name: UserField, /) -> AnyField: ...

        async def get(self, id: uuid.UUID) -> User:
            """The record with this key; raises `RecordNotFound`."""

        async def find(self, id: uuid.UUID) -> User | None:
            """The record with this key, or None."""

        async def get_many(
            self,
            keys: Iterable[UserKey],
        ) -> _builtins.list[User | None]:
            """The records with these keys in their order, None where there is none."""

        async def exists(self, id: uuid.UUID) -> bool:
            """Whether there is a record with this key."""

        async def insert(self, /, **values: Unpack[UserValues]) -> User:
            """Insert a record and return it."""

        async def insert_many(
            self,
            records: Iterable[UserValues] | AsyncIterable[UserValues],
            batch_records: int = 2000,
            progress: Callable[[int], object] | None = None,
        ) -> int:
            """Insert from a stream, batch by batch; returns how many."""

        async def update(
            self,
            id: uuid.UUID,
            /,
            *,
            if_unchanged: User | str | None = None,
            **changes: Unpack[UserChanges],
        ) -> User:
            """Change fields of a record and return it."""

        async def upsert(self, /, **values: Unpack[UserUpsert]) -> User:
            """Insert a record, or change the one that has its key already."""

        async def delete(self, id: uuid.UUID) -> None:
            """Delete a record; raises `RecordNotFound`."""

        async def delete_many(
            self,
            keys: Iterable[UserKey] | AsyncIterable[UserKey],
        ) -> int:
            """Delete records by their keys; returns how many."""

        def open(
            self,
            id: uuid.UUID,
            /,
            *,
            field: Literal["name", "zone"],
        ) -> OpeningBlock[AsyncFile]:
            """A string or binary field of a record as a binary file."""


@MODELS.record("lists")
class TodoList(Model["ListsTable", "AsyncListsTable"]):
    """A record of lists.

    Made by 0001_lists: People, their lists, and what is to be done
    Changed last by 0002_integrity: Lists go with their owner, items with their list

    id: uuid, generated; the key
    owner: reference to users (uuid)
    title: string
    """

    id: FieldOf[TypedOrderedField[uuid.UUID], uuid.UUID]
    owner: FieldOf[TypedOrderedField[UserKey], UserKey]
    title: FieldOf[TypedStringField, str]

    @overload
    def follow(self, path: Literal["owner"]) -> User | None: ...

    @overload
    def follow(self, path: str) -> Any: ...

    def follow(self, path: str) -> Any:
        """The record that a reference leads to, which the query included."""


class TodoListValues(TypedDict):
    """A new record of lists."""

    id: NotRequired[uuid.UUID]
    owner: UserKey
    title: str


class TodoListChanges(TypedDict):
    """Changes of a record of lists."""

    owner: NotRequired[UserKey]
    title: NotRequired[str]


class TodoListUpsert(TodoListChanges):
    """A record of lists that is changed or new: its key, and what is given."""

    id: NotRequired[uuid.UUID]


TodoListField: TypeAlias = Literal["id", "owner", "title"]


class ListsTable(Table[TodoList]):
    """The table lists."""

    if TYPE_CHECKING:

        @property
        def f(self) -> type[TodoList]: ...

        def __getitem__(self, name: TodoListField, /) -> AnyField: ...

        def get(self, id: uuid.UUID) -> TodoList:
            """The record with this key; raises `RecordNotFound`."""

        def find(self, id: uuid.UUID) -> TodoList | None:
            """The record with this key, or None."""

        def get_many(
            self,
            keys: Iterable[TodoListKey],
        ) -> _builtins.list[TodoList | None]:
            """The records with these keys in their order, None where there is none."""

        def exists(self, id: uuid.UUID) -> bool:
            """Whether there is a record with this key."""

        def insert(self, /, **values: Unpack[TodoListValues]) -> TodoList:
            """Insert a record and return it."""

        def insert_many(
            self,
            records: Iterable[TodoListValues],
            batch_records: int = 2000,
            progress: Callable[[int], object] | None = None,
        ) -> int:
            """Insert from a stream, batch by batch; returns how many."""

        def update(
            self,
            id: uuid.UUID,
            /,
            *,
            if_unchanged: TodoList | str | None = None,
            **changes: Unpack[TodoListChanges],
        ) -> TodoList:
            """Change fields of a record and return it."""

        def upsert(self, /, **values: Unpack[TodoListUpsert]) -> TodoList:
            """Insert a record, or change the one that has its key already."""

        def delete(self, id: uuid.UUID) -> None:
            """Delete a record; raises `RecordNotFound`."""

        def delete_many(self, keys: Iterable[TodoListKey]) -> int:
            """Delete records by their keys; returns how many."""

        def open(self, id: uuid.UUID, /, *, field: Literal["title"]) -> BufferedReader:
            """A string or binary field of a record as a binary file."""


class AsyncListsTable(AsyncTable[TodoList]):
    """The table lists in zapdb.aio."""

    if TYPE_CHECKING:

        @property
        def f(self) -> type[TodoList]: ...

        def __getitem__(self, name: TodoListField, /) -> AnyField: ...

        async def get(self, id: uuid.UUID) -> TodoList:
            """The record with this key; raises `RecordNotFound`."""

        async def find(self, id: uuid.UUID) -> TodoList | None:
            """The record with this key, or None."""

        async def get_many(
            self,
            keys: Iterable[TodoListKey],
        ) -> _builtins.list[TodoList | None]:
            """The records with these keys in their order, None where there is none."""

        async def exists(self, id: uuid.UUID) -> bool:
            """Whether there is a record with this key."""

        async def insert(self, /, **values: Unpack[TodoListValues]) -> TodoList:
            """Insert a record and return it."""

        async def insert_many(
            self,
            records: Iterable[TodoListValues] | AsyncIterable[TodoListValues],
            batch_records: int = 2000,
            progress: Callable[[int], object] | None = None,
        ) -> int:
            """Insert from a stream, batch by batch; returns how many."""

        async def update(
            self,
            id: uuid.UUID,
            /,
            *,
            if_unchanged: TodoList | str | None = None,
            **changes: Unpack[TodoListChanges],
        ) -> TodoList:
            """Change fields of a record and return it."""

        async def upsert(self, /, **values: Unpack[TodoListUpsert]) -> TodoList:
            """Insert a record, or change the one that has its key already."""

        async def delete(self, id: uuid.UUID) -> None:
            """Delete a record; raises `RecordNotFound`."""

        async def delete_many(
            self,
            keys: Iterable[TodoListKey] | AsyncIterable[TodoListKey],
        ) -> int:
            """Delete records by their keys; returns how many."""

        def open(
            self,
            id: uuid.UUID,
            /,
            *,
            field: Literal["title"],
        ) -> OpeningBlock[AsyncFile]:
            """A string or binary field of a record as a binary file."""


@MODELS.record("items")
class Item(Model["ItemsTable", "AsyncItemsTable"]):
    """A record of items.

    Made by 0001_lists: People, their lists, and what is to be done
    Changed last by 0010_numbers: A number to talk about an item, and when it was added;
        older ones have neither

    id: uuid, generated; the key
    list: reference to lists (uuid)
    title: string
    done: boolean, has a default
    priority: priority, has a default
    due: date, optional
    notes: string, has a default
    reminder: zoned_timestamp, optional
    number: integer, optional, generated
    added: timestamp, optional, has a default
    """

    id: FieldOf[TypedOrderedField[uuid.UUID], uuid.UUID]
    list: FieldOf[TypedOrderedField[TodoListKey], TodoListKey]
    title: FieldOf[TypedStringField, str]
    done: FieldOf[TypedOrderedField[bool], bool]
    priority: FieldOf[TypedOrderedField[Priority], Priority]
    due: FieldOf[TypedOrderedField[datetime.date], datetime.date | None]
    notes: FieldOf[TypedStringField, str]
    reminder: FieldOf[TypedOrderedField[datetime.datetime], datetime.datetime | None]
    number: FieldOf[TypedOrderedField[int], int | None]
    added: FieldOf[TypedOrderedField[datetime.datetime], datetime.datetime | None]

    @overload
    def follow(self, path: Literal["list"]) -> TodoList | None: ...

    @overload
    def follow(self, path: str) -> Any: ...

    def follow(self, path: str) -> Any:
        """The record that a reference leads to, which the query included."""


class ItemValues(TypedDict):
    """A new record of items."""

    id: NotRequired[uuid.UUID]
    list: TodoListKey
    title: str
    done: NotRequired[bool]
    priority: NotRequired[Priority]
    due: NotRequired[datetime.date | None]
    notes: NotRequired[str]
    reminder: NotRequired[datetime.datetime | None]
    number: NotRequired[int | None]
    added: NotRequired[datetime.datetime | None]


class ItemChanges(TypedDict):
    """Changes of a record of items."""

    list: NotRequired[TodoListKey]
    title: NotRequired[str]
    done: NotRequired[bool]
    priority: NotRequired[Priority]
    due: NotRequired[datetime.date | None]
    notes: NotRequired[str]
    reminder: NotRequired[datetime.datetime | None]
    number: NotRequired[int | None]
    added: NotRequired[datetime.datetime | None]


class ItemUpsert(ItemChanges):
    """A record of items that is changed or new: its key, and what is given."""

    id: NotRequired[uuid.UUID]


ItemField: TypeAlias = Literal[
    "id",
    "list",
    "title",
    "done",
    "priority",
    "due",
    "notes",
    "reminder",
    "number",
    "added",
]


class ItemsTable(Table[Item]):
    """The table items."""

    if TYPE_CHECKING:

        @property
        def f(self) -> type[Item]: ...

        def __getitem__(self, name: ItemField, /) -> AnyField: ...

        def get(self, id: uuid.UUID) -> Item:
            """The record with this key; raises `RecordNotFound`."""

        def find(self, id: uuid.UUID) -> Item | None:
            """The record with this key, or None."""

        def get_many(self, keys: Iterable[ItemKey]) -> _builtins.list[Item | None]:
            """The records with these keys in their order, None where there is none."""

        def exists(self, id: uuid.UUID) -> bool:
            """Whether there is a record with this key."""

        def insert(self, /, **values: Unpack[ItemValues]) -> Item:
            """Insert a record and return it."""

        def insert_many(
            self,
            records: Iterable[ItemValues],
            batch_records: int = 2000,
            progress: Callable[[int], object] | None = None,
        ) -> int:
            """Insert from a stream, batch by batch; returns how many."""

        def update(
            self,
            id: uuid.UUID,
            /,
            *,
            if_unchanged: Item | str | None = None,
            **changes: Unpack[ItemChanges],
        ) -> Item:
            """Change fields of a record and return it."""

        def upsert(self, /, **values: Unpack[ItemUpsert]) -> Item:
            """Insert a record, or change the one that has its key already."""

        def delete(self, id: uuid.UUID) -> None:
            """Delete a record; raises `RecordNotFound`."""

        def delete_many(self, keys: Iterable[ItemKey]) -> int:
            """Delete records by their keys; returns how many."""

        def open(
            self,
            id: uuid.UUID,
            /,
            *,
            field: Literal["title", "notes"],
        ) -> BufferedReader:
            """A string or binary field of a record as a binary file."""


class AsyncItemsTable(AsyncTable[Item]):
    """The table items in zapdb.aio."""

    if TYPE_CHECKING:

        @property
        def f(self) -> type[Item]: ...

        def __getitem__(self, name: ItemField, /) -> AnyField: ...

        async def get(self, id: uuid.UUID) -> Item:
            """The record with this key; raises `RecordNotFound`."""

        async def find(self, id: uuid.UUID) -> Item | None:
            """The record with this key, or None."""

        async def get_many(
            self,
            keys: Iterable[ItemKey],
        ) -> _builtins.list[Item | None]:
            """The records with these keys in their order, None where there is none."""

        async def exists(self, id: uuid.UUID) -> bool:
            """Whether there is a record with this key."""

        async def insert(self, /, **values: Unpack[ItemValues]) -> Item:
            """Insert a record and return it."""

        async def insert_many(
            self,
            records: Iterable[ItemValues] | AsyncIterable[ItemValues],
            batch_records: int = 2000,
            progress: Callable[[int], object] | None = None,
        ) -> int:
            """Insert from a stream, batch by batch; returns how many."""

        async def update(
            self,
            id: uuid.UUID,
            /,
            *,
            if_unchanged: Item | str | None = None,
            **changes: Unpack[ItemChanges],
        ) -> Item:
            """Change fields of a record and return it."""

        async def upsert(self, /, **values: Unpack[ItemUpsert]) -> Item:
            """Insert a record, or change the one that has its key already."""

        async def delete(self, id: uuid.UUID) -> None:
            """Delete a record; raises `RecordNotFound`."""

        async def delete_many(
            self,
            keys: Iterable[ItemKey] | AsyncIterable[ItemKey],
        ) -> int:
            """Delete records by their keys; returns how many."""

        def open(
            self,
            id: uuid.UUID,
            /,
            *,
            field: Literal["title", "notes"],
        ) -> OpeningBlock[AsyncFile]:
            """A string or binary field of a record as a binary file."""


@MODELS.record("tags")
class Tag(Model["TagsTable", "AsyncTagsTable"]):
    """A record of tags.

    Made by 0005_tags: Tags, as many as one likes on an item

    id: uuid, generated; the key
    owner: reference to users (uuid)
    label: string
    """

    id: FieldOf[TypedOrderedField[uuid.UUID], uuid.UUID]
    owner: FieldOf[TypedOrderedField[UserKey], UserKey]
    label: FieldOf[TypedStringField, str]

    @overload
    def follow(self, path: Literal["owner"]) -> User | None: ...

    @overload
    def follow(self, path: str) -> Any: ...

    def follow(self, path: str) -> Any:
        """The record that a reference leads to, which the query included."""


class TagValues(TypedDict):
    """A new record of tags."""

    id: NotRequired[uuid.UUID]
    owner: UserKey
    label: str


class TagChanges(TypedDict):
    """Changes of a record of tags."""

    owner: NotRequired[UserKey]
    label: NotRequired[str]


class TagUpsert(TagChanges):
    """A record of tags that is changed or new: its key, and what is given."""

    id: NotRequired[uuid.UUID]


TagField: TypeAlias = Literal["id", "owner", "label"]


class TagsTable(Table[Tag]):
    """The table tags."""

    if TYPE_CHECKING:

        @property
        def f(self) -> type[Tag]: ...

        def __getitem__(self, name: TagField, /) -> AnyField: ...

        def get(self, id: uuid.UUID) -> Tag:
            """The record with this key; raises `RecordNotFound`."""

        def find(self, id: uuid.UUID) -> Tag | None:
            """The record with this key, or None."""

        def get_many(self, keys: Iterable[TagKey]) -> _builtins.list[Tag | None]:
            """The records with these keys in their order, None where there is none."""

        def exists(self, id: uuid.UUID) -> bool:
            """Whether there is a record with this key."""

        def insert(self, /, **values: Unpack[TagValues]) -> Tag:
            """Insert a record and return it."""

        def insert_many(
            self,
            records: Iterable[TagValues],
            batch_records: int = 2000,
            progress: Callable[[int], object] | None = None,
        ) -> int:
            """Insert from a stream, batch by batch; returns how many."""

        def update(
            self,
            id: uuid.UUID,
            /,
            *,
            if_unchanged: Tag | str | None = None,
            **changes: Unpack[TagChanges],
        ) -> Tag:
            """Change fields of a record and return it."""

        def upsert(self, /, **values: Unpack[TagUpsert]) -> Tag:
            """Insert a record, or change the one that has its key already."""

        def delete(self, id: uuid.UUID) -> None:
            """Delete a record; raises `RecordNotFound`."""

        def delete_many(self, keys: Iterable[TagKey]) -> int:
            """Delete records by their keys; returns how many."""

        def open(self, id: uuid.UUID, /, *, field: Literal["label"]) -> BufferedReader:
            """A string or binary field of a record as a binary file."""


class AsyncTagsTable(AsyncTable[Tag]):
    """The table tags in zapdb.aio."""

    if TYPE_CHECKING:

        @property
        def f(self) -> type[Tag]: ...

        def __getitem__(self, name: TagField, /) -> AnyField: ...

        async def get(self, id: uuid.UUID) -> Tag:
            """The record with this key; raises `RecordNotFound`."""

        async def find(self, id: uuid.UUID) -> Tag | None:
            """The record with this key, or None."""

        async def get_many(self, keys: Iterable[TagKey]) -> _builtins.list[Tag | None]:
            """The records with these keys in their order, None where there is none."""

        async def exists(self, id: uuid.UUID) -> bool:
            """Whether there is a record with this key."""

        async def insert(self, /, **values: Unpack[TagValues]) -> Tag:
            """Insert a record and return it."""

        async def insert_many(
            self,
            records: Iterable[TagValues] | AsyncIterable[TagValues],
            batch_records: int = 2000,
            progress: Callable[[int], object] | None = None,
        ) -> int:
            """Insert from a stream, batch by batch; returns how many."""

        async def update(
            self,
            id: uuid.UUID,
            /,
            *,
            if_unchanged: Tag | str | None = None,
            **changes: Unpack[TagChanges],
        ) -> Tag:
            """Change fields of a record and return it."""

        async def upsert(self, /, **values: Unpack[TagUpsert]) -> Tag:
            """Insert a record, or change the one that has its key already."""

        async def delete(self, id: uuid.UUID) -> None:
            """Delete a record; raises `RecordNotFound`."""

        async def delete_many(
            self,
            keys: Iterable[TagKey] | AsyncIterable[TagKey],
        ) -> int:
            """Delete records by their keys; returns how many."""

        def open(
            self,
            id: uuid.UUID,
            /,
            *,
            field: Literal["label"],
        ) -> OpeningBlock[AsyncFile]:
            """A string or binary field of a record as a binary file."""


@MODELS.record("taggings")
class Tagging(Model["TaggingsTable", "AsyncTaggingsTable"]):
    """A record of taggings.

    Made by 0005_tags: Tags, as many as one likes on an item

    item: reference to items (uuid); part of the key
    tag: reference to tags (uuid); part of the key
    """

    item: FieldOf[TypedOrderedField[ItemKey], ItemKey]
    tag: FieldOf[TypedOrderedField[TagKey], TagKey]

    @overload
    def follow(self, path: Literal["item"]) -> Item | None: ...

    @overload
    def follow(self, path: Literal["tag"]) -> Tag | None: ...

    @overload
    def follow(self, path: str) -> Any: ...

    def follow(self, path: str) -> Any:
        """The record that a reference leads to, which the query included."""


class TaggingValues(TypedDict):
    """A new record of taggings."""

    item: ItemKey
    tag: TagKey


class TaggingChanges(TypedDict):
    """Changes of a record of taggings."""


class TaggingUpsert(TaggingChanges):
    """A record of taggings that is changed or new: its key, and what is given."""

    item: ItemKey
    tag: TagKey


TaggingField: TypeAlias = Literal["item", "tag"]


class TaggingsTable(Table[Tagging]):
    """The table taggings."""

    if TYPE_CHECKING:

        @property
        def f(self) -> type[Tagging]: ...

        def __getitem__(self, name: TaggingField, /) -> AnyField: ...

        def get(self, item: ItemKey, tag: TagKey) -> Tagging:
            """The record with this key; raises `RecordNotFound`."""

        def find(self, item: ItemKey, tag: TagKey) -> Tagging | None:
            """The record with this key, or None."""

        def get_many(
            self,
            keys: Iterable[TaggingKey],
        ) -> _builtins.list[Tagging | None]:
            """The records with these keys in their order, None where there is none."""

        def exists(self, item: ItemKey, tag: TagKey) -> bool:
            """Whether there is a record with this key."""

        def insert(self, /, **values: Unpack[TaggingValues]) -> Tagging:
            """Insert a record and return it."""

        def insert_many(
            self,
            records: Iterable[TaggingValues],
            batch_records: int = 2000,
            progress: Callable[[int], object] | None = None,
        ) -> int:
            """Insert from a stream, batch by batch; returns how many."""

        def update(
            self,
            item: ItemKey,
            tag: TagKey,
            /,
            *,
            if_unchanged: Tagging | str | None = None,
            **changes: Unpack[TaggingChanges],
        ) -> Tagging:
            """Change fields of a record and return it."""

        def upsert(self, /, **values: Unpack[TaggingUpsert]) -> Tagging:
            """Insert a record, or change the one that has its key already."""

        def delete(self, item: ItemKey, tag: TagKey) -> None:
            """Delete a record; raises `RecordNotFound`."""

        def delete_many(self, keys: Iterable[TaggingKey]) -> int:
            """Delete records by their keys; returns how many."""


class AsyncTaggingsTable(AsyncTable[Tagging]):
    """The table taggings in zapdb.aio."""

    if TYPE_CHECKING:

        @property
        def f(self) -> type[Tagging]: ...

        def __getitem__(self, name: TaggingField, /) -> AnyField: ...

        async def get(self, item: ItemKey, tag: TagKey) -> Tagging:
            """The record with this key; raises `RecordNotFound`."""

        async def find(self, item: ItemKey, tag: TagKey) -> Tagging | None:
            """The record with this key, or None."""

        async def get_many(
            self,
            keys: Iterable[TaggingKey],
        ) -> _builtins.list[Tagging | None]:
            """The records with these keys in their order, None where there is none."""

        async def exists(self, item: ItemKey, tag: TagKey) -> bool:
            """Whether there is a record with this key."""

        async def insert(self, /, **values: Unpack[TaggingValues]) -> Tagging:
            """Insert a record and return it."""

        async def insert_many(
            self,
            records: Iterable[TaggingValues] | AsyncIterable[TaggingValues],
            batch_records: int = 2000,
            progress: Callable[[int], object] | None = None,
        ) -> int:
            """Insert from a stream, batch by batch; returns how many."""

        async def update(
            self,
            item: ItemKey,
            tag: TagKey,
            /,
            *,
            if_unchanged: Tagging | str | None = None,
            **changes: Unpack[TaggingChanges],
        ) -> Tagging:
            """Change fields of a record and return it."""

        async def upsert(self, /, **values: Unpack[TaggingUpsert]) -> Tagging:
            """Insert a record, or change the one that has its key already."""

        async def delete(self, item: ItemKey, tag: TagKey) -> None:
            """Delete a record; raises `RecordNotFound`."""

        async def delete_many(
            self,
            keys: Iterable[TaggingKey] | AsyncIterable[TaggingKey],
        ) -> int:
            """Delete records by their keys; returns how many."""


@MODELS.record("sessions")
class Session(Model["SessionsTable", "AsyncSessionsTable"]):
    """A record of sessions.

    Made by 0009_sessions: Who is signed in, by the hash of what their cookie says

    digest: binary; the key
    user: reference to users (uuid)
    until: timestamp
    """

    digest: FieldOf[TypedOrderedField[BytesLike], bytes]
    user: FieldOf[TypedOrderedField[UserKey], UserKey]
    until: FieldOf[TypedOrderedField[datetime.datetime], datetime.datetime]

    @overload
    def follow(self, path: Literal["user"]) -> User | None: ...

    @overload
    def follow(self, path: str) -> Any: ...

    def follow(self, path: str) -> Any:
        """The record that a reference leads to, which the query included."""


class SessionValues(TypedDict):
    """A new record of sessions."""

    digest: BytesLike | BinaryIO
    user: UserKey
    until: datetime.datetime


class SessionChanges(TypedDict):
    """Changes of a record of sessions."""

    user: NotRequired[UserKey]
    until: NotRequired[datetime.datetime]


class SessionUpsert(SessionChanges):
    """A record of sessions that is changed or new: its key, and what is given."""

    digest: BytesLike | BinaryIO


SessionField: TypeAlias = Literal["digest", "user", "until"]


class SessionsTable(Table[Session]):
    """The table sessions."""

    if TYPE_CHECKING:

        @property
        def f(self) -> type[Session]: ...

        def __getitem__(self, name: SessionField, /) -> AnyField: ...

        def get(self, digest: bytes) -> Session:
            """The record with this key; raises `RecordNotFound`."""

        def find(self, digest: bytes) -> Session | None:
            """The record with this key, or None."""

        def get_many(
            self,
            keys: Iterable[SessionKey],
        ) -> _builtins.list[Session | None]:
            """The records with these keys in their order, None where there is none."""

        def exists(self, digest: bytes) -> bool:
            """Whether there is a record with this key."""

        def insert(self, /, **values: Unpack[SessionValues]) -> Session:
            """Insert a record and return it."""

        def insert_many(
            self,
            records: Iterable[SessionValues],
            batch_records: int = 2000,
            progress: Callable[[int], object] | None = None,
        ) -> int:
            """Insert from a stream, batch by batch; returns how many."""

        def update(
            self,
            digest: bytes,
            /,
            *,
            if_unchanged: Session | str | None = None,
            **changes: Unpack[SessionChanges],
        ) -> Session:
            """Change fields of a record and return it."""

        def upsert(self, /, **values: Unpack[SessionUpsert]) -> Session:
            """Insert a record, or change the one that has its key already."""

        def delete(self, digest: bytes) -> None:
            """Delete a record; raises `RecordNotFound`."""

        def delete_many(self, keys: Iterable[SessionKey]) -> int:
            """Delete records by their keys; returns how many."""

        def open(self, digest: bytes, /, *, field: Literal["digest"]) -> BufferedReader:
            """A string or binary field of a record as a binary file."""


class AsyncSessionsTable(AsyncTable[Session]):
    """The table sessions in zapdb.aio."""

    if TYPE_CHECKING:

        @property
        def f(self) -> type[Session]: ...

        def __getitem__(self, name: SessionField, /) -> AnyField: ...

        async def get(self, digest: bytes) -> Session:
            """The record with this key; raises `RecordNotFound`."""

        async def find(self, digest: bytes) -> Session | None:
            """The record with this key, or None."""

        async def get_many(
            self,
            keys: Iterable[SessionKey],
        ) -> _builtins.list[Session | None]:
            """The records with these keys in their order, None where there is none."""

        async def exists(self, digest: bytes) -> bool:
            """Whether there is a record with this key."""

        async def insert(self, /, **values: Unpack[SessionValues]) -> Session:
            """Insert a record and return it."""

        async def insert_many(
            self,
            records: Iterable[SessionValues] | AsyncIterable[SessionValues],
            batch_records: int = 2000,
            progress: Callable[[int], object] | None = None,
        ) -> int:
            """Insert from a stream, batch by batch; returns how many."""

        async def update(
            self,
            digest: bytes,
            /,
            *,
            if_unchanged: Session | str | None = None,
            **changes: Unpack[SessionChanges],
        ) -> Session:
            """Change fields of a record and return it."""

        async def upsert(self, /, **values: Unpack[SessionUpsert]) -> Session:
            """Insert a record, or change the one that has its key already."""

        async def delete(self, digest: bytes) -> None:
            """Delete a record; raises `RecordNotFound`."""

        async def delete_many(
            self,
            keys: Iterable[SessionKey] | AsyncIterable[SessionKey],
        ) -> int:
            """Delete records by their keys; returns how many."""

        def open(
            self,
            digest: bytes,
            /,
            *,
            field: Literal["digest"],
        ) -> OpeningBlock[AsyncFile]:
            """A string or binary field of a record as a binary file."""
