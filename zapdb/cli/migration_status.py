"""`zapdb migrate status`: the files beside what the database stores."""

from __future__ import annotations

from typing import Final

from zapdb.activation.inspection import MigrationPhase, MigrationState, list_migration_states
from zapdb.activation.up import AllTenantsStatus, read_all_tenants
from zapdb.cli.configuration import AllTenantsOption, MigrationsOption, find_migrations
from zapdb.cli.connecting import TenantOptions
from zapdb.cli.output import Output, format_count, report_error
from zapdb.errors import EXIT_ERROR, EXIT_PENDING
from zapdb.migrations import list_files

_STYLES: Final[dict[MigrationPhase, str]] = {
    "applied": "green",
    "pending": "yellow",
    "stored-only": "cyan",
    "conflict": "bold red",
}
BEHIND_SHOWN_MAX: Final = 20


def migrate_status_command(
    options: TenantOptions,
    output: Output,
    migrations: MigrationsOption = None,
    all_tenants: AllTenantsOption = False,
) -> int:
    """Compare the files with what the database stores.

    Each migration is `applied`; `pending`: not active yet; `stored-only`: stored in the database,
    and beyond the end of the files; or in `conflict`: the file differs from the stored migration.
    Exit status 3 if a migration is pending, 1 if there is a conflict. With `--all-tenants`, also
    shows how many tenants are at each position, and which are behind.

    With `--json`: `{position, pending, rolling_back, migrations: [{number, name, state}],
    all_tenants}`. `pending` is a count; `rolling_back` is the number of a migration whose rollback
    was interrupted, or null; `all_tenants` is null without `--all-tenants`, else `{tenants,
    positions: {POSITION: COUNT}, behind: [{tenant, position}]}`.
    """
    files = list_files(find_migrations(migrations))
    with options.connected() as storage:
        catalog = options.read_catalog_if_any(storage)
        status = read_all_tenants(storage) if all_tenants and catalog is not None else None
    states = list_migration_states(files, catalog)
    rolling_back = None if catalog is None else catalog.chain_state.rolling_back
    pending = sum(state.phase == "pending" for state in states)
    output.table(
        ("number", "name", "state"),
        [(f"{s.number:04d}", s.name, (s.phase, _STYLES[s.phase])) for s in states],
    )
    if rolling_back is not None:
        output.write()
        output.write(
            f"rolling back {rolling_back:04d} was interrupted: run `zapdb migrate rollback` to "
            "finish it"
        )
    if status is not None:
        _write_all_tenants(status, output)
    output.document(
        {
            "position": 0 if catalog is None else catalog.position,
            "pending": pending,
            "rolling_back": rolling_back,
            "migrations": [{"number": s.number, "name": s.name, "state": s.phase} for s in states],
            "all_tenants": status
            and {
                "tenants": status.tenants,
                "positions": status.positions,
                "behind": [{"tenant": t.name, "position": t.position} for t in status.behind],
            },
        }
    )
    is_pending = pending or rolling_back is not None or (status is not None and status.behind)
    return _report_conflicts(states, as_json=output.as_json) or (EXIT_PENDING if is_pending else 0)


def _write_all_tenants(status: AllTenantsStatus, output: Output) -> None:
    output.write()
    output.write(format_count(status.tenants, "tenant"))
    for position, count in status.positions.items():
        output.write(
            f"  {count:,} at {position:04d}" + ("" if position < status.end else ", the newest")
        )
    shown = [tenant.name for tenant in status.behind[:BEHIND_SHOWN_MAX]]
    if shown:
        more = " …" if len(status.behind) > len(shown) else ""
        output.write(f"behind: {', '.join(shown)}{more}")


def _report_conflicts(states: list[MigrationState], *, as_json: bool) -> int:
    conflicts = [state.conflict for state in states if state.conflict is not None]
    for conflict in conflicts:
        report_error(conflict, as_json=as_json)
    return EXIT_ERROR if conflicts else 0
