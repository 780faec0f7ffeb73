"""`zapdb reindex`: rebuilding indexes, and the datasets that they were built with."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from zapdb.activation import IndexDescriptor, TableDescriptor
from zapdb.activation.datasets import needs_rebuilding
from zapdb.catalog.feed import read_seq
from zapdb.catalog.settings import Settings
from zapdb.catalog.stored_settings import read_settings
from zapdb.cli.connecting import TenantOptions
from zapdb.cli.job_engine import Engine
from zapdb.cli.job_progress import JobRun, run_jobs
from zapdb.cli.output import Output
from zapdb.datasets import dataset_of
from zapdb.errors import EXIT_ERROR, EXIT_PENDING
from zapdb.jobs.index_rebuilding import plan_reindexing
from zapdb.storage import TransactionMode

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


def reindex_status_command(options: TenantOptions, output: Output) -> int:
    """Show each index's state, its datasets, and the policy for when they change.

    Exit status 3 if a process with this process's data can't read an index.

    With `--json`: `{pending, indexes: [{table, index, state, policy, matches, built_with,
    this_process}]}`:
    `policy` is the setting `on_dataset_change`; `built_with` and `this_process` map the names of
    datasets to versions.
    """
    with options.opened() as (storage, catalog):
        with storage.transaction(TransactionMode.READ) as connection:
            settings = read_settings(connection, catalog.tenant)
        found = [
            _describe(settings, descriptor, index)
            for descriptor in catalog.tables.values()
            for index in descriptor.indexes
        ]
    output.table(
        ("table", "index", "state", "policy", "built with", "this process"),
        [
            (
                one["table"],
                one["index"],
                (
                    one["state"],
                    "green" if one["state"] == "readable" and one["matches"] else "yellow",
                ),
                one["policy"] or "-",
                _show(one["built_with"]),
                _show(one["this_process"]),
            )
            for one in found
        ],
        empty="no indexes",
    )
    is_pending = any(one["state"] != "readable" or not one["matches"] for one in found)
    output.document({"pending": is_pending, "indexes": found})
    return EXIT_PENDING if is_pending else 0


def _describe(
    settings: Settings, descriptor: TableDescriptor, index: IndexDescriptor
) -> dict[str, Any]:
    here = [dataset_of(dependency) for dependency in index.dependencies]
    policy = settings.dataset_policy(descriptor.schema, index.index) if here else None
    return {
        "table": descriptor.schema.name,
        "index": index.index.name,
        "state": index.state,
        "policy": policy,
        "matches": not needs_rebuilding(index),
        "built_with": {
            one.name: index.built_with[one.name].version
            for one in here
            if one.name in index.built_with
        },
        "this_process": {one.name: one.version for one in here},
    }


def _show(versions: dict[str, str]) -> str:
    return "; ".join(dict.fromkeys(versions.values())) or "-"
