from zapdb.service.proto import catalog_pb2 as _catalog_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class GetClusterStatusRequest(_message.Message):
    __slots__ = ("tenant", "min_seq")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ...) -> None: ...

class ClusterOverview(_message.Message):
    __slots__ = ("level", "level_possible", "level_policy", "storage_version", "storage_pending", "releases", "nodes", "stored", "tenants", "waiting", "jobs", "leases")
    class ReleasesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    LEVEL_POSSIBLE_FIELD_NUMBER: _ClassVar[int]
    LEVEL_POLICY_FIELD_NUMBER: _ClassVar[int]
    STORAGE_VERSION_FIELD_NUMBER: _ClassVar[int]
    STORAGE_PENDING_FIELD_NUMBER: _ClassVar[int]
    RELEASES_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    STORED_FIELD_NUMBER: _ClassVar[int]
    TENANTS_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    JOBS_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    level: int
    level_possible: int
    level_policy: str
    storage_version: str
    storage_pending: _containers.RepeatedScalarFieldContainer[str]
    releases: _containers.ScalarMap[str, int]
    nodes: NodeCounts
    stored: int
    tenants: _containers.RepeatedCompositeFieldContainer[TenantsAtPosition]
    waiting: _containers.RepeatedCompositeFieldContainer[WaitingMigration]
    jobs: _containers.RepeatedCompositeFieldContainer[WaitingJob]
    leases: _containers.RepeatedCompositeFieldContainer[ClusterLease]
    def __init__(self, level: _Optional[int] = ..., level_possible: _Optional[int] = ..., level_policy: _Optional[str] = ..., storage_version: _Optional[str] = ..., storage_pending: _Optional[_Iterable[str]] = ..., releases: _Optional[_Mapping[str, int]] = ..., nodes: _Optional[_Union[NodeCounts, _Mapping]] = ..., stored: _Optional[int] = ..., tenants: _Optional[_Iterable[_Union[TenantsAtPosition, _Mapping]]] = ..., waiting: _Optional[_Iterable[_Union[WaitingMigration, _Mapping]]] = ..., jobs: _Optional[_Iterable[_Union[WaitingJob, _Mapping]]] = ..., leases: _Optional[_Iterable[_Union[ClusterLease, _Mapping]]] = ...) -> None: ...

class NodeCounts(_message.Message):
    __slots__ = ("alive", "expired")
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    alive: int
    expired: int
    def __init__(self, alive: _Optional[int] = ..., expired: _Optional[int] = ...) -> None: ...

class TenantsAtPosition(_message.Message):
    __slots__ = ("position", "tenants")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    TENANTS_FIELD_NUMBER: _ClassVar[int]
    position: int
    tenants: int
    def __init__(self, position: _Optional[int] = ..., tenants: _Optional[int] = ...) -> None: ...

class WaitingMigration(_message.Message):
    __slots__ = ("number", "label", "waiting_for")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    WAITING_FOR_FIELD_NUMBER: _ClassVar[int]
    number: int
    label: str
    waiting_for: _containers.RepeatedCompositeFieldContainer[ClusterNode]
    def __init__(self, number: _Optional[int] = ..., label: _Optional[str] = ..., waiting_for: _Optional[_Iterable[_Union[ClusterNode, _Mapping]]] = ...) -> None: ...

class WaitingJob(_message.Message):
    __slots__ = ("id", "kind", "table", "state")
    ID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    id: str
    kind: str
    table: str
    state: str
    def __init__(self, id: _Optional[str] = ..., kind: _Optional[str] = ..., table: _Optional[str] = ..., state: _Optional[str] = ...) -> None: ...

class ClusterNode(_message.Message):
    __slots__ = ("id", "host", "pid", "release", "level", "files_end", "served_position", "rolled_back")
    ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    FILES_END_FIELD_NUMBER: _ClassVar[int]
    SERVED_POSITION_FIELD_NUMBER: _ClassVar[int]
    ROLLED_BACK_FIELD_NUMBER: _ClassVar[int]
    id: str
    host: str
    pid: int
    release: str
    level: int
    files_end: int
    served_position: int
    rolled_back: bool
    def __init__(self, id: _Optional[str] = ..., host: _Optional[str] = ..., pid: _Optional[int] = ..., release: _Optional[str] = ..., level: _Optional[int] = ..., files_end: _Optional[int] = ..., served_position: _Optional[int] = ..., rolled_back: _Optional[bool] = ...) -> None: ...

class ListNodesRequest(_message.Message):
    __slots__ = ("tenant", "min_seq")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ...) -> None: ...

class FindNodesRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "nodes")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    nodes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., nodes: _Optional[_Iterable[str]] = ...) -> None: ...

class ClusterNodes(_message.Message):
    __slots__ = ("nodes",)
    NODES_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedCompositeFieldContainer[ClusterNodeStatus]
    def __init__(self, nodes: _Optional[_Iterable[_Union[ClusterNodeStatus, _Mapping]]] = ...) -> None: ...

