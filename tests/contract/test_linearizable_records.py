"""Operations on single records by many threads or processes happen as if one after another."""

from __future__ import annotations

import math
import threading
from dataclasses import replace
from typing import Any

import pytest

from tests import forms
from tests.contract.registers import (
    ABSENT,
    UNKNOWN,
    Client,
    as_history,
    register,
    run_processes,
    spoil_commits,
)
from tests.contract.tables import INDEX_SIZE, ITEMS
from tests.linearizability import Operation, find_order, split
from tests.support import Workspace

THREADS = 4
PROCESSES = 3
OPERATIONS = 160
"""Of each thread or process, in the long form."""


def done(name: str, *values: int, result: Any, at: tuple[float, float]) -> Operation:
    return Operation(1, name, (7, *values), result, *at)


INSERT = done("insert", 1, result=1, at=(0, 1))


@pytest.mark.parametrize(
    "more",
    [
        [],
        [done("swap", 1, 2, result=2, at=(2, 5)), done("read", result=2, at=(4, 5))],
        [
            done("swap", 1, 2, result=2, at=(2, 5)),
            done("swap", 1, 3, result="UpdateConflict", at=(2, 5)),
        ],
        [done("add", 4, result=5, at=(2, 5)), done("add", 4, result=9, at=(2, 5))],
        [done("delete", result=UNKNOWN, at=(2, math.inf)), done("read", result=None, at=(3, 4))],
        [done("delete", result=UNKNOWN, at=(2, math.inf)), done("read", result=1, at=(3, 4))],
        [done("delete", result=None, at=(2, 3)), done("upsert", 4, result=4, at=(3, 5))],
        [done("insert", 2, result="RecordExists", at=(2, 3))],
    ],
)
def test_the_checker_finds_an_order(more: list[Operation]) -> None:
    assert find_order([INSERT, *more], register, ABSENT) is not None


@pytest.mark.parametrize(
    "more",
    [
        # Two that compared before either wrote.
        [done("swap", 1, 2, result=2, at=(2, 5)), done("swap", 1, 3, result=3, at=(2, 5))],
        [done("add", 4, result=5, at=(2, 5)), done("add", 4, result=5, at=(2, 5))],  # lost
        [done("read", result=None, at=(2, 3))],
        [done("delete", result=None, at=(2, 3)), done("update", 4, result=4, at=(4, 5))],
        [done("insert", 2, result=2, at=(2, 3))],
        [
            done("delete", result=UNKNOWN, at=(2, math.inf)),
            done("read", result=None, at=(3, 4)),
            done("read", result=1, at=(5, 6)),
        ],
        [done("swap", 1, 2, result="UpdateConflict", at=(2, 3))],
    ],
)
def test_the_checker_finds_that_there_is_none(more: list[Operation]) -> None:
    assert find_order([INSERT, *more], register, ABSENT) is None


def test_a_client_goes_on_after_a_snapshot_whose_end_fails(workspace: Workspace) -> None:
    """Which COMMITs fail is chance, as is whether one of them is a snapshot's."""
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.table("items").insert(id=7, title="x", size=1)
    notes: list[list[Any]] = []
    client = Client(db, 0, 5, notes.append)
    restore = spoil_commits(db, 1.0)
    try:
        for _ in range(20):  # a read in four is by a snapshot
            client._do("read", 7)
    finally:
        restore()
    history = as_history(notes)
    assert {operation.result for operation in history} == {1}
    assert 0 < len(history) < 20
    assert not any(operation.is_open for operation in history)


def run_threads(place: Workspace, times: int, seed: int) -> list[Operation]:
    notes: list[list[Any]] = []
    with place.open("never") as db:
        clients = [Client(db, n, seed, notes.append) for n in range(THREADS)]
        restore = spoil_commits(db, 0.03)
        try:
            threads = [threading.Thread(target=c.run, args=(times,)) for c in clients]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            restore()
    return as_history(notes)


def check(place: Workspace, history: list[Operation], least: int) -> None:
    ended = [operation for operation in history if not operation.is_open]
    assert len(ended) > least, "most operations ended"
    assert {operation.name for operation in ended} == {
        *("read", "insert", "update", "upsert", "delete", "add", "swap")
    }
    overlapping = sum(
        a.process != b.process and a.invoked < b.returned and b.invoked < a.returned
        for part in split(ended).values()
        for a in part
        for b in part
    )
    assert overlapping > least / 20, "they were at it at the same time"
    for key, part in split(history).items():
        assert find_order(part, register, ABSENT) is not None, key
        # It would be noticed: a read of what nobody had written.
        at = max(n for n, operation in enumerate(part) if operation.name == "read")
        part[at] = replace(part[at], result=999, returned=min(part[at].returned, 1e18))
        assert find_order(part, register, ABSENT) is None
    (report,) = place.open("never").admin.verify()
    assert report.problems == ()


def test_rule_15_threads_change_records_one_after_another(workspace: Workspace) -> None:
    workspace.write(1, ITEMS, INDEX_SIZE)
    workspace.open().close()
    times = OPERATIONS if forms.is_long else OPERATIONS // 4
    check(workspace, run_threads(workspace, times, 5), times * THREADS // 2)


def test_rule_15_processes_change_records_one_after_another(workspace: Workspace) -> None:
    """One of them is killed in a COMMIT."""
    workspace.write(1, ITEMS, INDEX_SIZE)
    workspace.open().close()
    times = OPERATIONS if forms.is_long else OPERATIONS // 4
    check(workspace, run_processes(workspace, PROCESSES, times, 6), times * PROCESSES // 2)
