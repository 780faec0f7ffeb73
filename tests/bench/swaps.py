"""Bare compare-and-swaps: what a conversion costs without zapdb, by as many processes.

Each process reads its part of a table in the order of the key and replaces the first byte of each
value, where the value is still the one that was read. It uses the driver alone: no gate, no job, no
fence, no locks taken ahead. Batches adapt to the time that zapdb's have.

    python -m tests.bench.swaps ADDRESS TABLE    waits for a line of JSON: lower, upper, prefix
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import psycopg
import sqlalchemy as sa

from tests.bench.databases import Engine
from zapdb.limits import BATCH_RECORDS_MAX, BATCH_RECORDS_SLOW_MIN, BATCH_TARGET_SECONDS
from zapdb.storage import connect

Rows = list[tuple[bytes, bytes]]


class BareSwaps:
    """Processes that are connected, and swap all records of a table when they are told to."""

    def __init__(self, address: str, table: str, bounds: Sequence[bytes | None]) -> None:
        """`bounds` has an end for each process's part, in order, None first and last."""
        self.parts = list(pairwise(bounds))
        command = [sys.executable, "-m", __name__, address, table]
        self.processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in self.parts
        ]

    def run(self, prefix: int) -> int:
        """Give all records another first byte; returns how many there were."""
        for process, (lower, upper) in zip(self.processes, self.parts, strict=True):
            part = [None if bound is None else bound.hex() for bound in (lower, upper)]
            assert process.stdin is not None
            print(json.dumps([*part, prefix]), file=process.stdin, flush=True)
        return sum(json.loads(self._read(process)) for process in self.processes)

    def _read(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout is not None
        return process.stdout.readline()

    def close(self) -> None:
        for process in self.processes:
            process.communicate()  # the end of its input is its end


def _swap(driver: Any, sql: _SQL, lower: bytes | None, upper: bytes | None, prefix: bytes) -> int:
    after, last, limit, swapped = lower or b"", upper or b"\xff" * 9, 256, 0
    while True:
        driver.execute(sql.begin)
        began = time.perf_counter()
        rows: Rows = driver.execute(sql.fetch, (after, last, limit)).fetchall()
        if rows:
            swapped += sql.swap(driver, [(key, old, prefix + old[1:]) for key, old in rows])
        seconds = time.perf_counter() - began
        driver.execute("COMMIT")
        if not rows:
            return swapped
        after = rows[-1][0]
        if limit < BATCH_RECORDS_SLOW_MIN or seconds < BATCH_TARGET_SECONDS / 2:
            limit = min(BATCH_RECORDS_MAX, limit * 2)
        elif seconds > BATCH_TARGET_SECONDS:
            limit = max(BATCH_RECORDS_SLOW_MIN, limit // 2)


class _SQL(ABC):
    begin: str

    def __init__(self, table: str, mark: str) -> None:
        self.table = table
        self.fetch = (
            f"SELECT key, value FROM {table} WHERE tenant = 1 AND key > {mark} AND key <= {mark}"
            f" ORDER BY key LIMIT {mark}"
        )

    @abstractmethod
    def swap(self, driver: Any, rows: list[tuple[bytes, bytes, bytes]]) -> int:
        """By (key, old value, new value) rows; returns how many were still the old ones."""


class _SQLiteSQL(_SQL):
    begin = "BEGIN IMMEDIATE"

    def swap(self, driver: Any, rows: list[tuple[bytes, bytes, bytes]]) -> int:
        sql = f"UPDATE {self.table} SET value = ?3 WHERE tenant = 1 AND key = ?1 AND value = ?2"
        count: int = driver.executemany(sql, rows).rowcount
        return count


class _PostgreSQLSQL(_SQL):
    begin = "BEGIN ISOLATION LEVEL READ COMMITTED"

    def swap(self, driver: Any, rows: list[tuple[bytes, bytes, bytes]]) -> int:
        count: int = driver.execute(
            f"UPDATE {self.table} AS stored SET value = given.new"
            " FROM unnest(%b::bytea[], %b::bytea[], %b::bytea[]) AS given(key, old, new)"
            " WHERE stored.tenant = 1 AND stored.key = given.key AND stored.value = given.old",
            [list(column) for column in zip(*rows, strict=True)],
        ).rowcount
        return count


@contextlib.contextmanager
def _connected(address: str) -> Iterator[tuple[Any, Engine]]:
    """A driver's connection as zapdb would have it: durable, and planned as its are."""
    storage = connect(address)
    try:
        driver = storage.connection().driver
        if sa.make_url(address).get_backend_name() == "sqlite":
            yield driver, "sqlite"
        else:
            assert isinstance(driver, psycopg.Connection)
            driver.prepare_threshold = 1
            yield driver.cursor(binary=True), "postgresql"
    finally:
        storage.close()


def _work(address: str, table: str) -> None:
    with _connected(address) as (driver, engine):
        sql = _SQLiteSQL(table, "?") if engine == "sqlite" else _PostgreSQLSQL(table, "%s")
        for line in sys.stdin:
            lower, upper, prefix = json.loads(line)
            lower, upper = (None if b is None else bytes.fromhex(b) for b in (lower, upper))
            print(_swap(driver, sql, lower, upper, bytes([prefix])), flush=True)


if __name__ == "__main__":
    _work(*sys.argv[1:])
