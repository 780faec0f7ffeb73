"""`zapdb tenant`: the tenants of a database."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any

import typer

from zapdb.activation.tenant_removal import remove_tenant
from zapdb.activation.up import find_due
from zapdb.catalog.feed import read_seq
from zapdb.catalog.row_kinds import Tenant
from zapdb.catalog.tenants import find_tenant_row, list_tenants
from zapdb.cli.connecting import DatabaseOptions
from zapdb.cli.output import Confirmation, Output, format_count, print_note
from zapdb.errors import EXIT_ERROR
from zapdb.past.files.removing import delete_store_files
from zapdb.past.files.wanted_stores import create_tenant
from zapdb.storage import TransactionMode
from zapdb.storage.cells import as_time

NameArgument = Annotated[str, typer.Argument(help="The tenant's name.")]


def tenant_list_command(options: DatabaseOptions, output: Output) -> None:
    """Show every tenant and its position.

    With `--json`: `{tenants: [{number, name, position, created_at, created_by, removing}]}`;
    `created_at` is in microseconds since 1970 UTC.
    """
    with (
        options.opened() as (storage, catalog),
        storage.transaction(TransactionMode.READ) as connection,
    ):
        tenants, due = list_tenants(connection), {one.number for one in find_due(connection)}
    output.table(
        ("tenant", "position", "created", "by"),
        [
            (
                (tenant.name, "bold"),
                _show_position(tenant, catalog.stored_chain.end, is_due=tenant.number in due),
                f"{as_time(tenant.created_at):%Y-%m-%d %H:%M:%S}",
                tenant.created_by,
            )
            for tenant in tenants
        ],
    )
    output.document({"tenants": [_to_json(tenant) for tenant in tenants]})


def _show_position(tenant: Tenant, end: int, *, is_due: bool) -> str:
    if tenant.removing:
        return "being removed"
    if is_due:
        return f"{tenant.position:04d} (rolled back)"
    behind = end - tenant.position
    return f"{tenant.position:04d}" + (f" ({behind:,} behind)" if behind else "")


def tenant_create_command(name: NameArgument, options: DatabaseOptions, output: Output) -> None:
    """Create a tenant. Its tables are created when it is opened, or by `migrate up --all-tenants`.

    With the setting `history_store`, its history store begins with it, or neither is made.

    With `--json`: the tenant, as `list` writes it, and `seq`; a process whose catalog cache has the
    seq sees the change.
    """
    with options.opened() as (storage, _):
        tenant = create_tenant(storage, name)
        seq = read_seq(storage.connection())
    output.write(("created ", "green"), tenant.name)
    output.document(_to_json(tenant) | {"seq": seq})


def tenant_remove_command(
    name: NameArgument, options: DatabaseOptions, confirmation: Confirmation, output: Output
) -> int:
    """Delete a tenant for good: its records, archives, logs, history files, settings and name.

    `zapdb sweep` removes its large values. Run the command again to finish a removal that was
    interrupted.

    History files stay where another database may use them: one that this is a copy of, or that was
    restored elsewhere. They are named then, and you delete them once you know that nobody needs
    them.

    With `--json`, which needs `--yes`: `{tenant, rows: {TABLE: COUNT}, seq, history_left: [PATH]}`.
    """
    with options.opened() as (storage, _):
        tenant = find_tenant_row(storage.connection(), name)
        question = f"delete the tenant {tenant.name} with all its records?"
        if not confirmation.is_given("a removal", question, output):
            return EXIT_ERROR
        removed = remove_tenant(storage, name, partial(delete_store_files, storage))
        seq = read_seq(storage.connection())
    total = sum(removed.rows.values())
    output.write(("removed ", "green"), f"{name}: {format_count(total, 'row')}")
    for path in removed.history_left:
        print_note(f"left: {path}; another database may use it, of which this one is a copy")
    document = {"tenant": name, "rows": removed.rows, "seq": seq}
    output.document(document | {"history_left": list(removed.history_left)})
    return 0


def _to_json(tenant: Tenant) -> dict[str, Any]:
    return {
        "number": tenant.number,
        "name": tenant.name,
        "position": tenant.position,
        "created_at": tenant.created_at,
        "created_by": tenant.created_by,
        "removing": tenant.removing,
    }
