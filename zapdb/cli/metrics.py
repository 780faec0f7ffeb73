"""`zapdb metrics`: the state of a database for Prometheus."""

from __future__ import annotations

from typing import Annotated

import typer

from zapdb.cli.configuration import DatabaseOption, TenantOption
from zapdb.cli.opening import opened
from zapdb.database.metrics import render


def metrics(
    no_counts: Annotated[
        bool, typer.Option("--no-counts", help="Leave out what all records are read for.")
    ] = False,
    database: DatabaseOption = None,
    tenant: TenantOption = None,
) -> None:
    """Print positions, stale records, indexes, processes, leases and jobs as Prometheus text.

    Once; for a file that the node exporter's textfile collector reads, or to look at. What single
    processes count (waits for the gate, conflicts, converted records) they tell themselves, with
    `db.metrics()`.
    """
    with opened(database, tenant) as (storage, view):
        text = render(storage, view, count_records=not no_counts)
    print(text, end="", flush=True)
