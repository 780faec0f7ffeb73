"""Places in the order of a query, as text that applications hand out and get back.

    cursor = base64url( 01 | fingerprint of the query, 8 bytes | size of the order's key, 4 bytes
                      | the order's key | the record's key )
           | base64url( 02 | the number of an index, 4 bytes | the same from the fingerprint on )

The second is of a query that names no order: it goes on in that of the index that its first page
was read by (0: of keys), whichever would be read otherwise by now.

The fingerprint covers the tenant, the table, the condition, the order, and the data that the order
depends on. A cursor holds keys made of the last record's values: it is opaque, and no secret.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass
from typing import Any, Final

from zapdb.datasets import dataset_of
from zapdb.errors import InvalidCursor, UsageError
from zapdb.indexes import LiveTable
from zapdb.indexes.ordering import TotalOrder
from zapdb.indexes.predicates import And, Comparison, Not, Or, Predicate, find_field
from zapdb.limits import CURSOR_SIZE_BYTES_MAX

ORDERED: Final = b"\x01"
BY_INDEX: Final = b"\x02"
INDEX_SIZE_BYTES: Final = 4
FINGERPRINT_SIZE_BYTES: Final = 8
HEAD_SIZE_BYTES: Final = FINGERPRINT_SIZE_BYTES + 4


@dataclass(frozen=True, slots=True)
class Place:
    """Behind the record with this key, whose order's key is this one."""

    order_key: bytes
    record_key: bytes


@dataclass(frozen=True, slots=True)
class Cursor:
    """What a cursor says; `index` is None where the query names the order."""

    fingerprint: bytes
    place: Place
    index: int | None = None

    def check(self, fingerprint: bytes | None) -> None:
        """Raises `InvalidCursor` for one of another query; None is no query that it can be of."""
        if self.fingerprint != fingerprint:
            raise InvalidCursor(
                "the cursor is one of another query",
                hint="conditions, order, table and tenant must be those that the cursor was made "
                "with; begin again without a cursor",
            )


def encode_cursor(cursor: Cursor) -> str:
    """Raises `UsageError` where the values are too long."""
    place, index = cursor.place, cursor.index
    raw = ORDERED if index is None else BY_INDEX + index.to_bytes(INDEX_SIZE_BYTES, "big")
    size = len(place.order_key).to_bytes(4, "big")
    raw += cursor.fingerprint + size + place.order_key + place.record_key
    if len(raw) > CURSOR_SIZE_BYTES_MAX:
        raise UsageError(
            "the values that the query is ordered by are too long for a cursor",
            size_bytes=len(raw),
            size_bytes_max=CURSOR_SIZE_BYTES_MAX,
            hint="order by a shorter field, or iterate",
        )
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def decode_cursor(text: str) -> Cursor:
    """Raises `InvalidCursor` for what is no cursor."""
    try:
        raw = base64.b64decode(
            text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True
        )
    except (AttributeError, UnicodeEncodeError, binascii.Error):
        raw = b""
    kind, rest, index = raw[:1], raw[1:], None
    if kind == BY_INDEX:
        index = int.from_bytes(rest[:INDEX_SIZE_BYTES], "big")
        rest = rest[INDEX_SIZE_BYTES:]
    size = int.from_bytes(rest[HEAD_SIZE_BYTES - 4 : HEAD_SIZE_BYTES], "big")
    is_whole = HEAD_SIZE_BYTES + size < len(rest) and len(raw) <= CURSOR_SIZE_BYTES_MAX
    if kind not in (ORDERED, BY_INDEX) or not is_whole:
        raise InvalidCursor(
            "this is no cursor", hint="pass the cursor of the page before, or None for the first"
        )
    keys = rest[HEAD_SIZE_BYTES:]
    place = Place(keys[:size], keys[size:])
    return Cursor(rest[:FINGERPRINT_SIZE_BYTES], place, index)


def fingerprint_query(live: LiveTable, predicate: Predicate, order: TotalOrder) -> bytes:
    """Equal for the same query in any process, unless keys of the order would differ."""
    table = live.shape.table
    depends = [dataset_of(d).fingerprint for d in table.datasets_of(order.index)]
    wires = [repr(find_field(table, o.field, o.name).type.index_wire) for o in order.fields]
    fields = [
        (o.field, str(o.collation), o.descending, *["nulls last"] * o.nulls_last)
        for o in order.fields
    ]
    meant = (
        live.view.tenant,
        table.number,
        _describe(live, predicate),
        fields,
        wires,
        order.tie_descends,
        depends,
    )
    return hashlib.sha256(repr(meant).encode()).digest()[:FINGERPRINT_SIZE_BYTES]


def _describe(live: LiveTable, predicate: Predicate) -> Any:
    match predicate:
        case Comparison(number, name, op, value, collation):
            kind = find_field(live.shape.table, number, name).type
            values = value if op == "in" else (value,)
            plain = [None if v is None else kind.to_document(v) for v in values]
            return number, op, str(collation), plain
        case And(parts) | Or(parts):
            return type(predicate).__name__, [_describe(live, part) for part in parts]
        case Not(part):
            return "Not", _describe(live, part)
    raise TypeError(predicate)
