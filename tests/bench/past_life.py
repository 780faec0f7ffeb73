"""A table with a long history in a store, and what its parts took while it was made."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import mean

import sqlalchemy as sa
from pyarrow import parquet

from tests.bench.people import make_people
from tests.bench.processor import spend
from zapdb.database import Database
from zapdb.log.change_log import Bookmark
from zapdb.past.files.history_manifest import list_history_files, read_store
from zapdb.past.reading.listing import MomentSummary

READ_EACH = 8
"""Reading as objects is measured at each eighth part: it does nothing for the others."""


@dataclass
class Life:
    """A table of which a quarter of the records is changed at a time, then taken into files.

    `moments` are those behind each part. `writing`, `reading` (the same changes as objects) and
    `following` are processor seconds of a change in the parts, and `baseline` of the beginning,
    `copying` of as many records into one file.
    """

    db: Database
    address: str
    directory: Path
    server: Path | None
    records: int
    parts: int
    moments: list[MomentSummary] = field(default_factory=list)
    writing: list[float] = field(default_factory=list)
    reading: list[float] = field(default_factory=list)
    following: list[float] = field(default_factory=list)
    baseline: float = 0.0
    copying: float = 0.0

    def live(self) -> None:
        self._begin()
        for part in range(self.parts):
            self._go_on(part)
        self.copy()

    @property
    def changes(self) -> int:
        return len(self.moments) * self.records // 4

    @property
    def current(self) -> Path:
        """The records as they are after the last part, in one file."""
        return self.directory.with_suffix(".parquet")

    def copy(self) -> None:
        reader = self.db.table("people").to_arrow()
        with parquet.ParquetWriter(self.current, reader.schema, compression="zstd") as writer:
            for batch in reader:
                writer.write_batch(batch)

    def _begin(self) -> None:
        db = self.db
        db.admin.set_setting("change_log", "on")
        db.admin.set_setting("history_store_flush_changes", str(self.records // 2))
        db.table("people").insert_many(make_people(0, self.records))
        db.history.start(self.directory)
        self.copy()  # who reads rows first that were just inserted marks them as visible
        self.baseline = spend(self.server, db.history.flush).processor
        self.copying = spend(self.server, self.copy).processor

    def _go_on(self, part: int) -> None:
        db, count = self.db, self.records // 4
        since = db.change_log.end()
        numbers = range(part % 4, self.records, 4)
        write = partial(change, db, numbers, f"part {part}")
        self.writing.append(spend(self.server, write).processor / count)
        self.moments.append(next(db.moments()))
        if part % READ_EACH == 0:
            read = partial(_read, db, since)
            self.reading.append(spend(self.server, read).processor / count)
        self.following.append(spend(self.server, db.history.flush).processor / count)

    def list_files(self) -> list[Path]:
        """Those that others have replaced are no longer of the store."""
        with self.db._session.reading() as connection:
            store = read_store(connection, self.db._catalog.tenant)
            assert store is not None
            return [self.directory / file.path for file in list_history_files(connection, store)]

    def measure_logged(self) -> float:
        """The mean bytes of a change's key and records in the log."""
        engine = sa.create_engine(self.address)
        with engine.connect() as connection:
            statement = (
                "SELECT avg(length(key) + coalesce(length(before), 0) + coalesce(length(after), 0))"
                " FROM zapdb_changes WHERE event IS NULL"
            )
            (logged,) = connection.execute(sa.text(statement)).one()
        engine.dispose()
        return float(logged)

    def mean_of_last(self, seconds: list[float]) -> float:
        """Of the last parts, up to a tenth of a long history."""
        return mean(seconds[-max(4, len(seconds) // 10) :])


def change(db: Database, numbers: Iterable[int], city: str) -> None:
    """Change records, some in each transaction."""
    left = iter(numbers)
    people = db.table("people")
    while some := list(itertools.islice(left, 100)):
        assert people.where(people.f.id.in_(some)).update(city=city) == len(some)


def _read(db: Database, since: Bookmark) -> None:
    for _ in db.change_log.read(since):
        pass
