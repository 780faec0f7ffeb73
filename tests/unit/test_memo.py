"""What is kept of what was compiled, and that it is bounded wherever it is kept."""

from __future__ import annotations

import gc
import pickle
import threading
import weakref

import pytest

from zapdb.limits import COMPILED_MAX
from zapdb.memo import Memo
from zapdb.migrations import Chain
from zapdb.records import codec
from zapdb.records.record import record_class
from zapdb.schema import Field, TableSchema
from zapdb.values import Integer, Zones


def test_a_thing_is_made_once_and_the_oldest_is_given_up() -> None:
    made: list[int] = []
    memo = Memo[int, int](3)

    def get(key: int) -> int:
        return memo.get(key, lambda: made.append(key) or key * 10)

    assert [get(key) for key in (1, 2, 3, 1, 2, 3)] == [10, 20, 30, 10, 20, 30]
    assert made == [1, 2, 3]
    assert (get(4), len(memo)) == (40, 3)
    assert (get(2), get(1)) == (20, 10)
    assert made == [1, 2, 3, 4, 1]


def test_threads_may_share_it() -> None:
    memo = Memo[int, int](5)

    def work() -> None:
        for at in range(5_000):
            assert memo.get(at % 17, lambda at=at: at % 17 + 1) == at % 17 + 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(memo) <= 5 + len(threads)


def test_whatever_is_compiled_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    chain, zones = Chain(), Zones({})
    of_chain = (chain._conversion_plans, chain._programs, chain._archived)
    for memo in (*of_chain, zones.compiled, codec._compiled):
        assert memo.most == COMPILED_MAX
    monkeypatch.setattr(codec, "_compiled", Memo(2))
    tables = [TableSchema(1, f"t{at}", (1,), (Field(1, "id", Integer()),)) for at in range(4)]
    found = [codec.codec_for(table) for table in tables]
    assert len(codec._compiled) == 2
    assert codec.codec_for(tables[3]) is found[3]
    assert codec.codec_for(tables[0]) is not found[0]


def test_classes_of_shapes_go_with_the_last_who_has_them() -> None:
    made = record_class("nobody's", ("id",))
    record, wanted = made(1), weakref.ref(made)
    assert record_class("nobody's", ("id",)) is made
    del made
    gc.collect()
    assert wanted() is type(record)
    assert pickle.loads(pickle.dumps(record)) == record
    del record
    gc.collect()
    assert wanted() is None
