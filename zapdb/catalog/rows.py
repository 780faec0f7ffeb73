"""The catalog's own state: one row per (kind, key), and the counters.

Every change draws a rising seq, so the rows are a feed compacted by key (rule 30). The counter of
seqs is locked until the change commits, so seqs rise in the order of commits. A seq is an identity
(`storage.identities`): it names one change, also where a backup was restored. A deletion leaves a
row without a value, a tombstone, for the readers of the feed (`feed`).

Values are canonical JSON. Its kind's class checks a value when it is written and when it is read,
so a row that was tampered with raises an error before it has any effect. When a value of an older
format is read, `FORMAT_CHANGES` converts it to the newest, one format at a time. Values are written
in the newest format that the cluster level allows; `feed.upgrade_row_formats` writes all rows again
when the level rises (rule 10). The JSON Schema of all kinds is published: `catalog_schema`,
docs/format/catalog.schema.json.

Opening a database runs dozens of these statements. They are written for the driver, since
SQLAlchemy takes longer to make and compile one than the database to run it.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from zapdb import release
from zapdb.catalog.row_kinds import (
    FORMAT_CHANGES,
    KINDS,
    CatalogRow,
    ChainState,
    LevelRow,
    Tenant,
    row_key,
)
from zapdb.errors import CorruptCatalog, IncompatibleVersion
from zapdb.formats import require_word
from zapdb.storage import Connection, DuplicateKey
from zapdb.storage.cells import as_number, checked, wrong_counter
from zapdb.storage.fixed_tables import CATALOG
from zapdb.storage.identities import draw_random_part, next_identity_sql
from zapdb.storage.statements import catalog_version_sql

R = TypeVar("R", bound=CatalogRow)

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
FORMAT: Final = "format"


def dump_row(row: CatalogRow, level: int = release.LEVEL) -> str:
    """Return the text to store: canonical JSON, so that equal rows have equal bytes at one level.

    Raises `ValueError` for a row that its class does not allow, because it could not be read again.
    """
    value, format = msgspec.to_builtins(row, str_keys=True), row.FORMAT
    msgspec.convert(value, type(row), str_keys=True)
    while format > 1 and FORMAT_CHANGES[row.KIND, format - 1].level > level:
        format -= 1
        value = FORMAT_CHANGES[row.KIND, format].downgrade(value)
    return json.dumps({**value, FORMAT: format}, sort_keys=True, separators=(",", ":"))


def load_row(kind: type[R], key: str, text: str) -> R:
    """Return the row of a stored text, in the newest format.

    Raises `CorruptCatalog` if its class does not allow it, and `IncompatibleVersion` if a later
    release wrote its format, or a word that is none of a closed set.
    """
    row = decode_row(kind, key, text)
    if row.key != key:
        raise _corrupt(kind, key, f"the value of another key: {row.key}")
    return row


def decode_row(kind: type[R], key: str, text: str) -> R:
    """Read a row without comparing its key, which is only for errors."""
    try:
        stored = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _corrupt(kind, key, f"not JSON: {error}") from None
    format = stored.pop(FORMAT, None) if isinstance(stored, dict) else None
    if type(format) is not int or format < 1:
        raise _corrupt(kind, key, "it has no format")
    if format > kind.FORMAT:
        raise IncompatibleVersion(
            "a row of the catalog was written by a later release",
            kind=kind.KIND,
            key=key,
            format=format,
            known=kind.FORMAT,
            release=release.__version__,
            hint="use a newer release of zapdb",
        )
    for step in range(format, kind.FORMAT):
        try:
            stored = FORMAT_CHANGES[kind.KIND, step].upgrade(stored)
        except (LookupError, TypeError, ValueError) as error:
            wrong = f"not a value of format {format}: {error!r}"
            raise _corrupt(kind, key, wrong) from error
    try:
        return msgspec.convert(stored, kind, str_keys=True)
    except msgspec.ValidationError as error:
        for member, words in closed_sets(kind).items():
            word = stored.get(member)
            if isinstance(word, str):
                require_word(word, words, kind=kind.KIND, key=key, member=member)
        raise _corrupt(kind, key, str(error)) from None


@cache
def closed_sets(kind: type[CatalogRow]) -> dict[str, tuple[str, ...]]:
    """Return the words of the members of a kind that have one of a closed set."""
    hints = get_type_hints(kind)
    return {name: get_args(hint) for name, hint in hints.items() if get_origin(hint) is Literal}


def _corrupt(kind: type[CatalogRow], key: str, wrong: str) -> CorruptCatalog:
    return CorruptCatalog(
        "a row of the catalog is not valid for its kind",
        kind=kind.KIND,
        key=key,
        wrong=wrong,
        hint="zapdb_catalog was tampered with: restore this row from a backup",
    )


def catalog_schema() -> dict[str, Any]:
    """Return the published JSON Schema of a row of zapdb_catalog, `{kind, key, value}`."""
    _, schemas = msgspec.json.schema_components(KINDS.values(), ref_template="#/$defs/{name}")
    for kind in KINDS.values():
        schema = schemas.pop(kind.__name__)
        schema["properties"] = {FORMAT: {"const": kind.FORMAT}, **schema["properties"]}
        schema["required"] = [FORMAT, *schema.get("required", ())]
        schemas[kind.KIND] = {**schema, "title": kind.KIND}
    return {
        "$schema": _DIALECT,
        "$comment": "Generated by `make docs`; don't edit.",
        "title": "zapdb catalog",
        "description": "A live row of the table zapdb_catalog, its value parsed.",
        "type": "object",
        "oneOf": [
            {
                "properties": {
                    "kind": {"const": name},
                    "key": {"type": "string"},
                    "value": {"$ref": f"#/$defs/{name}"},
                },
                "required": ["kind", "key", "value"],
            }
            for name in KINDS
        ],
        "$defs": {
            name: {**schema, "description": inspect.cleandoc(schema.get("description", ""))}
            for name, schema in sorted(schemas.items())
        },
    }


CounterName = Literal[
    "tenant",
    "table",
    "field",
    "index",
    "type",
    "check",
    "entry_table",
    "index_build",
    "zone",
]


_VALUE: Final = (CATALOG.c.value,)
_KEY_AND_VALUE: Final = (CATALOG.c.key, CATALOG.c.value)
_KIND_KEY_AND_VALUE: Final = (CATALOG.c.kind, CATALOG.c.key, CATALOG.c.value)
STATE_KINDS: Final = (Tenant.KIND, ChainState.KIND, LevelRow.KIND)


_LOCK_SEQ: Final = "UPDATE zapdb_counters SET value = value WHERE name = 'seq'"


def lock_seq(connection: Connection) -> None:
    """Block other changes until the transaction ends."""
    connection.run(_LOCK_SEQ)


IdentityName = Literal["seq", "migration"]


def draw_identity(connection: Connection, counter: IdentityName) -> int:
    """Draw a number above all that were drawn before, which no other history draws."""
    sql = _draw_identity_sql(connection.storage.placeholder)
    return _require_drawn(counter, connection.fetch_all(sql, (draw_random_part(), counter)))


def _draw_identity_sql(mark: str) -> str:
    return (
        f"UPDATE zapdb_counters SET value = {next_identity_sql('value', mark)}"
        f" WHERE name = {mark} RETURNING value"
    )


def _require_drawn(counter: str, found: list[Any]) -> int:
    last = found[0][0] if found else None
    if type(last) is not int:
        raise wrong_counter(counter)
    return last


def draw(connection: Connection, counter: CounterName, count: int = 1) -> int:
    """Draw `count` numbers that were never drawn before; returns the first."""
    mark = connection.storage.placeholder
    found = connection.fetch_all(
        f"UPDATE zapdb_counters SET value = value + {mark} WHERE name = {mark} RETURNING value",
        (count, counter),
    )
    return _require_drawn(counter, found) - count + 1


def get(connection: Connection, kind: type[R], *key: object, lock: bool = False) -> R | None:
    """Return the row, or None; `lock` locks it until the transaction ends."""
    name, storage = row_key(*key), connection.storage
    found = connection.fetch_all(
        f"SELECT value FROM zapdb_catalog WHERE kind = {storage.placeholder}"
        f" AND key = {storage.placeholder}{storage.dialect.lock_rows_sql if lock else ''}",
        (kind.KIND, name),
    )
    for (text,) in checked(_VALUE, found):
        return None if text is None else load_row(kind, name, text)
    return None


def put(connection: Connection, row: CatalogRow) -> int:
    """Write the row; returns the change's seq."""
    seq = _put(connection, row)
    if seq is None:
        raise wrong_counter("seq")
    return seq


