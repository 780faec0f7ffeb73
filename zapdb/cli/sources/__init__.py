"""The kinds of source that `zapdb import` reads: one module for each, listed here."""

from __future__ import annotations

from typing import Final

from zapdb.cli.sources.arrow_files import ArrowKind, ParquetKind
from zapdb.cli.sources.base import ImportRequest, SourceKind
from zapdb.cli.sources.databases import DatabaseKind
from zapdb.cli.sources.exports import ExportKind
from zapdb.cli.sources.text_files import CsvKind, JsonKind, NdjsonKind
from zapdb.errors import UsageError

KINDS: Final[tuple[SourceKind, ...]] = (
    ExportKind(),
    DatabaseKind(),
    CsvKind(),
    NdjsonKind(),
    JsonKind(),
    ParquetKind(),
    ArrowKind(),
)
"""In the order in which they are asked whether a source is theirs."""


def find_kind(request: ImportRequest) -> SourceKind:
    """The kind of a source: the one that is named, or the first that takes it for its own."""
    if request.form is not None:
        for kind in KINDS:
            if kind.name == request.form:
                return kind
        raise UsageError(
            "there is no such format",
            format=request.form,
            hint=f"available: {', '.join(kind.name for kind in KINDS)}",
        )
    for kind in KINDS:
        if kind.takes(request):
            return kind
    raise UsageError(
        "the format of the source is not known",
        source=request.shown_source,
        hint=f"say it with --format: {', '.join(kind.name for kind in KINDS)}",
    )


def refuse_choice(kind: SourceKind, request: ImportRequest) -> None:
    """Raise `UsageError` for a choice of tables from what has none."""
    if (request.only or request.exclude) and not isinstance(kind, DatabaseKind):
        raise UsageError(
            "--only and --exclude choose tables of a database",
            source=request.shown_source,
            hint='leave a column of a file out with --map "COLUMN="',
        )
