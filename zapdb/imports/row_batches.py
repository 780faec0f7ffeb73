"""Writes batches of rows: a batch is one transaction, and leaves nothing if one of its rows may not
be skipped.

A batch that the database refuses is tried again without the rows that the error names, in
savepoints, until the rest is written; in halves where it names none. Rows that refer to others of
their table are tried again at the end: their target may stand behind them in the batch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple, assert_never

from zapdb.errors import (
    ConstraintViolation,
    InvalidValue,
    RecordExists,
    ReferenceViolation,
    UnknownField,
    ZapdbError,
)
from zapdb.imports.row import ImportMode, RowBlock, SourceRow
from zapdb.storage import Connection
from zapdb.storage.cells import as_bytes
from zapdb.tables.bulk import KEYS_PER_STATEMENT
from zapdb.tables.generated_values import OperationNumbers, generate_values, note_given
from zapdb.tables.session import Session
from zapdb.tables.writes import (
    NONE_INSERTED,
    WritePlan,
    execute,
)

if TYPE_CHECKING:
    from zapdb.tables.writable_table import WritableTable

ROUNDS_MAX: Final = 16
"""How often a batch is tried without the rows that an error names. More happen where each row
refers to the one before it."""
ROW_ERRORS = (InvalidValue, ConstraintViolation, RecordExists, UnknownField)
"""What is wrong with a row, and not with the database."""


class Refused(NamedTuple):
    """A row that was not written, and why."""

    row: SourceRow
    error: ZapdbError


class BatchRefused(Exception):
    """Rolls back a batch of which rows are refused that may not be skipped."""

    def __init__(self, refused: list[Refused]) -> None:
        super().__init__()
        self.refused = refused


Save = Callable[[Connection, list[Refused]], object]
"""What is written in the transaction of the batch besides its rows."""


def write_batch(
    session: Session,
    table: WritableTable[Any],
    rows: Sequence[SourceRow],
    mode: ImportMode,
    save: Save,
) -> list[Refused]:
    """Write rows and return those that were refused, in their order; a conflict repeats it all."""
    write: WriteRows
    match mode:
        case "append":
            write = Inserting(table)
        case "upsert":
            write = Upserting(table)
        case _:
            assert_never(mode)
    numbers = OperationNumbers(session)
    bad = [Refused(row, row.error) for row in rows if row.error is not None]
    good = [row for row in rows if row.error is None]

    def all_at_once() -> None:
        with session.writing() as connection:
            write(connection, good)
            save(connection, bad)

    times = 1

    def in_halves() -> list[Refused]:
        nonlocal times
        with session.writing() as connection:
            values = [row.values for row in good]
            numbers.reserve(connection, table._current(), values, times)
            times *= 2  # who lacks numbers behind this, since other threads took some, begins again
            refused = _write_in_halves(session, write, good)
            refused = sorted([*bad, *refused], key=lambda found: found.row.number)
            save(connection, refused)
            return refused

    try:
        session.run(all_at_once)
    except ROW_ERRORS:
        return session.run(in_halves)
    return bad


def write_together(session: Session, table: WritableTable[Any], rows: Sequence[SourceRow]) -> None:
    """Upsert rows at once, however many: they may have exchanged values that must be unique.

    All entries of indexes that they had are removed before new ones are added. Raises the error of
    a row that is refused."""
    write = Upserting(table, rows_max=sys.maxsize)

    def all_at_once() -> None:
        with session.writing() as connection:
            write(connection, rows)

    session.run(all_at_once)


def write_block(
    session: Session, table: WritableTable[Any], block: RowBlock, mode: ImportMode, save: Save
) -> list[Refused]:
    """The same for the rows of a block, by columns if that can be done and all are right."""

    def by_columns() -> bool:
        with session.writing(numbers) as connection:
            bound = table._current()
            planned = block.plan(connection, bound, numbers)
            if planned is not None:
                execute(connection, planned)
                save(connection, [])
            return planned is not None

    numbers = OperationNumbers(session)
    if mode == "append":
        with suppress(*ROW_ERRORS):
            if session.run(by_columns):
                return []
    return write_batch(session, table, block.rows(), mode, save)


WriteRows = Callable[[Connection, Sequence[SourceRow]], None]


def _write_in_halves(
    session: Session, write: WriteRows, rows: Sequence[SourceRow]
) -> list[Refused]:
    refused = list(_try(session, write, rows))
    while True:
        again = [found for found in refused if _may_hold_later(found.error)]
        still = [found for one in again for found in _try(session, write, [one.row])]
        if len(still) == len(again):
            return refused
        others = [found for found in refused if not _may_hold_later(found.error)]
        refused = [*others, *still]


def _may_hold_later(error: ZapdbError) -> bool:
    """Whether a reference leads to its own table, whose rows are written."""
    return (
        isinstance(error, ReferenceViolation) and error.context["target"] == error.context["table"]
    )


def _try(session: Session, write: WriteRows, rows: Sequence[SourceRow]) -> Iterator[Refused]:
    """Write rows but those that are refused, which are returned."""
    rounds = 0
    while rows:
        try:
            with session.writing() as connection:
                write(connection, rows)
            return
        except ROW_ERRORS as error:
            if len(rows) == 1:
                yield Refused(rows[0], error)
                return
            known = error.of_each
        rounds += 1
        if not known or rounds > ROUNDS_MAX:
            middle = len(rows) // 2
            yield from _try(session, write, rows[:middle])
            rows, rounds = rows[middle:], 0
            continue
        yield from (Refused(rows[at], found) for at, found in known.items())
        rows = [row for at, row in enumerate(rows) if at not in known]


class Inserting:
    """Inserts rows; `RecordExists` for a key that is there."""

    def __init__(self, table: WritableTable[Any]) -> None:
        self.table = table

    def __call__(self, connection: Connection, rows: Sequence[SourceRow]) -> None:
        if len(rows) == 1:  # whose errors say more
            self.table.insert(**rows[0].values)
        elif rows:
            self.table.insert_many([row.values for row in rows], len(rows))


class Upserting:
    """Updates the records with the keys of rows, and inserts the others, as if one after the
    other: a key that occurs again begins another run."""

    def __init__(self, table: WritableTable[Any], rows_max: int = KEYS_PER_STATEMENT) -> None:
        """At most `rows_max` rows are written at once."""
        self.table = table
        self._rows_max = rows_max

    def __call__(self, connection: Connection, rows: Sequence[SourceRow]) -> None:
        if len(rows) == 1:
            self.table.upsert(**rows[0].values)
            return
        bound = self.table._current()
        names = set(bound.adapter.key_names)
        new, keyed = list[Any](), dict[bytes, Any]()
        for row in rows:
            if not names <= row.values.keys():  # its key is generated, or a default
                new.append(row.values)
                continue
            key = bound.adapter.codec.encode_key(row.values)
            if key in keyed or len(keyed) == self._rows_max:
                self._write_run(keyed, new)
                new, keyed = [], {}
            keyed[key] = row.values
        self._write_run(keyed, new)

    def _write_run(self, keyed: dict[bytes, Any], new: list[Any]) -> None:
        session = self.table._session
        numbers = OperationNumbers(session)

        def write() -> None:
            try:
                put()
            except ROW_ERRORS as error:
                error.of_each = {}  # by the places of the plans, and not of the rows
                raise

        def put() -> None:
            # A savepoint: why a run is refused is looked up beside the runs before it.
            with session.writing(numbers) as connection:
                plan = WritePlan(self.table._current())
                missing = _plan_updates(session, connection, plan, keyed)
                made = generate_values(numbers, connection, plan.bound, [*new, *missing])
                plan.insert_many(made, NONE_INSERTED)
                execute(connection, plan, NONE_INSERTED)

        session.run(write)


def _plan_updates(
    session: Session,
    connection: Connection,
    plan: WritePlan,
    keyed: Mapping[bytes, Any],
) -> list[Any]:
    """Plan the updates of the records that exist and are others; returns the values of the rest."""
    bound = plan.bound
    found, keys = dict[bytes, Any](), list(keyed)
    for start in range(0, len(keys), KEYS_PER_STATEMENT):
        found |= bound.records.find_many(connection, keys[start : start + KEYS_PER_STATEMENT])[1]
    for key, raw in found.items():
        changes = {n: v for n, v in keyed[key].items() if n not in bound.adapter.key_names}
        note_given(session, connection, bound, changes)
        plan.update(key, as_bytes(raw), changes, skips_same=True)
    return [values for key, values in keyed.items() if key not in found]


def batched(rows: Iterator[SourceRow], size: Callable[[], int]) -> Iterator[list[SourceRow]]:
    while batch := list(islice(rows, size())):
        yield batch
