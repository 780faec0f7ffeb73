"""All commands by name; a command's module is imported when the command is used.

So `zapdb --help`, wrong usage and one command import no other command. The help of a group imports
the commands of that group, because it shows their docstrings.

A parameter of a command's function is a parameter of the command. One whose type is a dataclass,
such as `TenantOptions`, stands for options that commands share: the fields of the dataclass, which
the help shows behind the command's own.
"""

from __future__ import annotations

import functools
import gc
import inspect
import sys
from collections import UserDict
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from importlib import import_module
from inspect import Parameter, Signature
from itertools import chain
from typing import Any, Final, get_type_hints

import typer
import typer.core
import typer.main

from zapdb.cli.did_you_mean_command import HABITS, find_alias, find_note
from zapdb.errors import UsageError, suggest


@dataclass(frozen=True, slots=True)
class CommandGroup:
    """A group's description, and the functions of its commands: `module.function` of this
    package."""

    description: str
    commands: Mapping[str, str]


COMMANDS: Final[Mapping[str, str | CommandGroup]] = {
    "init": "project.init_command",
    "migrate": CommandGroup(
        "Write, check, apply and roll back migrations.",
        {
            "new": "migrate.migrate_new_command",
            "check": "checking.migrate_check_command",
            "rollback": "rollback_command.migrate_rollback_command",
            "forget": "rollback_command.migrate_forget_command",
            "amend": "amend_command.migrate_amend_command",
            "up": "applying.migrate_up_command",
            "status": "migration_status.migrate_status_command",
            "diff": "diff.migrate_diff_command",
            "graph": "diff.migrate_graph_command",
            "lint": "linting.migrate_lint_command",
            "squash": "squashing.migrate_squash_command",
            "plan": "planning.migrate_plan_command",
            "rehearse": "rehearsing.migrate_rehearse_command",
            "prune-archive": "pruning.migrate_prune_archive_command",
            "prove": "proving.migrate_prove_command",
        },
    ),
    "data": CommandGroup(
        "Read and write records.",
        {
            "get": "data.data_get_command",
            "list": "data.data_list_command",
            "export": "data.data_export_command",
            "put": "data.data_put_command",
            "discard": "data.data_discard_command",
        },
    ),
    "import": "importing.import_command",
    "export": "export.export_command",
    "sql": "sql.sql_command",
    "shell": "shell.shell_command",
    "catalog": CommandGroup(
        "Show tables, their schemas, and their schema histories.",
        {
            "list": "catalog.catalog_list_command",
            "show": "catalog.catalog_show_command",
            "fingerprint": "catalog.catalog_fingerprint_command",
            "revisions": "revisions.catalog_revisions_command",
            "prune": "revisions.catalog_prune_command",
            "calls": "call_log.catalog_calls_command",
            "watch": "watching.catalog_watch_command",
        },
    ),
    "convert": CommandGroup(
        "Build indexes, convert records, and validate constraints.",
        {
            "run": "convert.convert_run_command",
            "status": "convert.convert_status_command",
            "watch": "job_watch.convert_watch_command",
        },
    ),
    "jobs": CommandGroup(
        "Show, pause, resume, cancel and throttle jobs.",
        {
            "list": "jobs.jobs_list_command",
            "show": "job_showing.jobs_show_command",
            "watch": "watching.jobs_watch_command",
            "pause": "jobs.jobs_pause_command",
            "resume": "jobs.jobs_resume_command",
            "cancel": "jobs.jobs_cancel_command",
            "priority": "jobs.jobs_priority_command",
            "throttle": "jobs.jobs_throttle_command",
        },
    ),
    "verify": "verify.verify_command",
    "reindex": CommandGroup(
        "Rebuild indexes, and show their collation and time zone data.",
        {
            "run": "reindex.reindex_run_command",
            "status": "reindex.reindex_status_command",
        },
    ),
    "sweep": "sweep.sweep_command",
    "changes": CommandGroup(
        "Read and prune the change log, and manage its followers.",
        {
            "list": "change_log.changes_list_command",
            "followers": "change_log.changes_followers_command",
            "remove-follower": "change_log.changes_remove_follower_command",
            "prune": "change_log.changes_prune_command",
        },
    ),
    "history": CommandGroup(
        "Read the database as it was at past moments, and keep its past in files.",
        {
            "moments": "history.history_moments_command",
            "audit": "history.history_audit_command",
            "query": "history.history_query_command",
            "table": "history.history_table_command",
            "row": "history.history_row_command",
            "diff": "history.history_diff_command",
            "start": "history_store.history_start_command",
            "run": "history_store.history_run_command",
            "flush": "history_store.history_flush_command",
            "stop": "history_store.history_stop_command",
            "status": "history_status.history_status_command",
            "verify": "history_upkeep.history_verify_command",
            "rebuild-manifest": "history_upkeep.history_rebuild_command",
            "move": "history_upkeep.history_move_command",
            "purge": "history_upkeep.history_purge_command",
            "erase": "history_upkeep.history_erase_command",
            "export": "history_export.history_export_command",
            "restore": "history_export.history_restore_command",
        },
    ),
    "mirror": CommandGroup(
        "Keep plain tables of the records in another database.",
        {
            "run": "mirrors.mirror_run_command",
            "status": "mirrors.mirror_status_command",
            "check": "mirrors.mirror_check_command",
        },
    ),
    "tenant": CommandGroup(
        "List, create and remove tenants.",
        {
            "list": "tenant.tenant_list_command",
            "create": "tenant.tenant_create_command",
            "remove": "tenant.tenant_remove_command",
        },
    ),
    "settings": CommandGroup(
        "Read and change settings of the database.",
        {
            "list": "setting_commands.settings_list_command",
            "get": "setting_commands.settings_get_command",
            "set": "setting_commands.settings_set_command",
            "unset": "setting_commands.settings_unset_command",
            "profile": "setting_commands.settings_profile_command",
        },
    ),
    "cluster": CommandGroup(
        "Show and control the processes that share the database.",
        {
            "status": "cluster.cluster_status_command",
            "nodes": "cluster.cluster_nodes_command",
            "leases": "cluster.cluster_leases_command",
            "evict": "cluster.cluster_evict_command",
            "upgrade": "cluster.cluster_upgrade_command",
        },
    ),
    "serve": "serve.serve_command",
    "token": CommandGroup(
        "Make keys and tokens for `zapdb serve`.",
        {"issue": "token.token_issue_command", "keys": "token.token_keys_command"},
    ),
    "spark": CommandGroup(
        "Prepare clusters of Apache Spark.", {"package": "spark.spark_package_command"}
    ),
    "metrics": "metrics_command.metrics_command",
    "codegen": CommandGroup(
        "Generate files for other tools.",
        {
            "json-schema": "codegen.codegen_json_schema_command",
            "models": "codegen.codegen_models_command",
        },
    ),
}


