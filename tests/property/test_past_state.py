"""The statement for the state of a table at a moment, over files that the test itself writes.

The oracle is a plain dict of records that the same changes are made in.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.forms import cases
from zapdb.past.reading.state_sql import EraRelations, StoredRelation, state_sql

Record = tuple[int | None, str | None]
State = dict[bytes, Record]

LIFE = settings(
    deadline=None, max_examples=cases(200), suppress_health_check=[HealthCheck.too_slow]
)
BEGINS = 10
"""The moment of the checkpoint."""


class Made(NamedTuple):
    """What one moment made of one record; None: it is gone."""

    key: bytes
    moment: int
    record: Record | None


class Life(NamedTuple):
    checkpoint: State
    changes: list[Made]
    states: list[State]
    """At `BEGINS`, and at each moment after it."""
    cuts: list[int]
    """Moments at which segments end; what is behind the last one is the tail."""
    merged: int
    """So many of the first segments are merged into the checkpoint; more than there are: each
    segment is a relation of one layer."""
    renamed_at: int
    """Segments that begin at this moment or later have the second column under another name."""


records = st.tuples(st.none() | st.integers(-9, 9), st.none() | st.text("ab'\"\\", max_size=3))
keys = st.sampled_from([b"", b"\x00", b"a", b"a\x00", b"'", b"\xff\xfe"])


@st.composite
def lives(draw: st.DrawFn) -> Life:
    state: State = draw(st.dictionaries(keys, records, max_size=6))
    count = draw(st.integers(0, 8))
    cuts = sorted(draw(st.sets(st.integers(BEGINS, BEGINS + count), max_size=3)))
    renamed_at = draw(st.sampled_from([0, *(cut + 1 for cut in cuts)]))
    checkpoint, states, changes = dict(state), [dict(state)], list[Made]()
    for moment in range(BEGINS + 1, BEGINS + 1 + count):
        for key in draw(st.sets(keys, max_size=4)):
            record: Record | None = draw(records)
            if key in state and draw(st.booleans()):
                record = None
                del state[key]
            else:
                assert record is not None
                state[key] = record
            changes.append(Made(key, moment, record))
        states.append(dict(state))
    return Life(checkpoint, changes, states, cuts, draw(st.integers(0, 4)), renamed_at)


def write(path: Path, rows: Sequence[Made], kind: int | None, second: str) -> None:
    """A file as section 4 of the design has it; `second` is the name of the second column."""
    ordered = sorted(rows, key=lambda made: (made.key, made.moment))
    until: list[int | None] = [
        behind.moment if made.key == behind.key else None for made, behind in pairwise(ordered)
    ]
    columns: dict[str, Any] = {
        "_key": pyarrow.array([made.key for made in ordered], pyarrow.binary()),
        "_from": pyarrow.array([made.moment for made in ordered], pyarrow.int64()),
        "_until": pyarrow.array([*until, None][: len(ordered)], pyarrow.int64()),
        "_operation": pyarrow.array(
            [kind if kind is not None else 2 if made.record is None else 1 for made in ordered],
            pyarrow.int8(),
        ),
    }
    values = [made.record or (None, None) for made in ordered]
    columns["f1"] = pyarrow.array([one for one, _ in values], pyarrow.int64())
    columns[second] = pyarrow.array([two for _, two in values], pyarrow.string())
    pyarrow.parquet.write_table(pyarrow.table(columns), path, row_group_size=2)


class Written:
    """The files of a life, as relations of a DuckDB."""

    def __init__(self, life: Life, directory: Path) -> None:
        self.duck = duckdb.connect()
        self._directory = directory
        stops = life.cuts
        is_one_layer = life.merged > len(stops)
        merged = 0 if is_one_layer else life.merged
        until = stops[merged - 1] if merged else BEGINS
        starts = [BEGINS, *stops][merged : len(stops)]
        segments = [
            self._store(
                f"segment_{at}",
                [made for made in life.changes if start < made.moment <= stop],
                None,
                "f2_text" if start + 1 >= life.renamed_at else "f2",
            )
            for at, (start, stop) in enumerate(zip(starts, stops[merged:], strict=True))
        ]
        self.layers = [segments] if is_one_layer and segments else [[one] for one in segments]
        self.checkpoint, self.ended = self._merge(life, until)
        self.merged_until = until
        self.ends, self.changes = stops[-1] if stops else BEGINS, life.changes

    def _merge(self, life: Life, until: int) -> tuple[StoredRelation, StoredRelation]:
        """The checkpoint, with what the changes up to a moment made of it, and what ended."""
        rows = [Made(key, BEGINS, record) for key, record in life.checkpoint.items()]
        rows += [made for made in life.changes if made.moment <= until]
        last = {made.key: made for made in sorted(rows, key=lambda made: made.moment)}
        there = [made for made in last.values() if made.record is not None]
        second = "f2" if life.renamed_at else "f2_text"
        ended = self._store("ended", rows, None, second)
        self.duck.execute(
            "CREATE TABLE kept AS FROM ended WHERE _until IS NOT NULL OR _operation = 2;"
            "DROP VIEW ended; ALTER TABLE kept RENAME TO ended"
        )
        return self._store("checkpoint", there, 3, second), ended

    def _store(
        self, name: str, rows: Sequence[Made], kind: int | None, second: str
    ) -> StoredRelation:
        path = self._directory / f"{name}.parquet"
        write(path, rows, kind, second)
        self.duck.read_parquet(str(path)).create_view(name)
        return StoredRelation(name, ("f1", second))

    def read(self, moment: int) -> list[Any]:
        tail = None
        if moment > self.ends:
            last = {
                made.key: made.record for made in self.changes if self.ends < made.moment <= moment
            }
            named = []
            for key, record in last.items():
                one, two = record or (None, None)
                operation = 2 if record is None else 1
                named.append({"_key": key, "_operation": operation, "f1": one, "f2": two})
            types = [("_key", pyarrow.binary()), ("_operation", pyarrow.int8())]
            types += [("f1", pyarrow.int64()), ("f2", pyarrow.string())]
            self.duck.register("tail", pyarrow.Table.from_pylist(named, pyarrow.schema(types)))
            tail = "tail"
        ended = [self.ended] if moment < self.merged_until else []
        era = EraRelations([self.checkpoint], ended, self.layers, tail)
        return self.duck.sql(state_sql(era, moment, ["f1", "f2"])).fetchall()


def in_order(rows: Any) -> list[Any]:
    return sorted(rows, key=repr)


@LIFE
@given(lives())
def test_each_moment_has_the_records_that_it_had(life: Life) -> None:
    with tempfile.TemporaryDirectory() as directory:
        written = Written(life, Path(directory))
        for moment, state in enumerate(life.states, BEGINS):
            assert in_order(written.read(moment)) == in_order(state.values()), moment


def test_nothing_stored_is_an_empty_answer() -> None:
    assert duckdb.sql(state_sql(EraRelations(), 1, ["f1"])).fetchall() == []


@pytest.mark.parametrize("name", ["f1; DROP TABLE x", 'f1"', "F1", "", "a b", "f1\n", "1f", "ü"])
def test_what_is_no_name_of_ours_is_refused(name: str) -> None:
    stored = StoredRelation("checkpoint", ("f1",))
    with pytest.raises(ValueError, match="no name of a relation or column"):
        state_sql(EraRelations([stored]), 1, [name])
    for era in (
        EraRelations([StoredRelation(name, ("f1",))]),
        EraRelations([StoredRelation("checkpoint", (name,))]),
        EraRelations([], [StoredRelation(name, ("f1",))]),
        EraRelations([], [], [[StoredRelation(name, ("f1",))]]),
        EraRelations([], tail=name),
    ):
        with pytest.raises(ValueError, match="no name of a relation or column"):
            state_sql(era, 1, ["f1"])


def test_a_moment_is_a_number() -> None:
    era = EraRelations(layers=[[StoredRelation("segment", ("f1",))]])
    with pytest.raises(ValueError, match="invalid literal"):
        state_sql(era, "1 OR 1 = 1", ["f1"])  # type: ignore[arg-type]  # as an attacker would
