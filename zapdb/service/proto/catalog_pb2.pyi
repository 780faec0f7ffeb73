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

class GetTableRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "table", "with_code")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    WITH_CODE_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    table: str
    with_code: bool
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., table: _Optional[str] = ..., with_code: _Optional[bool] = ...) -> None: ...

class TableDescription(_message.Message):
    __slots__ = ("table", "number", "key", "revision", "layout_revision", "fingerprint", "fields", "indexes", "checks", "references", "archived", "code", "schema")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_REVISION_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    INDEXES_FIELD_NUMBER: _ClassVar[int]
    CHECKS_FIELD_NUMBER: _ClassVar[int]
    REFERENCES_FIELD_NUMBER: _ClassVar[int]
    ARCHIVED_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    table: str
    number: int
    key: _containers.RepeatedScalarFieldContainer[str]
    revision: int
    layout_revision: int
    fingerprint: str
    fields: _containers.RepeatedCompositeFieldContainer[FieldDescription]
    indexes: _containers.RepeatedCompositeFieldContainer[IndexDescription]
    checks: _containers.RepeatedCompositeFieldContainer[CheckDescription]
    references: _containers.RepeatedCompositeFieldContainer[ReferenceDescription]
    archived: _containers.RepeatedCompositeFieldContainer[ArchivedDescription]
    code: str
    schema: bytes
    def __init__(self, table: _Optional[str] = ..., number: _Optional[int] = ..., key: _Optional[_Iterable[str]] = ..., revision: _Optional[int] = ..., layout_revision: _Optional[int] = ..., fingerprint: _Optional[str] = ..., fields: _Optional[_Iterable[_Union[FieldDescription, _Mapping]]] = ..., indexes: _Optional[_Iterable[_Union[IndexDescription, _Mapping]]] = ..., checks: _Optional[_Iterable[_Union[CheckDescription, _Mapping]]] = ..., references: _Optional[_Iterable[_Union[ReferenceDescription, _Mapping]]] = ..., archived: _Optional[_Iterable[_Union[ArchivedDescription, _Mapping]]] = ..., code: _Optional[str] = ..., schema: _Optional[bytes] = ...) -> None: ...

class FieldDescription(_message.Message):
    __slots__ = ("name", "number", "type", "key", "optional", "generated", "default", "default_text")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    OPTIONAL_FIELD_NUMBER: _ClassVar[int]
    GENERATED_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_TEXT_FIELD_NUMBER: _ClassVar[int]
    name: str
    number: int
    type: str
    key: bool
    optional: bool
    generated: str
    default: str
    default_text: str
    def __init__(self, name: _Optional[str] = ..., number: _Optional[int] = ..., type: _Optional[str] = ..., key: _Optional[bool] = ..., optional: _Optional[bool] = ..., generated: _Optional[str] = ..., default: _Optional[str] = ..., default_text: _Optional[str] = ...) -> None: ...

class IndexDescription(_message.Message):
    __slots__ = ("name", "number", "unique", "state", "fields", "built_with", "rewritten_from")
    class BuiltWithEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: DatasetVersion
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[DatasetVersion, _Mapping]] = ...) -> None: ...
    class RewrittenFromEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: DatasetVersion
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[DatasetVersion, _Mapping]] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    FIELDS_FIELD_NUMBER: _ClassVar[int]
    BUILT_WITH_FIELD_NUMBER: _ClassVar[int]
    REWRITTEN_FROM_FIELD_NUMBER: _ClassVar[int]
    name: str
    number: int
    unique: bool
    state: str
    fields: _containers.RepeatedCompositeFieldContainer[IndexedField]
    built_with: _containers.MessageMap[str, DatasetVersion]
    rewritten_from: _containers.MessageMap[str, DatasetVersion]
    def __init__(self, name: _Optional[str] = ..., number: _Optional[int] = ..., unique: _Optional[bool] = ..., state: _Optional[str] = ..., fields: _Optional[_Iterable[_Union[IndexedField, _Mapping]]] = ..., built_with: _Optional[_Mapping[str, DatasetVersion]] = ..., rewritten_from: _Optional[_Mapping[str, DatasetVersion]] = ...) -> None: ...

class IndexedField(_message.Message):
    __slots__ = ("field", "collation", "descending")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    COLLATION_FIELD_NUMBER: _ClassVar[int]
    DESCENDING_FIELD_NUMBER: _ClassVar[int]
    field: str
    collation: str
    descending: bool
    def __init__(self, field: _Optional[str] = ..., collation: _Optional[str] = ..., descending: _Optional[bool] = ...) -> None: ...

