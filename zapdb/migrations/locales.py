"""What may stand behind the @ of a collation's locale.

ICU ignores unknown keywords, and tailorings that the locale does not have: with `de@collation=x`,
words sort as in plain `de`, without an error. So both are refused here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import icu

ATTRIBUTES: Final = {
    "colAlternate": "non-ignorable, shifted",
    "colBackwards": "no, yes",
    "colCaseFirst": "lower, no, upper",
    "colCaseLevel": "no, yes",
    "colNormalization": "no, yes",
    "colReorder": "space, punct, symbol, currency, digit and codes of scripts, with - between them",
    "kv": "space, punct, symbol, currency",
}
"""Keywords with their values for people, as ICU reads them (`setAttributes` in its `coll.cpp`)."""
FIELDS: Final = {"colnumeric": "numeric", "colstrength": "strength"}
"""Keywords for options that a collation has apart from its locale; a keyword would override the
option."""


def check_locale(locale: str) -> Iterator[tuple[str, str]]:
    """Yield each error in the keywords of a locale that is otherwise known, with a hint."""
    base, at, given = locale.partition("@")
    spelled = {name.lower(): name for name in ("collation", *ATTRIBUTES)}
    seen = set()
    for part in given.split(";") if at else ():
        name, _, value = (text.strip() for text in part.partition("="))
        keyword = name.lower()
        if not name or not value:
            yield (
                f"{part!r} is no keyword of a locale",
                "write locale@keyword=value, and ; before another keyword",
            )
        elif keyword in FIELDS:
            yield f"{name!r} does not belong into the locale", f"give {FIELDS[keyword]}: beside it"
        elif keyword not in spelled:
            yield f"no keyword {name!r} for collations", f"known: {', '.join(spelled.values())}"
        elif keyword in seen:
            yield f"the keyword {name!r} stands twice in the locale", "give it once"
        elif keyword == "collation":
            known = _collations_of(base)
            if value.lower() not in known:
                yield (
                    f"no collation {value!r} for the locale {base!r}",
                    f"known: {', '.join(known)}",
                )
        elif not _is_accepted(base, keyword, value):
            yield f"no value {value!r} for {name!r}", f"known: {ATTRIBUTES[spelled[keyword]]}"
        seen.add(keyword)


def normal_locale(locale: str) -> str:
    """One spelling of a valid locale: keywords in order, each as it is listed here, small values.

    What the data of some ICU say means the same (`de@collation=standard` and `de`) is not the same.
    """
    base, _, given = locale.partition("@")
    spelled = {name.lower(): name for name in ("collation", *ATTRIBUTES)}
    pairs = (part.partition("=") for part in given.split(";") if given)
    keywords = sorted(
        f"{spelled[name.strip().lower()]}={value.strip().lower()}" for name, _, value in pairs
    )
    base = "und" if base == "root" else base
    return f"{base}@{';'.join(keywords)}" if keywords else base


def _collations_of(base: str) -> list[str]:
    """The tailorings that the locale has or inherits."""
    values = icu.Collator.getKeywordValuesForLocale("collation", icu.Locale(base), False)
    return sorted(str(value) for value in values)


def _is_accepted(base: str, keyword: str, value: str) -> bool:
    try:
        icu.Collator.createInstance(icu.Locale(f"{base}@{keyword}={value}"))
    except icu.ICUError:
        return False
    return True
