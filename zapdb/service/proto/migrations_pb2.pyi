from zapdb.service.proto import errors_pb2 as _errors_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SentDirectory(_message.Message):
    __slots__ = ("path", "files")
    PATH_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    path: str
    files: _containers.RepeatedCompositeFieldContainer[SentFile]
    def __init__(self, path: _Optional[str] = ..., files: _Optional[_Iterable[_Union[SentFile, _Mapping]]] = ...) -> None: ...

class SentFile(_message.Message):
    __slots__ = ("name", "content")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    name: str
    content: bytes
    def __init__(self, name: _Optional[str] = ..., content: _Optional[bytes] = ...) -> None: ...

class CheckRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "directory", "with_lock")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    WITH_LOCK_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    directory: SentDirectory
    with_lock: bool
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., directory: _Optional[_Union[SentDirectory, _Mapping]] = ..., with_lock: _Optional[bool] = ...) -> None: ...

class CheckedMigrations(_message.Message):
    __slots__ = ("migrations", "lock_lines_written")
    MIGRATIONS_FIELD_NUMBER: _ClassVar[int]
    LOCK_LINES_WRITTEN_FIELD_NUMBER: _ClassVar[int]
    migrations: _containers.RepeatedCompositeFieldContainer[CheckedMigration]
    lock_lines_written: int
    def __init__(self, migrations: _Optional[_Iterable[_Union[CheckedMigration, _Mapping]]] = ..., lock_lines_written: _Optional[int] = ...) -> None: ...

class CheckedMigration(_message.Message):
    __slots__ = ("number", "name", "summary", "digest")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    number: int
    name: str
    summary: str
    digest: str
    def __init__(self, number: _Optional[int] = ..., name: _Optional[str] = ..., summary: _Optional[str] = ..., digest: _Optional[str] = ...) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "directory", "all_tenants")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    ALL_TENANTS_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    directory: SentDirectory
    all_tenants: bool
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., directory: _Optional[_Union[SentDirectory, _Mapping]] = ..., all_tenants: _Optional[bool] = ...) -> None: ...

class MigrationsStatus(_message.Message):
    __slots__ = ("position", "pending", "rolling_back", "migrations", "all_tenants")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    ROLLING_BACK_FIELD_NUMBER: _ClassVar[int]
    MIGRATIONS_FIELD_NUMBER: _ClassVar[int]
    ALL_TENANTS_FIELD_NUMBER: _ClassVar[int]
    position: int
    pending: int
    rolling_back: int
    migrations: _containers.RepeatedCompositeFieldContainer[MigrationStatus]
    all_tenants: TenantPositions
    def __init__(self, position: _Optional[int] = ..., pending: _Optional[int] = ..., rolling_back: _Optional[int] = ..., migrations: _Optional[_Iterable[_Union[MigrationStatus, _Mapping]]] = ..., all_tenants: _Optional[_Union[TenantPositions, _Mapping]] = ...) -> None: ...

class MigrationStatus(_message.Message):
    __slots__ = ("number", "name", "state", "conflict")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    CONFLICT_FIELD_NUMBER: _ClassVar[int]
    number: int
    name: str
    state: str
    conflict: _errors_pb2.Error
    def __init__(self, number: _Optional[int] = ..., name: _Optional[str] = ..., state: _Optional[str] = ..., conflict: _Optional[_Union[_errors_pb2.Error, _Mapping]] = ...) -> None: ...

class TenantPositions(_message.Message):
    __slots__ = ("tenants", "positions", "behind", "end")
    class PositionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    TENANTS_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    BEHIND_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    tenants: int
    positions: _containers.ScalarMap[int, int]
    behind: _containers.RepeatedCompositeFieldContainer[TenantPosition]
    end: int
    def __init__(self, tenants: _Optional[int] = ..., positions: _Optional[_Mapping[int, int]] = ..., behind: _Optional[_Iterable[_Union[TenantPosition, _Mapping]]] = ..., end: _Optional[int] = ...) -> None: ...

class TenantPosition(_message.Message):
    __slots__ = ("tenant", "position")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    position: int
    def __init__(self, tenant: _Optional[str] = ..., position: _Optional[int] = ...) -> None: ...

class DiffRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "directory")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    directory: SentDirectory
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., directory: _Optional[_Union[SentDirectory, _Mapping]] = ...) -> None: ...

