"""`zapdb migrate up`: applying what is pending, for one tenant or all of them."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import Annotated

import typer

from zapdb.cli.configuration import AllTenantsOption, MigrationsOption, find_migrations
from zapdb.cli.connecting import KeyedTenantOptions
from zapdb.cli.job_bar import closing_answers, progress_bar, showing_looks
from zapdb.cli.job_progress import write_outcome
from zapdb.cli.output import Output, format_count, print_note, report_error
from zapdb.control.job_runs import JobLook, JobOutcome
from zapdb.control.migrations.applying import (
    Applied,
    TenantFailure,
    TenantsMigrated,
    TenantsUp,
    Up,
    UpBegun,
    UpEvent,
    every_tenant_to_the_end,
    up,
)
from zapdb.errors import EXIT_ERROR
from zapdb.limits import UP_WAIT_SECONDS_MAX

FAILED_SHOWN_MAX = 10


def migrate_up_command(
    options: KeyedTenantOptions,
    output: Output,
    migrations: MigrationsOption = None,
    all_tenants: AllTenantsOption = False,
    to: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Stop after this number.")
    ] = None,
    wait: Annotated[
        float,
        typer.Option(
            min=0,
            max=UP_WAIT_SECONDS_MAX,
            metavar="SECONDS",
            help="How long to wait for running processes, if a migration is activated only "
            "when all of them have its file.",
        ),
    ] = 0,
    no_build: Annotated[
        bool, typer.Option("--no-build", help="Leave new indexes to `zapdb convert run`.")
    ] = False,
    again: Annotated[
        bool, typer.Option("--again", help="Apply migrations that were rolled back, too.")
    ] = False,
) -> int:
    """Apply the pending migrations, then build their indexes.

    Creates the database if it does not exist. A migration that was rolled back is applied again
    only with `--again`: pipelines run this command in the middle of an incident, too. If it is
    still kept, it is the one that it was, and its values come back. All files are checked, and
    their rollbacks proven, before anything is changed. Exit status 1 if records violate a unique
    index: it binds new writes, and `zapdb convert run` finishes it after they are corrected; 3 if a
    migration is stored, but waits for running processes, or was rolled back.

    With `--all-tenants`, every other tenant is then migrated to the stored end; without it, a
    tenant is migrated when it is opened.

    With `--json`: `{position, applied: [{number, label, active, tables, milliseconds}], built:
    [{id, kind, table, target, superseded, read, written, conflicts, seconds, records_per_second}],
    all_tenants, seq}`; `all_tenants` is null without `--all-tenants`, else `{migrated, failed:
    [{tenant, position, error}]}`. A process whose catalog cache has the seq sees the change.
    """
    if all_tenants and (options.tenant is not None or to is not None):
        raise every_tenant_to_the_end()
    directory = find_migrations(migrations)
    with options.control() as control, _Shown(output) as shown:
        asked = control.call(up, directory, to, all_tenants, wait, no_build, again=again)
        with closing_answers(asked) as events:
            for event in events:
                shown.show(event)
    done = shown.done
    newest = done.newest or "none"
    if done.applied:
        output.write(f"{format_count(len(done.applied), 'migration')} applied; now at {newest}")
    else:
        output.write(f"nothing to apply: the database is at {newest}")
    output.document(done)
    failed = () if done.all_tenants is None else done.all_tenants.failed
    if not output.as_json:
        _report_failed(failed)
    statuses = {one.error.exit_status for one in failed}
    if EXIT_ERROR in statuses or any(one.findings for one in done.built):
        return EXIT_ERROR
    return max(statuses, default=0)


class _Shown:
    """What one run of the command shows, while it is done; a block, which if it fails writes what
    was done until then."""

    def __init__(self, output: Output) -> None:
        self._answer: Up | None = None
        self._output = output
        self._width = 0
        self._applied: list[Applied] = []
        self._built: list[JobOutcome] = []
        self._others: TenantsUp | None = None
        self._bar = ExitStack()
        self._job: str | None = None

    def __enter__(self) -> _Shown:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._bar.close()
        if kind is None:
            return
        if self._job is not None and issubclass(kind, KeyboardInterrupt):
            print_note("nothing is lost: `zapdb convert run` continues where this stopped")
        if self._applied:
            newest = self._applied[-1]
            applied, built = tuple(self._applied), tuple(self._built)
            done = Up(newest.number, applied, built, self._others, newest.seq, newest.label)
            self._output.document(done)

    @property
    def done(self) -> Up:
        """The answer, with the examples of records that were told before it."""
        assert self._answer is not None
        return replace(self._answer, built=tuple(self._built))

    def show(self, event: UpEvent) -> None:
        match event:
            case UpBegun(labels):
                self._width = max(map(len, labels), default=0)
            case Applied():
                self._applied.append(event)
                self._write_applied(event)
            case TenantsMigrated(done, behind):
                if not done:
                    shown = progress_bar(self._output, "migrating tenants", behind)
                    self._advance = self._bar.enter_context(shown)
                else:
                    self._advance()
            case TenantsUp(migrated):
                self._bar.close()
                self._others = event
                what = format_count(migrated, "more tenant")
                self._output.write(("migrated ", "green"), what)
            case JobLook():
                if self._job != event.id:
                    self._job = event.id
                    shown_looks = showing_looks(event.doing, self._output)
                    self._look = self._bar.enter_context(shown_looks)
                self._look(event)
            case JobOutcome():
                self._bar.close()
                self._job = None
                self._built.append(event)
                write_outcome(event, self._output)
            case Up():
                self._answer = event
                self._show_repeated(event)

    def _show_repeated(self, answer: Up) -> None:
        """Show what a repeated call did the first time: its answer comes alone."""
        if self._applied or self._built:
            return
        self._width = max((len(one.label) for one in answer.applied), default=0)
        for applied in answer.applied:
            self.show(applied)
        for outcome in answer.built:
            self.show(outcome)

    def _write_applied(self, one: Applied) -> None:
        said = ("applied ", "green") if one.active else ("stored  ", "yellow")
        self._output.write(
            said,
            f"{one.label:<{self._width}}  {', '.join(one.tables)}  ",
            (f"{one.milliseconds:.1f} ms", "dim"),
        )


def _report_failed(failed: tuple[TenantFailure, ...]) -> None:
    for one in failed[:FAILED_SHOWN_MAX]:
        print_note(f"tenant {one.tenant} is at {one.position:04d}:")
        report_error(one.error, as_json=False)
    if len(failed) > FAILED_SHOWN_MAX:
        count = format_count(len(failed) - FAILED_SHOWN_MAX, "more tenant")
        print_note(f"{count} could not be migrated: --json names all")
