"""The canonical structure of a migration: what is stored and digested.

It is number, document version, changes and resolved rollback, as deterministic CBOR with every
default filled in, and `replaces` and `activation` where they are said. Names, summaries, reasons,
comments, key order, quoting and line ends are no part of it (rule 5).
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import typing
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal

from zapdb.errors import CompatibilityError, CorruptCatalog, CorruptionError, Location
from zapdb.migrations.document_structure import ABSENT, Name, Plain, is_choice, keys_of
from zapdb.migrations.operations import OPERATIONS, Operation
from zapdb.migrations.operations.table import DropTable
from zapdb.values.json import dumps

Build = Callable[[Any], Any]
Recipe = tuple[dict[str, tuple[str, Build]], dict[str, Any], frozenset[str]]


def to_structure(value: Any) -> Any:
    """Plain data of a parsed value, every key present, those absent on purpose left out."""
    if isinstance(value, str | int | None):
        return value
    kind: type = type(value)
    if dataclasses.is_dataclass(kind):
        return {
            name: to_structure(part)
            for name, attribute in _structure_of(kind)
            if (part := getattr(value, attribute)) is not ABSENT
        }
    if isinstance(value, tuple):
        return [to_structure(item) for item in value]
    if isinstance(value, dict):
        return {key: to_structure(item) for key, item in value.items()}
    return value


def from_structure(kind: Any, data: Any) -> Any:
    """Return the value whose structure `data` is; raises `ValueError` and the like if it is none.

    The structure is taken as normalized, since it was checked together with its digest. A database
    reads its whole chain when it is opened, which may be long, so nothing that only documents need
    is made here: no nodes, no locations, no canonical texts. `to_structure` is the inverse.
    """
    return _builder_of(kind)(data)


@functools.cache
def _builder_of(kind: Any) -> Build:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Plain:
        return _build_plain
    if kind is Name or kind in (str, int, bool):
        return functools.partial(_build_scalar, str if kind is Name else kind)
    if origin is typing.Literal:
        return functools.partial(_build_choice, arguments)
    if origin is tuple:
        return functools.partial(_build_items, _builder_of(arguments[0]))
    if origin is dict:
        return functools.partial(_build_entries, _builder_of(arguments[1]))
    return functools.partial(_build_dataclass, kind)


def _build_plain(data: Any) -> Any:
    return data


def _build_scalar(kind: type, data: Any) -> Any:
    if type(data) is not kind:
        raise ValueError(f"{kind.__name__} is needed here")
    return data


def _build_choice(choices: tuple[Any, ...], data: Any) -> Any:
    if not is_choice(data, choices):
        raise ValueError(f"one of {', '.join(map(str, choices))} is needed here")
    return data


def _build_items(build: Build, data: Any) -> tuple[Any, ...]:
    if type(data) is not list:
        raise ValueError("a list is needed here")
    return tuple([build(item) for item in data])


def _build_entries(build: Build, data: Any) -> dict[str, Any]:
    """In order of their names, which is the one that operations keep them in."""
    return {_build_scalar(str, key): build(item) for key, item in sorted(data.items())}


def _build_dataclass(kind: type, data: Any) -> Any:
    attributes, template, required = _recipe_of(kind)
    made: Any = object.__new__(
        kind
    )  # as its constructor makes it of what is normal, in a third of time
    values = vars(made)
    values.update(template)
    for name, item in data.items():
        attribute, build = attributes[name]
        values[attribute] = build(item)
    if not data.keys() >= required:
        raise ValueError(f"keys of {kind.__name__} are missing")
    return made


@functools.cache
def _recipe_of(kind: type) -> Recipe:
    """How a dataclass is built: what each key gives, what absent ones are, which there must be."""
    keys = keys_of(kind).values()
    template = {key.attribute: key.default for key in keys if not key.is_required}
    template |= {
        field.name: field.default
        for field in dataclasses.fields(kind)
        if "location" in field.metadata
    }
    attributes = {key.name: (key.attribute, _builder_of(key.kind)) for key in keys}
    required = frozenset(key.name for key in keys if key.is_required)
    return attributes, template, required


@functools.cache
def _structure_of(kind: type) -> tuple[tuple[str, str], ...]:
    """The keys of a dataclass that are part of its structure, with their attributes."""
    return tuple((name, key.attribute) for name, key in keys_of(kind).items() if not key.is_reason)


ActivationPolicy = Literal["wait_for_nodes"]
"""Such a migration waits until the files of every live node contain it (rule 12)."""
ACTIVATION_POLICIES: Final = (None, *typing.get_args(ActivationPolicy))


def implies_waiting(changes: tuple[Operation, ...]) -> bool:
    """Whether the changes wait by default: a node without them would still use parts that they
    drop."""
    return any(isinstance(operation, DropTable) for operation in changes)


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
