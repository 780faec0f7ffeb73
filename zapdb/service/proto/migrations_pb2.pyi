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
    __slots__ = ("name", "content", "unreadable")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    UNREADABLE_FIELD_NUMBER: _ClassVar[int]
    name: str
    content: bytes
    unreadable: str
    def __init__(self, name: _Optional[str] = ..., content: _Optional[bytes] = ..., unreadable: _Optional[str] = ...) -> None: ...

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
    __slots__ = ("number", "name", "summary", "digest", "replaced")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    REPLACED_FIELD_NUMBER: _ClassVar[int]
    number: int
    name: str
    summary: str
    digest: str
    replaced: str
    def __init__(self, number: _Optional[int] = ..., name: _Optional[str] = ..., summary: _Optional[str] = ..., digest: _Optional[str] = ..., replaced: _Optional[str] = ...) -> None: ...

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
    __slots__ = ("position", "pending", "is_due", "migrations", "all_tenants", "kept")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    IS_DUE_FIELD_NUMBER: _ClassVar[int]
    MIGRATIONS_FIELD_NUMBER: _ClassVar[int]
    ALL_TENANTS_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    position: int
    pending: int
    is_due: bool
    migrations: _containers.RepeatedCompositeFieldContainer[MigrationStatus]
    all_tenants: TenantPositions
    kept: _containers.RepeatedCompositeFieldContainer[KeptStatus]
    def __init__(self, position: _Optional[int] = ..., pending: _Optional[int] = ..., is_due: _Optional[bool] = ..., migrations: _Optional[_Iterable[_Union[MigrationStatus, _Mapping]]] = ..., all_tenants: _Optional[_Union[TenantPositions, _Mapping]] = ..., kept: _Optional[_Iterable[_Union[KeptStatus, _Mapping]]] = ...) -> None: ...

class KeptStatus(_message.Message):
    __slots__ = ("number", "label", "digest", "rolled_back_at", "rolled_back_by", "processes")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    ROLLED_BACK_AT_FIELD_NUMBER: _ClassVar[int]
    ROLLED_BACK_BY_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    number: int
    label: str
    digest: str
    rolled_back_at: int
    rolled_back_by: str
    processes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, number: _Optional[int] = ..., label: _Optional[str] = ..., digest: _Optional[str] = ..., rolled_back_at: _Optional[int] = ..., rolled_back_by: _Optional[str] = ..., processes: _Optional[_Iterable[str]] = ...) -> None: ...

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
    __slots__ = ("process", "release", "files_end", "served_position", "blocks", "rolled_back")
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    FILES_END_FIELD_NUMBER: _ClassVar[int]
    SERVED_POSITION_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    ROLLED_BACK_FIELD_NUMBER: _ClassVar[int]
    process: str
    release: str
    files_end: int
    served_position: int
    blocks: str
    rolled_back: bool
    def __init__(self, process: _Optional[str] = ..., release: _Optional[str] = ..., files_end: _Optional[int] = ..., served_position: _Optional[int] = ..., blocks: _Optional[str] = ..., rolled_back: _Optional[bool] = ...) -> None: ...

class RehearseRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "directory", "sample", "all_records", "seed", "max_latency_ms", "all_tenants")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_FIELD_NUMBER: _ClassVar[int]
    ALL_RECORDS_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    MAX_LATENCY_MS_FIELD_NUMBER: _ClassVar[int]
    ALL_TENANTS_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    directory: SentDirectory
    sample: int
    all_records: bool
    seed: int
    max_latency_ms: int
    all_tenants: bool
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., directory: _Optional[_Union[SentDirectory, _Mapping]] = ..., sample: _Optional[int] = ..., all_records: _Optional[bool] = ..., seed: _Optional[int] = ..., max_latency_ms: _Optional[int] = ..., all_tenants: _Optional[bool] = ...) -> None: ...

class RehearseRollbackRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "to", "max_latency_ms", "all_tenants")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    MAX_LATENCY_MS_FIELD_NUMBER: _ClassVar[int]
    ALL_TENANTS_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    to: int
    max_latency_ms: int
    all_tenants: bool
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., to: _Optional[int] = ..., max_latency_ms: _Optional[int] = ..., all_tenants: _Optional[bool] = ...) -> None: ...

