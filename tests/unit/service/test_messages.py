"""Every answer and every request comes back from its message as it went in."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest
from google.protobuf.message import Message
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from tests.forms import cases
from zapdb.control import Json
from zapdb.errors import ZapdbError
from zapdb.jobs.job_status import TableStatus
from zapdb.migrations import GivenDirectory, SentDirectory
from zapdb.service.messages import Mismatch, message_conversion
from zapdb.service.methods import METHODS, Method
from zapdb.service.proto.catalog_pb2 import SchemaStamp as SchemaStampMessage
from zapdb.service.proto.jobs_pb2 import TableStatus as TableStatusMessage

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
NUMBERS = st.integers(0, 2**31)
"""Each message has its numbers in some kind of integer; these fit all of them."""
SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXTS,
    bool: st.booleans(),
    int: NUMBERS,
    float: st.floats(allow_nan=False),
    bytes: st.binary(max_size=4),
    datetime: st.datetimes(timezones=st.just(UTC)),
}
PLAIN = st.recursive(
    st.booleans() | st.integers() | TEXTS,
    lambda part: st.lists(part, max_size=2) | st.dictionaries(TEXTS, part, max_size=2),
    max_leaves=4,
)


def values_of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a type of the control plane."""
    if hint == Json:
        return PLAIN
    if hint == GivenDirectory:
        return values_of(SentDirectory)  # paths are of the caller's machine
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return values_of(parts[0])
    if origin is Literal:
        return st.sampled_from(parts)
    if origin in (Union, types.UnionType):
        return st.one_of([values_of(part) for part in parts if not is_left_out(part)])
    if hint is types.NoneType:
        return st.none()
    if origin in (tuple, list, Sequence):
        return st.lists(values_of(parts[0]), max_size=2).map(tuple)
    if origin in (dict, Mapping):
        return st.dictionaries(values_of(parts[0]), values_of(parts[1]), max_size=2)
    if is_left_out(hint):
        return st.nothing()
    if hint in SCALARS:
        return SCALARS[hint]
    return st.builds(hint, **{name: values_of(kind) for name, kind in parts_of(hint).items()})


def is_left_out(hint: Any) -> bool:
    """Two errors are never equal."""
    return isinstance(hint, type) and issubclass(hint, ZapdbError)


def parts_of(kind: Any) -> Mapping[str, Any]:
    hints = typing.get_type_hints(kind, include_extras=True)
    if is_dataclass(kind):
        return {field.name: hints[field.name] for field in fields(kind)}
    assert issubclass(kind, Struct)
    return {name: hints[name] for name in kind.__struct_fields__}


def returned_by(method: Method) -> Any:
    hint = typing.get_type_hints(method.function, include_extras=True)["return"]
    return get_args(hint)[0] if method.is_stream else hint


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.path)
def test_an_answer_comes_back(method: Method) -> None:
    @settings(max_examples=cases(20), deadline=None)
    @given(values_of(returned_by(method)))
    def check(answer: Any) -> None:
        sent: Message = method.answer.write(answer)
        got = method.answer.read(method.answer_class.FromString(sent.SerializeToString()))
        assert got == answer

    check()


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.path)
def test_arguments_come_back(method: Method) -> None:
    hints = typing.get_type_hints(method.function, include_extras=True)
    kinds = {name: hints[name] for name in method.signature.parameters}

    @settings(max_examples=cases(20), deadline=None)
    @given(st.fixed_dictionaries({name: values_of(kind) for name, kind in kinds.items()}))
    def check(arguments: dict[str, Any]) -> None:
        sent: Message = method.request.write(arguments)
        got = method.request.read(method.request_class.FromString(sent.SerializeToString()))
        assert got == arguments

    check()


def test_what_is_told_by_name_is_in_the_order_of_the_names() -> None:
    """A map of a message has none."""
    conversion = message_conversion(TableStatus, TableStatusMessage)
    counts = dict.fromkeys((7, 300, 2, 10**9, 41, 0), 1)
    sent = conversion.write(TableStatus("people", 6, 5, 8, 8, counts, (), ()))
    assert list(conversion.read(sent).by_revision) == sorted(counts)


@dataclass(frozen=True)
class Another:
    revision: int
    note: str


@dataclass(frozen=True)
class Optional:
    revision: int | None
    fingerprint: str


@dataclass(frozen=True)
class Wrong:
    revision: str
    fingerprint: str


@dataclass(frozen=True)
class Several:
    revision: tuple[int, ...]
    fingerprint: str


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Another, "not in the message: \\['note'\\], only in the message: \\['fingerprint'\\]"),
        (Optional, "not optional, and the value may be None"),
        (Wrong, "has no kind for"),
        (Several, "is not repeated"),
    ],
)
def test_a_type_with_other_fields_than_its_message_is_refused(kind: Any, said: str) -> None:
    with pytest.raises(Mismatch, match=said):
        message_conversion(kind, SchemaStampMessage)
