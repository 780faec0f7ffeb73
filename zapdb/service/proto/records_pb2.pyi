from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FieldShape(_message.Message):
    __slots__ = ("number", "name", "type", "optional", "text_is_json")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    OPTIONAL_FIELD_NUMBER: _ClassVar[int]
    TEXT_IS_JSON_FIELD_NUMBER: _ClassVar[int]
    number: int
    name: str
    type: str
    optional: bool
    text_is_json: bool
    def __init__(self, number: _Optional[int] = ..., name: _Optional[str] = ..., type: _Optional[str] = ..., optional: _Optional[bool] = ..., text_is_json: _Optional[bool] = ...) -> None: ...

class RecordShape(_message.Message):
    __slots__ = ("table", "key", "fields", "archived", "large")
    class LargeEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    TABLE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    ARCHIVED_FIELD_NUMBER: _ClassVar[int]
    LARGE_FIELD_NUMBER: _ClassVar[int]
    table: int
    key: _containers.RepeatedScalarFieldContainer[int]
    fields: _containers.RepeatedCompositeFieldContainer[FieldShape]
    archived: _containers.RepeatedCompositeFieldContainer[FieldShape]
    large: _containers.ScalarMap[str, int]
    def __init__(self, table: _Optional[int] = ..., key: _Optional[_Iterable[int]] = ..., fields: _Optional[_Iterable[_Union[FieldShape, _Mapping]]] = ..., archived: _Optional[_Iterable[_Union[FieldShape, _Mapping]]] = ..., large: _Optional[_Mapping[str, int]] = ...) -> None: ...
