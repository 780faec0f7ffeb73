"""`zapdb catalog calls`: what services were called for."""

from __future__ import annotations

from typing import Annotated

import typer

from zapdb.cli.configuration import AllTenantsOption, LimitOption
from zapdb.cli.connecting import ServedTenantOptions
from zapdb.cli.output import Output
from zapdb.control import catalog
from zapdb.errors import UsageError


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
    all_tenants: AllTenantsOption = False,
) -> None:
    """Show what `zapdb serve` was called for, newest first: calls that changed something, that read
    records, and those that were refused to a known principal. With `--all-tenants`, also those for
    tenants that there are not, and on paths that no method has.

    With `--json`, an object a line: `{called_at, principal, method, tenant, tables, status,
    duration_us}`; `status` is that of gRPC.
    """
    if all_tenants and options.tenant is not None:
        raise UsageError("--tenant and --all-tenants contradict each other", hint="give one")
    with options.control() as control:
        found = list(control.call(catalog.list_calls, since, principal, limit, all_tenants))
    output.table(
        ("called", "principal", *(["tenant"] * all_tenants), "method", "tables", "status", "ms"),
        [
            (
                f"{call.called_at:%Y-%m-%d %H:%M:%S}",
                call.principal,
                *([call.tenant] * all_tenants),
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