def put_if_absent(connection: Connection, row: CatalogRow) -> bool:
    """Write the row unless there is one; returns whether it was written."""
    return _put(connection, row, " WHERE zapdb_catalog.value IS NULL") is not None


def _put(connection: Connection, row: CatalogRow, condition: str = "") -> int | None:
    """Write the row with a newly drawn seq, which is returned; None if it was not written."""
    level = release.LEVEL if row.FORMAT == 1 else level_to_write(connection)
    mark = connection.storage.placeholder
    written: list[Any] = [row.KIND, row.key, dump_row(row, level)]
    if connection.storage.dialect.has_writes_in_queries:
        start = f"WITH drawn AS ({_draw_identity_sql(mark)}) "
        written[:0] = [draw_random_part(), "seq"]
        values = f"SELECT {mark}, {mark}, {mark}, value FROM drawn"
    else:
        start, values = "", f"VALUES ({mark}, {mark}, {mark}, {mark})"
        written.append(draw_identity(connection, "seq"))
    with _drawing_seqs():
        found = connection.fetch_all(
            f"{start}INSERT INTO zapdb_catalog (kind, key, value, seq) {values}"
            " ON CONFLICT (kind, key) DO UPDATE SET seq = excluded.seq, value = excluded.value"
            f"{condition} RETURNING seq",
            written,
        )
    return as_number(found[0][0]) if found else None


