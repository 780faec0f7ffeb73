"""The kept inputs of every target, a short run of the fuzzer, and what hostile bytes allocate."""

from __future__ import annotations

import importlib.util
import tracemalloc
from collections.abc import Iterator

import pytest

from tests import forms
from tests.blobs import NO_BLOBS
from tests.fuzz.__main__ import Fuzzer
from tests.fuzz.corpus import read_corpus
from tests.fuzz.targets import KEY, PREFIX, TABLES, TARGETS
from tests.strategies import TYPES
from tests.support import GUARD_SECONDS
from zapdb.errors import CorruptRecord
from zapdb.records import codec_for, held
from zapdb.values import ValueType
from zapdb.values.varint import encode_varint

SHORT_RUNS = 1_000
"""Of each target, kept inputs included."""


@pytest.mark.parametrize("name", TARGETS)
def test_kept_inputs_are_refused_or_read_canonically(name: str) -> None:
    kept = read_corpus(name)
    assert len(kept) > 10
    for data in kept:
        TARGETS[name](data)


def test_kept_records_hold_every_field() -> None:
    """A field that is added to a table moves the bytes of its records: kept ones have to follow."""
    met = set()
    for data in read_corpus("record"):
        table = TABLES[data[0] % len(TABLES)]
        try:
            record = codec_for(table).decode(KEY, PREFIX + data[1:], 1, NO_BLOBS)
        except CorruptRecord:
            continue
        met |= {(table.name, name) for name, value in held(record).items() if value is not None}
    assert met == {(table.name, field.name) for table in TABLES for field in table.fields}


def test_a_short_run_finds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("atheris") is None:
        pytest.skip("atheris has no package for this platform")
    monkeypatch.setattr("tests.fuzz.__main__.write_corpus", lambda *_: None)
    with Fuzzer() as fuzzer:
        ended = {"seconds": 8} if forms.is_long else {"seconds": GUARD_SECONDS, "runs": SHORT_RUNS}
        assert [name for name in TARGETS if not fuzzer.fuzz(name, **ended)] == []


def hostile() -> Iterator[bytes]:
    """Heads that promise as much as a head can."""
    sizes = [encode_varint(n) for n in (63, 4_096, 4_097, 4 << 20, 64 << 20, 1 << 40, 256**63 - 1)]
    blob = b"\x7f" + bytes(16)
    arrays = [
        bytes.fromhex(head) for head in ("9a7fffffff", "9b7fffffffffffffff", "bb7fffffffffffffff")
    ]
    texts = [bytes.fromhex(head) for head in ("7a7fffffff", "5b7fffffffffffffff", "81" * 5_000)]
    for size in sizes:
        yield size
        yield size + size
        yield blob + size
        yield from (encode_varint(len(body)) + body for body in (*arrays, *texts))
        yield size + bytes(64)


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_hostile_heads_allocate_next_to_nothing(kind: ValueType) -> None:
    """A decoder allocates by the bytes that are there, never by what they promise."""
    inputs = list(hostile())
    tracemalloc.start()
    try:
        for data in inputs:
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            for decode in (kind.decode, kind.decode_key):
                if decode == kind.decode_key and not kind.keyable:
                    continue
                try:
                    decode(data, 0)
                except CorruptRecord:
                    continue
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before < 256 * 1024
    finally:
        tracemalloc.stop()