class DatasetVersion(_message.Message):
    __slots__ = ("version", "fingerprint")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    version: str
    fingerprint: str
    def __init__(self, version: _Optional[str] = ..., fingerprint: _Optional[str] = ...) -> None: ...

class CheckDescription(_message.Message):
    __slots__ = ("name", "number", "expression", "state")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    EXPRESSION_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    name: str
    number: int
    expression: str
    state: str
    def __init__(self, name: _Optional[str] = ..., number: _Optional[int] = ..., expression: _Optional[str] = ..., state: _Optional[str] = ...) -> None: ...

class ReferenceDescription(_message.Message):
    __slots__ = ("field", "table", "on_delete", "state")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    ON_DELETE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    field: str
    table: str
    on_delete: str
    state: str
    def __init__(self, field: _Optional[str] = ..., table: _Optional[str] = ..., on_delete: _Optional[str] = ..., state: _Optional[str] = ...) -> None: ...

class ArchivedDescription(_message.Message):
    __slots__ = ("field", "number", "type", "migration")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    MIGRATION_FIELD_NUMBER: _ClassVar[int]
    field: str
    number: int
    type: str
    migration: int
    def __init__(self, field: _Optional[str] = ..., number: _Optional[int] = ..., type: _Optional[str] = ..., migration: _Optional[int] = ...) -> None: ...

class ListKeyRangesRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "table")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    table: str
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., table: _Optional[str] = ...) -> None: ...

class KeyRanges(_message.Message):
    __slots__ = ("ranges",)
    RANGES_FIELD_NUMBER: _ClassVar[int]
    ranges: _containers.RepeatedCompositeFieldContainer[KeyRange]
    def __init__(self, ranges: _Optional[_Iterable[_Union[KeyRange, _Mapping]]] = ...) -> None: ...

class KeyRange(_message.Message):
    __slots__ = ("after", "up_to", "revision", "current", "after_text", "up_to_text")
    AFTER_FIELD_NUMBER: _ClassVar[int]
    UP_TO_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    CURRENT_FIELD_NUMBER: _ClassVar[int]
    AFTER_TEXT_FIELD_NUMBER: _ClassVar[int]
    UP_TO_TEXT_FIELD_NUMBER: _ClassVar[int]
    after: str
    up_to: str
    revision: int
    current: bool
    after_text: str
    up_to_text: str
    def __init__(self, after: _Optional[str] = ..., up_to: _Optional[str] = ..., revision: _Optional[int] = ..., current: _Optional[bool] = ..., after_text: _Optional[str] = ..., up_to_text: _Optional[str] = ...) -> None: ...

class GetFingerprintRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "table")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    table: str
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., table: _Optional[str] = ...) -> None: ...

class TableRevision(_message.Message):
    __slots__ = ("table", "table_number", "revision", "fingerprint", "migrated_at", "migrated_by", "migration", "event")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    TABLE_NUMBER_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    MIGRATED_AT_FIELD_NUMBER: _ClassVar[int]
    MIGRATED_BY_FIELD_NUMBER: _ClassVar[int]
    MIGRATION_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    table: str
    table_number: int
    revision: int
    fingerprint: str
    migrated_at: int
    migrated_by: str
    migration: str
    event: str
    def __init__(self, table: _Optional[str] = ..., table_number: _Optional[int] = ..., revision: _Optional[int] = ..., fingerprint: _Optional[str] = ..., migrated_at: _Optional[int] = ..., migrated_by: _Optional[str] = ..., migration: _Optional[str] = ..., event: _Optional[str] = ...) -> None: ...

class GetFingerprintHistoryRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "table", "table_number", "since_generation", "limit", "descending", "since")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    TABLE_NUMBER_FIELD_NUMBER: _ClassVar[int]
    SINCE_GENERATION_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    DESCENDING_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    table: str
    table_number: int
    since_generation: int
    limit: int
    descending: bool
    since: str
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., table: _Optional[str] = ..., table_number: _Optional[int] = ..., since_generation: _Optional[int] = ..., limit: _Optional[int] = ..., descending: _Optional[bool] = ..., since: _Optional[str] = ...) -> None: ...

