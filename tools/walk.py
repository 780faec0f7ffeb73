"""The ways of a value through the code: calls, functions and modules of each operation.

`python -m tools.walk` prints them for SQLite. What runs is counted, not timed, so two runs say the
same. Only functions of the package are counted, as the interpreter calls them, in the calling
thread; the second of two equal operations, so plans and caches are made. An opening is counted
once, with all that is made once.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import zapdb

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PACKAGE = str(Path(zapdb.__file__).parent)

MIGRATION = """\
zapdb: 1
summary: Items
changes:
  - create_table:
      table: items
      key: [id]
      fields:
        - {name: id, type: integer, generated: sequence}
        - {name: title, type: string}
        - {name: stock, type: integer}
        - {name: made_at, type: timestamp}
  - create_index: {table: items, index: by_title, fields: [{field: title}]}
  - create_index: {table: items, index: by_stock, fields: [{field: stock}]}
rollback: inferred
"""


@dataclass
class Walk:
    """What one operation called."""

    calls: Counter[CodeType] = field(default_factory=Counter)

    @property
    def modules(self) -> set[str]:
        return {code.co_filename for code in self.calls}

    def row(self) -> tuple[int, int, int]:
        """Calls, functions, modules."""
        return self.calls.total(), len(self.calls), len(self.modules)


@contextmanager
def walking() -> Iterator[Walk]:
    """Count the calls of the block, in this thread."""
    walk = Walk()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            walk.calls[frame.f_code] += 1

    sys.setprofile(note)
    try:
        yield walk
    finally:
        sys.setprofile(None)


def second(act: Callable[[int], object]) -> Walk:
    """Walk the second of two equal operations."""
    act(1)
    with walking() as walk:
        act(2)
    return walk


def find_walks(directory: Path) -> dict[str, Walk]:
    """Walk each operation in a database of the directory."""
    migrations = directory / "migrations"
    migrations.mkdir()
    (migrations / "0001_items.yaml").write_text(MIGRATION)
    address = f"sqlite:///{directory / 'walk.db'}"
    with walking() as opening, contextlib.redirect_stderr(io.StringIO()):
        db = zapdb.open(address, migrations=migrations, apply="auto")
    walks = {"open + up": opening}
    with db:
        items = db.table("items")
        for n in range(50):
            items.insert(title=f"t{n}", stock=n, made_at=NOW)
        with db.transaction() as tx:
            inside = second(lambda n: tx.table("items").insert(title="x", stock=n, made_at=NOW))
        walks |= {
            "get": second(lambda _: items.get(7)),
            "insert": second(lambda n: items.insert(title="x", stock=n, made_at=NOW)),
            "insert in a transaction": inside,
            "update": second(lambda n: items.update(7, stock=100 + n)),
            "delete": second(lambda n: items.delete(10 + n)),
            "query by an index": second(lambda _: items.where(items.f.stock > 40).all()),
            "transaction of nothing": second(lambda _: enter(db)),
        }
    with walking() as again:
        zapdb.open(address, migrations=migrations).close()
    walks["open again"] = again
    return walks


def enter(db: zapdb.Database) -> None:
    with db.transaction():
        pass


def main(arguments: list[str]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        walks = find_walks(Path(directory))
    if "--json" in arguments:
        print(json.dumps({name: walk.row() for name, walk in walks.items()}))
        return
    print(f"{'':26}{'calls':>8}{'functions':>11}{'modules':>9}")
    for name, walk in walks.items():
        calls, functions, modules = walk.row()
        print(f"{name:26}{calls:>8,}{functions:>11,}{modules:>9,}")
    if "--calls" in arguments:
        wanted = arguments[arguments.index("--calls") + 1]
        for code, count in walks[wanted].calls.most_common():
            place = Path(code.co_filename).relative_to(PACKAGE)
            print(f"{count:>5}  {place}:{code.co_firstlineno} {code.co_qualname}")


if __name__ == "__main__":
    main(sys.argv[1:])
