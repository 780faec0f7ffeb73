from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListTablesRequest(_message.Message):
    __slots__ = ("tenant", "min_seq")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ...) -> None: ...

class Tables(_message.Message):
    __slots__ = ("position", "migration", "tables")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    MIGRATION_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    position: int
    migration: str
    tables: _containers.RepeatedCompositeFieldContainer[TableSummary]
    def __init__(self, position: _Optional[int] = ..., migration: _Optional[str] = ..., tables: _Optional[_Iterable[_Union[TableSummary, _Mapping]]] = ...) -> None: ...

class TableSummary(_message.Message):
    __slots__ = ("table", "number", "key", "revision", "layout_revision", "fingerprint", "fields", "indexes")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_REVISION_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    INDEXES_FIELD_NUMBER: _ClassVar[int]
    table: str
    number: int
    key: _containers.RepeatedScalarFieldContainer[str]
    revision: int
    layout_revision: int
    fingerprint: str
    fields: _containers.RepeatedScalarFieldContainer[str]
    indexes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, table: _Optional[str] = ..., number: _Optional[int] = ..., key: _Optional[_Iterable[str]] = ..., revision: _Optional[int] = ..., layout_revision: _Optional[int] = ..., fingerprint: _Optional[str] = ..., fields: _Optional[_Iterable[str]] = ..., indexes: _Optional[_Iterable[str]] = ...) -> None: ...
