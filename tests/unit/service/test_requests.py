"""A request has no text with NUL, wherever the text stands in it: PostgreSQL takes none."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import pytest

from zapdb.errors import InvalidValue
from zapdb.service.methods import METHODS, Method
from zapdb.service.server import (
    NAMES_SIZE_BYTES_MAX,
    KeptAnswer,
    KeptAnswers,
    _require_texts,
)


def requests_with(text: str, message_class: Any, without: str | None) -> Iterator[Any]:
    """For each field of a message and of those in it, one with the text there."""
    for field in message_class.DESCRIPTOR.fields:
        if field.name == without:
            continue
        if field.type == field.TYPE_STRING:
            yield message_class(**{field.name: ["fine", text] if field.is_repeated else text})
        elif field.message_type is not None:
            for part in requests_with(text, field.message_type._concrete_class, None):
                yield message_class(**{field.name: [part] if field.is_repeated else part})


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.path)
def test_no_text_has_nul(method: Method) -> None:
    made = list(requests_with("a\0b", method.request_class, method.sent))
    assert made, "each has a tenant"
    for request in made:
        assert b"\0" in request.SerializeToString()
        with pytest.raises(InvalidValue, match="contains NUL"):
            _require_texts(method, request)
    for request in requests_with("ab", method.request_class, method.sent):
        _require_texts(method, request)


def test_bytes_and_numbers_are_no_texts() -> None:
    (prune,) = (one for one in METHODS if one.name == "PruneFingerprintHistory")
    request = prune.request_class(table="items", bound={"keep_last": 0})
    assert b"\0" in request.SerializeToString()
    _require_texts(prune, request)


def test_no_request_has_the_answer_kept_for_another() -> None:
    kept, long = KeptAnswers(), b"x" * (NAMES_SIZE_BYTES_MAX + 1)
    kept.keep("/a", long, KeptAnswer(1, (b"long",)))
    kept.keep("/a", long[1:], KeptAnswer(1, (b"short",)))
    for path, request, found in (
        ("/a", long, (b"long",)),
        ("/a", long[1:], (b"short",)),
        ("/b", long, None),
        ("/b", long[1:], None),
        ("/a", hashlib.sha256(long).digest(), None),
        ("/a", long[:-1] + b"y", None),
    ):
        assert kept.find(path, request, 1) == found
    assert kept.find("/a", long, 2) is None