class FingerprintHistoryEntry(_message.Message):
    __slots__ = ("table", "table_number", "revision", "fingerprint", "migrated_at", "migrated_by", "migration", "event", "rollback_from", "rollback_to", "layout_revision", "schema")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    TABLE_NUMBER_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    MIGRATED_AT_FIELD_NUMBER: _ClassVar[int]
    MIGRATED_BY_FIELD_NUMBER: _ClassVar[int]
    MIGRATION_FIELD_NUMBER: _ClassVar[int]
    EVENT_FIELD_NUMBER: _ClassVar[int]
    ROLLBACK_FROM_FIELD_NUMBER: _ClassVar[int]
    ROLLBACK_TO_FIELD_NUMBER: _ClassVar[int]
    LAYOUT_REVISION_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_FIELD_NUMBER: _ClassVar[int]
    table: str
    table_number: int
    revision: int
    fingerprint: str
    migrated_at: int
    migrated_by: str
    migration: str
    event: str
    rollback_from: int
    rollback_to: int
    layout_revision: int
    schema: bytes
    def __init__(self, table: _Optional[str] = ..., table_number: _Optional[int] = ..., revision: _Optional[int] = ..., fingerprint: _Optional[str] = ..., migrated_at: _Optional[int] = ..., migrated_by: _Optional[str] = ..., migration: _Optional[str] = ..., event: _Optional[str] = ..., rollback_from: _Optional[int] = ..., rollback_to: _Optional[int] = ..., layout_revision: _Optional[int] = ..., schema: _Optional[bytes] = ...) -> None: ...

class CheckPinRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "table", "fingerprint")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    table: str
    fingerprint: str
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., table: _Optional[str] = ..., fingerprint: _Optional[str] = ...) -> None: ...

class PinCheck(_message.Message):
    __slots__ = ("table", "table_number", "fingerprint", "revisions", "active", "differences", "revision")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    TABLE_NUMBER_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    REVISIONS_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCES_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    table: str
    table_number: int
    fingerprint: str
    revisions: _containers.RepeatedScalarFieldContainer[int]
    active: SchemaStamp
    differences: _containers.RepeatedCompositeFieldContainer[SchemaDifference]
    revision: int
    def __init__(self, table: _Optional[str] = ..., table_number: _Optional[int] = ..., fingerprint: _Optional[str] = ..., revisions: _Optional[_Iterable[int]] = ..., active: _Optional[_Union[SchemaStamp, _Mapping]] = ..., differences: _Optional[_Iterable[_Union[SchemaDifference, _Mapping]]] = ..., revision: _Optional[int] = ...) -> None: ...

class SchemaStamp(_message.Message):
    __slots__ = ("revision", "fingerprint")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    revision: int
    fingerprint: str
    def __init__(self, revision: _Optional[int] = ..., fingerprint: _Optional[str] = ...) -> None: ...

class SchemaDifference(_message.Message):
    __slots__ = ("part", "number", "name", "change", "before", "after")
    PART_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    part: str
    number: int
    name: str
    change: str
    before: str
    after: str
    def __init__(self, part: _Optional[str] = ..., number: _Optional[int] = ..., name: _Optional[str] = ..., change: _Optional[str] = ..., before: _Optional[str] = ..., after: _Optional[str] = ...) -> None: ...

class CompareRevisionsRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "before", "after", "table", "table_number")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    TABLE_NUMBER_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    before: int
    after: int
    table: str
    table_number: int
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., before: _Optional[int] = ..., after: _Optional[int] = ..., table: _Optional[str] = ..., table_number: _Optional[int] = ...) -> None: ...

class RevisionComparison(_message.Message):
    __slots__ = ("table", "table_number", "to", "differences")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    TABLE_NUMBER_FIELD_NUMBER: _ClassVar[int]
    FROM_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    DIFFERENCES_FIELD_NUMBER: _ClassVar[int]
    table: str
    table_number: int
    to: SchemaStamp
    differences: _containers.RepeatedCompositeFieldContainer[SchemaDifference]
    def __init__(self, table: _Optional[str] = ..., table_number: _Optional[int] = ..., to: _Optional[_Union[SchemaStamp, _Mapping]] = ..., differences: _Optional[_Iterable[_Union[SchemaDifference, _Mapping]]] = ..., **kwargs) -> None: ...

class PruneFingerprintHistoryRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "bound", "table", "table_number", "dry_run")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    BOUND_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    TABLE_NUMBER_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    bound: HistoryBound
    table: str
    table_number: int
    dry_run: bool
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., bound: _Optional[_Union[HistoryBound, _Mapping]] = ..., table: _Optional[str] = ..., table_number: _Optional[int] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class HistoryBound(_message.Message):
    __slots__ = ("keep_last", "before", "older_than")
    KEEP_LAST_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    OLDER_THAN_FIELD_NUMBER: _ClassVar[int]
    keep_last: int
    before: int
    older_than: str
    def __init__(self, keep_last: _Optional[int] = ..., before: _Optional[int] = ..., older_than: _Optional[str] = ...) -> None: ...

