from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListJobsRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "every")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    EVERY_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    every: bool
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., every: _Optional[bool] = ...) -> None: ...

class JobList(_message.Message):
    __slots__ = ("jobs", "lagging")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    LAGGING_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobSummary]
    lagging: str
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobSummary, _Mapping]]] = ..., lagging: _Optional[str] = ...) -> None: ...

class JobSummary(_message.Message):
    __slots__ = ("id", "kind", "table", "subject", "error", "target", "state", "is_running", "priority", "throttle", "records", "is_estimated", "ranges", "ranges_done", "read", "written", "conflicts", "quarantined", "changed_at", "changed_by", "waits", "findings", "doing")
    ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    IS_RUNNING_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    IS_ESTIMATED_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    RANGES_DONE_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_FIELD_NUMBER: _ClassVar[int]
    CONFLICTS_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    CHANGED_AT_FIELD_NUMBER: _ClassVar[int]
    CHANGED_BY_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    DOING_FIELD_NUMBER: _ClassVar[int]
    id: str
    kind: str
    table: str
    subject: str
    error: str
    target: int
    state: str
    is_running: bool
    priority: int
    throttle: JobThrottle
    records: int
    is_estimated: bool
    ranges: int
    ranges_done: int
    read: int
    written: int
    conflicts: int
    quarantined: int
    changed_at: int
    changed_by: str
    waits: _containers.RepeatedScalarFieldContainer[str]
    findings: _containers.RepeatedCompositeFieldContainer[ConstraintFinding]
    doing: str
    def __init__(self, id: _Optional[str] = ..., kind: _Optional[str] = ..., table: _Optional[str] = ..., subject: _Optional[str] = ..., error: _Optional[str] = ..., target: _Optional[int] = ..., state: _Optional[str] = ..., is_running: _Optional[bool] = ..., priority: _Optional[int] = ..., throttle: _Optional[_Union[JobThrottle, _Mapping]] = ..., records: _Optional[int] = ..., is_estimated: _Optional[bool] = ..., ranges: _Optional[int] = ..., ranges_done: _Optional[int] = ..., read: _Optional[int] = ..., written: _Optional[int] = ..., conflicts: _Optional[int] = ..., quarantined: _Optional[int] = ..., changed_at: _Optional[int] = ..., changed_by: _Optional[str] = ..., waits: _Optional[_Iterable[str]] = ..., findings: _Optional[_Iterable[_Union[ConstraintFinding, _Mapping]]] = ..., doing: _Optional[str] = ...) -> None: ...

class JobThrottle(_message.Message):
    __slots__ = ("records_per_second", "bytes_per_second", "window", "max_latency_ms")
    RECORDS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    MAX_LATENCY_MS_FIELD_NUMBER: _ClassVar[int]
    records_per_second: int
    bytes_per_second: int
    window: DailyWindow
    max_latency_ms: int
    def __init__(self, records_per_second: _Optional[int] = ..., bytes_per_second: _Optional[int] = ..., window: _Optional[_Union[DailyWindow, _Mapping]] = ..., max_latency_ms: _Optional[int] = ...) -> None: ...

class DailyWindow(_message.Message):
    __slots__ = ("begins", "ends", "zone")
    BEGINS_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    begins: str
    ends: str
    zone: str
    def __init__(self, begins: _Optional[str] = ..., ends: _Optional[str] = ..., zone: _Optional[str] = ...) -> None: ...

class ConstraintFinding(_message.Message):
    __slots__ = ("what", "count", "examples")
    WHAT_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    EXAMPLES_FIELD_NUMBER: _ClassVar[int]
    what: str
    count: int
    examples: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, what: _Optional[str] = ..., count: _Optional[int] = ..., examples: _Optional[_Iterable[str]] = ...) -> None: ...

class GetJobRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "job", "measure_seconds")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    MEASURE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    job: str
    measure_seconds: float
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., job: _Optional[str] = ..., measure_seconds: _Optional[float] = ...) -> None: ...

