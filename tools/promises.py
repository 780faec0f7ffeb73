"""Prints what users may rely on, as text to compare: `python -m tools.promises [SECTION]...`.

The text is the same for the same promises. To see what a change keeps, print it before and after;
for another checkout, run this file with that checkout's Python, in its directory.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
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


def list_names() -> Iterator[str]:
    """The names of the package, and what members its classes have."""
    import zapdb
    import zapdb.aio

    for module in (zapdb, zapdb.aio):
        for name in sorted(module.__all__):
            yield f"{module.__name__}.{name}"
            found = getattr(module, name)
            if inspect.isclass(found):
                members = sorted(one for one in dir(found) if not one.startswith("_"))
                yield f"    {', '.join(members)}"


def list_errors() -> Iterator[str]:
    """The errors by their codes, with what else each is."""
    import zapdb.errors

    found = {one for one in vars(zapdb.errors).values() if inspect.isclass(one)}
    for error in sorted(found, key=lambda one: one.__name__):
        bases = ", ".join(base.__name__ for base in error.__mro__[1:-1])
        yield f"{error.__name__} {getattr(error, 'code', '')}: {bases}"
    for name, value in sorted(vars(zapdb.errors).items()):
        if name.startswith("EXIT_"):
            yield f"{name} = {value}"


def list_bytes() -> Iterator[str]:
    """What a database in a file holds after a short life: tables, their indexes, and rows.

    What differs from one database to another is not shown: times and identities.
    """
    import sqlite3
    import tempfile
    from pathlib import Path

    import zapdb

    with tempfile.TemporaryDirectory() as place:
        migrations = Path(place) / "migrations"
        migrations.mkdir()
        (migrations / "0001_items.yaml").write_text(_MIGRATION)
        path = Path(place) / "life.db"
        with zapdb.open(f"sqlite:///{path}", migrations=migrations, apply="auto") as db:
            db.admin.set_setting("change_log", "on")
            items = db.table("items")
            for at in range(3):
                items.insert(title=f"item {at}", price=Decimal(f"{at}.50"), tags=["a", "b"][:at])
            items.update(1, title="first")
            items.delete(2)
        with sqlite3.connect(path) as stored:
            rows = stored.execute("SELECT type, name, sql FROM sqlite_schema ORDER BY name")
            for kind, name, sql in rows.fetchall():
                yield f"{kind} {name}: {' '.join((sql or '').split())}"
                if kind == "table" and name.startswith(("zapdb_r", "zapdb_i", "zapdb_x")):
                    for row in stored.execute(f'SELECT * FROM "{name}"'):
                        shown = (one.hex() if isinstance(one, bytes) else one for one in row)
                        yield f"    {name}: {list(shown)}"


_MIGRATION: Final = """\
zapdb: 1
summary: Items
changes:
  - create_table:
      table: items
      key: [id]
      fields:
        - {name: id, type: integer, generated: sequence}
        - {name: title, type: string}
        - {name: price, type: decimal, scale: 2}
        - {name: tags, type: list, of: {type: string}}
  - create_index: {table: items, index: by_title, fields: [{field: title}]}
rollback: inferred
"""

SECTIONS: Final[dict[str, Callable[[], Iterator[str]]]] = {
    "commands": list_commands,
    "names": list_names,
    "errors": list_errors,
    "bytes": list_bytes,
}


def main() -> None:
    """Print the sections that are named, or all."""
    for name in sys.argv[1:] or SECTIONS:
        print(f"## {name}")
        for line in SECTIONS[name]():
            print(line)


if __name__ == "__main__":
    main()
