from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Error(_message.Message):
    __slots__ = ("code", "message", "hint", "context", "file", "line", "column", "violations", "violations_hidden")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    VIOLATIONS_FIELD_NUMBER: _ClassVar[int]
    VIOLATIONS_HIDDEN_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    hint: str
    context: _containers.RepeatedCompositeFieldContainer[ErrorContext]
    file: str
    line: int
    column: int
    violations: _containers.RepeatedCompositeFieldContainer[ErrorViolation]
    violations_hidden: int
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., hint: _Optional[str] = ..., context: _Optional[_Iterable[_Union[ErrorContext, _Mapping]]] = ..., file: _Optional[str] = ..., line: _Optional[int] = ..., column: _Optional[int] = ..., violations: _Optional[_Iterable[_Union[ErrorViolation, _Mapping]]] = ..., violations_hidden: _Optional[int] = ...) -> None: ...

class ErrorViolation(_message.Message):
    __slots__ = ("file", "line", "column", "message", "hint", "excerpt")
    FILE_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    COLUMN_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    EXCERPT_FIELD_NUMBER: _ClassVar[int]
    file: str
    line: int
    column: int
    message: str
    hint: str
    excerpt: str
    def __init__(self, file: _Optional[str] = ..., line: _Optional[int] = ..., column: _Optional[int] = ..., message: _Optional[str] = ..., hint: _Optional[str] = ..., excerpt: _Optional[str] = ...) -> None: ...

class ErrorContext(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: str
    def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
