"""The program: its groups of commands, and how errors become text and an exit status."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Final, NoReturn

import typer

from zapdb.cli import (
    applying,
    catalog,
    changes,
    cluster,
    codegen,
    convert,
    data,
    history,
    history_pruning,
    linting,
    looking,
    metrics,
    migrate,
    models,
    planning,
    proving,
    pruning,
    reindex,
    settings,
    shell,
    sql,
    squashing,
    sweep,
    tenant,
    verify,
    watching,
)
from zapdb.cli.hiding import hide_given
from zapdb.cli.output import note, report_error
from zapdb.errors import EXIT_ERROR, UsageError, ZapdbError
from zapdb.logs import log_as_json
from zapdb.release import __version__

EXIT_INTERRUPTED: Final = 130  # 128 and the number of SIGINT, as shells have it

# What typer raises when it can't make sense of the arguments. It is typer's own class in later
# releases and click's in earlier ones, and this is the one way that both have to get at it.
WrongArguments: Final[Any] = typer.BadParameter.__bases__[0]

app = typer.Typer(
    name="zapdb",
    add_completion=False,
    no_args_is_help=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"zapdb {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=_show_version, help="Show the version and exit."
        ),
    ] = False,
    log_json: Annotated[
        bool,
        typer.Option("--log-json", help="Write what is logged to standard error as JSON lines."),
    ] = False,
) -> None:
    """Migration-first schemas and record storage.

    Exit status: 0 done, 1 error, 2 wrong usage, 3 something is pending.
    """
    if log_json:
        context.call_on_close(log_as_json())
    show_help_without_command(context)


def show_help_without_command(context: typer.Context) -> None:
    """A group by itself shows what it has, and is wrong usage."""
    if context.invoked_subcommand is None:
        text = context.get_help()
        if text:
            print(text)
        raise typer.Exit(UsageError.exit_status)


catalog.group.command("history")(history.catalog_history_command)
catalog.group.command("prune")(history_pruning.catalog_prune_command)
migrate.group.command("up")(applying.migrate_up_command)
migrate.group.command("status")(applying.migrate_status_command)
convert.group.command("watch")(watching.convert_watch_command)
migrate.group.command("diff")(looking.migrate_diff_command)
migrate.group.command("graph")(looking.migrate_graph_command)
migrate.group.command("lint")(linting.migrate_lint_command)
migrate.group.command("squash")(squashing.migrate_squash_command)
migrate.group.command("plan")(planning.migrate_plan_command)
migrate.group.command("prune-archive")(pruning.migrate_prune_archive_command)
migrate.group.command("prove")(proving.migrate_prove_command)
codegen.group.command("models")(models.codegen_models_command)
for group in (
    migrate.group,
    convert.group,
    catalog.group,
    changes.group,
    cluster.group,
    settings.group,
    reindex.group,
    tenant.group,
    codegen.group,
    data.group,
):
    group.callback(invoke_without_command=True)(show_help_without_command)
    app.add_typer(group)
app.command("metrics")(metrics.metrics_command)
app.command("verify")(verify.verify_command)
app.command("sweep")(sweep.sweep_command)
app.command("shell")(shell.shell_command)
app.command("sql")(sql.sql_command)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the program and end the process with its status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(run_program(sys.argv[1:] if arguments is None else arguments))


def run_program(arguments: Sequence[str]) -> int:
    """Run one command; returns its exit status."""
    as_json = "--json" in arguments
    try:
        status = app(args=list(arguments), prog_name="zapdb", standalone_mode=False)
    except ZapdbError as error:
        report_error(error, as_json=as_json, hide=hide_given(arguments))
        return error.exit_status
    except WrongArguments as error:
        report_error(_explain_arguments(error), as_json=as_json, hide=hide_given(arguments))
        return UsageError.exit_status
    except OSError as error:
        report_error(_explain_system(error), as_json=as_json, hide=hide_given(arguments))
        return EXIT_ERROR
    except KeyboardInterrupt:
        status = EXIT_INTERRUPTED
    if status == EXIT_INTERRUPTED:
        note("interrupted")
    return int(status or 0)


def _explain_arguments(error: Any) -> UsageError:
    command = error.ctx.command_path if error.ctx is not None else "zapdb"
    message = str(error.format_message()).rstrip(".")
    return UsageError(
        message[:1].lower() + message[1:], hint=f"`{command} --help` says what there is"
    )


def _explain_system(error: OSError) -> ZapdbError:
    context = {} if error.filename is None else {"file": error.filename}
    reason = error.strerror or str(error) or type(error).__name__
    return ZapdbError(f"the operating system refused: {reason}", **context)
