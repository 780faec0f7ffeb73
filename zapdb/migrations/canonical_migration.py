"""The canonical structure of a migration: what is stored and digested.

It is number, document version, changes and resolved rollback, as deterministic CBOR with every
default filled in, and `replaces` and `activation` where they are said. Names, summaries, reasons,
comments, key order, quoting and line ends are no part of it (rule 5).
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from typing import Any, Final

from zapdb.errors import CompatibilityError, CorruptCatalog, CorruptionError, Location
from zapdb.migrations.operations import OPERATIONS, Operation
from zapdb.migrations.stored_structure import from_structure, to_structure
from zapdb.values.json import dumps

DOCUMENT_VERSION: Final = 1
"""Of the documents that commands write; `zapdb.formats` says which are read."""
DIGEST_ALGORITHM: Final = "z1"


def encode_structure(
    number: int,
    changes: tuple[Operation, ...],
    rollback: tuple[Operation, ...],
    replaces: tuple[str, ...],
    activation: str | None,
    version: int,
) -> bytes:
    """The canonical structure of a resolved migration."""
    structure: dict[str, Any] = {
        "zapdb": version,
        "number": number,
        "changes": [_encode_operation(operation) for operation in changes],
        "rollback": [_encode_operation(operation) for operation in rollback],
    }
    if replaces:
        structure["replaces"] = list(replaces)
    if activation is not None:
        structure["activation"] = activation
    return dumps(structure)


def _encode_operation(operation: Operation) -> dict[str, Any]:
    return {operation.keyword: to_structure(operation)}


def digest_of(structure: bytes) -> str:
    """The digest of a canonical structure, such as `z1:9f86d0…`."""
    return f"{DIGEST_ALGORITHM}:{hashlib.sha256(structure).hexdigest()}"


def decode_operations(structures: Any, name: str) -> tuple[Operation, ...]:
    """The operations of a stored migration's changes or rollback; see `reading_stored`."""
    place = Location(f"<stored migration {name}>")
    operations: list[Operation] = []
    for structure in structures:
        ((keyword, body),) = structure.items()
        operation: Operation = from_structure(OPERATIONS[keyword], body)
        vars(operation)["location"] = place
        operations.append(operation)
    return tuple(operations)


@contextlib.contextmanager
def reading_stored(name: str) -> Iterator[None]:
    """What goes wrong inside is the fault of the migration with this name, as it is stored: raises
    `CorruptCatalog`.

    Whatever was stored was valid, so that any error at all means that it is not what was stored:
    operations assume what the validation of documents sees to.
    """
    try:
        yield
    except (CorruptionError, CompatibilityError):
        raise
    except Exception as error:
        raise CorruptCatalog(
            "a stored migration cannot be read",
            migration=name,
            cause=f"{type(error).__name__}: {error}".splitlines()[0],
            hint="restore the zapdb_migrations table from a backup",
        ) from error
