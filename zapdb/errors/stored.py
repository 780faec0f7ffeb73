"""What is stored is damaged, or made by or for something else."""

from __future__ import annotations

from zapdb.errors.base import ZapdbError


class CorruptionError(ZapdbError):
    code = "corruption"
    rpc_status = "DATA_LOSS"


class CorruptRecord(CorruptionError):
    """Bytes that no encoder wrote; `offset` counts from the start of the record."""

    code = "corruption.record"

    @classmethod
    def at(cls, what: str, data: bytes, offset: int) -> CorruptRecord:
        # Stepping over a field that was cut off leads behind the end: the end is where it is wrong.
        offset = min(offset, len(data))
        return cls(
            "stored bytes can't be decoded",
            what=what,
            offset=offset,
            size=len(data),
            bytes=bytes(data[max(0, offset - 4) : offset + 12]).hex(" ") or "(none)",
            hint="run `zapdb verify` for all such records, and restore them from a backup",
        )


class CorruptBlob(CorruptRecord):
    """A large value is not what was written: the context names the blob and the chunk."""

    code = "corruption.blob"


class CorruptCatalog(CorruptionError):
    code = "corruption.catalog"


class MissingSchemaHistory(CorruptCatalog):
    """The catalog was restored without the log of a table, or with an empty one."""

    code = "corruption.missing_schema_history"


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
    """A pinned fingerprint was never stamped on its table, or the one in force is not one that the
    process's own files lead to."""

    code = "compatibility.fingerprint"


class ModelsMismatch(CompatibilityError):
    """Classes that `zapdb codegen models` wrote are those of another schema."""

    code = "compatibility.models"


class UnsupportedServer(CompatibilityError):
    code = "compatibility.server"
