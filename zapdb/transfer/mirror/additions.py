"""What others have added to a table of a mirror: rights, indexes, comments. They are carried over
where the table is made again; what can't be is told."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Addition:
    """Statements that add something to another table: the first `{table}` is its name, as SQL has
    it, unless the statements are `as_found` in the target. With `renames`, the first `{name}` is a
    name that is free meanwhile, and `renames` its own one in the end.

    `shown` says what it is. `columns` are those that it needs, if they are known. What has no
    statements can't be carried over.
    """

    shown: str
    statements: tuple[str, ...]
    renames: str = ""
    columns: tuple[str, ...] = ()
    as_found: bool = False

    def on(self, table: str, name: str) -> tuple[str, ...]:
        if self.as_found:
            return self.statements
        named = [one.replace("{table}", table, 1) for one in self.statements]
        return tuple(one.replace("{name}", name, 1) if self.renames else one for one in named)
