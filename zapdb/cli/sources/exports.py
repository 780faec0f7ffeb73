"""Directories of `zapdb export`: a whole tenant, loaded into an empty database and verified."""

from __future__ import annotations

from collections.abc import Iterable

from zapdb.cli.exclusive_jobs import tell_wait
from zapdb.cli.export import note_left_out
from zapdb.cli.output import Output, format_count
from zapdb.cli.progress_counter import ProgressCounter
from zapdb.cli.sources.request import ImportRequest
from zapdb.errors import UsageError
from zapdb.transfer.export.all_tenants_export import is_of_all_tenants, load_all_tenants
from zapdb.transfer.export.export_loading import Loaded, load_export


def import_export(request: ImportRequest, output: Output) -> int:
    """Load a directory of `zapdb export`, as it was or not at all; returns the exit status."""
    of_rows = ("--table", "--map", "--mode", "--on-error", "--batch", "--atomic", "--from-start")
    for option in request.list_given(*of_rows):
        raise UsageError(
            "the option is for files of rows, and an export is loaded as a whole",
            option=option,
            source=request.shown_source,
            hint=f"leave {option} out, or import one file: {request.source}/tables/…",
        )
    return load_exported(request, output, "imported")


def load_exported(request: ImportRequest, output: Output, done: str) -> int:
    """Load an export of a tenant, or of all; `done` says what that is called. Returns the exit
    status."""
    if is_of_all_tenants(request.source):
        return _load_all(request, output, done)
    with ProgressCounter() as counter:
        loaded = load_export(
            request.source,
            request.address,
            tenant=request.tenant_name,
            progress=counter.add,
            on_wait=tell_wait,
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
    note_left_out([loaded])
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
    with ProgressCounter() as counter:
        loaded = load_all_tenants(
            request.source, request.address, progress=counter.add, on_wait=tell_wait
        )
    count = sum(sum(one.records.values()) for one in loaded.values())
    output.write(
        (f"{done} ", "green"),
        f"{format_count(count, 'record')} of {format_count(len(loaded), 'tenant')}"
        f"{_describe_there(loaded.values())}; counts and digests are those of the export, "
        "and verification found no problem",
    )
    note_left_out(loaded.values())
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