class Differences(_message.Message):
    __slots__ = ("differences", "not_stored", "without_file", "same")
    DIFFERENCES_FIELD_NUMBER: _ClassVar[int]
    NOT_STORED_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_FILE_FIELD_NUMBER: _ClassVar[int]
    SAME_FIELD_NUMBER: _ClassVar[int]
    differences: _containers.RepeatedCompositeFieldContainer[FileDifference]
    not_stored: int
    without_file: int
    same: int
    def __init__(self, differences: _Optional[_Iterable[_Union[FileDifference, _Mapping]]] = ..., not_stored: _Optional[int] = ..., without_file: _Optional[int] = ..., same: _Optional[int] = ...) -> None: ...

class FileDifference(_message.Message):
    __slots__ = ("number", "name", "stored", "file", "lines", "error")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    number: int
    name: str
    stored: str
    file: str
    lines: _containers.RepeatedScalarFieldContainer[str]
    error: str
    def __init__(self, number: _Optional[int] = ..., name: _Optional[str] = ..., stored: _Optional[str] = ..., file: _Optional[str] = ..., lines: _Optional[_Iterable[str]] = ..., error: _Optional[str] = ...) -> None: ...

class PlanRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "directory", "sample")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    directory: SentDirectory
    sample: int
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., directory: _Optional[_Union[SentDirectory, _Mapping]] = ..., sample: _Optional[int] = ...) -> None: ...

class MigrationsPlan(_message.Message):
    __slots__ = ("position", "migrations", "tables", "processes")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    MIGRATIONS_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    position: int
    migrations: _containers.RepeatedCompositeFieldContainer[PlannedMigration]
    tables: _containers.RepeatedCompositeFieldContainer[PlannedTable]
    processes: _containers.RepeatedCompositeFieldContainer[ProcessPlan]
    def __init__(self, position: _Optional[int] = ..., migrations: _Optional[_Iterable[_Union[PlannedMigration, _Mapping]]] = ..., tables: _Optional[_Iterable[_Union[PlannedTable, _Mapping]]] = ..., processes: _Optional[_Iterable[_Union[ProcessPlan, _Mapping]]] = ...) -> None: ...

class PlannedMigration(_message.Message):
    __slots__ = ("number", "label", "summary", "waits_for_nodes", "changes", "rollback")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    WAITS_FOR_NODES_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    ROLLBACK_FIELD_NUMBER: _ClassVar[int]
    number: int
    label: str
    summary: str
    waits_for_nodes: bool
    changes: str
    rollback: str
    def __init__(self, number: _Optional[int] = ..., label: _Optional[str] = ..., summary: _Optional[str] = ..., waits_for_nodes: _Optional[bool] = ..., changes: _Optional[str] = ..., rollback: _Optional[str] = ...) -> None: ...

class PlannedTable(_message.Message):
    __slots__ = ("table", "action", "records", "converted", "indexes", "seconds", "includes_writing", "declared", "dropped_writes")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    CONVERTED_FIELD_NUMBER: _ClassVar[int]
    INDEXES_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    INCLUDES_WRITING_FIELD_NUMBER: _ClassVar[int]
    DECLARED_FIELD_NUMBER: _ClassVar[int]
    DROPPED_WRITES_FIELD_NUMBER: _ClassVar[int]
    table: str
    action: str
    records: int
    converted: int
    indexes: _containers.RepeatedScalarFieldContainer[str]
    seconds: float
    includes_writing: bool
    declared: _containers.RepeatedScalarFieldContainer[str]
    dropped_writes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, table: _Optional[str] = ..., action: _Optional[str] = ..., records: _Optional[int] = ..., converted: _Optional[int] = ..., indexes: _Optional[_Iterable[str]] = ..., seconds: _Optional[float] = ..., includes_writing: _Optional[bool] = ..., declared: _Optional[_Iterable[str]] = ..., dropped_writes: _Optional[_Iterable[str]] = ...) -> None: ...

class ProcessPlan(_message.Message):
    __slots__ = ("process", "release", "files_end", "served_position", "blocks")
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    FILES_END_FIELD_NUMBER: _ClassVar[int]
    SERVED_POSITION_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    process: str
    release: str
    files_end: int
    served_position: int
    blocks: str
    def __init__(self, process: _Optional[str] = ..., release: _Optional[str] = ..., files_end: _Optional[int] = ..., served_position: _Optional[int] = ..., blocks: _Optional[str] = ...) -> None: ...
