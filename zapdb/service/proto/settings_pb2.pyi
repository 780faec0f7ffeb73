from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SetSettingRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "name", "value", "scope")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    name: str
    value: str
    scope: SettingScope
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., name: _Optional[str] = ..., value: _Optional[str] = ..., scope: _Optional[_Union[SettingScope, _Mapping]] = ...) -> None: ...

class UnsetSettingRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "name", "scope")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    name: str
    scope: SettingScope
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., name: _Optional[str] = ..., scope: _Optional[_Union[SettingScope, _Mapping]] = ...) -> None: ...

class ListSettingsRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "scope")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    scope: SettingScope
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., scope: _Optional[_Union[SettingScope, _Mapping]] = ...) -> None: ...

class GetSettingRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "name", "scope")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    name: str
    scope: SettingScope
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., name: _Optional[str] = ..., scope: _Optional[_Union[SettingScope, _Mapping]] = ...) -> None: ...

class SettingScope(_message.Message):
    __slots__ = ("of_tenant", "table", "field", "index")
    OF_TENANT_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    of_tenant: bool
    table: str
    field: str
    index: str
    def __init__(self, of_tenant: _Optional[bool] = ..., table: _Optional[str] = ..., field: _Optional[str] = ..., index: _Optional[str] = ...) -> None: ...

class SettingValues(_message.Message):
    __slots__ = ("settings",)
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    settings: _containers.RepeatedCompositeFieldContainer[SettingValue]
    def __init__(self, settings: _Optional[_Iterable[_Union[SettingValue, _Mapping]]] = ...) -> None: ...

class SettingValue(_message.Message):
    __slots__ = ("name", "value", "default", "values", "scopes", "description")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    SCOPES_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    default: str
    values: _containers.RepeatedScalarFieldContainer[str]
    scopes: _containers.RepeatedScalarFieldContainer[str]
    description: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ..., default: _Optional[str] = ..., values: _Optional[_Iterable[str]] = ..., scopes: _Optional[_Iterable[str]] = ..., description: _Optional[str] = ..., **kwargs) -> None: ...

class SettingSet(_message.Message):
    __slots__ = ("name", "value", "default", "values", "scopes", "description", "seq", "refused")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    SCOPES_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    default: str
    values: _containers.RepeatedScalarFieldContainer[str]
    scopes: _containers.RepeatedScalarFieldContainer[str]
    description: str
    seq: int
    refused: _containers.RepeatedCompositeFieldContainer[StoreRefused]
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ..., default: _Optional[str] = ..., values: _Optional[_Iterable[str]] = ..., scopes: _Optional[_Iterable[str]] = ..., description: _Optional[str] = ..., seq: _Optional[int] = ..., refused: _Optional[_Iterable[_Union[StoreRefused, _Mapping]]] = ..., **kwargs) -> None: ...

class StoreRefused(_message.Message):
    __slots__ = ("tenant", "error", "text")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    error: str
    text: str
    def __init__(self, tenant: _Optional[str] = ..., error: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class SettingUnset(_message.Message):
    __slots__ = ("name", "value", "default", "values", "scopes", "description", "seq")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    SCOPES_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    default: str
    values: _containers.RepeatedScalarFieldContainer[str]
    scopes: _containers.RepeatedScalarFieldContainer[str]
    description: str
    seq: int
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ..., default: _Optional[str] = ..., values: _Optional[_Iterable[str]] = ..., scopes: _Optional[_Iterable[str]] = ..., description: _Optional[str] = ..., seq: _Optional[int] = ..., **kwargs) -> None: ...
