"""`zapdb catalog calls`: what services were called for."""

from __future__ import annotations

from typing import Annotated

import typer

from zapdb.cli.configuration import LimitOption
from zapdb.cli.connecting import ServedTenantOptions
from zapdb.cli.output import Output
from zapdb.control import catalog


def catalog_calls_command(
    options: ServedTenantOptions,
    output: Output,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="DURATION", help="Only calls since then, such as 7d."),
    ] = None,
    principal: Annotated[
        str | None, typer.Option("--principal", help="Only calls by this principal.")
    ] = None,
    limit: LimitOption = 100,
) -> None:
    """Show what `zapdb serve` was called for, newest first: calls that changed something, that read
    records, and those that were refused to a known principal.

    With `--json`, an object a line: `{called_at, principal, method, tenant, tables, status,
    duration_us}`; `status` is that of gRPC.
    """
    with options.control() as control:
        found = list(control.call(catalog.list_calls, since, principal, limit))
    output.table(
        ("called", "principal", "method", "tables", "status", "ms"),
        [
            (
                f"{call.called_at:%Y-%m-%d %H:%M:%S}",
                call.principal,
                call.method,
                ", ".join(call.tables),
                call.status,
                f"{call.duration_us / 1000:,.1f}",
            )
            for call in found
        ],
        right=("ms",),
    )
    output.lines(found)
