"""Keywords of locales: what ICU would ignore in silence is refused, and named."""

from __future__ import annotations

import icu
import pytest

from zapdb.migrations.operations.index import ATTRIBUTES, check_locale


@pytest.mark.parametrize(
    "locale",
    [
        "de",
        "und",
        "de@collation=phonebook",
        "de@collation=Phonebook",
        "zh@collation=stroke",
        "und@collation=search",
        "fr@colBackwards=yes",
        "und@colalternate=shifted;kv=currency",
        "de@collation=phonebook;colCaseFirst=upper;colCaseLevel=yes;colNormalization=no",
        "el@colReorder=Grek-digit",
    ],
)
def test_these_locales_say_what_the_library_knows(locale: str) -> None:
    assert list(check_locale(locale)) == []


@pytest.mark.parametrize(
    ("locale", "violation", "hint"),
    [
        (
            "de@collation=x",
            "no collation 'x' for the locale 'de'",
            "known: emoji, eor, phonebook, search, standard",
        ),
        ("sv@collation=phonebook", "no collation 'phonebook' for the locale 'sv'", "traditional"),
        ("de@colation=phonebook", "no keyword 'colation' for collations", "known: collation, col"),
        ("de@co=phonebk", "no keyword 'co' for collations", "known: collation, colAlternate"),
        ("de@colAlternate=blanked", "no value 'blanked' for 'colAlternate'", "shifted"),
        ("de@colCaseFirst=yes", "no value 'yes' for 'colCaseFirst'", "lower, no, upper"),
        ("de@colReorder=klingon", "no value 'klingon' for 'colReorder'", "codes of scripts"),
        ("de@kv=letters", "no value 'letters' for 'kv'", "punct"),
        ("de@colStrength=primary", "'colStrength' does not belong into the locale", "strength:"),
        ("de@colNumeric=yes", "'colNumeric' does not belong into the locale", "numeric:"),
        ("de@collation=search;collation=eor", "the keyword 'collation' stands twice", "once"),
        ("de@", "'' is no keyword of a locale", "locale@keyword=value"),
        ("de@collation", "'collation' is no keyword of a locale", "locale@keyword=value"),
        ("de@collation=search;", "'' is no keyword of a locale", "; before another"),
    ],
)
def test_these_are_refused(locale: str, violation: str, hint: str) -> None:
    ((found, why),) = check_locale(locale)
    assert found.startswith(violation)
    assert hint in why


def test_every_violation_is_named() -> None:
    assert len(list(check_locale("de@collation=x;y=z;kv=q"))) == 3


@pytest.mark.parametrize("keyword", [name for name in ATTRIBUTES if name != "colReorder"])
def test_the_values_named_are_those_that_the_library_takes(keyword: str) -> None:
    words = "no yes shifted non-ignorable lower upper space punct symbol currency digit primary on"
    taken = {word for word in words.split() if not list(check_locale(f"de@{keyword}={word}"))}
    assert taken == set(ATTRIBUTES[keyword].split(", "))


def test_a_tailoring_that_a_locale_does_not_have_changes_nothing() -> None:
    """Why they are refused: this is how the library takes them."""

    def rules(locale: str) -> str:
        return str(icu.Collator.createInstance(icu.Locale(locale)).getRules())

    assert rules("de@collation=x") == rules("de@x=y") == rules("de")
    assert rules("de@collation=phonebook") != rules("de")
