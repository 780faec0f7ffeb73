"""Parquet and Arrow files (Feather, IPC files and streams); they need the extra `sql`."""

from __future__ import annotations

from typing import ClassVar

from zapdb.cli.output import Output
from zapdb.cli.sources.base import FileKind, ImportRequest, coercion_of
from zapdb.cli.sources.inferring import name_of_table, one_table, write_migration
from zapdb.database.imports import RowSource
from zapdb.errors import UsageError
from zapdb.inference.files import infer_arrow
from zapdb.schema import TableSchema


class ParquetKind(FileKind):
    name = "parquet"
    suffixes: ClassVar[tuple[str, ...]] = (".parquet", ".pq")

    def open(self, request: ImportRequest, target: TableSchema) -> RowSource:
        from zapdb.database.imports.arrow_rows import ArrowFileSource

        if request.is_stdin:
            raise UsageError(
                "Parquet and Arrow cannot be read from standard input",
                hint="write them to a file and give its path",
            )
        return ArrowFileSource(
            request.source, target, request.mapping or {}, coercion_of(request), request.mode
        )

    def infer(self, request: ImportRequest, output: Output) -> int:
        from zapdb.database.imports.arrow_rows import open_arrow_file

        schema = open_arrow_file(request.source).schema
        table = infer_arrow(name_of_table(request.source, request.table), schema)
        write_migration(one_table(request.shown_source, table), request.migrations, output)
        return 0


class ArrowKind(ParquetKind):
    name = "arrow"
    suffixes = (".arrow", ".feather", ".ipc", ".arrows")