class RehearsalEvent(_message.Message):
    __slots__ = ("rehearsal_look", "rehearsal")
    REHEARSAL_LOOK_FIELD_NUMBER: _ClassVar[int]
    REHEARSAL_FIELD_NUMBER: _ClassVar[int]
    rehearsal_look: RehearsalLook
    rehearsal: Rehearsal
    def __init__(self, rehearsal_look: _Optional[_Union[RehearsalLook, _Mapping]] = ..., rehearsal: _Optional[_Union[Rehearsal, _Mapping]] = ...) -> None: ...

class RehearsalLook(_message.Message):
    __slots__ = ("tenant", "table", "read", "total")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    table: str
    read: int
    total: int
    def __init__(self, tenant: _Optional[str] = ..., table: _Optional[str] = ..., read: _Optional[int] = ..., total: _Optional[int] = ...) -> None: ...

class Rehearsal(_message.Message):
    __slots__ = ("tenant", "position", "target", "refused", "lost", "migrations", "tables", "processes", "obstacles", "raised_level", "seed", "is_rollback")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    MIGRATIONS_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    OBSTACLES_FIELD_NUMBER: _ClassVar[int]
    RAISED_LEVEL_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    IS_ROLLBACK_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    position: int
    target: int
    refused: bool
    lost: bool
    migrations: _containers.RepeatedScalarFieldContainer[str]
    tables: _containers.RepeatedCompositeFieldContainer[RehearsedTable]
    processes: _containers.RepeatedCompositeFieldContainer[ProcessPlan]
    obstacles: _containers.RepeatedCompositeFieldContainer[_errors_pb2.Error]
    raised_level: int
    seed: int
    is_rollback: bool
    def __init__(self, tenant: _Optional[str] = ..., position: _Optional[int] = ..., target: _Optional[int] = ..., refused: _Optional[bool] = ..., lost: _Optional[bool] = ..., migrations: _Optional[_Iterable[str]] = ..., tables: _Optional[_Iterable[_Union[RehearsedTable, _Mapping]]] = ..., processes: _Optional[_Iterable[_Union[ProcessPlan, _Mapping]]] = ..., obstacles: _Optional[_Iterable[_Union[_errors_pb2.Error, _Mapping]]] = ..., raised_level: _Optional[int] = ..., seed: _Optional[int] = ..., is_rollback: _Optional[bool] = ...) -> None: ...

class RehearsedTable(_message.Message):
    __slots__ = ("table", "action", "records", "converted", "seconds", "includes_writing", "indexes", "refused", "filled", "tried", "unchanged", "losses", "failures", "unreadable_count", "unreadable")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    CONVERTED_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    INCLUDES_WRITING_FIELD_NUMBER: _ClassVar[int]
    INDEXES_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    FILLED_FIELD_NUMBER: _ClassVar[int]
    TRIED_FIELD_NUMBER: _ClassVar[int]
    UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    LOSSES_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    UNREADABLE_COUNT_FIELD_NUMBER: _ClassVar[int]
    UNREADABLE_FIELD_NUMBER: _ClassVar[int]
    table: str
    action: str
    records: int
    converted: int
    seconds: float
    includes_writing: bool
    indexes: _containers.RepeatedCompositeFieldContainer[RehearsedIndex]
    refused: _containers.RepeatedCompositeFieldContainer[JobFinding]
    filled: _containers.RepeatedCompositeFieldContainer[JobFinding]
    tried: int
    unchanged: int
    losses: _containers.RepeatedCompositeFieldContainer[RehearsedLoss]
    failures: _containers.RepeatedCompositeFieldContainer[_errors_pb2.Error]
    unreadable_count: int
    unreadable: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, table: _Optional[str] = ..., action: _Optional[str] = ..., records: _Optional[int] = ..., converted: _Optional[int] = ..., seconds: _Optional[float] = ..., includes_writing: _Optional[bool] = ..., indexes: _Optional[_Iterable[_Union[RehearsedIndex, _Mapping]]] = ..., refused: _Optional[_Iterable[_Union[JobFinding, _Mapping]]] = ..., filled: _Optional[_Iterable[_Union[JobFinding, _Mapping]]] = ..., tried: _Optional[int] = ..., unchanged: _Optional[int] = ..., losses: _Optional[_Iterable[_Union[RehearsedLoss, _Mapping]]] = ..., failures: _Optional[_Iterable[_Union[_errors_pb2.Error, _Mapping]]] = ..., unreadable_count: _Optional[int] = ..., unreadable: _Optional[_Iterable[str]] = ...) -> None: ...

