"""Collation data: ICU's collators, their sort keys, versions and fingerprints.

This module knows nothing of schemas or databases. It holds the one collator per thread and
collation, and a cache of fingerprints, since computing one takes about a third of a second.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

import icu

Strength = Literal["primary", "secondary", "tertiary", "quaternary", "identical"]
STRENGTHS: Final = get_args(Strength)


@dataclass(frozen=True, slots=True)
class Collation:
    """The order of strings under the Unicode Collation Algorithm, tailored to a locale."""

    locale: str
    strength: Strength = "tertiary"
    numeric: bool = False

    def __str__(self) -> str:
        return f"{self.locale}/{self.strength}" + ("/numeric" if self.numeric else "")

    @property
    def dataset(self) -> str:
        """The name under which this collation's data are fingerprinted."""
        return f"collation:{self}"


def is_known_locale(locale: str) -> bool:
    """Whether the collation data in use know the locale; `und` and `root` are the root order."""
    base = locale.partition("@")[0]
    return base in ("und", "root") or base in icu.Collator.getAvailableLocales()


class _Collators(threading.local):
    """A collator may not be used by two threads at once, so each thread makes its own."""

    def __init__(self) -> None:
        self.by_collation: dict[Collation, Any] = {}


_collators = _Collators()


def collator(collation: Collation) -> Any:
    """This thread's ICU collator; its `getSortKey` gives the key bytes of a string."""
    known = _collators.by_collation.get(collation)
    if known is None:
        known = icu.Collator.createInstance(icu.Locale(collation.locale))
        known.setStrength(getattr(icu.Collator, collation.strength.upper()))
        if collation.numeric:
            known.setAttribute(icu.UCollAttribute.NUMERIC_COLLATION, icu.UCollAttributeValue.ON)
        _collators.by_collation[collation] = known
    return known


class SortKeys(threading.local):
    """The sort keys of one collation, by this thread's collator.

    A key ends in 00 and holds no other 00; equal keys do not mean equal strings.
    """

    get: Callable[[str], bytes]

    def __init__(self, collation: Collation) -> None:
        # Called once in each thread. Looking the collator up for every key costs as much again.
        self.get = collator(collation).getSortKey


@functools.cache  # ICU has some hundred locales, with a few strengths each
def sort_keys(collation: Collation) -> SortKeys:
    return SortKeys(collation)


def collation_version() -> str:
    """The versions of the collation library and data in use, for people."""
    cldr = icu.ResourceBundle("", icu.Locale("icuver")).getStringEx("CLDRVersion")
    return f"ICU {icu.ICU_VERSION}, Unicode {icu.UNICODE_VERSION}, CLDR {cldr}"


@functools.cache
def fingerprint_collation(collation: Collation) -> str:
    """SHA-256 over the sort keys of every Unicode scalar and of the locale's contractions.

    Single characters miss contractions (Czech `ch`) and digit runs, so the strings that the
    tailoring treats as units are added, and some numbers.
    """
    cache = _cache_file()
    if cache is not None:
        try:
            known: str = json.loads(cache.read_text())[str(collation)]
            return known
        except (OSError, ValueError, KeyError, TypeError):
            pass  # an unreadable cache costs the time to compute, nothing else
    fingerprint = _compute_fingerprint(collation)
    if cache is not None:
        _remember(cache, str(collation), fingerprint)
    return fingerprint


def _compute_fingerprint(collation: Collation) -> str:
    sort_key = collator(collation).getSortKey
    digest = hashlib.sha256()
    for start, end in ((0, 0xD800), (0xE000, 0x110000)):
        for block in range(start, end, 4096):
            characters = map(chr, range(block, min(block + 4096, end)))
            digest.update(b"".join(map(sort_key, characters)))
    for text in (*_units(collation), "2", "10", "02", "1 000"):
        digest.update(sort_key(text))
    return digest.hexdigest()


def _units(collation: Collation) -> list[str]:
    """The multi-character strings that this collation treats as one, sorted by code points."""
    tailored = collator(collation).getTailoredSet(icu.UnicodeSet())
    return sorted(str(text) for text in icu.UnicodeSetIterator(tailored) if len(str(text)) > 1)


def _cache_file() -> Path | None:
    """Where fingerprints of exactly this build of the library are kept; None where unsure.

    The build is named by path, size and time of every ICU file mapped into this process.
    """
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
        files = sorted({line.split(maxsplit=5)[-1] for line in lines if "icu" in line.lower()})
        stats = [Path(file).stat() for file in files]
        build = [(f, s.st_size, s.st_mtime_ns) for f, s in zip(files, stats, strict=True)]
    except OSError:
        return None
    name = hashlib.sha256(repr((collation_version(), sys.version, build)).encode()).hexdigest()
    home = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(home) / "zapdb" / f"collation-{name[:24]}.json"


def _remember(cache: Path, key: str, fingerprint: str) -> None:
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        try:
            known = dict(json.loads(cache.read_text()))
        except (OSError, ValueError, TypeError):
            known = {}
        with tempfile.NamedTemporaryFile("w", dir=cache.parent, delete=False) as file:
            json.dump(known | {key: fingerprint}, file)
        Path(file.name).replace(cache)
    except OSError:
        pass  # a home that can't be written costs the time to compute, nothing else
