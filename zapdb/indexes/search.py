"""What a lookup reads of an index, planned from the values that are asked for alone.

A search is a range of full keys, and says why there may be records in it that were not meant. Only
then are the values of the records compared, too; all other searches don't pay for that.

In a unique index, entries are in the order of full keys up to 992 bytes only, and those with a null
have their record's key behind the full one. Full keys don't begin with one another, so bounds of at
most 992 bytes hold for entries as they do for full keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from zapdb.errors import UsageError
from zapdb.indexes.keys import (
    UNIQUE_ORDERED_SIZE_BYTES,
    KeyBuilder,
    cut,
    encode_component_stem,
    is_cut,
    successor,
)
from zapdb.limits import INDEX_KEY_SIZE_BYTES_MAX
from zapdb.records import Record
from zapdb.values import String

Ambiguity = Literal["cut", "equal keys", "stem"]
"""`cut`: the encoded values reach the limit of a key. `equal keys`: equal keys don't mean equal
values here. `stem`: the keys of strings that begin alike have no more in common than a part."""

Entry = tuple[bytes, bytes, Record]
"""A record with its full index key and its own key: entries are in the order of these two."""

Matches = Callable[[Record], bool]


@dataclass(frozen=True, slots=True)
class Search:
    """The records with lower ≤ full key < upper (None is no bound) for which `matches` holds."""

    lower: bytes | None
    upper: bytes | None
    ambiguity: Ambiguity | None
    matches: Matches | None = None
    unique: bool = False

    def holds(self, key: bytes) -> bool:
        """Whether a full key is within the bounds."""
        return (self.lower is None or key >= self.lower) and (
            self.upper is None or key < self.upper
        )

    @property
    def entry_bounds(self) -> tuple[bytes | None, bytes | None]:
        """The same bounds for entry keys, where they let in what ties with them."""
        if self.unique:
            ordered = UNIQUE_ORDERED_SIZE_BYTES
            low = None if self.lower is None else self.lower[:ordered]
            if self.upper is None or len(self.upper) <= ordered:
                return low, self.upper
            return low, successor(self.upper[:ordered])
        low = None if self.lower is None else cut(self.lower)
        if self.upper is None or not is_cut(self.upper):
            return low, self.upper
        return low, successor(cut(self.upper))

    def settle(self, entries: Iterable[Entry], *, descending: bool) -> Iterator[Entry]:
        """Entries in the order of their entry keys put in the order of full keys.

        Only cut keys tie, in a unique index those that agree as far as they are ordered: runs of
        them are sorted, and those beyond the bounds left out.
        """
        limit = UNIQUE_ORDERED_SIZE_BYTES if self.unique else INDEX_KEY_SIZE_BYTES_MAX

        def tie(entry: Entry) -> bytes:
            # With the record's key, entries with nulls run as they are stored; all others differ
            # in the index key already.
            return (entry[0] + entry[1] if self.unique else entry[0])[:limit]

        for shared, run in groupby(entries, key=tie):
            if len(shared) < limit:
                yield from run
                continue
            for entry in sorted(run, key=lambda entry: entry[:2], reverse=descending):
                if self.holds(entry[0]):
                    yield entry


def search_equal(keys: KeyBuilder, values: Sequence[Any]) -> Search:
    """Records whose leading fields are the values; raises `InvalidValue`, `UsageError`."""
    checked = keys.check(values)
    key = keys.encode(checked)
    ambiguity = _ambiguity_of(keys, checked, key)
    matches = None if ambiguity is None else _is_equal(keys, checked)
    return Search(key, successor(key), ambiguity, matches, keys.index.unique)


def search_range(
    keys: KeyBuilder,
    lower: Sequence[Any] | None,
    upper: Sequence[Any] | None,
    *,
    include_upper: bool = False,
) -> Search:
    """Records between values of leading fields, as the index compares them.

    What has the same key as a bound is equal to it here, so nothing but a cut is ambiguous: entries
    that tie with a cut bound lie on either side of it.
    """
    low = None if lower is None else keys.encode(keys.check(lower))
    high = None if upper is None else keys.encode(keys.check(upper))
    reaches_limit = any(key is not None and _reaches_limit(keys, key) for key in (low, high))
    if high is not None and include_upper:
        high = successor(high)
    return Search(low, high, "cut" if reaches_limit else None, unique=keys.index.unique)


def search_prefix(keys: KeyBuilder, values: Sequence[Any]) -> Search:
    """Records whose leading fields are all values but the last, which the next field begins with.

    Beginning is by code points. Where the index has them, too, the range is exact. Under a
    collation it is that of the prefix's stem (see `prefixes`), and all records in it are compared:
    mostly what begins with the prefix but for case and accents. A last letter that begins a
    contraction of the language (Czech c, Swedish a) does not count; a prefix of such letters alone
    reads all records that have the other values.
    """
    if not values:
        raise UsageError("a prefix is needed", index=keys.index.name)
    for field in keys.fields[len(values) - 1 : len(values)]:
        if not isinstance(field.type, String):
            raise UsageError("only strings have prefixes", index=keys.index.name, field=field.name)
    *leading, prefix = keys.check(values)
    field, component = keys.fields[len(leading)], keys.index.components[len(leading)]
    if prefix is None:
        raise field.type.refuse(None, field.name)
    key = keys.encode(leading)
    ambiguity = _ambiguity_of(keys, leading, key)
    key += encode_component_stem(field, component, prefix)
    if _reaches_limit(keys, key):
        ambiguity = "cut"
    elif ambiguity is None and component.collation is not None:
        ambiguity = "stem"
    if ambiguity is None:
        return Search(key, successor(key), None, unique=keys.index.unique)
    is_equal, name = _is_equal(keys, leading), field.name
    return Search(
        key,
        successor(key),
        ambiguity,
        lambda record: getattr(record, name).startswith(prefix) and is_equal(record),
        keys.index.unique,
    )


def _ambiguity_of(keys: KeyBuilder, checked: Sequence[Any], key: bytes) -> Ambiguity | None:
    if _reaches_limit(keys, key):
        return "cut"
    for value, field, component in zip(checked, keys.fields, keys.index.components, strict=False):
        is_exact = component.collation is None and field.type.index_key_is_exact
        if value is not None and not is_exact:
            return "equal keys"
    return None


def _reaches_limit(keys: KeyBuilder, key: bytes) -> bool:
    return len(key) > UNIQUE_ORDERED_SIZE_BYTES if keys.index.unique else is_cut(key)


def _is_equal(keys: KeyBuilder, checked: Sequence[Any]) -> Matches:
    wanted = [(f.name, f.type.is_same, v) for f, v in zip(keys.fields, checked, strict=False)]

    def matches(record: Record) -> bool:
        for name, is_same, value in wanted:
            found = getattr(record, name)
            if found is None or value is None:
                if found is not value:
                    return False
            elif not is_same(found, value):
                return False
        return True

    return matches