class RehearsedIndex(_message.Message):
    __slots__ = ("index", "unique", "records", "seconds")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    index: str
    unique: bool
    records: int
    seconds: float
    def __init__(self, index: _Optional[str] = ..., unique: _Optional[bool] = ..., records: _Optional[int] = ..., seconds: _Optional[float] = ...) -> None: ...

class RehearsedLoss(_message.Message):
    __slots__ = ("migration", "field", "operation", "because", "records", "unchanged", "key", "value", "back")
    MIGRATION_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    OPERATION_FIELD_NUMBER: _ClassVar[int]
    BECAUSE_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    UNCHANGED_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    BACK_FIELD_NUMBER: _ClassVar[int]
    migration: str
    field: str
    operation: str
    because: str
    records: int
    unchanged: int
    key: str
    value: str
    back: str
    def __init__(self, migration: _Optional[str] = ..., field: _Optional[str] = ..., operation: _Optional[str] = ..., because: _Optional[str] = ..., records: _Optional[int] = ..., unchanged: _Optional[int] = ..., key: _Optional[str] = ..., value: _Optional[str] = ..., back: _Optional[str] = ...) -> None: ...

class UpRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "directory", "to", "all_tenants", "wait_seconds", "no_build", "dry_run", "again")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    ALL_TENANTS_FIELD_NUMBER: _ClassVar[int]
    WAIT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    NO_BUILD_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    directory: SentDirectory
    to: int
    all_tenants: bool
    wait_seconds: float
    no_build: bool
    dry_run: bool
    again: bool
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., directory: _Optional[_Union[SentDirectory, _Mapping]] = ..., to: _Optional[int] = ..., all_tenants: _Optional[bool] = ..., wait_seconds: _Optional[float] = ..., no_build: _Optional[bool] = ..., dry_run: _Optional[bool] = ..., again: _Optional[bool] = ...) -> None: ...

class UpEvent(_message.Message):
    __slots__ = ("up_begun", "plan", "applied", "tenants_migrated", "tenants_up", "job_look", "job_outcome", "up")
    UP_BEGUN_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    TENANTS_MIGRATED_FIELD_NUMBER: _ClassVar[int]
    TENANTS_UP_FIELD_NUMBER: _ClassVar[int]
    JOB_LOOK_FIELD_NUMBER: _ClassVar[int]
    JOB_OUTCOME_FIELD_NUMBER: _ClassVar[int]
    UP_FIELD_NUMBER: _ClassVar[int]
    up_begun: UpBegun
    plan: MigrationsPlan
    applied: Applied
    tenants_migrated: TenantsMigrated
    tenants_up: TenantsUp
    job_look: JobLook
    job_outcome: JobOutcome
    up: Up
    def __init__(self, up_begun: _Optional[_Union[UpBegun, _Mapping]] = ..., plan: _Optional[_Union[MigrationsPlan, _Mapping]] = ..., applied: _Optional[_Union[Applied, _Mapping]] = ..., tenants_migrated: _Optional[_Union[TenantsMigrated, _Mapping]] = ..., tenants_up: _Optional[_Union[TenantsUp, _Mapping]] = ..., job_look: _Optional[_Union[JobLook, _Mapping]] = ..., job_outcome: _Optional[_Union[JobOutcome, _Mapping]] = ..., up: _Optional[_Union[Up, _Mapping]] = ...) -> None: ...

class UpBegun(_message.Message):
    __slots__ = ("migrations",)
    MIGRATIONS_FIELD_NUMBER: _ClassVar[int]
    migrations: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, migrations: _Optional[_Iterable[str]] = ...) -> None: ...

class Applied(_message.Message):
    __slots__ = ("number", "label", "active", "tables", "milliseconds", "seq")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    MILLISECONDS_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    number: int
    label: str
    active: bool
    tables: _containers.RepeatedScalarFieldContainer[str]
    milliseconds: float
    seq: int
    def __init__(self, number: _Optional[int] = ..., label: _Optional[str] = ..., active: _Optional[bool] = ..., tables: _Optional[_Iterable[str]] = ..., milliseconds: _Optional[float] = ..., seq: _Optional[int] = ...) -> None: ...

class TenantsMigrated(_message.Message):
    __slots__ = ("done", "behind")
    DONE_FIELD_NUMBER: _ClassVar[int]
    BEHIND_FIELD_NUMBER: _ClassVar[int]
    done: int
    behind: int
    def __init__(self, done: _Optional[int] = ..., behind: _Optional[int] = ...) -> None: ...

