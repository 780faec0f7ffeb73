"""The commands that a service answers: those whose database may be behind one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

from zapdb.cli.addresses import ServedDatabaseAddress
from zapdb.cli.commands import COMMANDS, load_function


def list_served_commands() -> list[str]:
    """`catalog list`, and so on: each takes the options of a database that may be served."""
    return [name for name, path in _walk_commands() if is_served(load_function(path))]


def is_served(command: Callable[..., Any]) -> bool:
    kinds = inspect.get_annotations(command, eval_str=True).values()
    return any(isinstance(kind, type) and issubclass(kind, ServedDatabaseAddress) for kind in kinds)


def _walk_commands() -> Iterator[tuple[str, str]]:
    for name, place in COMMANDS.items():
        if isinstance(place, str):
            yield name, place
        else:
            yield from ((f"{name} {inner}", path) for inner, path in place.commands.items())
