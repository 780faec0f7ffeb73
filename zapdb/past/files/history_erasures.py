"""What was erased from the past: a row for each erasure, which says what is left to be done.

The key of the record is in its row until no file of the history store has it any more. Then only
its digest stays, with the proof of what was deleted. Fields may be erased from all records: then
there is no key.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any, Self

import msgspec
import sqlalchemy as sa

from zapdb.storage.cells import as_bytes, as_number, as_text, reading
from zapdb.storage.connection import Connection
from zapdb.storage.fixed_tables import HISTORY_ERASURES
from zapdb.storage.identifiers import make_uuid7


class ErasureProof(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What an erasure looked at and deleted.

    `changes` are rows of the change log, `archived_values` values of dropped fields and records of
    dropped tables, `large_values` those beside records. Of `files_searched` files of the history
    store, `files_rewritten` were written anew without `rows` of their rows, and `files_deleted` are
    the former ones, and files without a row of the manifest. Where fields are erased, `records` had
    such values, and changes and rows stay without them. `examples` were in the findings of jobs.
    """

    records: int = 0
    changes: int = 0
    archived_values: int = 0
    large_values: int = 0
    files_searched: int = 0
    files_rewritten: int = 0
    rows: int = 0
    files_deleted: int = 0
    examples: int = 0


class LoggedChanges(msgspec.Struct, forbid_unknown_fields=True):
    """The changes of a record that the change log had: the numbers of the transactions that
    inserted, updated and deleted it."""

    inserted: list[int] = []
    updated: list[int] = []
    deleted: list[int] = []

    def add(self, transaction: int, before: bytes | None, after: bytes | None) -> None:
        if after is None:
            self.deleted.append(transaction)
        elif before is None:
            self.inserted.append(transaction)
        else:
            self.updated.append(transaction)


@dataclass(frozen=True, slots=True)
class Erasure:
    """A row of `zapdb_history_erasures`; `key` is None once it is finished, and for all records.
    `fields` are the numbers of the erased fields, none for the whole record; `resume_after` is the
    key up to which they are erased from the database, None when that is done. `counted` are the
    logged changes of a whole record that moments count, None when they don't any more."""

    tenant: int
    id: str
    table_number: int
    key: bytes | None
    fields: tuple[int, ...]
    resume_after: bytes | None
    counted: LoggedChanges | None
    key_sha256: bytes
    proof: ErasureProof
    requested_at: int
    finished_at: int | None

    @classmethod
    def make(
        cls, tenant: int, table: int, key: bytes | None, fields: tuple[int, ...], now: int
    ) -> Self:
        """Make the row of a new one; its id is the salt of the digest."""
        id = make_uuid7().hex()
        return cls(
            tenant=tenant,
            id=id,
            table_number=table,
            key=key,
            fields=fields,
            resume_after=b"" if fields else None,
            counted=None,
            key_sha256=digest_key(id, key or b""),
            proof=ErasureProof(),
            requested_at=now,
            finished_at=None,
        )

    @classmethod
    def from_row(cls, row: Any) -> Self:
        """Of cells that have the types of their columns; raises `CorruptCatalog`."""
        cells = dict(zip(HISTORY_ERASURES.c.keys(), row, strict=True))
        with reading(HISTORY_ERASURES.name):
            counted = _unpack_counted(cells["counted"])
            proof = msgspec.json.decode(cells["proof"], type=ErasureProof)
            fields = tuple(map(as_number, json.loads(cells["fields"] or "[]")))
            return cls(**cells | {"counted": counted, "proof": proof, "fields": fields})


def digest_key(id: str, key: bytes) -> bytes:
    """Return the SHA-256 of an erasure's id and a key."""
    return sha256(id.encode() + key).digest()


def insert_erasure(connection: Connection, erasure: Erasure) -> None:
    row = asdict(erasure) | _pack(erasure)
    row["fields"] = json.dumps(erasure.fields) if erasure.fields else ""
    connection.core_execute(sa.insert(HISTORY_ERASURES).values(**row))


def list_unfinished(connection: Connection, tenant: int) -> list[Erasure]:
    """Return the erasures whose keys are still in files, or may be; the oldest first."""
    at = HISTORY_ERASURES.c
    query = sa.select(HISTORY_ERASURES).where(at.tenant == tenant, at.finished_at.is_(None))
    return [Erasure.from_row(row) for row in connection.core_execute(query.order_by(at.id))]


def list_erasures(connection: Connection, tenant: int) -> list[Erasure]:
    """Return the erasures that were begun, the oldest first."""
    at = HISTORY_ERASURES.c
    query = sa.select(HISTORY_ERASURES).where(at.tenant == tenant)
    return [Erasure.from_row(row) for row in connection.core_execute(query.order_by(at.id))]


def list_half_erased(connection: Connection, tenant: int, table: int) -> list[bytes]:
    """Return the keys of a table's records that the change log has not any more, and files still
    may have, in order."""
    at = HISTORY_ERASURES.c
    query = sa.select(at.key).where(
        at.tenant == tenant,
        at.table_number == table,
        at.fields == "",
        at.key.is_not(None),
        at.finished_at.is_(None),
    )
    return sorted(as_bytes(key) for (key,) in connection.core_execute(query))


def count_erasures(connection: Connection, tenant: int) -> int:
    """Return how many erasures were begun."""
    query = sa.select(sa.func.count()).where(HISTORY_ERASURES.c.tenant == tenant)
    return as_number(connection.core_execute(query).scalar())


def write_proof(connection: Connection, erasure: Erasure) -> None:
    """Store what was done so far, and whether it is finished."""
    at = HISTORY_ERASURES.c
    connection.core_execute(
        sa.update(HISTORY_ERASURES)
        .where(at.tenant == erasure.tenant, at.id == erasure.id)
        .values(
            key=erasure.key,
            resume_after=erasure.resume_after,
            finished_at=erasure.finished_at,
            **_pack(erasure),
        )
    )


def _pack(erasure: Erasure) -> dict[str, str | None]:
    counted = erasure.counted
    return {
        "proof": msgspec.json.encode(erasure.proof).decode(),
        "counted": None if counted is None else msgspec.json.encode(counted).decode(),
    }


def _unpack_counted(cell: Any) -> LoggedChanges | None:
    return None if cell is None else msgspec.json.decode(as_text(cell), type=LoggedChanges)