class TenantsUp(_message.Message):
    __slots__ = ("migrated", "failed")
    MIGRATED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    migrated: int
    failed: _containers.RepeatedCompositeFieldContainer[TenantFailure]
    def __init__(self, migrated: _Optional[int] = ..., failed: _Optional[_Iterable[_Union[TenantFailure, _Mapping]]] = ...) -> None: ...

class TenantFailure(_message.Message):
    __slots__ = ("tenant", "position", "error")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    position: int
    error: _errors_pb2.Error
    def __init__(self, tenant: _Optional[str] = ..., position: _Optional[int] = ..., error: _Optional[_Union[_errors_pb2.Error, _Mapping]] = ...) -> None: ...

class Up(_message.Message):
    __slots__ = ("position", "applied", "built", "all_tenants", "seq", "newest")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    BUILT_FIELD_NUMBER: _ClassVar[int]
    ALL_TENANTS_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    position: int
    applied: _containers.RepeatedCompositeFieldContainer[Applied]
    built: _containers.RepeatedCompositeFieldContainer[JobOutcome]
    all_tenants: TenantsUp
    seq: int
    newest: str
    def __init__(self, position: _Optional[int] = ..., applied: _Optional[_Iterable[_Union[Applied, _Mapping]]] = ..., built: _Optional[_Iterable[_Union[JobOutcome, _Mapping]]] = ..., all_tenants: _Optional[_Union[TenantsUp, _Mapping]] = ..., seq: _Optional[int] = ..., newest: _Optional[str] = ...) -> None: ...

class JobLook(_message.Message):
    __slots__ = ("id", "doing", "read", "total", "records_per_second", "revisions", "waits")
    ID_FIELD_NUMBER: _ClassVar[int]
    DOING_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    RECORDS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    REVISIONS_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    id: str
    doing: str
    read: int
    total: int
    records_per_second: float
    revisions: str
    waits: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[str] = ..., doing: _Optional[str] = ..., read: _Optional[int] = ..., total: _Optional[int] = ..., records_per_second: _Optional[float] = ..., revisions: _Optional[str] = ..., waits: _Optional[_Iterable[str]] = ...) -> None: ...

class JobOutcome(_message.Message):
    __slots__ = ("id", "kind", "table", "target", "superseded", "held", "waits", "findings", "read", "written", "conflicts", "quarantined", "seconds", "records_per_second", "state", "doing", "done", "again")
    ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    SUPERSEDED_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_FIELD_NUMBER: _ClassVar[int]
    CONFLICTS_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DOING_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    id: str
    kind: str
    table: str
    target: int
    superseded: bool
    held: str
    waits: _containers.RepeatedScalarFieldContainer[str]
    findings: _containers.RepeatedCompositeFieldContainer[JobFinding]
    read: int
    written: int
    conflicts: int
    quarantined: int
    seconds: float
    records_per_second: int
    state: str
    doing: str
    done: str
    again: str
    def __init__(self, id: _Optional[str] = ..., kind: _Optional[str] = ..., table: _Optional[str] = ..., target: _Optional[int] = ..., superseded: _Optional[bool] = ..., held: _Optional[str] = ..., waits: _Optional[_Iterable[str]] = ..., findings: _Optional[_Iterable[_Union[JobFinding, _Mapping]]] = ..., read: _Optional[int] = ..., written: _Optional[int] = ..., conflicts: _Optional[int] = ..., quarantined: _Optional[int] = ..., seconds: _Optional[float] = ..., records_per_second: _Optional[int] = ..., state: _Optional[str] = ..., doing: _Optional[str] = ..., done: _Optional[str] = ..., again: _Optional[str] = ...) -> None: ...

class JobFinding(_message.Message):
    __slots__ = ("what", "count", "examples")
    WHAT_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    EXAMPLES_FIELD_NUMBER: _ClassVar[int]
    what: str
    count: int
    examples: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, what: _Optional[str] = ..., count: _Optional[int] = ..., examples: _Optional[_Iterable[str]] = ...) -> None: ...

class RollbackRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "to", "evict", "digests", "dry_run")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    EVICT_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    to: int
    evict: bool
    digests: _containers.RepeatedScalarFieldContainer[str]
    dry_run: bool
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., to: _Optional[int] = ..., evict: _Optional[bool] = ..., digests: _Optional[_Iterable[str]] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class RollbackEvent(_message.Message):
    __slots__ = ("rollback_plan", "rollback")
    ROLLBACK_PLAN_FIELD_NUMBER: _ClassVar[int]
    ROLLBACK_FIELD_NUMBER: _ClassVar[int]
    rollback_plan: RollbackPlan
    rollback: Rollback
    def __init__(self, rollback_plan: _Optional[_Union[RollbackPlan, _Mapping]] = ..., rollback: _Optional[_Union[Rollback, _Mapping]] = ...) -> None: ...

class RollbackPlan(_message.Message):
    __slots__ = ("newest", "steps", "due", "processes", "are_kept")
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    DUE_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    ARE_KEPT_FIELD_NUMBER: _ClassVar[int]
    newest: str
    steps: _containers.RepeatedCompositeFieldContainer[PreviewedRollback]
    due: int
    processes: _containers.RepeatedScalarFieldContainer[str]
    are_kept: bool
    def __init__(self, newest: _Optional[str] = ..., steps: _Optional[_Iterable[_Union[PreviewedRollback, _Mapping]]] = ..., due: _Optional[int] = ..., processes: _Optional[_Iterable[str]] = ..., are_kept: _Optional[bool] = ...) -> None: ...

class PreviewedRollback(_message.Message):
    __slots__ = ("number", "label", "summary", "digest", "tenants", "lossy", "tables")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    SUMMARY_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    TENANTS_FIELD_NUMBER: _ClassVar[int]
    LOSSY_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    number: int
    label: str
    summary: str
    digest: str
    tenants: int
    lossy: bool
    tables: _containers.RepeatedCompositeFieldContainer[TableRollbackPreview]
    def __init__(self, number: _Optional[int] = ..., label: _Optional[str] = ..., summary: _Optional[str] = ..., digest: _Optional[str] = ..., tenants: _Optional[int] = ..., lossy: _Optional[bool] = ..., tables: _Optional[_Iterable[_Union[TableRollbackPreview, _Mapping]]] = ...) -> None: ...

class TableRollbackPreview(_message.Message):
    __slots__ = ("table", "action", "records", "fields", "indexes", "built", "constraints")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    INDEXES_FIELD_NUMBER: _ClassVar[int]
    BUILT_FIELD_NUMBER: _ClassVar[int]
    CONSTRAINTS_FIELD_NUMBER: _ClassVar[int]
    table: str
    action: str
    records: int
    fields: _containers.RepeatedScalarFieldContainer[str]
    indexes: _containers.RepeatedScalarFieldContainer[str]
    built: _containers.RepeatedScalarFieldContainer[str]
    constraints: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, table: _Optional[str] = ..., action: _Optional[str] = ..., records: _Optional[int] = ..., fields: _Optional[_Iterable[str]] = ..., indexes: _Optional[_Iterable[str]] = ..., built: _Optional[_Iterable[str]] = ..., constraints: _Optional[_Iterable[str]] = ...) -> None: ...

class Rollback(_message.Message):
    __slots__ = ("position", "rolled_back", "are_kept", "milliseconds", "seq")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    ROLLED_BACK_FIELD_NUMBER: _ClassVar[int]
    ARE_KEPT_FIELD_NUMBER: _ClassVar[int]
    MILLISECONDS_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    position: int
    rolled_back: _containers.RepeatedCompositeFieldContainer[PreviewedRollback]
    are_kept: bool
    milliseconds: float
    seq: int
    def __init__(self, position: _Optional[int] = ..., rolled_back: _Optional[_Iterable[_Union[PreviewedRollback, _Mapping]]] = ..., are_kept: _Optional[bool] = ..., milliseconds: _Optional[float] = ..., seq: _Optional[int] = ...) -> None: ...

class ForgetRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "evict", "dry_run")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    EVICT_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    evict: bool
    dry_run: bool
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., evict: _Optional[bool] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class Forgetting(_message.Message):
    __slots__ = ("forgotten", "values", "seq")
    FORGOTTEN_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    forgotten: _containers.RepeatedCompositeFieldContainer[KeptStatus]
    values: int
    seq: int
    def __init__(self, forgotten: _Optional[_Iterable[_Union[KeptStatus, _Mapping]]] = ..., values: _Optional[int] = ..., seq: _Optional[int] = ...) -> None: ...
