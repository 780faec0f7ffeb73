"""Answers that no process of a statement gives: whoever took one over crashes no application, reads
nothing of its memory, and raises no error but zapdb's."""

from __future__ import annotations

import json
import random
import socket
import struct
from collections.abc import Sequence
from typing import Any

import pyarrow
import pytest

from tests import forms
from zapdb.errors import SqlError, SqlLimitExceeded, UsageError, ZapdbError
from zapdb.sandbox.inside import wire
from zapdb.sandbox.inside.batches import pack_batches
from zapdb.sql import sandboxed_statement
from zapdb.sql.result import Result
from zapdb.sql.sandboxed_statement import StatementLimits, run_in_sandbox
from zapdb.sql.sources import HeldSource, Source

Message = tuple[bytes, bytes]
ROWS = pyarrow.table({"name": ["Ada", "Grace"], "size": [1, 2]})
KINDS = [{"id": "varchar", "text": "VARCHAR"}, {"id": "bigint", "text": "BIGINT"}]


def as_json(kind: bytes, **value: Any) -> Message:
    return kind, json.dumps(value).encode()


def answer(rows: Any) -> Message:
    return wire.ANSWER, bytes(pack_batches(rows.schema, *rows.to_batches()))


COLUMNS = as_json(wire.COLUMNS, columns=["name", "size"], types=KINDS)
ANSWER = answer(ROWS)
DONE = (wire.DONE, b"")


def text_with_offsets(*offsets: int) -> Message:
    kind, data = answer(ROWS)
    whole, forged = (struct.pack("<3i", *given) for given in ((0, 3, 8), offsets))
    assert data.count(whole) == 1
    return kind, data.replace(whole, forged)


def member(code: int) -> Message:
    """Of an enum with one member."""
    codes = pyarrow.array([0, 0], pyarrow.int8())
    held = pyarrow.DictionaryArray.from_arrays(codes, pyarrow.array(["a"]))
    batch = pyarrow.RecordBatch.from_arrays([pyarrow.array([7, 7]), held], ["size", "name"])
    kind, data = answer(pyarrow.Table.from_batches([batch]))
    mark = struct.pack("<2q", 7, 7)
    at = data.rindex(mark) + len(mark)  # the codes follow, each buffer at a place of its own
    at += -at % 64 if data[at : at + 2] != b"\0\0" else 0
    return kind, data[:at] + bytes([code]) + data[at + 1 :]


SCAN = as_json(wire.SCAN, scan=0, source=0, names=["name"])
FAILURE = {"class": "BinderException", "text": "no", "lead": 0, "about_values": False}
FORGED: dict[str, Sequence[Message]] = {
    "offsets into the heap": [COLUMNS, text_with_offsets(0, 3, 1 << 20), DONE],
    "offsets that fall": [COLUMNS, text_with_offsets(0, 8, 3), DONE],
    "negative offsets": [COLUMNS, text_with_offsets(-1_000_000, 3, 8), DONE],
    "members that are none": [COLUMNS, member(100), DONE],
    "texts that are none": [COLUMNS, (ANSWER[0], ANSWER[1].replace(b"Ada", b"\xff\xfe\xfd")), DONE],
    "no columns": [ANSWER, DONE],
    "no answer": [COLUMNS, DONE],
    "nothing": [DONE],
    "fewer columns": [COLUMNS, answer(ROWS.select(["name"])), DONE],
    "two schemas": [COLUMNS, ANSWER, answer(ROWS.rename_columns(["a", "b"])), DONE],
    "an answer that is none": [COLUMNS, (wire.ANSWER, b"\xff\xff\xff\xff" * 9), DONE],
    "an empty answer": [COLUMNS, (wire.ANSWER, b""), DONE],
    "no JSON": [(wire.COLUMNS, b"\xff{"), DONE],
    "a list": [(wire.COLUMNS, b"[]"), DONE],
    "deep JSON": [(wire.COLUMNS, b"[" * 200_000), DONE],
    "deep types": [(wire.COLUMNS, b'{"types": [' + b'{"parts": [["a", ' * 100_000), DONE],
    "columns without types": [as_json(wire.COLUMNS, columns=["name"]), ANSWER, DONE],
    "types of no text": [as_json(wire.COLUMNS, columns=["a"], types=[{"id": 1}]), ANSWER, DONE],
    "names that are numbers": [as_json(wire.COLUMNS, columns=[1, 2], types=KINDS), ANSWER, DONE],
    "a scan of no source": [as_json(wire.SCAN, scan=0, source=7, names=[])],
    "a scan of the last source": [as_json(wire.SCAN, scan=0, source=-1, names=["name"])],
    "a scan of no column": [as_json(wire.SCAN, scan=0, source=0, names=["secret"])],
    "a scan without names": [as_json(wire.SCAN, scan=0, source=0)],
    "a scan twice": [SCAN, SCAN],
    "the next of no scan": [as_json(wire.NEXT, scan=5)],
    "the end of no scan": [as_json(wire.CLOSE, scan=5)],
    "a scan by name": [as_json(wire.NEXT, scan="x")],
    "an unknown kind": [(b"?", b'{"scan": 0}')],
    "an unknown kind of a scan": [SCAN, (b"?", b'{"scan": 0}')],
    "a batch of what is to be read": [(wire.BATCH, b"")],
    "a failure of nothing": [as_json(wire.FAILED)],
    "a failure of two": [as_json(wire.FAILED, kinds=["SELECT"], files="x")],
    "a failure without a place": [as_json(wire.FAILED, **{**FAILURE, "lead": "x"})],
    "a failure far away": [as_json(wire.FAILED, **{**FAILURE, "lead": -5})],
    "a failure of numbers": [as_json(wire.FAILED, **{**FAILURE, "text": 5})],
    "kinds that are no list": [as_json(wire.FAILED, kinds=5)],
}


