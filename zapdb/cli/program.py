"""The program: it runs one command, and turns errors into text and an exit status."""

from __future__ import annotations

import inspect
import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, NoReturn

import typer

from zapdb.accelerator import describe_codec
from zapdb.cli.commands import (
    COMMANDS,
    end_collection,
    load_function,
    make_group,
    put_off_collection,
    show_help_without_command,
)
from zapdb.cli.output import print_note, report_error
from zapdb.cli.sensitive_arguments import find_suspects
from zapdb.errors import EXIT_ERROR, MissingExtra, UsageError, ZapdbError
from zapdb.logs import log_as_json
from zapdb.release import __version__

_EXTRAS: Final = {
    "duckdb": "sql",
    "numpy": "sql",
    "pandas": "pandas",
    "psycopg": "postgres",
    "pyarrow": "sql",
    "pyspark": "spark",
}
"""The extra that installs a package."""
STDIN, STDOUT, STDERR = range(3)
EXIT_INTERRUPTED: Final = 130  # 128 and the number of SIGINT, as shells have it

# The error that typer raises for wrong arguments. It is typer's own class in later releases and
# click's in earlier ones; this expression works for both.
WrongArguments: Final[Any] = typer.BadParameter.__bases__[0]


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"zapdb {__version__} ({describe_codec()})")
        raise typer.Exit


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
        typer.Option("--log-json", help="Write the log to standard error as JSON lines."),
    ] = False,
) -> None:
    """Migration-first schemas and a record store.

    Exit status: 0 success, 1 error, 2 wrong usage, 3 work is pending.
    """
    if log_json:
        context.call_on_close(log_as_json())
    show_help_without_command(context)


app: Final = make_group("zapdb", inspect.getdoc(start) or "", COMMANDS, start)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the program, and exit with its status."""
    put_off_collection()
    has_output = _hold_standard_streams()
    if not has_output:
        report_error(_refuse_closed(), as_json=False)
        sys.exit(UsageError.exit_status)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    status = run_program(sys.argv[1:] if arguments is None else arguments)
    end_collection()
    sys.exit(status)


def _hold_standard_streams() -> bool:
    """Open what is closed of the standard streams, so that no file of a database gets the number of
    one, to which others write; returns whether there was a standard output."""
    has_output = sys.stdout is not None
    while (number := os.open(os.devnull, os.O_RDWR)) <= STDERR:
        pass
    os.close(number)
    sys.stdin = sys.stdin or os.fdopen(STDIN, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(STDOUT, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(STDERR, "w", closefd=False)
    return has_output


def _refuse_closed() -> UsageError:
    return UsageError(
        "standard output is closed, so nothing was done",
        hint="send it elsewhere, as in > /dev/null",
    )


def run_program(arguments: Sequence[str]) -> int:
    """Run one command; returns its exit status."""
    as_json = "--json" in arguments
    try:
        status = app.main(args=list(arguments), prog_name="zapdb", standalone_mode=False)
    except ZapdbError as error:
        report_error(error, as_json=as_json, hide=_hide(arguments))
        return error.exit_status
    except WrongArguments as error:
        report_error(_explain_arguments(error, arguments), as_json=as_json, hide=_hide(arguments))
        return UsageError.exit_status
    except OSError as error:
        report_error(_explain_system(error), as_json=as_json, hide=_hide(arguments))
        return EXIT_ERROR
    except ModuleNotFoundError as error:
        report_error(_explain_import(error), as_json=as_json)
        return EXIT_ERROR
    except KeyboardInterrupt:
        status = EXIT_INTERRUPTED
    if status == EXIT_INTERRUPTED:
        print_note("interrupted")
    return int(status or 0)


def _hide(arguments: Sequence[str]) -> Callable[[str], str]:
    """Return a function that hides the given passwords; its module is imported only when needed."""
    suspects = find_suspects(arguments)
    if not suspects:
        return str
    hide: Callable[[str], str] = load_function("hiding.hide_suspects")(suspects)
    return hide


def _explain_arguments(error: Any, arguments: Sequence[str]) -> ZapdbError:
    """Return the error for wrong arguments; its module is imported only when needed."""
    explain: Callable[..., ZapdbError] = load_function("wrong_arguments.explain_wrong_arguments")
    return explain(error, arguments)


def _explain_system(error: OSError) -> ZapdbError:
    context = {} if error.filename is None else {"file": error.filename}
    reason = error.strerror or str(error) or type(error).__name__
    return ZapdbError(f"the operating system reported an error: {reason}", **context)


def _explain_import(error: ModuleNotFoundError) -> ZapdbError:
    """Return the error for a package of an extra; raise the given one for any other package."""
    package = (error.name or "").partition(".")[0]
    if package not in _EXTRAS:
        raise error
    return MissingExtra.named(_EXTRAS[package], package)
