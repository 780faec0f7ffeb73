"""Errors of stored data: damaged, or written by another program or release."""

from __future__ import annotations

from zapdb.errors.zapdb_error import ZapdbError


class CorruptionError(ZapdbError):
    code = "corruption"
    rpc_status = "DATA_LOSS"


class CorruptRecord(CorruptionError):
    """Bytes that no encoder wrote; `offset` counts from the start of the record."""

    code = "corruption.record"

    @classmethod
    def at(cls, what: str, data: bytes, offset: int) -> CorruptRecord:
        # Skipping a truncated field leads beyond the end; the error is at the end.
        offset = min(offset, len(data))
        return cls(
            "stored bytes can't be decoded",
            what=what,
            offset=offset,
            size=len(data),
            bytes=bytes(data[max(0, offset - 4) : offset + 12]).hex(" ") or "(none)",
            hint="run `zapdb verify` for all such records; restore them from a backup, or delete "
            "them with `zapdb data discard`",
        )


class CorruptBlob(CorruptRecord):
    """A large value is damaged; the context names the blob and the chunk."""

    code = "corruption.blob"


class CorruptCatalog(CorruptionError):
    code = "corruption.catalog"


class MissingSchemaHistory(CorruptCatalog):
    """The catalog was restored without a table's schema history, or with an empty one."""

    code = "corruption.missing_schema_history"


class CorruptExport(CorruptionError):
    """An exported directory is not what was written, or does not lead to what was exported."""

    code = "corruption.export"


class HistoryDamaged(CorruptionError):
    """A file of the history store is missing, or is not what was written."""

    code = "corruption.history"


class CompatibilityError(ZapdbError):
    code = "compatibility"
    rpc_status = "FAILED_PRECONDITION"


class NotZapdb(CompatibilityError):
    code = "compatibility.not_zapdb"


class NewerStorageVersion(CompatibilityError):
    code = "compatibility.newer_storage_version"


class IncompatibleVersion(CompatibilityError):
    code = "compatibility.version"


class DatasetMismatch(CompatibilityError):
    code = "compatibility.dataset"


class UnknownZone(CompatibilityError):
    code = "compatibility.zone"

    @classmethod
    def named(cls, zone: str, data: str) -> UnknownZone:
        return cls(
            "the time zone data in use lack a zone",
            zone=zone,
            data=data,
            hint="install a newer tzdata package (or what ZAPDB_TZDATA names), or correct the name",
        )


class ServedSchemaUnavailable(CompatibilityError):
    code = "compatibility.served_schema"


class FingerprintUnknown(CompatibilityError):
    """A table never had its pinned fingerprint, or its active schema is not one of the process's
    own files."""

    code = "compatibility.fingerprint"


class ModelsMismatch(CompatibilityError):
    """The classes of `zapdb codegen models` are for another schema."""

    code = "compatibility.models"


class UnsupportedServer(CompatibilityError):
    code = "compatibility.server"
