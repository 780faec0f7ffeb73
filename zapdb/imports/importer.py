"""One import from its first row to its last: batches, what is skipped, the checkpoint, the report.

What has been written is known at every moment: each batch commits together with the number of rows
that it ends at and a checksum of all rows so far. A run that goes on reads the rows before that
again, without writing them, and compares.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol
from zlib import crc32

from zapdb.errors import RecordExists, UsageError, ZapdbError
from zapdb.imports.checkpoint import Checkpoint, checkpoint_id, forget_all
from zapdb.imports.row import (
    ImportMode,
    RowBlock,
    RowList,
    RowSource,
    SourceChanged,
    SourceRow,
)
from zapdb.imports.row_batches import (
    BatchRefused,
    Refused,
    batched,
    write_block,
)
from zapdb.jobs.exclusive import ProgressReporter
from zapdb.limits import INSERT_BATCH_RECORDS
from zapdb.storage import Connection
from zapdb.tables.session import Session

if TYPE_CHECKING:
    from zapdb.tables.writable_table import WritableTable


@dataclass(frozen=True, slots=True)
class ImportReport:
    """`read` rows of the source were read, `written` of them became records, and `skipped` ones are
    wrong; `resumed_after` of those that were read were imported by an earlier run."""

    table: str
    source: str
    read: int
    written: int
    skipped: int
    resumed_after: int
    seconds: float
    skipped_to: int = 0
    """The position behind its last row in what keeps the skipped ones."""


@dataclass(frozen=True, slots=True)
class SkippedRow:
    """A row that was not imported, as the source has it, and why."""

    source: str
    number: int
    given: Any
    error: ZapdbError


class Skipped(Protocol):
    """Keeps skipped rows. `position` is how much of it there is, and `go_back` takes away what is
    behind a position: of batches that were not committed."""

    def add(self, row: SkippedRow) -> None: ...

    def position(self) -> int: ...

    def go_back(self, position: int) -> None: ...


@dataclass
class Importer:
    """Writes the rows of a source into a table.

    Without `skipped`, the first wrong row ends the import: nothing of its batch is written. With
    `resumable`, batches before it stay and the next run goes on behind them; without, they stay,
    too, but a run begins at the first row. Inside a transaction all batches belong to it.
    """

    session: Session
    table: WritableTable[Any]
    mode: ImportMode = "append"
    batch_records: int | None = None
    """Rows of a transaction; None: as many as suit the source."""
    skipped: Skipped | None = None
    skipped_from: int = 0
    """Where the skipped rows of this import begin: before are those of others."""
    resumable: bool = False
    anew: bool = False
    """Begin at the first row, whatever an earlier run has done."""
    progress: Callable[[int], object] = field(default=lambda _: None)
    """Is called with the number of rows after each batch."""
    pace: ProgressReporter = field(default_factory=ProgressReporter)
    """How fast it may go, as its job says."""

    def run(self, source: RowSource) -> ImportReport:
        """Raises the error of the first wrong row, with its place in the source."""
        kept = list[Checkpoint]()
        report = self.run_and_keep(source, kept)
        forget_all(kept)
        return report

    def run_and_keep(self, source: RowSource, kept: list[Checkpoint]) -> ImportReport:
        """The same, for a part of a larger import: adds its checkpoint to `kept`, so that a later
        run knows that this part is done; the caller forgets it when all parts are."""
        checkpoint = self._claim(source) if self.resumable and source.identity else None
        run = _Run(self, source, checkpoint)
        try:
            report = run.run()
        except BaseException:
            if checkpoint is not None:
                checkpoint.release()
            raise
        if checkpoint is not None:
            checkpoint.release()
            kept.append(checkpoint)
        return report

    def _claim(self, source: RowSource) -> Checkpoint:
        bound = self.table._current()
        name = checkpoint_id(bound.catalog.tenant, bound.schema.number, source.identity)
        return Checkpoint.claim(self.session.storage, name, source.name, anew=self.anew)


class _Run:
    """One run of an importer over one source."""

    def __init__(
        self, importer: Importer, source: RowSource, checkpoint: Checkpoint | None
    ) -> None:
        state = {} if checkpoint is None else checkpoint.state
        self.importer = importer
        self.source = source
        self.checkpoint = checkpoint
        self.resumed_after = int(state.get("rows", 0))
        self.expected = (state.get("crc", 0), state.get("stamp", source.stamp))
        self.skipped_at = int(state.get("skipped_at", importer.skipped_from))
        self.skipped = int(state.get("skipped", 0))
        self.after = str(state.get("after", ""))
        self.is_summed = source.counts_lines and not source.seeks
        """Whether rows that are gone on behind are known by a checksum of them."""
        self.read = 0
        self.crc = 0
        self.written = 0

    def run(self) -> ImportReport:
        began = time.perf_counter()
        if self.importer.skipped is not None and not self.resumed_after:
            self.importer.skipped.go_back(self.skipped_at)
        try:
            for block in self._blocks():
                before = self.written
                self._write(block)
                self._keep_pace(block, self.written - before)
        except SourceChanged:
            raise self._changed() from None
        return ImportReport(
            self.importer.table.name,
            self.source.name,
            self.read,
            self.written,
            self.skipped,
            self.resumed_after,
            time.perf_counter() - began,
            self.skipped_at,
        )

    def _blocks(self) -> Iterator[RowBlock]:
        """What an earlier run has not imported."""
        blocks = self.source.blocks(self._find_size, self.resumed_after)
        if blocks is not None:
            self._pass_over(None)
            return blocks
        rows = self.source.rows(self.after)
        self._pass_over(rows)
        return map(RowList, batched(rows, lambda: self._find_size(INSERT_BATCH_RECORDS)))

    def _find_size(self, suiting: int) -> int:
        """How many rows the next batch may have."""
        wanted = self.importer.batch_records or suiting
        bound = self.importer.pace.batch_records_max
        return wanted if bound is None else min(wanted, bound)

    def _keep_pace(self, block: RowBlock, written: int) -> None:
        """Tell of a batch, and wait until the next one may begin."""
        self.importer.progress(self.read)
        pace = self.importer.pace
        expected = self.source.estimate_rows(self.read)
        if expected is not None:
            pace.expect(max(0, expected - self.read + block.count))
        size_bytes = block.measure_bytes() if pace.counts_bytes else 0
        pace.note(block.count, written, size_bytes)

    def _pass_over(self, rows: Iterator[SourceRow] | None) -> None:
        """Read what an earlier run has imported, where it can't be passed over unread; raises
        `UsageError` if it is not the same."""
        if not self.resumed_after:
            return
        if rows is None or self.source.seeks:
            self.read = self.resumed_after
        else:
            for row in islice(rows, self.resumed_after):
                self._count(row)
        if (self.crc, self.source.stamp) != self.expected or self.read < self.resumed_after:
            raise SourceChanged

    def _changed(self) -> UsageError:
        return UsageError(
            "an earlier run imported a part of this source, and that part has changed since",
            source=self.source.name,
            imported=_show_rows(self.resumed_after),
            hint="import the whole source with --from-start, as --mode upsert if its "
            "records may be in the table",
        )

    def _count(self, row: SourceRow) -> None:
        self.read += 1
        if self.is_summed:
            self.crc = crc32(repr(row.given).encode("utf-8", "backslashreplace"), self.crc)

    def _write(self, block: RowBlock) -> None:
        before = self.read, self.crc
        after = self.source.position_of(block.rows()[-1]) if self.source.seeks else ""
        if self.is_summed:
            for row in block.rows():
                self._count(row)
        else:
            self.read += block.count
        importer = self.importer

        def save(connection: Connection, refused: list[Refused]) -> None:
            if refused and importer.skipped is None:
                raise BatchRefused(refused)
            self._save(connection, block, refused, after)

        try:
            refused = write_block(importer.session, importer.table, block, importer.mode, save)
        except BatchRefused as stopped:
            self.read, self.crc = before
            raise self._stop(stopped.refused[0]) from None
        except ZapdbError as error:
            error.context.setdefault("imported", _show_rows(self._imported))
            raise
        if importer.skipped is not None:
            self.skipped_at = importer.skipped.position()
        self.skipped += len(refused)
        self.written += block.count - len(refused)

    def _save(
        self, connection: Connection, block: RowBlock, refused: list[Refused], after: str
    ) -> None:
        """Keep what is skipped, before it is committed that it is; then note the batch."""
        skipped = self.importer.skipped
        if skipped is not None:
            skipped.go_back(self.skipped_at)
            for row, error in refused:
                self.source.place(error, row.number)
                skipped.add(SkippedRow(self.source.name, row.number, row.given, error))
        if self.checkpoint is None:
            return
        state = {
            "rows": self.read,
            "crc": self.crc,
            "stamp": self.source.stamp,
            "skipped": self.skipped + len(refused),
            "skipped_at": 0 if skipped is None else skipped.position(),
            "after": after,
        }
        self.checkpoint.save(connection, state, block.count, block.count - len(refused))

    @property
    def _imported(self) -> int:
        return self.written + self.resumed_after

    def _stop(self, refused: Refused) -> ZapdbError:
        error = self.source.place(refused.error, refused.row.number)
        error.context["imported"] = _show_rows(self._imported)
        if isinstance(error, RecordExists):
            error.hint = "the mode upsert updates records that exist"
        way = ""
        if self.checkpoint is not None:
            way = "correct it and run the same command again, which goes on after these rows"
        error.hint = "; ".join(filter(None, (error.hint, way)))
        return error


def _show_rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"


class SkippedList:
    """Skipped rows, as the caller of `import_from` gets them: those of this call."""

    def __init__(self, rows: list[SkippedRow]) -> None:
        self._rows = rows

    def add(self, row: SkippedRow) -> None:
        self._rows.append(row)

    def position(self) -> int:
        return len(self._rows)

    def go_back(self, position: int) -> None:
        del self._rows[position:]
