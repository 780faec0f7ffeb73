"""Directories of `zapdb export`: a whole tenant, loaded into an empty database and verified."""

from __future__ import annotations

from pathlib import Path

from zapdb.cli.configuration import find_database, find_tenant_name
from zapdb.cli.output import Output, format_count
from zapdb.cli.progress_counter import ProgressCounter
from zapdb.cli.sources.base import ImportRequest, SourceKind
from zapdb.errors import UsageError


class ExportKind(SourceKind):
    """A directory."""

    name = "export"

    def takes(self, request: ImportRequest) -> bool:
        return Path(request.source).is_dir()

    def run(self, request: ImportRequest, output: Output) -> int:
        _refuse_options(request)
        from zapdb.export.loading import load_export

        address, tenant = find_database(request.database), find_tenant_name(request.tenant)
        with ProgressCounter() as counter:
            loaded = load_export(request.source, address, tenant=tenant, progress=counter.add)
        records = format_count(sum(loaded.records.values()), "record")
        tables = format_count(len(loaded.records), "table")
        output.write(
            ("imported ", "green"),
            f"{records} of {tables}; counts and digests are those of the export, "
            "and verification found no problem",
        )
        output.document(
            {
                "source": request.shown_source,
                "position": loaded.position,
                "inserted": loaded.inserted,
                "tables": loaded.records,
            }
        )
        return 0


def _refuse_options(request: ImportRequest) -> None:
    """A whole tenant is loaded as it was, or not at all."""
    given = {
        "--table": request.table is not None,
        "--map": bool(request.mapping),
        "--mode": request.mode != "append",
        "--on-error": request.on_error != "stop",
        "--batch": request.batch is not None,
        "--atomic": request.atomic,
        "--from-start": request.from_start,
    }
    for option, is_given in given.items():
        if is_given:
            raise UsageError(
                "the option is for files of rows, and an export is loaded as a whole",
                option=option,
                source=request.shown_source,
                hint=f"leave {option} out, or import one file: {request.source}/tables/…",
            )
