"""`zapdb reindex`: rebuilding indexes, and the datasets that they were built with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from zapdb.catalog.feed import read_seq
from zapdb.cli.connecting import ServedTenantOptions, TenantOptions
from zapdb.cli.job_engine import Engine
from zapdb.cli.job_progress import run_jobs
from zapdb.cli.output import Output
from zapdb.control.job_runs import JobRun
from zapdb.control.jobs import showing
from zapdb.errors import EXIT_ERROR, EXIT_PENDING
from zapdb.jobs.index_rebuilding import plan_reindexing

TableOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Only indexes of this table.")
]
IndexOption = Annotated[
    str | None, typer.Option(metavar="NAME", help="Only this index of the table.")
]


def reindex_run_command(
    options: TenantOptions,
    engine: Engine,
    output: Output,
    table: TableOption = None,
    index: IndexOption = None,
) -> int:
    """Rebuild indexes with this process's collation and time zone data.

    By default, rebuilds disabled indexes and those that were built with other data. An index that
    is given by --table or --index is always rebuilt. Refused while running processes, or executors
    of Spark, have other data. If it is interrupted, `zapdb convert run` continues. Exit status 1 if
    records violate a unique index, 3 if a job is paused, cancelled or outside its window.

    With `--json`: `{indexes: [{table, index}], jobs, seq}`, with the jobs as in `convert run`.
    """
    runs: list[JobRun] = []
    with (
        engine.runner() as runner,
        options.opened() as (storage, catalog),
    ):
        planned = plan_reindexing(storage, catalog, table, index)
        run_jobs(storage, planned.catalog, planned.jobs, runner, output, runs.append)
        seq = read_seq(storage.connection())
    if not planned.indexes:
        output.write(
            "nothing to do: every index matches this process's collation and time zone data"
        )
    output.document(
        {
            "indexes": [
                {"table": s.schema.name, "index": i.index.name} for s, i in planned.indexes
            ],
            "jobs": [one.to_json() for one in runs],
            "seq": seq,
        }
    )
    if any(one.job.state == "blocked" for one in runs):
        return EXIT_ERROR
    return EXIT_PENDING if any(one.hold for one in runs) else 0


def reindex_status_command(options: ServedTenantOptions, output: Output) -> int:
    """Show each index's state, its datasets, and the policy for when they change.

    Exit status 3 if a process with this process's data can't read an index.

    With `--json`: `{pending, indexes: [{table, index, state, policy, matches, built_with,
    this_process}]}`:
    `policy` is the setting `on_dataset_change`; `built_with` and `this_process` map the names of
    datasets to versions.
    """
    with options.control() as control:
        found = control.call(showing.get_reindex_status)
    output.table(
        ("table", "index", "state", "policy", "built with", "this process"),
        [
            (
                one.table,
                one.index,
                (one.state, "green" if one.state == "readable" and one.matches else "yellow"),
                one.policy or "-",
                _show(one.built_with),
                _show(one.this_process),
            )
            for one in found.indexes
        ],
        empty="no indexes",
    )
    output.document(found)
    return EXIT_PENDING if found.pending else 0


def _show(versions: Mapping[str, str]) -> str:
    return "; ".join(dict.fromkeys(versions.values())) or "-"
