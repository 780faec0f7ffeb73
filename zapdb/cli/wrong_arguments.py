"""Arguments that a command does not take: what is wrong, and the call that was meant."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Any, Final

from zapdb.errors import UsageError

_STORED: Final = "leave it out: the command uses the migrations that the database stores"
_SUMMARY: Final = 'the summary is an argument: zapdb migrate new "Split the name"'
_ALL_TABLES: Final = "leave it out: the command is about all tables"
_FILES_ALONE: Final = "migrate (new|check|lint|graph|squash)|codegen|completion"
"""Commands without a database."""
_CALLS: Final[tuple[tuple[str, str, str], ...]] = (
    (
        "migrate rollback",
        r"extra .*\(0*(?P<n>[0-9]+)\w*\)",
        "`zapdb migrate rollback --to {n}` keeps migration {n} and rolls back all above it",
    ),
    (
        "migrate rollback",
        r"extra .*\((zero|base|all)\)",
        "`zapdb migrate rollback --to 0` rolls back all migrations",
    ),
    (
        "migrate rollback",
        r"extra|option: -[0-9]",
        "`zapdb migrate rollback` rolls back the newest migration, --to N all above number N",
    ),
    (
        "migrate rollback",
        r"'--to'",
        "give the number of a migration, such as --to 1; --to 0 rolls back all",
    ),
    ("migrate up", r"extra", "leave it out: the command applies all pending migrations"),
    ("migrate new", r"extra", "put the summary in quotes: zapdb migrate new {quoted}"),
    ("migrate new", r"option: (--name|--message|-n)|'summary'", _SUMMARY),
    (
        "migrate new",
        r"option: --auto",
        "changes are not found by comparing; --add-field people.fax:string? writes one",
    ),
    ("init", r"option: (--name|-n)\b", "the directory is an argument: zapdb init my_project"),
    ("init", r"extra", "give one directory, in quotes if it contains blanks: zapdb init {quoted}"),
    (rf"(?!{_FILES_ALONE})\S.*", r"option: --(db|url|uri|dsn)\b", "give it as --database URL"),
    ("sql", r"extra", "put the statement in quotes: zapdb sql {quoted}"),
    ("data list", r"extra", "give a condition by --where, such as --where \"name == 'Ada'\""),
    ("data get", r"option: --", "give the key without a name: zapdb data get TABLE KEY"),
    ("shell", r"extra", "leave it out: in the prompt, each table has its name"),
    ("(verify|convert .*)", r"extra", _ALL_TABLES),
    (".*", r"option: (-m|--migrations)\b", _STORED),
    ("", r"option: (-v|-V)$", "`zapdb --version` shows the version"),
)
"""For a command and an error of its arguments, as patterns, what to write instead."""
_PLAIN: Final = (
    (re.compile(r"Input should be a valid (integer|number)[^:]*$"), "a number is needed"),
    (re.compile(r"Input should be greater than or equal to "), "the least is "),
    (re.compile(r"Input should be less than or equal to "), "the most is "),
    (re.compile(r"Value error, "), ""),
)
"""What the parser of arguments says in words of its own, and how this program says it."""


def explain_wrong_arguments(error: Any, arguments: Sequence[str]) -> UsageError:
    """Return the error for wrong arguments, as the command line's parser found them."""
    path = error.ctx.command_path if error.ctx is not None else "zapdb"
    message = str(error.format_message()).rstrip(".")
    message = message[:1].lower() + message[1:]
    for pattern, words in _PLAIN:
        message = pattern.sub(words, message)
    meant = _find_call(path, message, arguments)
    if meant is None and error.ctx is not None and re.match("missing argument|got unexp", message):
        usage = " ".join((path, *error.ctx.command.collect_usage_pieces(error.ctx)))
        meant = f"write `{re.sub(r'[{](.*?)[}]', lambda name: name[1].upper(), usage)}`"
    hint = f"run `{path} --help`"
    return UsageError(message, hint=hint if meant is None else f"{meant}; {hint}")


def _find_call(path: str, message: str, arguments: Sequence[str]) -> str | None:
    command = path.removeprefix("zapdb").strip()
    words = [word for word in arguments if not word.startswith("-")][len(command.split()) :]
    for name, pattern, call in _CALLS:
        found = re.search(pattern, message)
        if found is not None and re.fullmatch(name, command):
            return call.format(quoted=shlex.quote(" ".join(words)), **found.groupdict())
    return None
