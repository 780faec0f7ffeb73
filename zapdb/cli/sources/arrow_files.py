"""Parquet and Arrow files (Feather, IPC files and streams); they need the extra `sql`."""

from __future__ import annotations

from zapdb.cli.output import Output
from zapdb.cli.sources.base import FileKind, ImportRequest
from zapdb.cli.sources.inferring import name_of_table, one_table, write_migration
from zapdb.inference.files import infer_arrow


class ParquetKind(FileKind):
    name = "parquet"

    def infer(self, request: ImportRequest, output: Output) -> int:
        from zapdb.database.imports.arrow_rows import open_arrow_file

        schema = open_arrow_file(request.source).schema
        table = infer_arrow(name_of_table(request.source, request.table), schema)
        write_migration(one_table(request.shown_source, table), request.migrations, output)
        return 0


class ArrowKind(ParquetKind):
    name = "arrow"
