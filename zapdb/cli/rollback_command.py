"""`zapdb migrate rollback`: the preview, the confirmation, and each step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Annotated

import typer

from zapdb.cli.connecting import KeyedDatabaseOptions
from zapdb.cli.job_bar import closing_answers, showing_looks
from zapdb.cli.job_engine import Engine
from zapdb.cli.output import Confirmation, Output, format_count, format_seconds, print_note
from zapdb.control.job_runs import JobLook
from zapdb.control.migrations.rolling_back import (
    PreviewedRollback,
    Rollback,
    RollbackChoice,
    RollbackEvent,
    RollbackHeld,
    RollbackPlan,
    RolledBackStep,
    rollback,
    run_rollback,
)
from zapdb.errors import EXIT_ERROR, UsageError
from zapdb.jobs.job_status import TableRollbackPreview
from zapdb.jobs.rollback_run import RollbackMark


def migrate_rollback_command(
    options: KeyedDatabaseOptions,
    engine: Engine,
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
    """Roll back the newest migration and convert its records back.

    Rolls back every tenant for which the migration is active. Shows what is lost, and asks for
    confirmation. The stored migrations are used, not the files. A rollback that was interrupted is
    finished.

    With `--json`, which needs `--yes`: `{position, rolled_back: [{number, label, tenants, lossy,
    tables: [{table, action, records, fields, indexes}], milliseconds}], seq}`. A process whose
    catalog cache has the seq sees the change. `tenants` is a count, and `records` a count over all
    these tenants. `action` is what happened to the records: `deleted`, `converted` or `kept`;
    `fields` and `indexes` are lost.

    With `--idempotency-key`, which needs `--yes`, what is lost is not shown before.
    """
    output, runs_on = Output(output.as_json), engine
    runs_on.require_valid()
    is_by_spark = runs_on.name == "spark"
    if is_by_spark and options.is_served:
        raise UsageError(
            "a service converts records back itself, in threads", hint="leave out --engine"
        )
    if options.key is not None:
        confirmation.require("--idempotency-key")
        with options.control() as control, _Shown(output) as shown:
            shown.show_all(control.call(rollback, to, evict, (), runs_on.workers))
        return 0
    with options.control() as control:
        (plan,) = control.call(rollback, to, dry_run=True)
        assert isinstance(plan, RollbackPlan)
        if not plan.steps:
            newest = plan.newest or "none"
            output.write(f"nothing to roll back: the newest migration is {newest}")
        for step in plan.steps:
            _write_step(step, output)
        if plan.steps and not confirmation.is_given("a rollback", _ask(plan), output):
            return EXIT_ERROR
        digests = tuple(step.digest for step in plan.steps)
        shown = _Shown(output)
        shown.says_nothing = not plan.steps
        if is_by_spark:
            with options.connected() as storage:
                runs_on.prepare(storage)  # before writes are refused
            with runs_on.runner() as runner, shown:
                choice = RollbackChoice(to, evict, digests)
                asked = control.call(run_rollback, choice, lambda _: runner, "driver")
                shown.show_all(asked)
        else:
            with shown:
                shown.show_all(control.call(rollback, to, evict, digests, runs_on.workers))
    return 0


def _write_step(step: PreviewedRollback, output: Output) -> None:
    """Print the effects of rolling back one migration."""
    output.write((step.label, "bold"), f": {step.summary}")
    if not step.tenants:
        output.write("  it was never active: nothing is lost")
    if step.tenants > 1:
        output.write(f"  it is active for {format_count(step.tenants, 'tenant')}")
    if step.tenants and step.lossy:
        output.write("  it is declared lossy: not every value is restored exactly")
    for loss in step.tables:
        output.write(f"  {loss.table}: {'; '.join(_describe(loss))}")


def _describe(loss: TableRollbackPreview) -> list[str]:
    records = format_count(loss.records, "record")
    if loss.action == "deleted":
        return [f"the table is deleted with its {records}"]
    is_one = loss.records == 1
    said = [f"{records} {'is' if is_one else 'are'} converted back"]
    if not loss.records:
        said = ["no record changes"]
    if loss.fields:
        said.append(f"the values of {', '.join(loss.fields)} are lost")
    if loss.indexes:
        said.append(f"the index {', '.join(loss.indexes)} is dropped")
    return said


def _ask(plan: RollbackPlan) -> str:
    steps = plan.steps
    what = steps[0].label if len(steps) == 1 else f"these {len(steps)} migrations"
    return f"roll back {what}?"


class _Shown:
    """What one run of the command shows while it is done; a block, at whose end it writes what was
    done."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._rolled_back: list[RolledBackStep] = []
        self._answer: Rollback | None = None
        self._bar = ExitStack()
        self._job: str | None = None
        self._is_begun = False
        self.says_nothing = False
        """Whether it was said before that there is nothing to roll back."""

    def __enter__(self) -> _Shown:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._bar.close()
        if kind is not None and issubclass(kind, KeyboardInterrupt) and self._is_begun:
            print_note(
                "the rollback is not finished, and writes are refused until it is: run "
                "`zapdb migrate rollback` again"
            )
        if self._answer is None and self._rolled_back:
            last = self._rolled_back[-1]
            self._answer = Rollback(last.position, tuple(self._rolled_back), last.seq)
        if self._answer is not None:
            self._output.document(self._answer)

    def show_all(self, asked: Iterator[RollbackEvent]) -> None:
        with closing_answers(asked) as events:
            for event in events:
                self._show(event)

    def _show(self, event: RollbackEvent) -> None:
        match event:
            case RollbackMark():
                self._is_begun = True
            case JobLook():
                if self._job != event.id:
                    self._bar.close()
                    self._job = event.id
                    shown_looks = showing_looks(event.doing, self._output)
                    self._look = self._bar.enter_context(shown_looks)
                self._look(event)
            case RollbackHeld(doing, hold):
                print_note(
                    f"waiting: {doing} is {hold}; Ctrl-C ends this command, and writes stay refused"
                )
            case RolledBackStep():
                self._bar.close()
                self._is_begun, self._job = False, None
                self._rolled_back.append(event)
                self._write_done(event)
            case Rollback():
                self._answer = event
                if not self._rolled_back:  # of a repeated call, whose answer comes alone
                    for step in event.rolled_back:
                        self._write_done(step)
                if not (event.rolled_back or self.says_nothing):
                    self._output.write("nothing to roll back")

    def _write_done(self, step: RolledBackStep) -> None:
        records = format_count(sum(loss.records for loss in step.tables), "record")
        seconds = format_seconds(step.milliseconds / 1000)
        self._output.write(("rolled back ", "green"), f"{step.label}: {records}, {seconds}")
