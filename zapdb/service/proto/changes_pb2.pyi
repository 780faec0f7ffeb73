from zapdb.service.proto import records_pb2 as _records_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListChangesRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "since", "table", "newest", "limit", "for_text")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    FOR_TEXT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    since: str
    table: str
    newest: bool
    limit: int
    for_text: bool
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., since: _Optional[str] = ..., table: _Optional[str] = ..., newest: _Optional[bool] = ..., limit: _Optional[int] = ..., for_text: _Optional[bool] = ...) -> None: ...

class Change(_message.Message):
    __slots__ = ("listed_change", "listed_event")
    LISTED_CHANGE_FIELD_NUMBER: _ClassVar[int]
    LISTED_EVENT_FIELD_NUMBER: _ClassVar[int]
    listed_change: ListedChange
    listed_event: ListedEvent
    def __init__(self, listed_change: _Optional[_Union[ListedChange, _Mapping]] = ..., listed_event: _Optional[_Union[ListedEvent, _Mapping]] = ...) -> None: ...

class ListedChange(_message.Message):
    __slots__ = ("table", "operation", "key", "before", "after", "archived_before", "archived_after", "replaced", "unreadable", "revision", "principal", "made_at", "transaction", "stamp", "stamped_at", "bookmark", "fields", "shape_before", "shape_after")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    ARCHIVED_BEFORE_FIELD_NUMBER: _ClassVar[int]
    ARCHIVED_AFTER_FIELD_NUMBER: _ClassVar[int]
    REPLACED_FIELD_NUMBER: _ClassVar[int]
    UNREADABLE_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    MADE_AT_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    STAMP_FIELD_NUMBER: _ClassVar[int]
    STAMPED_AT_FIELD_NUMBER: _ClassVar[int]
    BOOKMARK_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    SHAPE_BEFORE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_AFTER_FIELD_NUMBER: _ClassVar[int]
    table: str
    operation: str
    key: _containers.RepeatedScalarFieldContainer[str]
    before: str
    after: str
    archived_before: str
    archived_after: str
    replaced: bool
    unreadable: bytes
    revision: int
    principal: str
    made_at: int
    transaction: int
    stamp: int
    stamped_at: int
    bookmark: str
    fields: _containers.RepeatedScalarFieldContainer[str]
    shape_before: _records_pb2.RecordShape
    shape_after: _records_pb2.RecordShape
    def __init__(self, table: _Optional[str] = ..., operation: _Optional[str] = ..., key: _Optional[_Iterable[str]] = ..., before: _Optional[str] = ..., after: _Optional[str] = ..., archived_before: _Optional[str] = ..., archived_after: _Optional[str] = ..., replaced: _Optional[bool] = ..., unreadable: _Optional[bytes] = ..., revision: _Optional[int] = ..., principal: _Optional[str] = ..., made_at: _Optional[int] = ..., transaction: _Optional[int] = ..., stamp: _Optional[int] = ..., stamped_at: _Optional[int] = ..., bookmark: _Optional[str] = ..., fields: _Optional[_Iterable[str]] = ..., shape_before: _Optional[_Union[_records_pb2.RecordShape, _Mapping]] = ..., shape_after: _Optional[_Union[_records_pb2.RecordShape, _Mapping]] = ...) -> None: ...

class ListedEvent(_message.Message):
    __slots__ = ("table", "field", "event", "revision", "position", "principal", "made_at", "transaction", "stamp", "stamped_at", "bookmark")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    MADE_AT_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    STAMP_FIELD_NUMBER: _ClassVar[int]
    STAMPED_AT_FIELD_NUMBER: _ClassVar[int]
    BOOKMARK_FIELD_NUMBER: _ClassVar[int]
    table: str
    field: str
    event: str
    revision: int
    position: int
    principal: str
    made_at: int
    transaction: int
    stamp: int
    stamped_at: int
    bookmark: str
    def __init__(self, table: _Optional[str] = ..., field: _Optional[str] = ..., event: _Optional[str] = ..., revision: _Optional[int] = ..., position: _Optional[int] = ..., principal: _Optional[str] = ..., made_at: _Optional[int] = ..., transaction: _Optional[int] = ..., stamp: _Optional[int] = ..., stamped_at: _Optional[int] = ..., bookmark: _Optional[str] = ...) -> None: ...

class GetFollowersRequest(_message.Message):
    __slots__ = ("tenant", "min_seq")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ...) -> None: ...

class Followers(_message.Message):
    __slots__ = ("followers", "begins_at", "ends_at", "watermark", "changes_waiting")
    FOLLOWERS_FIELD_NUMBER: _ClassVar[int]
    BEGINS_AT_FIELD_NUMBER: _ClassVar[int]
    ENDS_AT_FIELD_NUMBER: _ClassVar[int]
    WATERMARK_FIELD_NUMBER: _ClassVar[int]
    CHANGES_WAITING_FIELD_NUMBER: _ClassVar[int]
    followers: _containers.RepeatedCompositeFieldContainer[ListedFollower]
    begins_at: str
    ends_at: str
    watermark: int
    changes_waiting: int
    def __init__(self, followers: _Optional[_Iterable[_Union[ListedFollower, _Mapping]]] = ..., begins_at: _Optional[str] = ..., ends_at: _Optional[str] = ..., watermark: _Optional[int] = ..., changes_waiting: _Optional[int] = ...) -> None: ...

class ListedFollower(_message.Message):
    __slots__ = ("name", "bookmark", "advanced_at", "changes_behind", "seconds_behind")
    NAME_FIELD_NUMBER: _ClassVar[int]
    BOOKMARK_FIELD_NUMBER: _ClassVar[int]
    ADVANCED_AT_FIELD_NUMBER: _ClassVar[int]
    CHANGES_BEHIND_FIELD_NUMBER: _ClassVar[int]
    SECONDS_BEHIND_FIELD_NUMBER: _ClassVar[int]
    name: str
    bookmark: str
    advanced_at: int
    changes_behind: int
    seconds_behind: float
    def __init__(self, name: _Optional[str] = ..., bookmark: _Optional[str] = ..., advanced_at: _Optional[int] = ..., changes_behind: _Optional[int] = ..., seconds_behind: _Optional[float] = ...) -> None: ...

class GetStatusRequest(_message.Message):
    __slots__ = ("tenant", "min_seq")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ...) -> None: ...

class LogStatus(_message.Message):
    __slots__ = ("records", "waiting")
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    records: bool
    waiting: WaitingChanges
    def __init__(self, records: _Optional[bool] = ..., waiting: _Optional[_Union[WaitingChanges, _Mapping]] = ...) -> None: ...

class WaitingChanges(_message.Message):
    __slots__ = ("watermark", "changes")
    WATERMARK_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    watermark: int
    changes: int
    def __init__(self, watermark: _Optional[int] = ..., changes: _Optional[int] = ...) -> None: ...
