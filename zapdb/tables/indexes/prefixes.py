"""Prefixes under a collation: what the sort keys of all strings that begin alike have in common.

A sort key is one level after the other, the primary weights first. The weights of a string begin
with the weights of its beginning, unless the rest changes them: Czech c becomes ch, Swedish a and a
ring become å, a Thai vowel that is written first sorts after its consonant, a run of digits is one
number. So a prefix is shortened to its longest part after which no text can do that.

`CollationElementIterator.setOffset` of ICU moves an offset to such a place, but only for the given
text: in Hungarian it accepts the boundary `d|d`, which is none in `ddz`. Here any text may follow.
So the collation data decide what can reach over a boundary: contractions, combining marks (which
may be reordered), digits if runs of them are numbers. They are applied character by character, and
on the safe side: a prefix that is shortened too far costs time, never a record.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, Final

import icu

from zapdb.datasets import Collation, collator

NO_CONTRACTIONS: Final = r"[suppressContractions [\u0000-\U0010FFFF]]"
"""Rules under which the root order has none; how it differs tells which it has otherwise."""


def encode_sort_key_prefix(collation: Collation, prefix: str) -> bytes:
    """Bytes that the sort key of every string with the prefix begins with; maybe none at all."""
    reach = _reach_of(collation)
    end = len(prefix)
    while end and not reach.is_boundary(prefix, end):
        end -= 1
    return encode_primaries(collation, prefix[:end])


def encode_primaries(collation: Collation, text: str) -> bytes:
    """The primary level of the text's sort key, without what ends it.

    It is the first level for every strength: 01 separates levels, and 00 ends the last one.
    """
    key: bytes = collator(collation).getSortKey(text)
    return key[:-1].partition(b"\x01")[0]


@dataclass(frozen=True, slots=True)
class _Reach:
    """Which characters of a collation act on the characters before or after them.

    To act is to change weights; a contraction that only adds weights at the end (German ä as ae)
    does not count. Characters may be decomposed or not. If text is normalized, a character acts as
    its decomposition does.
    """

    collation: Collation
    numeric: bool
    earlier: frozenset[str]
    """Characters of contractions that others of the same contraction follow."""
    later: frozenset[str]
    """Characters of contractions that follow others."""

    def is_boundary(self, prefix: str, at: int) -> bool:
        """Return whether no characters from `at` on, given or further ones, change the weights
        before `at`."""
        return self._is_closed(prefix[at - 1]) or (at < len(prefix) and self._is_fresh(prefix[at]))

    def _is_closed(self, character: str) -> bool:
        """Return whether following characters never change its primary weights."""
        if self.numeric and icu.Char.isdigit(character):
            return False
        parts = _decompose(character)
        if not self.earlier.isdisjoint((character, *parts)) or _is_mark(parts[0]):
            return False
        # Marks that follow may be put before its own. In ICU 77, marks of primary weight stand in
        # characters that contractions begin with, too, and this decides nothing.
        return not any(_is_mark(p) and encode_primaries(self.collation, p) for p in parts)

    def _is_fresh(self, character: str) -> bool:
        """Return whether the characters before it have the same weights without it."""
        if self.numeric and icu.Char.isdigit(character):
            return False
        parts = _decompose(character)
        return self.later.isdisjoint((character, parts[0])) and not _is_mark(parts[0])


@functools.cache
def _reach_of(collation: Collation) -> _Reach:
    tailored = collator(collation)
    numeric = tailored.getAttribute(icu.UCollAttribute.NUMERIC_COLLATION)
    contractions = [
        text
        for text in (*_root_contractions(), *_strings(tailored))
        if any(
            not encode_primaries(collation, text).startswith(encode_primaries(collation, text[:at]))
            for at in range(1, len(text))
        )
    ]
    return _Reach(
        collation,
        numeric == icu.UCollAttributeValue.ON,
        frozenset(character for text in contractions for character in text[:-1]),
        frozenset(character for text in contractions for character in text[1:]),
    )


@functools.cache
def _root_contractions() -> tuple[str, ...]:
    """Those of the order that all tailorings begin with."""
    return _strings(icu.RuleBasedCollator(NO_CONTRACTIONS))


def _strings(tailored: Any) -> tuple[str, ...]:
    """What a tailoring treats as units, with the context before some."""
    units = icu.UnicodeSetIterator(tailored.getTailoredSet(icu.UnicodeSet()))
    units.skipToStrings()
    strings = []
    while units.next():
        strings.append(str(units.getString()))
    return tuple(strings)


def _decompose(character: str) -> str:
    normalized: str = icu.Normalizer2.getNFDInstance().normalize(character)
    return normalized


def _is_mark(character: str) -> bool:
    return bool(icu.Char.getCombiningClass(character))