class HistoryPruning(_message.Message):
    __slots__ = ("table", "table_number", "pruned", "kept_for_layout", "in_use", "newest", "done", "entries", "seq")
    TABLE_FIELD_NUMBER: _ClassVar[int]
    TABLE_NUMBER_FIELD_NUMBER: _ClassVar[int]
    PRUNED_FIELD_NUMBER: _ClassVar[int]
    KEPT_FOR_LAYOUT_FIELD_NUMBER: _ClassVar[int]
    IN_USE_FIELD_NUMBER: _ClassVar[int]
    NEWEST_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    table: str
    table_number: int
    pruned: _containers.RepeatedScalarFieldContainer[int]
    kept_for_layout: _containers.RepeatedScalarFieldContainer[int]
    in_use: _containers.RepeatedCompositeFieldContainer[RevisionUse]
    newest: int
    done: bool
    entries: _containers.RepeatedCompositeFieldContainer[TableRevision]
    seq: int
    def __init__(self, table: _Optional[str] = ..., table_number: _Optional[int] = ..., pruned: _Optional[_Iterable[int]] = ..., kept_for_layout: _Optional[_Iterable[int]] = ..., in_use: _Optional[_Iterable[_Union[RevisionUse, _Mapping]]] = ..., newest: _Optional[int] = ..., done: _Optional[bool] = ..., entries: _Optional[_Iterable[_Union[TableRevision, _Mapping]]] = ..., seq: _Optional[int] = ...) -> None: ...

class RevisionUse(_message.Message):
    __slots__ = ("revision", "by")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    BY_FIELD_NUMBER: _ClassVar[int]
    revision: int
    by: str
    def __init__(self, revision: _Optional[int] = ..., by: _Optional[str] = ...) -> None: ...

class ListCallsRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "since", "principal", "limit", "all_tenants")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    ALL_TENANTS_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    since: str
    principal: str
    limit: int
    all_tenants: bool
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., since: _Optional[str] = ..., principal: _Optional[str] = ..., limit: _Optional[int] = ..., all_tenants: _Optional[bool] = ...) -> None: ...

class CallLogEntry(_message.Message):
    __slots__ = ("called_at", "principal", "method", "tenant", "tables", "status", "duration_us")
    CALLED_AT_FIELD_NUMBER: _ClassVar[int]
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    DURATION_US_FIELD_NUMBER: _ClassVar[int]
    called_at: int
    principal: str
    method: str
    tenant: str
    tables: _containers.RepeatedScalarFieldContainer[str]
    status: str
    duration_us: int
    def __init__(self, called_at: _Optional[int] = ..., principal: _Optional[str] = ..., method: _Optional[str] = ..., tenant: _Optional[str] = ..., tables: _Optional[_Iterable[str]] = ..., status: _Optional[str] = ..., duration_us: _Optional[int] = ...) -> None: ...

class WatchCatalogRequest(_message.Message):
    __slots__ = ("tenant", "min_seq", "after", "kinds", "all_tenants")
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQ_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    ALL_TENANTS_FIELD_NUMBER: _ClassVar[int]
    tenant: str
    min_seq: int
    after: int
    kinds: _containers.RepeatedScalarFieldContainer[str]
    all_tenants: bool
    def __init__(self, tenant: _Optional[str] = ..., min_seq: _Optional[int] = ..., after: _Optional[int] = ..., kinds: _Optional[_Iterable[str]] = ..., all_tenants: _Optional[bool] = ...) -> None: ...

class CatalogChanges(_message.Message):
    __slots__ = ("seq", "rows")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    seq: int
    rows: _containers.RepeatedCompositeFieldContainer[ChangedRow]
    def __init__(self, seq: _Optional[int] = ..., rows: _Optional[_Iterable[_Union[ChangedRow, _Mapping]]] = ...) -> None: ...

class ChangedRow(_message.Message):
    __slots__ = ("seq", "kind", "key", "is_deleted")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    IS_DELETED_FIELD_NUMBER: _ClassVar[int]
    seq: int
    kind: str
    key: str
    is_deleted: bool
    def __init__(self, seq: _Optional[int] = ..., kind: _Optional[str] = ..., key: _Optional[str] = ..., is_deleted: _Optional[bool] = ...) -> None: ...
