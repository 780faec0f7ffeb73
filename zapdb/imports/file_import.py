"""A file that an application imports: a job, which is gone on with after a crash."""

from __future__ import annotations

import os
from pathlib import Path

from zapdb.errors import UsageError
from zapdb.imports.checkpoint import Checkpoint, forget_all
from zapdb.imports.file_formats import FormatName, find_format
from zapdb.imports.given_file import GivenFile
from zapdb.imports.importer import Importer, ImportReport
from zapdb.jobs.exclusive import is_noted, noted_as_job


def run_file_import(importer: Importer, given: GivenFile, form: FormatName | None) -> ImportReport:
    """Import a file into the importer's table; in a transaction, all of it belongs to that."""
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
