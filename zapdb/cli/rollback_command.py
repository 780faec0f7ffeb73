"""`zapdb migrate rollback`: the preview, the confirmation, and each step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from zapdb.cli.connecting import KeyedDatabaseOptions
from zapdb.cli.job_bar import closing_answers
from zapdb.cli.migration_status import write_kept
from zapdb.cli.output import Confirmation, Output, format_count, format_seconds
from zapdb.control.migrations.rolling_back import (
    PreviewedRollback,
    Rollback,
    RollbackEvent,
    RollbackPlan,
    forget,
    rollback,
)
from zapdb.errors import EXIT_ERROR
from zapdb.jobs.job_status import TableRollbackPreview


def migrate_rollback_command(
    options: KeyedDatabaseOptions,
    confirmation: Confirmation,
    output: Output,
    to: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="N",
            help="Roll back all migrations above this number; by default the newest one.",
        ),
    ] = None,
    evict: Annotated[
        bool,
        typer.Option("--evict", help="Evict running processes whose files contain the migration."),
    ] = False,
) -> int:
    """Roll back the newest migration.

    Rolls back every tenant for which the migration is active. Shows what is lost, and asks for
    confirmation. The stored migrations are used, not the files. It takes as long as applying does:
    records are converted back when they are read, or by `zapdb convert run`. Running processes go
    on with the schema of their files, and with tables that only these have. Where a rollback was
    interrupted before all tenants had followed, it is finished, and nothing else is done without
    `--to`.

    With `--json`, which needs `--yes`: `{position, rolled_back: [{number, label, summary, digest,
    tenants, lossy, tables: [{table, action, records, fields, indexes, built, constraints}]}],
    are_kept, milliseconds, seq}`. A process whose catalog cache has the seq sees the change.
    `tenants` is a count, and `records` a count over all these tenants. `action` is what becomes of
    the records: `deleted`, `converted`, `kept`, or `restored` with their table; `fields` and
    `indexes` are lost, and tables deleted, unless they `are_kept`: then `zapdb migrate up --again`
    brings them back, until the migration is forgotten. The indexes `built` come back and have to be
    built; `constraints` come back and have to be validated.

    With `--idempotency-key`, which needs `--yes`, what is lost is not shown before.
    """
    output = Output(output.as_json)
    if options.key is not None:
        confirmation.require("--idempotency-key")
        with options.control() as control:
            _show(control.call(rollback, to, evict), output)
        return 0
    with options.control() as control:
        (plan,) = control.call(rollback, to, evict, dry_run=True)
        assert isinstance(plan, RollbackPlan)
        if plan.due:
            tenants = format_count(plan.due, "tenant")
            output.write(f"an earlier rollback is not finished for {tenants}: this finishes it")
        elif not plan.steps:
            newest = plan.newest or "none"
            output.write(f"nothing to roll back: the newest migration is {newest}")
        for step in plan.steps:
            _write_step(step, output, is_kept=plan.are_kept)
        for process in plan.processes:
            said = "has its file, and goes on with its schema"
            if evict:
                said = "is evicted"
            output.write(f"  {process} {said}")
        if any(loss.constraints for step in plan.steps for loss in step.tables):
            output.write("which records break them: `zapdb migrate rehearse --rollback`")
        if plan.steps and not confirmation.is_given("a rollback", _ask(plan), output):
            return EXIT_ERROR
        digests = tuple(step.digest for step in plan.steps)
        _show(control.call(rollback, to, evict, digests), output, is_told=not plan.steps)
    return 0


def migrate_forget_command(
    options: KeyedDatabaseOptions,
    confirmation: Confirmation,
    output: Output,
    evict: Annotated[
        bool,
        typer.Option("--evict", help="Evict running processes that are served their schemas."),
    ] = False,
) -> int:
    """Forget migrations that were rolled back.

    A migration that was rolled back is kept while running processes have its file, and for
    `rolled_back_kept_seconds`: processes are served the schema that it leads to, and the values
    that it made stay archived. Forgotten, nobody is served it, and these values are deleted. This
    is refused while running processes are served one of them.

    With `--json`, which needs `--yes`: `{forgotten: [{number, label, digest, rolled_back_at,
    rolled_back_by, processes: [PROCESS]}], values, seq}`. `values` is how many archived values were
    deleted. A process whose catalog cache has the seq sees the change.

    With `--idempotency-key`, which needs `--yes`, nothing is shown before.
    """
    output = Output(output.as_json)
    with options.control() as control:
        if options.key is not None:
            confirmation.require("--idempotency-key")
        else:
            known = control.call(forget, evict, True)
            write_kept(known.forgotten, output)
            if not known.forgotten:
                output.write("nothing to forget: no migration that was rolled back is kept")
            elif not confirmation.is_given("forgetting", "forget them?", output):
                return EXIT_ERROR
        done = control.call(forget, evict)
    for one in done.forgotten:
        output.write(("forgot ", "green"), one.label)
    if done.values:
        output.write(f"deleted {format_count(done.values, 'archived value')}")
    output.document(done)
    return 0


def _write_step(step: PreviewedRollback, output: Output, *, is_kept: bool) -> None:
    """Print the effects of rolling back one migration, which may be kept."""
    output.write((step.label, "bold"), f": {step.summary}")
    if not step.tenants:
        output.write("  it was never active: nothing is lost")
    if step.tenants > 1:
        output.write(f"  it is active for {format_count(step.tenants, 'tenant')}")
    if step.tenants and step.lossy:
        output.write("  it is declared lossy: not every value is restored exactly")
    for loss in step.tables:
        output.write(f"  {loss.table}: {'; '.join(_describe(loss, is_kept=is_kept))}")


def _describe(loss: TableRollbackPreview, *, is_kept: bool) -> list[str]:
    records = format_count(loss.records, "record")
    if loss.action == "deleted":
        return [f"the table is {'kept' if is_kept else 'deleted'} with its {records}"]
    if loss.action == "restored":
        what = f"with {records}" if loss.records else "empty"
        return [f"the table comes back {what}", *_describe_returning(loss)]
    is_one = loss.records == 1
    said = [f"{records} {'is' if is_one else 'are'} converted back"]
    if not loss.records:
        said = ["no record changes"]
    if loss.fields:
        said.append(f"the values of {', '.join(loss.fields)} are {'kept' if is_kept else 'lost'}")
    if loss.indexes:
        said.append(f"the index {', '.join(loss.indexes)} is dropped")
    return said + _describe_returning(loss)


def _describe_returning(loss: TableRollbackPreview) -> list[str]:
    said = list[str]()
    if loss.built:
        said.append(f"queries scan until the index {', '.join(loss.built)} is built")
    if loss.constraints:
        binds = "binds" if len(loss.constraints) == 1 else "bind"
        said.append(f"{', '.join(loss.constraints)} {binds} again")
    return said


def _ask(plan: RollbackPlan) -> str:
    steps = plan.steps
    what = steps[0].label if len(steps) == 1 else f"these {len(steps)} migrations"
    return f"roll back {what}?"


def _show(asked: Iterator[RollbackEvent], output: Output, *, is_told: bool = False) -> None:
    """Write what was done; `is_told` says that it was said before if that is nothing."""
    with closing_answers(asked) as events:
        (answer,) = (event for event in events if isinstance(event, Rollback))
    seconds = format_seconds(answer.milliseconds / 1000)
    for step in answer.rolled_back:
        output.write(("rolled back ", "green"), f"{step.label}, {seconds}")
    losses = [loss for step in answer.rolled_back for loss in step.tables]
    deleted = {loss.table for loss in losses if loss.action == "deleted"}
    if any(loss.action == "converted" and loss.table not in deleted for loss in losses):
        output.write("records are converted back when they are read, or by `zapdb convert run`")
    if answer.are_kept:
        output.write("kept: `zapdb migrate up --again` brings it back, until it is forgotten")
    if not (answer.rolled_back or is_told):
        output.write("nothing to roll back")
    output.document(answer)