@contextmanager
def _drawing_seqs() -> Iterator[None]:
    """Raise `CorruptCatalog` if the block writes a row with a seq that another row has."""
    try:
        yield
    except DuplicateKey:
        raise CorruptCatalog(
            "a counter allocated a number that is already in use",
            table="zapdb_counters",
            counter="seq",
            hint="zapdb_counters was tampered with: restore it from a backup",
        ) from None


def level_to_write(connection: Connection) -> int:
    """Return the cluster level, which decides the formats of rows."""
    row = get(connection, LevelRow)
    return 1 if row is None else row.level


def delete(connection: Connection, kind: type[CatalogRow], *key: object) -> int:
    """Replace the row, if it exists, by a tombstone; returns the change's seq."""
    # Two statements: the first waits for other changes, and the second sees what they wrote.
    seq, mark = draw_identity(connection, "seq"), connection.storage.placeholder
    with _drawing_seqs():
        connection.run(
            f"UPDATE zapdb_catalog SET seq = {mark}, value = NULL WHERE kind = {mark}"
            f" AND key = {mark} AND value IS NOT NULL",
            (seq, kind.KIND, row_key(*key)),
        )
    return seq


def list_rows(connection: Connection, kind: type[R], *within: object) -> list[R]:
    """Return all rows of a kind in the order of their keys; `within` are the first key parts."""
    mark = connection.storage.placeholder
    found = connection.fetch_all(
        f"SELECT key, value FROM zapdb_catalog WHERE kind = {mark} AND key LIKE {mark} ESCAPE '/'"
        " AND value IS NOT NULL ORDER BY key",
        (kind.KIND, _pattern(within)),
    )
    return [load_row(kind, key, value) for key, value in checked(_KEY_AND_VALUE, found)]


Texts = dict[tuple[str, str], str]
"""The stored texts of rows, by their kinds and keys."""


def read_texts(
    connection: Connection, kinds: Iterable[type[CatalogRow]], within: Iterable[object] = ()
) -> Texts:
    """Return the rows of some kinds, by one statement: those whose keys begin with one of some
    parts, if there are any."""
    mark, names = connection.storage.placeholder, [kind.KIND for kind in kinds]
    patterns = [_pattern((part,)) for part in within]
    keys = " OR ".join([f"key LIKE {mark} ESCAPE '/'"] * len(patterns))
    found = connection.fetch_all(
        f"SELECT kind, key, value FROM zapdb_catalog WHERE kind IN ({_marks(mark, names)})"
        f"{f' AND ({keys})' if keys else ''} AND value IS NOT NULL",
        (*names, *patterns),
    )
    return _as_texts(found)


def read_tenant_state(connection: Connection, tenant: int) -> tuple[Any, Texts]:
    """Return a tenant's stored catalog version, None if there is none, its row, and the rows of the
    chain and the level, by one statement."""
    mark, kinds, keys = connection.storage.placeholder, STATE_KINDS, ("", str(tenant))
    found = connection.fetch_all(
        f"SELECT a.version, c.kind, c.key, c.value FROM (SELECT ({catalog_version_sql(tenant)})"
        " AS version) AS a LEFT JOIN zapdb_catalog AS c"
        f" ON c.kind IN ({_marks(mark, kinds)}) AND c.key IN ({_marks(mark, keys)})",
        (*kinds, *keys),
    )
    version = found[0][0]
    texts = _as_texts([row[1:] for row in found if row[1] is not None])
    return None if version is None else as_number(version), texts


def _as_texts(found: list[Any]) -> Texts:
    rows = checked(_KIND_KEY_AND_VALUE, found)
    return {(kind, key): text for kind, key, text in rows if text is not None}


def _marks(mark: str, values: Sequence[object]) -> str:
    return ", ".join([mark] * len(values))


def _pattern(within: Iterable[object]) -> str:
    """Return the pattern of LIKE for the keys that begin with some parts."""
    prefix = row_key(*within, "")
    for special in "/%_":
        prefix = prefix.replace(special, f"/{special}")
    return f"{prefix}%"