class JobDetails(_message.Message):
    __slots__ = ("id", "kind", "table", "subject", "error", "target", "state", "is_running", "priority", "throttle", "records", "is_estimated", "ranges", "ranges_done", "read", "written", "conflicts", "quarantined", "changed_at", "changed_by", "waits", "findings", "doing", "reads", "workers", "latencies", "records_per_second", "seconds_left", "quarantine")
    ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    IS_RUNNING_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    IS_ESTIMATED_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    RANGES_DONE_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_FIELD_NUMBER: _ClassVar[int]
    CONFLICTS_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    CHANGED_AT_FIELD_NUMBER: _ClassVar[int]
    CHANGED_BY_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    DOING_FIELD_NUMBER: _ClassVar[int]
    READS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    LATENCIES_FIELD_NUMBER: _ClassVar[int]
    RECORDS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    SECONDS_LEFT_FIELD_NUMBER: _ClassVar[int]
    QUARANTINE_FIELD_NUMBER: _ClassVar[int]
    id: str
    kind: str
    table: str
    subject: str
    error: str
    target: int
    state: str
    is_running: bool
    priority: int
    throttle: JobThrottle
    records: int
    is_estimated: bool
    ranges: int
    ranges_done: int
    read: int
    written: int
    conflicts: int
    quarantined: int
    changed_at: int
    changed_by: str
    waits: _containers.RepeatedScalarFieldContainer[str]
    findings: _containers.RepeatedCompositeFieldContainer[ConstraintFinding]
    doing: str
    reads: int
    workers: _containers.RepeatedCompositeFieldContainer[JobWorker]
    latencies: _containers.RepeatedCompositeFieldContainer[ProbeStatus]
    records_per_second: float
    seconds_left: float
    quarantine: _containers.RepeatedCompositeFieldContainer[UnreadableKey]
    def __init__(self, id: _Optional[str] = ..., kind: _Optional[str] = ..., table: _Optional[str] = ..., subject: _Optional[str] = ..., error: _Optional[str] = ..., target: _Optional[int] = ..., state: _Optional[str] = ..., is_running: _Optional[bool] = ..., priority: _Optional[int] = ..., throttle: _Optional[_Union[JobThrottle, _Mapping]] = ..., records: _Optional[int] = ..., is_estimated: _Optional[bool] = ..., ranges: _Optional[int] = ..., ranges_done: _Optional[int] = ..., read: _Optional[int] = ..., written: _Optional[int] = ..., conflicts: _Optional[int] = ..., quarantined: _Optional[int] = ..., changed_at: _Optional[int] = ..., changed_by: _Optional[str] = ..., waits: _Optional[_Iterable[str]] = ..., findings: _Optional[_Iterable[_Union[ConstraintFinding, _Mapping]]] = ..., doing: _Optional[str] = ..., reads: _Optional[int] = ..., workers: _Optional[_Iterable[_Union[JobWorker, _Mapping]]] = ..., latencies: _Optional[_Iterable[_Union[ProbeStatus, _Mapping]]] = ..., records_per_second: _Optional[float] = ..., seconds_left: _Optional[float] = ..., quarantine: _Optional[_Iterable[_Union[UnreadableKey, _Mapping]]] = ...) -> None: ...

class JobWorker(_message.Message):
    __slots__ = ("range", "owner", "lease_left_us")
    RANGE_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    LEASE_LEFT_US_FIELD_NUMBER: _ClassVar[int]
    range: int
    owner: str
    lease_left_us: int
    def __init__(self, range: _Optional[int] = ..., owner: _Optional[str] = ..., lease_left_us: _Optional[int] = ...) -> None: ...

class ProbeStatus(_message.Message):
    __slots__ = ("owner", "latency_ms", "share_percent")
    OWNER_FIELD_NUMBER: _ClassVar[int]
    LATENCY_MS_FIELD_NUMBER: _ClassVar[int]
    SHARE_PERCENT_FIELD_NUMBER: _ClassVar[int]
    owner: str
    latency_ms: float
    share_percent: int
    def __init__(self, owner: _Optional[str] = ..., latency_ms: _Optional[float] = ..., share_percent: _Optional[int] = ...) -> None: ...

class UnreadableKey(_message.Message):
    __slots__ = ("key", "reason", "found_at", "shown")
    KEY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    FOUND_AT_FIELD_NUMBER: _ClassVar[int]
    SHOWN_FIELD_NUMBER: _ClassVar[int]
    key: bytes
    reason: str
    found_at: int
    shown: str
    def __init__(self, key: _Optional[bytes] = ..., reason: _Optional[str] = ..., found_at: _Optional[int] = ..., shown: _Optional[str] = ...) -> None: ...

class WatchJobRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "job")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    job: str
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., job: _Optional[str] = ...) -> None: ...

class JobProgress(_message.Message):
    __slots__ = ("id", "state", "is_running", "reads", "ranges", "ranges_done", "read", "written", "conflicts", "quarantined", "records_per_second", "seconds_left", "waits")
    ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    IS_RUNNING_FIELD_NUMBER: _ClassVar[int]
    READS_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    RANGES_DONE_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_FIELD_NUMBER: _ClassVar[int]
    CONFLICTS_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    RECORDS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    SECONDS_LEFT_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    id: str
    state: str
    is_running: bool
    reads: int
    ranges: int
    ranges_done: int
    read: int
    written: int
    conflicts: int
    quarantined: int
    records_per_second: float
    seconds_left: float
    waits: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[str] = ..., state: _Optional[str] = ..., is_running: _Optional[bool] = ..., reads: _Optional[int] = ..., ranges: _Optional[int] = ..., ranges_done: _Optional[int] = ..., read: _Optional[int] = ..., written: _Optional[int] = ..., conflicts: _Optional[int] = ..., quarantined: _Optional[int] = ..., records_per_second: _Optional[float] = ..., seconds_left: _Optional[float] = ..., waits: _Optional[_Iterable[str]] = ...) -> None: ...

class PauseJobRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "job")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    job: str
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., job: _Optional[str] = ...) -> None: ...

class ResumeJobRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "job")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    job: str
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., job: _Optional[str] = ...) -> None: ...

class CancelJobRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "job")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    job: str
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., job: _Optional[str] = ...) -> None: ...

class SetJobPriorityRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "job", "priority")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    job: str
    priority: int
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., job: _Optional[str] = ..., priority: _Optional[int] = ...) -> None: ...

class ThrottleJobRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "job", "change")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    job: str
    change: ThrottleChange
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., job: _Optional[str] = ..., change: _Optional[_Union[ThrottleChange, _Mapping]] = ...) -> None: ...

class ThrottleChange(_message.Message):
    __slots__ = ("records_per_second", "bytes_per_second", "max_latency_ms", "window", "zone")
    RECORDS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    MAX_LATENCY_MS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    records_per_second: int
    bytes_per_second: int
    max_latency_ms: int
    window: str
    zone: str
    def __init__(self, records_per_second: _Optional[int] = ..., bytes_per_second: _Optional[int] = ..., max_latency_ms: _Optional[int] = ..., window: _Optional[str] = ..., zone: _Optional[str] = ...) -> None: ...

class JobChange(_message.Message):
    __slots__ = ("id", "state", "seq", "kind", "throttle", "doing")
    ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    THROTTLE_FIELD_NUMBER: _ClassVar[int]
    DOING_FIELD_NUMBER: _ClassVar[int]
    id: str
    state: str
    seq: int
    kind: str
    throttle: JobThrottle
    doing: str
    def __init__(self, id: _Optional[str] = ..., state: _Optional[str] = ..., seq: _Optional[int] = ..., kind: _Optional[str] = ..., throttle: _Optional[_Union[JobThrottle, _Mapping]] = ..., doing: _Optional[str] = ...) -> None: ...

class GetConversionStatusRequest(_message.Message):
    __slots__ = ("tenant", "min_seq")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ...) -> None: ...

class ConversionStatus(_message.Message):
    __slots__ = ("pending", "tables", "jobs", "blocked")
    PENDING_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_FIELD_NUMBER: _ClassVar[int]
    pending: bool
    tables: _containers.RepeatedCompositeFieldContainer[TableStatus]
    jobs: _containers.RepeatedCompositeFieldContainer[UnfinishedJob]
    blocked: _containers.RepeatedCompositeFieldContainer[BlockedJob]
    def __init__(self, pending: _Optional[bool] = ..., tables: _Optional[_Iterable[_Union[TableStatus, _Mapping]]] = ..., jobs: _Optional[_Iterable[_Union[UnfinishedJob, _Mapping]]] = ..., blocked: _Optional[_Iterable[_Union[BlockedJob, _Mapping]]] = ...) -> None: ...