SUMMARIES: Final[Mapping[str, str]] = {
    "init": "Start a project: settings in pyproject.toml, and a first migration to edit.",
    "import": "Import a file, another database, or a directory that `zapdb export` wrote.",
    "export": "Write all tables of a tenant, as of one moment, into a new directory, or as a SQL "
    "script.",
    "sql": "Run one SQL SELECT over the tables and the catalog, read-only.",
    "shell": "Open a Python prompt with the database as `db`, and its tables by their names.",
    "verify": "Check that migrations, schema histories, records, indexes, constraints and blobs "
    "are intact.",
    "sweep": "Remove large values that no record owns, and expired commit tokens.",
    "serve": "Serve the catalog, the cluster, migrations, jobs and the past of a database over "
    "gRPC, until interrupted.",
    "metrics": "Print positions, stale records, indexes, processes, leases and jobs as Prometheus "
    "text.",
}
"""Of each command outside of the groups, the first paragraph of its help."""


def load_function(path: str) -> Callable[..., Any]:
    """Import and return the function `module.function` of this package."""
    module, _, function = path.partition(".")
    found: Callable[..., Any] = getattr(import_module(f"zapdb.cli.{module}"), function)
    return found


class LazyGroup(typer.core.TyperGroup):
    """A group that lists its commands without loading them."""

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)

    def get_params(self, ctx: Any) -> list[Any]:
        return _read_quickly(super().get_params(ctx))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """What a list of commands shows of one."""
        if self.name == "zapdb" and cmd_name in SUMMARIES:
            return typer.core.TyperCommand(cmd_name, help=SUMMARIES[cmd_name])
        return super().get_command(ctx, cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Raise `UsageError` for a command that does not exist, with a suggestion."""
        _, _, group = ctx.command_path.partition(" ")
        typed = f"{group} {args[0]}".strip()
        name, rest = find_alias(group, args[0], args[1:])
        if name in self.commands:
            return name, self.commands[name], rest
        if name.startswith("-"):
            return super().resolve_command(ctx, args)
        habit = HABITS.get(typed) or HABITS.get(name)
        guess = f"did you mean `zapdb {habit}`? " if habit else ""
        if note := find_note(typed):
            guess = f"{note}; "
        if closest := suggest(name, self.commands):
            guess = guess or f"{closest} "
        raise UsageError(
            f"there is no command {name!r}",
            hint=f"{guess}`{ctx.command_path} --help` lists the commands",
        )


class _Commands(UserDict[str, Any]):
    """The commands of a group; each is made when it is first looked up."""

    def __init__(self, places: Mapping[str, str | CommandGroup]) -> None:
        super().__init__(places)

    def __getitem__(self, name: str) -> Any:
        found = self.data[name]
        if isinstance(found, CommandGroup):
            found = self.data[name] = make_group(name, found.description, found.commands)
        elif isinstance(found, str):
            found = self.data[name] = _make_command(name, load_function(found))
            collect_from_now_on()
        return found


def make_group(
    name: str,
    description: str,
    places: Mapping[str, str | CommandGroup],
    callback: Callable[..., Any] | None = None,
) -> Any:
    """Return click's command of a group; without a subcommand it shows its help, as wrong usage."""
    app = typer.Typer(
        name=name,
        cls=LazyGroup,
        help=description,
        add_completion=name == "zapdb",
        no_args_is_help=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(callback or show_help_without_command)
    group: Any = typer.main.get_command(app)
    group.commands = _Commands(places)
    return group


def _make_command(name: str, function: Callable[..., Any]) -> Any:
    app = typer.Typer(
        add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="markdown"
    )
    app.command(name, cls=QuickCommand)(spread_options(function))
    return typer.main.get_command(app)


class _Reader:
    """What typer reads a parameter with. Texts and defaults need no conversion; all else is done by
    pydantic, whose import takes a fifth of the time of a short command."""

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        if value == param.default or param.type_descriptor.annotation in (str, list[str]):
            return value
        param._runtime_param = None  # so that typer makes its own
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


class QuickCommand(typer.core.TyperCommand):
    """A command that reads its parameters without pydantic, where that is not needed."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _read_quickly(super().get_params(ctx))


def _read_quickly(parameters: list[Any]) -> list[Any]:
    for parameter in parameters:
        parameter._runtime_param = getattr(parameter, "_runtime_param", None) or _Reader()
    return parameters


def spread_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of a command, with the fields of the dataclasses that it takes as parameters."""
    parameters = inspect.signature(function, eval_str=True).parameters
    own = [one for one in parameters.values() if not is_dataclass(one.annotation)]
    shared = {name: one.annotation for name, one in parameters.items() if one not in own}
    options = {name: _list_options(kind) for name, kind in shared.items()}

    @functools.wraps(function)
    def command(**given: Any) -> Any:
        made = {
            name: kind(**{option.name: given.pop(option.name) for option in options[name]})
            for name, kind in shared.items()
        }
        return function(**given, **made)

    spread = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in own]
    vars(command)["__signature__"] = Signature([*spread, *chain.from_iterable(options.values())])
    return command


def _list_options(kind: Any) -> list[Parameter]:
    hints = get_type_hints(kind, include_extras=True)
    return [
        Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(kind)
    ]


def show_help_without_command(context: typer.Context) -> None:
    """Show the help of a group that was called without a command, and exit as wrong usage."""
    if context.invoked_subcommand is None:
        text = context.get_help()
        if text:
            print(text)
        raise typer.Exit(UsageError.exit_status)


_PUT_OFF: Final[set[str]] = set()
"""Has a member while collection is put off by this module; other code may have disabled it, too."""


def put_off_collection() -> None:
    """Collect nothing until a command is loaded; for a process that runs one command.

    What is imported stays. Collections would look through it a dozen times while it is imported,
    and once more when the process ends: a third of the time of a short command.
    """
    if gc.isenabled():
        gc.disable()
        _PUT_OFF.add("gc")


def collect_from_now_on() -> None:
    """Collect as always, but what is made from now on alone, if `put_off_collection` was called."""
    if _PUT_OFF:
        _PUT_OFF.clear()
        gc.freeze()
        gc.enable()


def end_collection() -> None:
    """Collect nothing when the process ends, unless DuckDB is loaded: that would print a long list
    of what it calls leaks."""
    if "duckdb" in sys.modules:
        gc.unfreeze()
    else:
        gc.freeze()