class ClusterNodeStatus(_message.Message):
    __slots__ = ("id", "host", "pid", "release", "level", "files_end", "served_position", "alive", "age_seconds", "lease_seconds", "datasets", "rolled_back")
    class DatasetsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _catalog_pb2.DatasetVersion
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_catalog_pb2.DatasetVersion, _Mapping]] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    FILES_END_FIELD_NUMBER: _ClassVar[int]
    SERVED_POSITION_FIELD_NUMBER: _ClassVar[int]
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    DATASETS_FIELD_NUMBER: _ClassVar[int]
    ROLLED_BACK_FIELD_NUMBER: _ClassVar[int]
    id: str
    host: str
    pid: int
    release: str
    level: int
    files_end: int
    served_position: int
    alive: bool
    age_seconds: float
    lease_seconds: float
    datasets: _containers.MessageMap[str, _catalog_pb2.DatasetVersion]
    rolled_back: bool
    def __init__(self, id: _Optional[str] = ..., host: _Optional[str] = ..., pid: _Optional[int] = ..., release: _Optional[str] = ..., level: _Optional[int] = ..., files_end: _Optional[int] = ..., served_position: _Optional[int] = ..., alive: _Optional[bool] = ..., age_seconds: _Optional[float] = ..., lease_seconds: _Optional[float] = ..., datasets: _Optional[_Mapping[str, _catalog_pb2.DatasetVersion]] = ..., rolled_back: _Optional[bool] = ...) -> None: ...

class ListLeasesRequest(_message.Message):
    __slots__ = ("tenant", "min_seq")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ...) -> None: ...

class ClusterLeases(_message.Message):
    __slots__ = ("leases",)
    LEASES_FIELD_NUMBER: _ClassVar[int]
    leases: _containers.RepeatedCompositeFieldContainer[ClusterLease]
    def __init__(self, leases: _Optional[_Iterable[_Union[ClusterLease, _Mapping]]] = ...) -> None: ...

class ClusterLease(_message.Message):
    __slots__ = ("name", "owner", "host", "pid", "epoch", "held", "age_seconds", "lease_seconds")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    HELD_FIELD_NUMBER: _ClassVar[int]
    AGE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    owner: str
    host: str
    pid: int
    epoch: int
    held: bool
    age_seconds: float
    lease_seconds: float
    def __init__(self, name: _Optional[str] = ..., owner: _Optional[str] = ..., host: _Optional[str] = ..., pid: _Optional[int] = ..., epoch: _Optional[int] = ..., held: _Optional[bool] = ..., age_seconds: _Optional[float] = ..., lease_seconds: _Optional[float] = ...) -> None: ...

class EvictNodesRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "nodes")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    NODES_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    nodes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., nodes: _Optional[_Iterable[str]] = ...) -> None: ...

class Eviction(_message.Message):
    __slots__ = ("evicted", "seq")
    EVICTED_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    evicted: _containers.RepeatedCompositeFieldContainer[ClusterNode]
    seq: int
    def __init__(self, evicted: _Optional[_Iterable[_Union[ClusterNode, _Mapping]]] = ..., seq: _Optional[int] = ...) -> None: ...

class UpgradeRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "dry_run")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    dry_run: bool
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class LevelRise(_message.Message):
    __slots__ = ("dry_run", "before", "after", "supported", "storage_versions", "waiting_for", "seq")
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    SUPPORTED_FIELD_NUMBER: _ClassVar[int]
    STORAGE_VERSIONS_FIELD_NUMBER: _ClassVar[int]
    WAITING_FOR_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    dry_run: bool
    before: int
    after: int
    supported: int
    storage_versions: _containers.RepeatedScalarFieldContainer[str]
    waiting_for: _containers.RepeatedCompositeFieldContainer[ClusterNode]
    seq: int
    def __init__(self, dry_run: _Optional[bool] = ..., before: _Optional[int] = ..., after: _Optional[int] = ..., supported: _Optional[int] = ..., storage_versions: _Optional[_Iterable[str]] = ..., waiting_for: _Optional[_Iterable[_Union[ClusterNode, _Mapping]]] = ..., seq: _Optional[int] = ...) -> None: ...

class RegisterRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "host", "pid", "release", "level")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    host: str
    pid: int
    release: str
    level: int
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., host: _Optional[str] = ..., pid: _Optional[int] = ..., release: _Optional[str] = ..., level: _Optional[int] = ...) -> None: ...

class SendHeartbeatRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "node")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    node: str
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., node: _Optional[str] = ...) -> None: ...

class Registration(_message.Message):
    __slots__ = ("node", "lease_seconds", "heartbeat_seconds", "level", "seq")
    NODE_FIELD_NUMBER: _ClassVar[int]
    LEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    node: str
    lease_seconds: float
    heartbeat_seconds: float
    level: int
    seq: int
    def __init__(self, node: _Optional[str] = ..., lease_seconds: _Optional[float] = ..., heartbeat_seconds: _Optional[float] = ..., level: _Optional[int] = ..., seq: _Optional[int] = ...) -> None: ...

class DeregisterRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "node")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    node: str
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., node: _Optional[str] = ...) -> None: ...

class Departure(_message.Message):
    __slots__ = ("seq",)
    SEQ_FIELD_NUMBER: _ClassVar[int]
    seq: int
    def __init__(self, seq: _Optional[int] = ...) -> None: ...