class Offered:
    """A table that the statement may read."""

    def __init__(self) -> None:
        self.sources: list[tuple[str, Source]] = [("zapdb_source_people", HeldSource(ROWS))]
        self.files: dict[str, list[str]] = {}
        self.large = self.views = list[str]()
        self.names = ("people",)


def ask_forger(monkeypatch: pytest.MonkeyPatch, sent: bytes) -> Result:
    """Ask a statement of somebody who answers with these bytes, and reads nothing."""
    ours, theirs = socket.socketpair()

    class Forger:
        is_interrupted = False
        channel = wire.Channel(ours)

        def __init__(self, *_: object) -> None:
            pass

        def __enter__(self) -> Forger:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def end(self) -> dict[str, Any]:
            return {"signal": 9}

    monkeypatch.setattr(sandboxed_statement, "SandboxProcess", Forger)
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 << 20)
    with ours, theirs:
        theirs.settimeout(60)
        theirs.sendall(sent)
        theirs.shutdown(socket.SHUT_WR)
        return run_in_sandbox("SELECT * FROM people", [], Offered(), StatementLimits())


def pack(messages: Sequence[Message]) -> bytes:
    return b"".join(wire.HEAD.pack(kind, len(data)) + data for kind, data in messages)


def test_what_a_process_sends_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    result = ask_forger(monkeypatch, pack([COLUMNS, ANSWER, ANSWER, DONE]))
    assert result.fetchall() == [("Ada", 1), ("Grace", 2)] * 2
    with pytest.raises(SqlError, match="failed"):
        ask_forger(monkeypatch, pack([as_json(wire.FAILED, **FAILURE)]))
    with pytest.raises(UsageError):
        ask_forger(monkeypatch, pack([as_json(wire.FAILED, kinds=["INSERT"])]))


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_message_ends_the_statement(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with pytest.raises(SqlLimitExceeded, match="crashed"):
        ask_forger(monkeypatch, pack(FORGED[name]))


@pytest.mark.parametrize("kind", [wire.BATCH, wire.REQUEST, wire.COLUMNS, wire.ANSWER, b"?"])
def test_a_message_of_any_size_is_refused_before_it_is_read(
    monkeypatch: pytest.MonkeyPatch, kind: bytes
) -> None:
    with pytest.raises(SqlLimitExceeded, match="memory"):
        ask_forger(monkeypatch, wire.HEAD.pack(kind, 1 << 62))


@pytest.mark.parametrize("kind", ["list", "map", "struct", "union", "uuid", "interval", "date"])
def test_a_type_that_the_values_have_not_is_named(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    for parts in ({}, {"parts": [["a", KINDS[0]]]}, {"parts": []}):
        types = [{"id": kind, "text": kind.upper(), **parts}, KINDS[1]]
        described = as_json(wire.COLUMNS, columns=["name", "size"], types=types)
        result = ask_forger(monkeypatch, pack([described, ANSWER, DONE]))
        with pytest.raises(SqlError, match="no equivalent in Python"):
            result.fetchall()


def test_answers_that_were_changed_anywhere_raise_errors_of_zapdb_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rnd, whole = random.Random(33), pack([COLUMNS, ANSWER, DONE])
    head = len(pack([COLUMNS]))
    for _ in range(forms.cases(20_000)):
        made = bytearray(whole)
        for _ in range(rnd.randint(1, 3)):
            at = rnd.randrange(0 if rnd.random() < 0.2 else head, len(made))
            made[at] = rnd.choice((0, 1, 0x7F, 0xFF, made[at] ^ (1 << rnd.randrange(8))))
        try:
            ask_forger(monkeypatch, bytes(made)).fetchall()
        except ZapdbError:
            continue
