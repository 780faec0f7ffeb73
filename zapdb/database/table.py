"""Tables as applications see them, with all that belongs to them: imports, and what was."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import tzinfo
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from zapdb.errors import UsageError
from zapdb.imports import ImportMode, SkippedRow
from zapdb.imports.checkpoint import Checkpoint, forget_all
from zapdb.imports.file_formats import FormatName, find_format
from zapdb.imports.given_file import GivenFile
from zapdb.imports.importer import Importer, ImportReport, SkippedList
from zapdb.jobs.exclusive import is_noted, noted_as_job
from zapdb.past.reading.versions import Version, list_record_versions
from zapdb.tables.queries.page import R
from zapdb.tables.writable_table import WritableTable


class Table(WritableTable[R]):
    """The records of one table.

    Every operation outside `db.transaction()` is a transaction of its own, which is retried after
    conflicts.
    """

    def history(self, /, *key: Any, **named: Any) -> list[Version]:
        """Return the versions of the record with this key, oldest first: what each transaction of
        the change log made of it, by whom and when. Empty if the log has nothing of it; raises
        `HistoryGap` if that is because the log is off for the table.

        Those of dropped tables that had the table's name come first, each up to a `drop`; one whose
        key can't have these values is left out. `db.versions` tells those of a table that is gone.

        What was pruned from the log is told by the files of the history store, where these begin,
        as a `baseline`. Raises `HistoryDamaged` and `HistoryUnreachable` if they can't be read.
        """
        return list_record_versions(self, key, named)

    def import_from(
        self,
        data: Any,
        *,
        columns: Mapping[str, str] | None = None,
        mode: ImportMode = "append",
        time_zone: tzinfo | None = None,
        skipped: list[SkippedRow] | None = None,
    ) -> ImportReport:
        """Insert the rows of a pandas or polars frame, or of Arrow data; `upsert` updates records
        whose keys exist.

        A column is the field of the same name, or what `columns` says: `{"US Gross": "us_gross",
        "Notes": ""}` also leaves one out. Values may have other types that mean the same: `12.0` is
        an integer, and pandas' NaN is a null in an optional field. Times without a zone are those
        of `time_zone`; without it they are refused.

        Batches are committed one by one; inside `db.transaction()` all belong to it. The first
        wrong row raises its error, with its number from 1, and nothing of its batch is written;
        with a list for `skipped`, wrong rows are added to it instead. What takes more than one
        batch is a job of `db.jobs` meanwhile. Needs the extra `sql`.
        """
        from zapdb.imports.arrow_rows import import_data

        kept = None if skipped is None else SkippedList(skipped)
        importer = Importer(self._session, self, mode, skipped=kept)
        return import_data(importer, data, columns or {}, time_zone)

    def import_file(
        self,
        path: str | PathLike[str],
        *,
        format: FormatName | None = None,
        columns: Mapping[str, str] | None = None,
        mode: ImportMode = "append",
        time_zone: tzinfo | None = None,
        encoding: str | None = None,
        delimiter: str = ",",
        null: str | None = None,
        batch_records: int | None = None,
        skipped: list[SkippedRow] | None = None,
        from_start: bool = False,
    ) -> ImportReport:
        """Insert the rows of a CSV, NDJSON, JSON, Parquet or Arrow file, as `zapdb import` does;
        `upsert` updates records whose keys exist.

        `columns` is as for `import_from`. In CSV, `null` is the text that is a null, and `encoding`
        is that of a text which is not UTF-8. The file's name says its format, or `format` does.

        The import is a job of `db.jobs`. Batches are committed one by one, with how far the import
        has come: called again after an error, a cancellation or a crash, it goes on behind the
        last one, unless `from_start` is given. Inside `db.transaction()` all batches belong to it,
        and the import is no job. The first wrong row raises its error, with file and line; with a
        list for `skipped`, wrong rows are added to it instead.

        Raises `LeaseHeld` while another process imports the same file into the same table,
        `JobError` if the job is cancelled, and `UsageError` if the part that was imported has
        changed since.
        """
        given = GivenFile(fspath(path), columns or {}, mode, encoding, delimiter, null, time_zone)
        kept = None if skipped is None else SkippedList(skipped)
        importer = Importer(self._session, self, mode, batch_records, kept, anew=from_start)
        return _run_file_import(importer, given, format)


def _run_file_import(importer: Importer, given: GivenFile, form: FormatName | None) -> ImportReport:
    """Import a file, as a job which is gone on with after a crash; in a transaction, all of it
    belongs to that."""
    if not given.is_stdin and not Path(given.path).exists():
        raise UsageError(
            "there is no such file", source=given.path, hint="give the path of a file of rows"
        )
    schema = importer.table._current().adapter.schema
    source = find_format(given, form).open(given, schema)
    importer.resumable = is_noted(importer.session)
    place, kept = os.path.realpath(given.path), list[Checkpoint]()
    with noted_as_job(importer.session, "import", place, (schema.number, schema.name)) as job:
        importer.pace = job
        report = importer.run_and_keep(source, kept)
    forget_all(kept)
    return report
