"""`zapdb migrate status`: the files beside what the database stores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from zapdb.activation.inspection import MigrationPhase
from zapdb.cli.configuration import AllTenantsOption, MigrationsOption, find_migrations
from zapdb.cli.connecting import ServedTenantOptions
from zapdb.cli.output import Output, format_count, report_error
from zapdb.control.migrations.comparing import KeptStatus, Status, TenantPositions, status
from zapdb.errors import EXIT_ERROR, EXIT_PENDING

_STYLES: Final[dict[MigrationPhase, str]] = {
    "applied": "green",
    "pending": "yellow",
    "stored-only": "cyan",
    "conflict": "bold red",
}
BEHIND_SHOWN_MAX: Final = 20


def migrate_status_command(
    options: ServedTenantOptions,
    output: Output,
    migrations: MigrationsOption = None,
    all_tenants: AllTenantsOption = False,
) -> int:
    """Compare the files with what the database stores.

    Each migration is `applied`; `pending`: not active yet; `stored-only`: stored in the database,
    and beyond the end of the files; or in `conflict`: the file differs from the stored migration.
    Exit status 3 if a migration is pending, 1 if there is a conflict. With `--all-tenants`, also
    shows how many tenants are at each position, and which are behind.

    Migrations that were rolled back and are kept are listed with the processes that are served
    their schemas.

    With `--json`: `{position, pending, is_due, migrations: [{number, name, state}], kept: [{number,
    label, digest, rolled_back_at, rolled_back_by, processes: [PROCESS]}], all_tenants}`. `pending`
    is a count; a tenant that `is_due` still has to follow a rollback; `all_tenants` is null without
    `--all-tenants`, else `{tenants, positions: {POSITION: COUNT}, behind: [{tenant, position}]}`.
    """
    directory = find_migrations(migrations)
    with options.control() as control:
        found = control.call(status, directory, all_tenants)
    output.table(
        ("number", "name", "state"),
        [(f"{m.number:04d}", m.name, (m.state, _STYLES[m.state])) for m in found.migrations],
    )
    if found.is_due:
        output.write()
        output.write(
            f"{found.position:04d} was rolled back, and is active for this tenant until it "
            "follows: run `zapdb migrate up`"
        )
    if found.kept:
        output.write()
        write_kept(found.kept, output)
    if found.all_tenants is not None:
        _write_all_tenants(found.all_tenants, output)
    output.document(found)
    is_behind = found.all_tenants is not None and found.all_tenants.behind
    is_pending = found.pending or found.is_due or is_behind
    return _report_conflicts(found, as_json=output.as_json) or (EXIT_PENDING if is_pending else 0)


def _write_all_tenants(found: TenantPositions, output: Output) -> None:
    output.write()
    output.write(format_count(found.tenants, "tenant"))
    for position, count in found.positions.items():
        output.write(
            f"  {count:,} at {position:04d}" + ("" if position < found.end else ", the newest")
        )
    shown = [one.tenant for one in found.behind[:BEHIND_SHOWN_MAX]]
    if shown:
        more = " …" if len(found.behind) > len(shown) else ""
        output.write(f"behind: {', '.join(shown)}{more}")


def write_kept(kept: Sequence[KeptStatus], output: Output) -> None:
    """Show what was rolled back and is kept, and for whom."""
    for one in kept:
        when = f"{one.rolled_back_at:%Y-%m-%d %H:%M:%S} UTC by {one.rolled_back_by}"
        output.write((one.label, "bold"), f": rolled back {when}, and kept")
        for process in one.processes:
            output.write(f"  {process} is served its schema")


def _report_conflicts(found: Status, *, as_json: bool) -> int:
    conflicts = [one.conflict for one in found.migrations if one.conflict is not None]
    for conflict in conflicts:
        report_error(conflict, as_json=as_json)
    return EXIT_ERROR if conflicts else 0
