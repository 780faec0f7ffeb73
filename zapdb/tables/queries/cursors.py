"""Places in the order of a query, as text that applications hand out and get back.

    cursor = base64url( 01 | fingerprint of the query, 8 bytes | number of datasets, 1 byte
                      | datasets | size of the order's key, 4 bytes | the order's key
                      | the record's key )
           | base64url( 02 | the number of an index, 4 bytes | the same from the fingerprint on )
    dataset = fingerprint, 8 bytes | size of the version, 1 byte | the version in ASCII

The second form belongs to a query that names no order. It continues in the order of the index that
its first page was read by (0: of keys), even if another index would be read now.

The fingerprint covers the tenant, the table, the condition and the order. The datasets are the ones
that the order depends on, as the process that made the cursor had them: if they sort differently
now, the place means nothing. A cursor holds keys made of the last record's values: it is opaque,
and no secret.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import re
from dataclasses import dataclass, field
from typing import Any, Final, assert_never

from zapdb.datasets import Dataset, dataset_of
from zapdb.errors import InvalidCursor, UsageError
from zapdb.limits import CURSOR_SIZE_BYTES_MAX
from zapdb.tables.indexes import BoundTable
from zapdb.tables.indexes.ordering import TotalOrder
from zapdb.tables.indexes.predicates import And, Comparison, Not, Or, Predicate, Unbound, find_field

ORDERED: Final = b"\x01"
BY_INDEX: Final = b"\x02"
INDEX_SIZE_BYTES: Final = 4
FINGERPRINT_SIZE_BYTES: Final = 8
CURSOR_VERSION: Final = re.compile(rb"[ -~]{0,100}")
"""What the version of a dataset looks like in a cursor."""


@dataclass(frozen=True, slots=True)
class QueryPlace:
    """Behind the record with this key, whose order's key is this one."""

    order_key: bytes
    record_key: bytes


@dataclass(frozen=True, slots=True)
class Data:
    """A dataset that an order depends on; if it was decoded from a cursor, it has no name."""

    fingerprint: bytes
    version: bytes = field(compare=False)
    name: str = field(default="", compare=False)

    def __str__(self) -> str:
        return f"{self.version.decode()} (fingerprint {self.fingerprint.hex()})"


@dataclass(frozen=True, slots=True)
class Mark:
    """The query of a cursor: its fingerprint, and the datasets that its order depends on."""

    query: bytes
    data: tuple[Data, ...]


@dataclass(frozen=True, slots=True)
class Cursor:
    """What a cursor says; `index` is None if the query names the order."""

    mark: Mark
    place: QueryPlace
    index: int | None = None

    def check(self, mark: Mark | None) -> None:
        """Raises `InvalidCursor` for one of another query, or one that was made with other data;
        None is no query that it can be of."""
        if mark is None or self.mark.query != mark.query or len(self.mark.data) != len(mark.data):
            raise InvalidCursor(
                "the cursor belongs to another query",
                hint="use the conditions, order, table and tenant with which the cursor "
                "was made, or begin again without a cursor",
            )
        for made, here in zip(self.mark.data, mark.data, strict=True):
            if made != here:
                raise InvalidCursor(
                    "the cursor was made with other collation or time zone data, which "
                    "sort differently",
                    dataset=here.name,
                    made_with=str(made),
                    here=str(here),
                    hint="begin again without a cursor; if it happens often, give all "
                    "processes the same ICU and time zone data",
                )


def encode_cursor(cursor: Cursor) -> str:
    """Raises `UsageError` if the values are too long."""
    place, index = cursor.place, cursor.index
    raw = ORDERED if index is None else BY_INDEX + index.to_bytes(INDEX_SIZE_BYTES, "big")
    raw += cursor.mark.query + bytes((len(cursor.mark.data),))
    for data in cursor.mark.data:
        raw += data.fingerprint + bytes((len(data.version),)) + data.version
    raw += len(place.order_key).to_bytes(4, "big") + place.order_key + place.record_key
    if len(raw) > CURSOR_SIZE_BYTES_MAX:
        raise UsageError(
            "the values of order_by are too long for a cursor",
            size_bytes=len(raw),
            size_bytes_max=CURSOR_SIZE_BYTES_MAX,
            hint="order by a shorter field, or iterate over the query",
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
    found = _read(raw) if len(raw) <= CURSOR_SIZE_BYTES_MAX else None
    if found is None:
        raise InvalidCursor(
            "this is not a cursor",
            hint="pass the cursor of the previous page, or None for the first page",
        )
    return found


def _read(raw: bytes) -> Cursor | None:
    """What the bytes say, or None if they are no cursor's."""
    stream, index = io.BytesIO(raw), None
    kind = stream.read(1)
    if kind == BY_INDEX:
        index = int.from_bytes(stream.read(INDEX_SIZE_BYTES), "big")
    elif kind != ORDERED:
        return None
    query, data = stream.read(FINGERPRINT_SIZE_BYTES), list[Data]()
    for _ in range(int.from_bytes(stream.read(1), "big")):
        fingerprint = stream.read(FINGERPRINT_SIZE_BYTES)
        version = stream.read(int.from_bytes(stream.read(1), "big"))
        if not CURSOR_VERSION.fullmatch(version):
            return None
        data.append(Data(fingerprint, version))
    size = int.from_bytes(stream.read(4), "big")
    order_key, record_key = stream.read(size), stream.read()
    if len(order_key) < size or not record_key:  # every record has a key: nothing is cut off
        return None
    return Cursor(Mark(query, tuple(data)), QueryPlace(order_key, record_key), index)


def mark_query(bound: BoundTable, predicate: Predicate, order: TotalOrder) -> Mark:
    """Equal for the same query in any process, unless keys of the order would differ."""
    depends = map(dataset_of, bound.adapter.schema.datasets_of(order.index))
    query = _fingerprint(bound, predicate, order)
    return Mark(query, tuple(_describe_data(dataset) for dataset in depends))


def _describe_data(dataset: Dataset) -> Data:
    version = dataset.version.encode("ascii", "replace")[:100]
    shown = version if CURSOR_VERSION.fullmatch(version) else b"of no known version"
    fingerprint = bytes.fromhex(dataset.fingerprint)[:FINGERPRINT_SIZE_BYTES]
    return Data(fingerprint, shown, dataset.name)


def _fingerprint(bound: BoundTable, predicate: Predicate, order: TotalOrder) -> bytes:
    table = bound.adapter.schema
    encodings = [
        repr(find_field(table, o.field, o.name).type.index_encoding_id) for o in order.fields
    ]
    fields = [
        (o.field, str(o.collation), o.descending, *["nulls last"] * o.nulls_last)
        for o in order.fields
    ]
    meant = (
        bound.catalog.tenant,
        table.number,
        _describe(bound, predicate),
        fields,
        encodings,
        order.key_descending,
    )
    return hashlib.sha256(repr(meant).encode()).digest()[:FINGERPRINT_SIZE_BYTES]


def _describe(bound: BoundTable, predicate: Predicate) -> Any:
    match predicate:
        case Comparison(number, name, op, _, collation):
            kind = find_field(bound.adapter.schema, number, name).type
            plain = [None if v is None else kind.to_document(v) for v in predicate.values]
            return number, op, str(collation), plain
        case And(parts) | Or(parts):
            return type(predicate).__name__, [_describe(bound, part) for part in parts]
        case Not(part):
            return "Not", _describe(bound, part)
        case Unbound():
            raise TypeError(predicate)
        case _:
            assert_never(predicate)
