"""What of an answer is in JSON, and what in its message."""

from __future__ import annotations

import json
from dataclasses import dataclass

from zapdb.answers import hidden
from zapdb.cli.output import as_plain


@dataclass(frozen=True, slots=True)
class Answer:
    from_: int
    note: str | None = hidden(lambda one: one.note is None)
    shown: str = hidden()


def test_json_has_the_fields_in_their_order_but_what_is_hidden() -> None:
    assert json.dumps(Answer(1, "b", "c"), default=as_plain) == '{"from": 1, "note": "b"}'


def test_a_field_may_be_hidden_in_some_answers() -> None:
    assert json.dumps([Answer(1, None, "c")], default=as_plain) == '[{"from": 1}]'
