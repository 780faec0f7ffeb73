"""Stems: what the sort keys of all strings that begin alike begin with.

The last test takes every prefix of one character, and every beginning of a contraction, with every
character that could act on it; the short form, every third one, others for each prefix.
"""

from __future__ import annotations

import itertools

import icu
import pytest

from tests import forms
from zapdb.datasets import STRENGTHS, Collation, collator, sort_keys
from zapdb.tables.indexes.prefixes import (
    _decompose,
    _is_mark,
    _root_contractions,
    _strings,
    encode_primaries,
    encode_sort_key_prefix,
)

LOCALES = [
    *("und", "cs", "sv", "da", "sk", "hu", "de@collation=phonebook", "lt", "vi", "th", "ar", "my"),
    *("ja", "ko", "zh", "ko@collation=search", "und@collation=emoji", "es@collation=traditional"),
    *("und@colAlternate=shifted", "de@colReorder=grek-digit", "fr@colBackwards=yes"),
    *("da@colCaseFirst=lower", "sv@colCaseLevel=yes", "cs@colNormalization=yes"),
]


@pytest.mark.parametrize(
    ("locale", "prefix", "kept"),
    [
        ("und", "abc", "abc"),
        ("und", "l", "l"),  # l and a middle dot are a contraction, but one that begins like l
        ("und", "é", "é"),
        ("und", "e\u0301", "e"),
        ("und", "가", "가"),
        ("und", "ди", "д"),  # with a breve it is й, another letter
        ("und", "กเ", "ก"),  # a vowel that is written first
        ("und", "a1", "a1"),
        ("cs", "Praha", "Praha"),
        ("cs", "cec", "ce"),
        ("cs", "c", ""),
        ("sv", "sta", "st"),
        ("sv", "sta\u0323", "st"),  # a ring may still follow, and belongs to the a
        ("hu", "ad", "a"),
        ("hu", "add", "a"),  # d|d is a boundary for now, but not in ddz
        ("hu", "addo", "add"),
        ("ja", "カ", "カ"),
        ("de@collation=phonebook", "a", "a"),
        ("und@colAlternate=shifted", "a-b ", "ab"),
        ("und@colNumeric=yes", "a12", "a"),
        ("und@colNumeric=yes", "a12b", "a12b"),
        ("und", "", ""),
    ],
)
def test_a_stem_ends_where_nothing_that_follows_changes_it(
    locale: str, prefix: str, kept: str
) -> None:
    collation = Collation(locale)
    assert encode_sort_key_prefix(collation, prefix) == encode_primaries(collation, kept)


# With a level of cases, the key at primary strength has that behind the primaries.
@pytest.mark.parametrize("locale", [name for name in LOCALES if "colCaseLevel" not in name])
def test_the_primary_level_is_the_key_at_primary_strength_whatever_the_strength(
    locale: str,
) -> None:
    texts = [
        "",
        "a",
        "Ab-c 12",
        "漢字カー",
        "\x00",
        "a\ufffeb",
        "\uffff",
        "각",
        "\U0010ffff",
        "a\u0323b",
    ]
    for strength, text in itertools.product(STRENGTHS, texts):
        primary = sort_keys(Collation(locale, "primary")).get(text)
        assert encode_primaries(Collation(locale, strength), text) == primary[:-1]


def test_offsets_of_icu_are_right_for_the_text_that_is_there_alone() -> None:
    """Why `encode_sort_key_prefix` does not ask `CollationElementIterator`."""

    def move(locale: str, text: str, offset: int) -> int:
        elements = collator(Collation(locale)).createCollationElementIterator(text)
        elements.setOffset(offset)
        return int(elements.getOffset())

    assert (move("cs", "ch", 1), move("cs", "chu", 2)) == (0, 2)
    assert (move("hu", "dd", 1), move("hu", "ddz", 1)) == (1, 0)


def acting(collation: Collation) -> set[str]:
    """Characters that could act on those before them, and some that should not."""
    assigned = icu.UnicodeSet(r"[[[:Any:]-[:Cn:]-[:Co:]-[:Cs:]-[:Ideographic:]]-[\uAC00-\uD7A3]]")
    every = (chr(c) for span in _spans(assigned) for c in span)
    contractions = (*_root_contractions(), *_strings(collator(collation)))
    return (
        {character for character in every if _is_mark(_decompose(character)[0])}
        | {character for text in contractions for character in text}
        | set("01９٣aAzZあカーゝ漢가각 -.\u00ad\u200d\ufe0f\x00\ufffe\uffff\U0010ffff")
    )


def _spans(characters: icu.UnicodeSet) -> list[range]:
    return [
        range(ord(characters.getRangeStart(at)), ord(characters.getRangeEnd(at)) + 1)
        for at in range(characters.getRangeCount())
    ]


@pytest.mark.parametrize("numeric", [False, True], ids=["", "numeric"])
@pytest.mark.parametrize("locale", LOCALES)
def test_no_character_behind_a_prefix_leads_out_of_its_sort_key_prefix(
    locale: str, numeric: bool
) -> None:
    collation = Collation(locale, "primary" if numeric else "tertiary", numeric)
    contractions = (*_root_contractions(), *_strings(collator(collation)))
    prefixes = {chr(c) for c in range(0x250)} | acting(collation) if not numeric else set("aé1٣")
    beginnings = {text[:at] for text in contractions for at in range(1, len(text))}
    # Marks behind a beginning do not part it from a mark that follows.
    prefixes |= beginnings | {text + "\u0323" for text in beginnings}
    behind = sorted(acting(collation))
    every = 1 if forms.is_long else 9
    sort_key = collator(collation).getSortKey
    missed = [
        (prefix, character)
        for at, prefix in enumerate(sorted(prefixes))
        if (stem := encode_sort_key_prefix(collation, prefix))
        for character in behind[at % every :: every]
        if not sort_key(prefix + character).startswith(stem)
    ]
    assert missed == []
