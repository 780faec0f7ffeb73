"""Collations: sort keys in ICU's order, and fingerprints that tell whether they differ."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import icu
import pytest

from tests import forms
from zapdb.datasets import (
    STRENGTHS,
    Collation,
    Dataset,
    collation_version,
    collator,
    dataset_of,
    fingerprint_collation,
    is_known_locale,
    sort_keys,
)
from zapdb.datasets import collation as collation_data

ROOT = Collation("und")


def sorted_under(collation: Collation, words: str) -> str:
    return " ".join(sorted(words.split(), key=lambda word: sort_keys(collation).get(word)))


@pytest.mark.parametrize(
    ("collation", "expected"),
    [
        (ROOT, "a A ä b Z z"),
        (Collation("sv"), "a A b Z z ä"),
        (Collation("cs"), "c d h ch i"),
        (Collation("und"), "10 2 9"),
        (Collation("und", "tertiary", True), "2 9 10"),
    ],
)
def test_words_sort_as_their_language_does(collation: Collation, expected: str) -> None:
    shuffled = " ".join(reversed(expected.split()))
    # z and Z, in whichever order ICU has them at the tertiary level
    assert sorted_under(collation, shuffled).lower() == expected.lower()


def test_strengths_decide_what_is_equal() -> None:
    def equal(strength: str, left: str, right: str) -> bool:
        collation = Collation("und", strength)
        keys = [sort_keys(collation).get(text) for text in (left, right)]
        return keys[0] == keys[1]

    assert [s for s in STRENGTHS if equal(s, "a", "ä")] == ["primary"]
    assert [s for s in STRENGTHS if equal(s, "a", "A")] == ["primary", "secondary"]
    assert [s for s in STRENGTHS if equal(s, "é", "e\u0301")] == list(STRENGTHS)


@pytest.mark.parametrize("strength", STRENGTHS)
def test_a_sort_key_ends_in_00_and_holds_no_other(strength: str) -> None:
    collation = Collation("und", strength)
    for text in ("", "a", "\x00", "a\x00b", "ä😀", "\uffff", "Ada Lovelace", "\U0010ffff"):
        key = sort_keys(collation).get(text)
        assert key.index(b"\x00") == len(key) - 1


def test_each_thread_has_a_collator_of_its_own() -> None:
    found = [collator(ROOT)]
    thread = threading.Thread(target=lambda: found.append(collator(ROOT)))
    thread.start()
    thread.join()
    assert found[0] is collator(ROOT)
    assert found[0] is not found[1]


def test_known_locales_are_those_of_the_library() -> None:
    assert all(map(is_known_locale, ("und", "root", "de", "cs", "de@collation=phonebook")))
    assert not any(map(is_known_locale, ("", "xx", "EN", "klingon", "de-DE")))


def test_a_dataset_is_named_by_what_makes_its_keys() -> None:
    collation = Collation("de", "primary", True)
    assert str(collation) == "de/primary/numeric"
    assert collation.dataset == "collation:de/primary/numeric"
    assert f"ICU {icu.ICU_VERSION}" in collation_version()


def test_a_fingerprint_tells_collations_apart_and_is_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    fingerprint_collation.cache_clear()
    root, czech = fingerprint_collation(ROOT), fingerprint_collation(Collation("cs"))
    assert root != czech
    assert len(bytes.fromhex(root)) == 32
    assert dataset_of(ROOT) == Dataset("collation:und/tertiary", collation_version(), root)
    caches = list((tmp_path / "zapdb").iterdir())
    if not caches:
        pytest.skip("this system does not tell which ICU library is loaded (/proc/self/maps)")
    (cache,) = caches
    assert json.loads(cache.read_text()) == {"und/tertiary": root, "cs/tertiary": czech}

    cache.write_text(json.dumps({"und/tertiary": "from the cache"}))
    fingerprint_collation.cache_clear()
    assert fingerprint_collation(ROOT) == "from the cache"

    for broken in ("", "[]", "{", '{"und/tertiary"', "5") if forms.is_long else ("{", "5"):
        cache.write_text(broken)
        fingerprint_collation.cache_clear()
        assert fingerprint_collation(ROOT) == root
    assert json.loads(cache.read_text()) == {"und/tertiary": root}
    fingerprint_collation.cache_clear()


def test_a_fingerprint_covers_contractions_that_single_characters_miss() -> None:
    """Old Spanish sorts `ch` and `ll` as letters of their own, and each character as before."""
    modern, old = Collation("es"), Collation("es@collation=traditional")
    assert {"ch", "ll"} <= set(collation_data._units(old))
    characters = (chr(c) for c in range(0x3000) if not 0xD800 <= c < 0xE000)
    assert all(sort_keys(modern).get(c) == sort_keys(old).get(c) for c in characters)
    assert collation_data._compute_fingerprint(modern) != collation_data._compute_fingerprint(old)
