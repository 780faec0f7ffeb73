"""The statement for the state of a table at a moment, over the relations of one era.

An era has a checkpoint (the records of one moment, each from a moment on), rows that ended up to
that moment, segments (the changes after it, in files) and, where it is the last era, a tail (what
the files do not have yet). A stored row holds a record from the moment `_from` on, until the moment
`_until`, or until a later segment or the tail has a row of the same key.

So only keys are compared, and only with those of later changes: rows of values are never sorted,
and a moment up to that of the checkpoint needs no comparison at all.

The statement gives the same answer in DuckDB and in Spark. It is made of numbers and of names that
are checked here: paths, keys and values never become part of its text. Which files
are read is decided by the caller, who names the relations.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")
DELETED: Final = 2
"""The `_operation` of a row that says that its record is gone."""


@dataclass(frozen=True, slots=True)
class StoredRelation:
    """Files with the same columns, as one relation. `columns` has the stored column for each column
    of the answer."""

    name: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EraRelations:
    """The relations of one era.

    All but the tail have `_key`, `_from`, `_until`, `_operation` and columns of values. No two rows
    of `checkpoint` and `ended` hold one record at the same moment. Each of `layers`, the older
    first, has segments; a later layer takes precedence. `tail` has at most one row for each key,
    its record at the moment, with `_key`, `_operation` and the columns of the answer.
    """

    checkpoint: Sequence[StoredRelation] = ()
    ended: Sequence[StoredRelation] = ()
    layers: Sequence[Sequence[StoredRelation]] = ()
    tail: str | None = None


def state_sql(era: EraRelations, moment: int, columns: Sequence[str]) -> str:
    """Return a SELECT of these columns, one row for each record that there was at the moment."""
    at = int(moment)
    checked = [_check(name) for name in columns]
    merged = [
        *(_rows_sql(one, f"s._from <= {at}", checked) for one in era.checkpoint),
        *(_rows_sql(one, _is_there(at), checked) for one in era.ended),
    ]
    layers = [" UNION ALL ".join(merged)] if merged else []
    layers += [_layer_sql(layer, at, checked) for layer in era.layers]
    later = [_keys_sql(layer, at) for layer in era.layers]
    if not merged:
        later = later[1:]
    if era.tail is not None:
        later.append(f"SELECT t._key AS _key FROM {_check(era.tail)} t")
    arms = [_without_later(layer, later[place:], checked) for place, layer in enumerate(layers)]
    if era.tail is not None:
        values = _listed("t.", checked)
        arms.append(f"SELECT {values} FROM {_check(era.tail)} t WHERE t._operation <> {DELETED}")
    if not arms:
        nothing = ", ".join(f"NULL AS {name}" for name in checked)
        return f"SELECT {nothing} WHERE 1 = 0"
    return " UNION ALL ".join(arms)


def _without_later(rows: str, later: Sequence[str], columns: Sequence[str]) -> str:
    """The rows whose keys no later layer has."""
    values = _listed("s.", columns)
    if not later:
        return f"SELECT {values} FROM ({rows}) s"
    # Not NOT EXISTS: where its rows are filtered, DuckDB keeps them all, and groups their keys.
    keys = " UNION ALL ".join(later)
    return f"SELECT {values} FROM ({rows}) s ANTI JOIN ({keys}) c ON c._key = s._key"


def _rows_sql(stored: StoredRelation, condition: str, columns: Sequence[str]) -> str:
    values = ", ".join(["s._key AS _key", *_renamed(stored, columns)])
    return f"SELECT {values} FROM {_check(stored.name)} s WHERE {condition}"


def _layer_sql(layer: Sequence[StoredRelation], at: int, columns: Sequence[str]) -> str:
    """The records that the changes of a layer made, each by its last change; with `_key`."""
    if len(layer) == 1:
        return _rows_sql(layer[0], _is_there(at), columns)
    kept = ["_key", "_operation", *columns]
    rows = " UNION ALL ".join(
        f"SELECT s._from AS _from, s._operation AS _operation,"
        f" {', '.join(['s._key AS _key', *_renamed(one, columns)])} FROM {_check(one.name)} s"
        f" WHERE {_holds_at(at)}"
        for one in layer
    )
    return (
        f"SELECT {_listed('n.', ['_key', *columns])} FROM (SELECT {_listed('v.', kept)},"
        " row_number() OVER (PARTITION BY v._key ORDER BY v._from DESC) AS _place"
        f" FROM ({rows}) v) n WHERE n._place = 1 AND n._operation <> {DELETED}"
    )


def _keys_sql(layer: Sequence[StoredRelation], at: int) -> str:
    return " UNION ALL ".join(
        f"SELECT s._key AS _key FROM {_check(one.name)} s WHERE {_holds_at(at)}" for one in layer
    )


def _holds_at(at: int) -> str:
    return f"s._from <= {at} AND (s._until IS NULL OR s._until > {at})"


def _is_there(at: int) -> str:
    return f"s._operation <> {DELETED} AND {_holds_at(at)}"


def _renamed(stored: StoredRelation, columns: Sequence[str]) -> list[str]:
    paired = zip(stored.columns, columns, strict=True)
    return [f"s.{_check(held)} AS {name}" for held, name in paired]


def _listed(prefix: str, columns: Sequence[str]) -> str:
    return ", ".join(f"{prefix}{name} AS {name}" for name in columns)


def _check(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"no name of a relation or column of the store: {name!r}")
    return name
