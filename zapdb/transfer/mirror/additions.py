"""What others have added to a table of a mirror: rights, indexes, comments. They are carried over
where the table is made again; what can't be is told."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Addition:
    """Statements that add something to another table: `{table}` is its name, as SQL has it, and
    `{name}` a name that is free meanwhile; `renames` gives it its own name in the end.

    `shown` says what it is. `columns` are those that it needs, if they are known. What has no
    statements can't be carried over.
    """

    shown: str
    statements: tuple[str, ...]
    renames: str = ""
    columns: tuple[str, ...] = ()

    def on(self, table: str, name: str) -> tuple[str, ...]:
        return tuple(
            one.replace("{table}", table, 1).replace("{name}", name, 1) for one in self.statements
        )
