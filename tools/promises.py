"""Prints what users may rely on, as text to compare: `python -m tools.promises [SECTION]...`.

The text is the same for the same promises. To see what a change keeps, print it before and after;
for another checkout, run this file with that checkout's Python, in its directory.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any, Final

_SHOWN: Final = ("metavar", "envvar", "nargs", "multiple", "required", "min", "max", "is_eager")
"""Attributes of a parameter that say what may be given for it."""


def list_commands() -> Iterator[str]:
    """Every command with its parameters and its help.

    Arguments are in the order in which they are given; options, which may come in any, by name.
    """
    from zapdb.cli.program import app

    yield from _describe_command(app, "zapdb")


def _describe_command(command: Any, path: str) -> Iterator[str]:
    yield f"### {path}"
    is_argument = {one: one.param_type_name == "argument" for one in command.params}
    for one in command.params:
        if is_argument[one]:
            yield from _describe_parameter(one)
    for one in sorted((p for p in command.params if not is_argument[p]), key=lambda p: p.opts):
        yield from _describe_parameter(one)
    for line in inspect.cleandoc(command.help or "").splitlines():
        yield f"    {line}".rstrip()
    children = getattr(command, "commands", {})
    for name, child in children.items():
        yield from _describe_command(child, f"{path} {name}")


def _describe_parameter(parameter: Any) -> Iterator[str]:
    names = "/".join([*parameter.opts, *parameter.secondary_opts])
    kind = getattr(parameter, "type_descriptor", None) or getattr(parameter, "type", None)
    said = {"type": getattr(kind, "annotation", kind), "default": parameter.default}
    said |= {name: getattr(parameter, name, None) for name in _SHOWN}
    shown = [f"{name}={value!r}" for name, value in said.items() if value not in (None, False)]
    yield f"  {parameter.param_type_name} {names}: {', '.join(shown)}"
    yield f"      {' '.join((parameter.help or '').split())}".rstrip()


SECTIONS: Final[dict[str, Callable[[], Iterator[str]]]] = {"commands": list_commands}


def main() -> None:
    """Print the sections that are named, or all."""
    for name in sys.argv[1:] or SECTIONS:
        print(f"## {name}")
        for line in SECTIONS[name]():
            print(line)


if __name__ == "__main__":
    main()
