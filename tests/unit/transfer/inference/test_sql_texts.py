"""Checks of a source, which its server tells in its own words."""

from __future__ import annotations

import pytest

from zapdb.transfer.inference.sql_texts import translate_check

FIELDS = {
    "Country": ("country", False),
    "note": ("note", True),
    "size": ("size", False),
    'q"uote': ("q_uote", False),
}


@pytest.mark.parametrize(
    ("told", "expression"),
    [
        ("(`Country` in (_utf8mb4'AT',_latin1'DE'))", "((country == 'AT' or country == 'DE'))"),
        ("(`note` <> _utf8mb4'')", "note is None or ((note != ''))"),
        ("(`Country` <> _utf8mb4'it\\'s')", None),  # an escape of MySQL
        ("(`Country` <> _utf8mb4'a\\\\b')", None),
        ("regexp_like(`Country`,_utf8mb4'a')", None),
        ("(`Country` = _utf8mb4)", None),
        ("(size > '-5'::integer)", "(size > -5)"),
        ('("q""uote" <> \'\')', "(q_uote != '')"),
    ],
)
def test_checks_as_servers_write_them(told: str, expression: str | None) -> None:
    assert translate_check(told, FIELDS) == expression
