"""`zapdb metrics`: the state of a database in Prometheus's text format."""

from __future__ import annotations

from typing import Annotated

import typer

from zapdb.cli.connecting import TenantOptions
from zapdb.cli.output import Output
from zapdb.database.metrics_text import read_gauges, render_metrics


def metrics_command(
    options: TenantOptions,
    output: Output,
    no_counts: Annotated[
        bool,
        typer.Option("--no-counts", help="Leave out counts of records, which read all records."),
    ] = False,
) -> None:
    """Print positions, stale records, indexes, processes, leases and jobs as Prometheus text.

    Prints them once, such as for the node exporter's textfile collector. Each process has its own
    counters (waits for the gate, conflicts, converted records): `db.admin.metrics()` returns them.

    With `--json`: `{metrics: [{name, labels, value}]}`; `labels` maps a label to its value.
    """
    with options.opened() as (storage, catalog):
        if not output.as_json:
            text = render_metrics(storage, catalog, count_records=not no_counts)
            print(text, end="", flush=True)
            return
        gauges = read_gauges(storage, catalog, count_records=not no_counts)
    found = [
        {
            "name": gauge.name,
            "labels": dict(zip(gauge.labels, labels, strict=True)),
            "value": value,
        }
        for gauge in gauges
        for labels, value in gauge.samples
    ]
    output.document({"metrics": found})
