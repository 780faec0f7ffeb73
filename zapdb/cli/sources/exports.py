"""Directories of `zapdb export`: a whole tenant, loaded into an empty database and verified."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from zapdb.cli.configuration import find_database, find_tenant_name
from zapdb.cli.output import Output, format_count
from zapdb.cli.progress_counter import ProgressCounter
from zapdb.cli.sources.base import ImportRequest, SourceKind
from zapdb.cli.undivided import tell_wait
from zapdb.errors import UsageError
from zapdb.export.all_tenants import is_of_all_tenants, load_all_tenants
from zapdb.export.loading import Loaded, load_export


class ExportKind(SourceKind):
    """A directory."""

    name = "export"

    def takes(self, request: ImportRequest) -> bool:
        return Path(request.source).is_dir()

    def run(self, request: ImportRequest, output: Output) -> int:
        _refuse_options(request)
        return load_exported(request, output, "imported")


def load_exported(request: ImportRequest, output: Output, done: str) -> int:
    """Load an export of a tenant, or of all; `done` says what that is called. Returns the exit
    status."""
    if is_of_all_tenants(request.source):
        return _load_all(request, output, done)
    address, tenant = find_database(request.database), find_tenant_name(request.tenant)
    with ProgressCounter() as counter:
        loaded = load_export(
            request.source, address, tenant=tenant, progress=counter.add, on_wait=tell_wait
        )
    records = format_count(sum(loaded.records.values()), "record")
    tables = format_count(len(loaded.records), "table")
    of = "" if loaded.moment is None else f" as of moment #{loaded.moment}"
    there = _describe_there([loaded])
    output.write(
        (f"{done} ", "green"),
        f"{records} of {tables}{of}{there}; counts and digests are those of the export, "
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


def _load_all(request: ImportRequest, output: Output, done: str) -> int:
    if request.tenant is not None:
        raise UsageError(
            "the export is of several tenants, each of which is loaded under its name",
            source=request.shown_source,
            hint=f"leave --tenant out, or import one of them: {request.source}/tenants/0001",
        )
    address = find_database(request.database)
    with ProgressCounter() as counter:
        loaded = load_all_tenants(request.source, address, progress=counter.add, on_wait=tell_wait)
    count = sum(sum(one.records.values()) for one in loaded.values())
    output.write(
        (f"{done} ", "green"),
        f"{format_count(count, 'record')} of {format_count(len(loaded), 'tenant')}"
        f"{_describe_there(loaded.values())}; counts and digests are those of the export, "
        "and verification found no problem",
    )
    tenants = {
        name: {"position": one.position, "inserted": one.inserted, "tables": one.records}
        for name, one in loaded.items()
    }
    output.document({"source": request.shown_source, "tenants": tenants})
    return 0


def _describe_there(loaded: Iterable[Loaded]) -> str:
    """How many records an earlier run had inserted, if there were any."""
    there = sum(sum(one.records.values()) - one.inserted for one in loaded)
    return f" ({there:,} were there already)" if there else ""


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
