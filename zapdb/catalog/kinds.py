"""What the catalog's rows may hold: each kind of row, the JSON Schema of its values, their format.

Every value carries the number of its format, and is validated when it is read: a row that was
tampered with is told as such, before anything is done by it. Where a kind's format was raised, an
older value is brought to the newest by the functions of `UPGRADES`, one format at a time, whenever
it is read; `changelog.rewrite_outdated` does so for all, when the cluster's level rises. A newer
format may only be written once the level says that every process reads it (rule 10): all formats
are the first ones yet, and the first that is raised has to bring that condition with it.

The schema of all kinds together is published: `catalog_schema`, docs/format/catalog.schema.json.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

import jsonschema_rs

from zapdb.errors import CorruptCatalog, IncompatibleVersion
from zapdb.release import __version__

KindName = Literal[
    "database",
    "level",
    "chain",
    "tenant",
    "tenant-name",
    "node",
    "lease",
    "index",
    "constraint",
    "physical",
    "retired",
    "job",
    "finding",
    "setting",
]
Value = dict[str, Any]
"""A row's value without its format."""

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
FORMAT: Final = "format"

TEXT: Final = {"type": "string"}
NUMBER: Final = {"type": "integer", "minimum": 0}
POSITIVE: Final = {"type": "integer", "minimum": 1}
TEXTS: Final = {"type": "object", "additionalProperties": TEXT}


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def _list_of(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": schema}


def _choice(*choices: str) -> dict[str, Any]:
    return {"enum": list(choices)}


def _object(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


DATASETS: Final = {
    "type": "object",
    "additionalProperties": _object({"version": TEXT, "fingerprint": TEXT}),
}
FINDINGS: Final = _list_of(_object({"what": TEXT, "count": NUMBER, "examples": _list_of(TEXT)}))


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of row: what its key and its value say."""

    name: KindName
    format: int
    key: str
    says: str
    required: dict[str, Any]
    optional: dict[str, Any]

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the value as it is stored."""
        value = _object({FORMAT: {"const": self.format}, **self.required}, self.optional)
        return {"title": self.name, "description": f"{self.says} Key: {self.key}.", **value}


def _kind(
    name: KindName,
    key: str,
    says: str,
    required: dict[str, Any],
    optional: dict[str, Any] | None = None,
) -> Kind:
    return Kind(name, 1, key, says, required, optional or {})


KINDS: Final[dict[str, Kind]] = {
    kind.name: kind
    for kind in (
        _kind(
            "database",
            "empty",
            "The database's identity, and who made it with which release.",
            {"id": TEXT, "created_at": NUMBER, "created_by": TEXT, "release": TEXT},
        ),
        _kind(
            "level",
            "empty",
            "The level that every process must support (rule 10).",
            {"level": POSITIVE},
            {"raised_at": NUMBER, "raised_by": TEXT},
        ),
        _kind(
            "chain",
            "empty",
            "Where the stored migrations end, and the one that is being forgotten.",
            {
                "end": NUMBER,
                "newest": NUMBER,
                "digest": TEXT,
                "forgetting": _or_null(POSITIVE),
            },
        ),
        _kind(
            "tenant",
            "the tenant's number",
            "A tenant's name, and the number of the newest migration in force for it.",
            {
                "name": TEXT,
                "position": NUMBER,
                "created_at": NUMBER,
                "created_by": TEXT,
                "removing": {"type": "boolean"},
            },
        ),
        _kind(
            "tenant-name",
            "the tenant's name",
            "The number of the tenant that has the name.",
            {"number": POSITIVE},
        ),
        _kind(
            "node",
            "the process's id",
            "A process that has the database open: what it is, and what its files hold.",
            {
                "release": TEXT,
                "level": NUMBER,
                "files_end": NUMBER,
                "serves": NUMBER,
                "pending": TEXTS,
                "datasets": {
                    "type": "object",
                    "additionalProperties": {**_list_of(TEXT), "minItems": 2, "maxItems": 2},
                },
                "started_at": NUMBER,
            },
        ),
        _kind(
            "lease",
            "what is leased",
            "Who may do what only one may do; its epoch, and when it expires, stand in columns of "
            "their own.",
            {
                "owner": _object(
                    {
                        "id": TEXT,
                        "host": TEXT,
                        "process": NUMBER,
                        "boot": TEXT,
                        "namespace": TEXT,
                        "started": TEXT,
                    }
                ),
                "since": NUMBER,
            },
        ),
        _kind(
            "index",
            "tenant/index",
            "The state of a tenant's index, the table of its entries, and the collation or time "
            "zone data that it is built with; while it is rewriting, those too that some entries "
            "may still be of. `former` has the fingerprints of the data before.",
            {
                "table": POSITIVE,
                "state": _choice("building", "readable", "rewriting", "disabled"),
                "entry_table": POSITIVE,
                "build": POSITIVE,
                "key_format": POSITIVE,
                "built_with": DATASETS,
                "rewritten_from": DATASETS,
                "former": {"type": "object", "additionalProperties": _list_of(TEXT)},
            },
        ),
        _kind(
            "constraint",
            "tenant/check|reference/number",
            "Whether all records of a tenant's table were found to keep to a check or reference.",
            {"table": POSITIVE, "state": _choice("unvalidated", "validated")},
        ),
        _kind(
            "physical",
            "index/physical",
            "A table that holds entries of an index, of whatever tenants use it.",
            {"unique": {"type": "boolean"}},
        ),
        _kind(
            "retired",
            "index/index/physical/tenant, or records/table/tenant",
            "Something that nothing uses any more, for the next sweep to take away.",
            {},
        ),
        _kind(
            "job",
            "kind/tenant/table/target/chain",
            "Work on one table's records: what it works towards, and its state.",
            {
                "kind": _choice("convert", "index", "revert", "validate"),
                "tenant": POSITIVE,
                "table": POSITIVE,
                "table_name": TEXT,
                "target": NUMBER,
                "position": NUMBER,
                "chain": TEXT,
                "datasets": TEXTS,
                "state": _choice("planned", "done", "superseded", "blocked"),
                "records": NUMBER,
                "created_at": NUMBER,
            },
            {"findings": FINDINGS},
        ),
        _kind(
            "finding",
            "job/range",
            "What a range of a job found that is in the way.",
            {"findings": FINDINGS},
        ),
        _kind(
            "setting",
            "tenant/table/field or index-number/name, with * for all of them",
            "What a setting was set to.",
            {"value": TEXT},
        ),
    )
}

UPGRADES: Final[dict[tuple[str, int], Callable[[Value], Value]]] = {}
"""By kind and format: the function that takes a value of this format to the next one."""


def kind_of(name: str) -> Kind:
    kind = KINDS.get(name)
    if kind is None:
        raise LookupError(f"{name!r} is no kind of KINDS in {__name__}: add it there")
    return kind


def dump_value(name: str, value: Value) -> str:
    """The stored text: canonical JSON, so that equal values have equal bytes."""
    return _to_text({**value, FORMAT: kind_of(name).format})


def _to_text(stored: Value) -> str:
    return json.dumps(stored, sort_keys=True, separators=(",", ":"))


def load_value(name: str, key: str, text: str) -> Value:
    """The value of a stored text, in the newest format.

    Raises `CorruptCatalog` for what its schema does not allow, `IncompatibleVersion` for a format
    that a later release wrote.
    """
    kind = kind_of(name)
    try:
        stored = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _corrupt(name, key, f"not JSON: {error}") from None
    format = stored.get(FORMAT) if isinstance(stored, dict) else None
    if type(format) is int and format > kind.format:
        raise IncompatibleVersion(
            "a row of the catalog was written by a later release",
            kind=name,
            key=key,
            format=format,
            known=kind.format,
            release=__version__,
            hint="use a newer release of zapdb",
        )
    if type(format) is int and 0 < format < kind.format:
        stored = _upgrade(kind, key, stored, format)
    fault = _find_fault(name, kind.format, stored)
    if fault is not None:
        raise _corrupt(name, key, fault)
    del stored[FORMAT]
    value: Value = stored
    return value


def _upgrade(kind: Kind, key: str, stored: Value, format: int) -> Value:
    value = {name: member for name, member in stored.items() if name != FORMAT}
    for step in range(format, kind.format):
        try:
            value = UPGRADES[kind.name, step](value)
        except (LookupError, TypeError, ValueError) as error:
            wrong = f"not a value of format {format}: {error!r}"
            raise _corrupt(kind.name, key, wrong) from error
    return {**value, FORMAT: kind.format}


def _corrupt(name: str, key: str, wrong: str) -> CorruptCatalog:
    return CorruptCatalog(
        "a row of the catalog is not what its kind allows",
        kind=name,
        key=key,
        wrong=wrong,
        hint="zapdb_catalog was tampered with: restore this row from a backup",
    )


def _find_fault(name: str, format: int, stored: Any) -> str | None:
    """What is wrong with a value, and where; None if nothing is."""
    try:
        _validator(name, format).validate(stored)
    except jsonschema_rs.ValidationError as error:
        place = ".".join(map(str, error.instance_path))
        return f"{place}: {error.message}" if place else error.message
    return None


@functools.lru_cache(maxsize=64)
def _validator(name: str, format: int) -> jsonschema_rs.Validator:
    """Compiled once per process; `format` is part of the cache's key only."""
    return jsonschema_rs.validator_for({"$schema": DIALECT, **kind_of(name).schema()})


def catalog_schema() -> dict[str, Any]:
    """The published JSON Schema of a row of zapdb_catalog, `{kind, key, value}`."""
    return {
        "$schema": DIALECT,
        "$comment": "Generated by `make docs`; don't edit.",
        "title": "zapdb catalog",
        "description": "A live row of the table zapdb_catalog, its value parsed.",
        "type": "object",
        "oneOf": [
            {
                "properties": {
                    "kind": {"const": name},
                    "key": TEXT,
                    "value": {"$ref": f"#/$defs/{name}"},
                },
                "required": ["kind", "key", "value"],
            }
            for name in KINDS
        ],
        "$defs": {name: kind.schema() for name, kind in KINDS.items()},
    }
