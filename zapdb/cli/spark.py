"""`zapdb spark package`: what the executors of a Spark cluster need of zapdb."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from zapdb.cli.output import Output
from zapdb.errors import MissingExtra, UsageError

SUFFIX = ".zip"


def spark_package_command(
    archive: Annotated[
        Path, typer.Argument(metavar="FILE.zip", help="The archive; an older one is replaced.")
    ],
    output: Output,
) -> None:
    """Write zapdb's code to an archive for `spark-submit --py-files`, and beside it FILE_main.py,
    the command line for spark-submit.

    The packages that zapdb needs must be installed on the machines of the cluster.

    With `--json`: `{archive, entry, size_bytes}`.
    """
    if archive.suffix != SUFFIX:
        raise UsageError(
            "the archive is a zip file, and Spark tells that by its name",
            file=archive,
            hint=f"give {archive.with_suffix(SUFFIX)}",
        )
    try:
        from zapdb.spark.package import write_package
    except ModuleNotFoundError as missing:
        raise MissingExtra.named(
            "spark", (missing.name or "pyspark").partition(".")[0]
        ) from missing
    entry = write_package(archive)
    output.write(("written", "green"), f": {archive}, {entry}")
    output.write("run it on a cluster, with the arguments of `zapdb`:")
    output.write(
        f"  spark-submit --master spark://HOST:PORT --py-files {archive} {entry}"
        " convert run --engine spark --database URL"
    )
    size = archive.stat().st_size
    output.document({"archive": str(archive), "entry": str(entry), "size_bytes": size})
