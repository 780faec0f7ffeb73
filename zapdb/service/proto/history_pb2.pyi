from zapdb.service.proto import catalog_pb2 as _catalog_pb2
from zapdb.service.proto import records_pb2 as _records_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetMomentsRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "since", "until", "principal", "table", "limit")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    since: str
    until: str
    principal: str
    table: str
    limit: int
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., since: _Optional[str] = ..., until: _Optional[str] = ..., principal: _Optional[str] = ..., table: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class MomentMade(_message.Message):
    __slots__ = ("moment", "visible_at", "made_at", "principal", "bookmark", "changes")
    MOMENT_FIELD_NUMBER: _ClassVar[int]
    VISIBLE_AT_FIELD_NUMBER: _ClassVar[int]
    MADE_AT_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    BOOKMARK_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    moment: int
    visible_at: int
    made_at: int
    principal: str
    bookmark: str
    changes: _containers.RepeatedCompositeFieldContainer[ChangeCounts]
    def __init__(self, moment: _Optional[int] = ..., visible_at: _Optional[int] = ..., made_at: _Optional[int] = ..., principal: _Optional[str] = ..., bookmark: _Optional[str] = ..., changes: _Optional[_Iterable[_Union[ChangeCounts, _Mapping]]] = ...) -> None: ...

class ChangeCounts(_message.Message):
    __slots__ = ("table", "inserted", "updated", "deleted", "events")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    INSERTED_FIELD_NUMBER: _ClassVar[int]
    UPDATED_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    table: str
    inserted: int
    updated: int
    deleted: int
    events: int
    def __init__(self, table: _Optional[str] = ..., inserted: _Optional[int] = ..., updated: _Optional[int] = ..., deleted: _Optional[int] = ..., events: _Optional[int] = ...) -> None: ...

class AuditRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "since", "until", "principal", "table", "field", "limit", "for_text")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    FOR_TEXT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    since: str
    until: str
    principal: str
    table: str
    field: str
    limit: int
    for_text: bool
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., since: _Optional[str] = ..., until: _Optional[str] = ..., principal: _Optional[str] = ..., table: _Optional[str] = ..., field: _Optional[str] = ..., limit: _Optional[int] = ..., for_text: _Optional[bool] = ...) -> None: ...

class AuditedChange(_message.Message):
    __slots__ = ("moment", "made_at", "principal", "table", "key", "operation", "fields", "before", "after", "archived_before", "archived_after", "shape_before", "shape_after")
    MOMENT_FIELD_NUMBER: _ClassVar[int]
    MADE_AT_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    ARCHIVED_BEFORE_FIELD_NUMBER: _ClassVar[int]
    ARCHIVED_AFTER_FIELD_NUMBER: _ClassVar[int]
    SHAPE_BEFORE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_AFTER_FIELD_NUMBER: _ClassVar[int]
    moment: int
    made_at: int
    principal: str
    table: str
    key: _containers.RepeatedScalarFieldContainer[str]
    operation: str
    fields: _containers.RepeatedScalarFieldContainer[str]
    before: str
    after: str
    archived_before: str
    archived_after: str
    shape_before: _records_pb2.RecordShape
    shape_after: _records_pb2.RecordShape
    def __init__(self, moment: _Optional[int] = ..., made_at: _Optional[int] = ..., principal: _Optional[str] = ..., table: _Optional[str] = ..., key: _Optional[_Iterable[str]] = ..., operation: _Optional[str] = ..., fields: _Optional[_Iterable[str]] = ..., before: _Optional[str] = ..., after: _Optional[str] = ..., archived_before: _Optional[str] = ..., archived_after: _Optional[str] = ..., shape_before: _Optional[_Union[_records_pb2.RecordShape, _Mapping]] = ..., shape_after: _Optional[_Union[_records_pb2.RecordShape, _Mapping]] = ...) -> None: ...

class GetCatalogRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "at")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    at: str
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., at: _Optional[str] = ...) -> None: ...

class PastCatalog(_message.Message):
    __slots__ = ("moment", "visible_at", "position", "tables")
    MOMENT_FIELD_NUMBER: _ClassVar[int]
    VISIBLE_AT_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    moment: int
    visible_at: int
    position: int
    tables: _containers.RepeatedCompositeFieldContainer[PastTableDescription]
    def __init__(self, moment: _Optional[int] = ..., visible_at: _Optional[int] = ..., position: _Optional[int] = ..., tables: _Optional[_Iterable[_Union[PastTableDescription, _Mapping]]] = ...) -> None: ...

class PastTableDescription(_message.Message):
    __slots__ = ("table", "number", "key", "revision", "layout_revision", "fingerprint", "fields", "schema")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_REVISION_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    table: str
    number: int
    key: _containers.RepeatedScalarFieldContainer[str]
    revision: int
    layout_revision: int
    fingerprint: str
    fields: _containers.RepeatedCompositeFieldContainer[_catalog_pb2.FieldDescription]
    schema: bytes
    def __init__(self, table: _Optional[str] = ..., number: _Optional[int] = ..., key: _Optional[_Iterable[str]] = ..., revision: _Optional[int] = ..., layout_revision: _Optional[int] = ..., fingerprint: _Optional[str] = ..., fields: _Optional[_Iterable[_Union[_catalog_pb2.FieldDescription, _Mapping]]] = ..., schema: _Optional[bytes] = ...) -> None: ...

class FetchRowRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "table", "key", "at", "for_text")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    FOR_TEXT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    table: str
    key: _containers.RepeatedScalarFieldContainer[str]
    at: str
    for_text: bool
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., table: _Optional[str] = ..., key: _Optional[_Iterable[str]] = ..., at: _Optional[str] = ..., for_text: _Optional[bool] = ...) -> None: ...

class PastRecord(_message.Message):
    __slots__ = ("moment", "record", "doubts", "shape")
    class DoubtsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    MOMENT_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    DOUBTS_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    moment: int
    record: str
    doubts: _containers.ScalarMap[str, str]
    shape: _records_pb2.RecordShape
    def __init__(self, moment: _Optional[int] = ..., record: _Optional[str] = ..., doubts: _Optional[_Mapping[str, str]] = ..., shape: _Optional[_Union[_records_pb2.RecordShape, _Mapping]] = ...) -> None: ...

class GetVersionsRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "table", "key", "for_text")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    FOR_TEXT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    table: str
    key: _containers.RepeatedScalarFieldContainer[str]
    for_text: bool
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., table: _Optional[str] = ..., key: _Optional[_Iterable[str]] = ..., for_text: _Optional[bool] = ...) -> None: ...

class RecordVersion(_message.Message):
    __slots__ = ("operation", "moment", "made_at", "principal", "fields", "record", "shape")
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    MOMENT_FIELD_NUMBER: _ClassVar[int]
    MADE_AT_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    operation: str
    moment: int
    made_at: int
    principal: str
    fields: _containers.RepeatedScalarFieldContainer[str]
    record: str
    shape: _records_pb2.RecordShape
    def __init__(self, operation: _Optional[str] = ..., moment: _Optional[int] = ..., made_at: _Optional[int] = ..., principal: _Optional[str] = ..., fields: _Optional[_Iterable[str]] = ..., record: _Optional[str] = ..., shape: _Optional[_Union[_records_pb2.RecordShape, _Mapping]] = ...) -> None: ...

class ListRecordsRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "table", "at", "where", "order_by", "limit", "cursor", "for_text")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    ORDER_BY_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    FOR_TEXT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    table: str
    at: str
    where: str
    order_by: _containers.RepeatedScalarFieldContainer[str]
    limit: int
    cursor: str
    for_text: bool
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., table: _Optional[str] = ..., at: _Optional[str] = ..., where: _Optional[str] = ..., order_by: _Optional[_Iterable[str]] = ..., limit: _Optional[int] = ..., cursor: _Optional[str] = ..., for_text: _Optional[bool] = ...) -> None: ...

class PastPage(_message.Message):
    __slots__ = ("moment", "records", "cursor", "doubts", "shape", "large")
    class DoubtsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    MOMENT_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    DOUBTS_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    LARGE_FIELD_NUMBER: _ClassVar[int]
    moment: int
    records: _containers.RepeatedScalarFieldContainer[str]
    cursor: str
    doubts: _containers.ScalarMap[str, str]
    shape: _records_pb2.RecordShape
    large: _containers.RepeatedCompositeFieldContainer[LargeValues]
    def __init__(self, moment: _Optional[int] = ..., records: _Optional[_Iterable[str]] = ..., cursor: _Optional[str] = ..., doubts: _Optional[_Mapping[str, str]] = ..., shape: _Optional[_Union[_records_pb2.RecordShape, _Mapping]] = ..., large: _Optional[_Iterable[_Union[LargeValues, _Mapping]]] = ...) -> None: ...

class LargeValues(_message.Message):
    __slots__ = ("sizes",)
    class SizesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    SIZES_FIELD_NUMBER: _ClassVar[int]
    sizes: _containers.ScalarMap[str, int]
    def __init__(self, sizes: _Optional[_Mapping[str, int]] = ...) -> None: ...

class LoadTableRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "table", "at", "columns", "where")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    WHERE_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    table: str
    at: str
    columns: _containers.RepeatedScalarFieldContainer[str]
    where: str
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., table: _Optional[str] = ..., at: _Optional[str] = ..., columns: _Optional[_Iterable[str]] = ..., where: _Optional[str] = ...) -> None: ...

class ArrowPart(_message.Message):
    __slots__ = ("moment", "doubts", "data")
    class DoubtsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    MOMENT_FIELD_NUMBER: _ClassVar[int]
    DOUBTS_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    moment: int
    doubts: _containers.ScalarMap[str, str]
    data: bytes
    def __init__(self, moment: _Optional[int] = ..., doubts: _Optional[_Mapping[str, str]] = ..., data: _Optional[bytes] = ...) -> None: ...

class DiffMomentsRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "first", "second", "tables", "for_text")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    SECOND_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    FOR_TEXT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    first: str
    second: str
    tables: _containers.RepeatedScalarFieldContainer[str]
    for_text: bool
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., first: _Optional[str] = ..., second: _Optional[str] = ..., tables: _Optional[_Iterable[str]] = ..., for_text: _Optional[bool] = ...) -> None: ...

class Difference(_message.Message):
    __slots__ = ("changed_schema", "changed_record")
    CHANGED_SCHEMA_FIELD_NUMBER: _ClassVar[int]
    CHANGED_RECORD_FIELD_NUMBER: _ClassVar[int]
    changed_schema: ChangedSchema
    changed_record: ChangedRecord
    def __init__(self, changed_schema: _Optional[_Union[ChangedSchema, _Mapping]] = ..., changed_record: _Optional[_Union[ChangedRecord, _Mapping]] = ...) -> None: ...

class ChangedSchema(_message.Message):
    __slots__ = ("table", "schema")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    table: str
    schema: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, table: _Optional[str] = ..., schema: _Optional[_Iterable[str]] = ...) -> None: ...

class ChangedRecord(_message.Message):
    __slots__ = ("table", "key", "before", "after", "fields", "shape_before", "shape_after")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    SHAPE_BEFORE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_AFTER_FIELD_NUMBER: _ClassVar[int]
    table: str
    key: _containers.RepeatedScalarFieldContainer[str]
    before: str
    after: str
    fields: _containers.RepeatedScalarFieldContainer[str]
    shape_before: _records_pb2.RecordShape
    shape_after: _records_pb2.RecordShape
    def __init__(self, table: _Optional[str] = ..., key: _Optional[_Iterable[str]] = ..., before: _Optional[str] = ..., after: _Optional[str] = ..., fields: _Optional[_Iterable[str]] = ..., shape_before: _Optional[_Union[_records_pb2.RecordShape, _Mapping]] = ..., shape_after: _Optional[_Union[_records_pb2.RecordShape, _Mapping]] = ...) -> None: ...

class ListStoresRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "all_tenants")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    ALL_TENANTS_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    all_tenants: bool
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., all_tenants: _Optional[bool] = ...) -> None: ...

class Stores(_message.Message):
    __slots__ = ("tenants",)
    TENANTS_FIELD_NUMBER: _ClassVar[int]
    tenants: _containers.RepeatedCompositeFieldContainer[Store]
    def __init__(self, tenants: _Optional[_Iterable[_Union[Store, _Mapping]]] = ...) -> None: ...

class Store(_message.Message):
    __slots__ = ("store_status", "store_problem")
    STORE_STATUS_FIELD_NUMBER: _ClassVar[int]
    STORE_PROBLEM_FIELD_NUMBER: _ClassVar[int]
    store_status: StoreStatus
    store_problem: StoreProblem
    def __init__(self, store_status: _Optional[_Union[StoreStatus, _Mapping]] = ..., store_problem: _Optional[_Union[StoreProblem, _Mapping]] = ...) -> None: ...

class StoreStatus(_message.Message):
    __slots__ = ("tenant", "directory", "state", "begins", "ends", "visible_at", "flushed_at", "changes_behind", "seconds_behind", "files", "size_bytes", "unfinished", "is_followed", "purged_before", "unfinished_erasures", "problem")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    BEGINS_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    VISIBLE_AT_FIELD_NUMBER: _ClassVar[int]
    FLUSHED_AT_FIELD_NUMBER: _ClassVar[int]
    CHANGES_BEHIND_FIELD_NUMBER: _ClassVar[int]
    SECONDS_BEHIND_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    UNFINISHED_FIELD_NUMBER: _ClassVar[int]
    IS_FOLLOWED_FIELD_NUMBER: _ClassVar[int]
    PURGED_BEFORE_FIELD_NUMBER: _ClassVar[int]
    UNFINISHED_ERASURES_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    directory: str
    state: str
    begins: int
    ends: int
    visible_at: int
    flushed_at: int
    changes_behind: int
    seconds_behind: float
    files: int
    size_bytes: int
    unfinished: _containers.RepeatedScalarFieldContainer[str]
    is_followed: bool
    purged_before: int
    unfinished_erasures: int
    problem: str
    def __init__(self, tenant: _Optional[str] = ..., directory: _Optional[str] = ..., state: _Optional[str] = ..., begins: _Optional[int] = ..., ends: _Optional[int] = ..., visible_at: _Optional[int] = ..., flushed_at: _Optional[int] = ..., changes_behind: _Optional[int] = ..., seconds_behind: _Optional[float] = ..., files: _Optional[int] = ..., size_bytes: _Optional[int] = ..., unfinished: _Optional[_Iterable[str]] = ..., is_followed: _Optional[bool] = ..., purged_before: _Optional[int] = ..., unfinished_erasures: _Optional[int] = ..., problem: _Optional[str] = ...) -> None: ...

class StoreProblem(_message.Message):
    __slots__ = ("tenant", "error", "text")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    error: str
    text: str
    def __init__(self, tenant: _Optional[str] = ..., error: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...