class TableStatus(_message.Message):
    __slots__ = ("table", "records", "stale", "revision", "layout_revision", "by_revision", "indexes_to_build", "unvalidated")
    class ByRevisionEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    TABLE_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    STALE_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_REVISION_FIELD_NUMBER: _ClassVar[int]
    BY_REVISION_FIELD_NUMBER: _ClassVar[int]
    INDEXES_TO_BUILD_FIELD_NUMBER: _ClassVar[int]
    UNVALIDATED_FIELD_NUMBER: _ClassVar[int]
    table: str
    records: int
    stale: int
    revision: int
    layout_revision: int
    by_revision: _containers.ScalarMap[int, int]
    indexes_to_build: _containers.RepeatedScalarFieldContainer[str]
    unvalidated: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, table: _Optional[str] = ..., records: _Optional[int] = ..., stale: _Optional[int] = ..., revision: _Optional[int] = ..., layout_revision: _Optional[int] = ..., by_revision: _Optional[_Mapping[int, int]] = ..., indexes_to_build: _Optional[_Iterable[str]] = ..., unvalidated: _Optional[_Iterable[str]] = ...) -> None: ...

class UnfinishedJob(_message.Message):
    __slots__ = ("id", "kind", "table", "target", "records", "ranges", "ranges_done", "read", "written", "conflicts", "doing")
    ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    RANGES_FIELD_NUMBER: _ClassVar[int]
    RANGES_DONE_FIELD_NUMBER: _ClassVar[int]
    READ_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_FIELD_NUMBER: _ClassVar[int]
    CONFLICTS_FIELD_NUMBER: _ClassVar[int]
    DOING_FIELD_NUMBER: _ClassVar[int]
    id: str
    kind: str
    table: str
    target: int
    records: int
    ranges: int
    ranges_done: int
    read: int
    written: int
    conflicts: int
    doing: str
    def __init__(self, id: _Optional[str] = ..., kind: _Optional[str] = ..., table: _Optional[str] = ..., target: _Optional[int] = ..., records: _Optional[int] = ..., ranges: _Optional[int] = ..., ranges_done: _Optional[int] = ..., read: _Optional[int] = ..., written: _Optional[int] = ..., conflicts: _Optional[int] = ..., doing: _Optional[str] = ...) -> None: ...

class BlockedJob(_message.Message):
    __slots__ = ("id", "kind", "table", "findings", "quarantined", "doing")
    ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    DOING_FIELD_NUMBER: _ClassVar[int]
    id: str
    kind: str
    table: str
    findings: _containers.RepeatedCompositeFieldContainer[ConstraintFinding]
    quarantined: int
    doing: str
    def __init__(self, id: _Optional[str] = ..., kind: _Optional[str] = ..., table: _Optional[str] = ..., findings: _Optional[_Iterable[_Union[ConstraintFinding, _Mapping]]] = ..., quarantined: _Optional[int] = ..., doing: _Optional[str] = ...) -> None: ...

class GetReindexStatusRequest(_message.Message):
    __slots__ = ("tenant", "min_seq")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ...) -> None: ...

class ReindexStatus(_message.Message):
    __slots__ = ("pending", "indexes")
    PENDING_FIELD_NUMBER: _ClassVar[int]
    INDEXES_FIELD_NUMBER: _ClassVar[int]
    pending: bool
    indexes: _containers.RepeatedCompositeFieldContainer[IndexDatasets]
    def __init__(self, pending: _Optional[bool] = ..., indexes: _Optional[_Iterable[_Union[IndexDatasets, _Mapping]]] = ...) -> None: ...

class IndexDatasets(_message.Message):
    __slots__ = ("table", "index", "state", "policy", "matches", "built_with", "this_process")
    class BuiltWithEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class ThisProcessEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TABLE_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    MATCHES_FIELD_NUMBER: _ClassVar[int]
    BUILT_WITH_FIELD_NUMBER: _ClassVar[int]
    THIS_PROCESS_FIELD_NUMBER: _ClassVar[int]
    table: str
    index: str
    state: str
    policy: str
    matches: bool
    built_with: _containers.ScalarMap[str, str]
    this_process: _containers.ScalarMap[str, str]
    def __init__(self, table: _Optional[str] = ..., index: _Optional[str] = ..., state: _Optional[str] = ..., policy: _Optional[str] = ..., matches: _Optional[bool] = ..., built_with: _Optional[_Mapping[str, str]] = ..., this_process: _Optional[_Mapping[str, str]] = ...) -> None: ...
