"""A process that inserts records with numbers of sequences: `python -m tests.contract.numbering …`.

It prints the numbers that it got, as they come: committed ones as `+ 7`, those of transactions that
were rolled back as `- 7`. What it does next is drawn by its seed. It ends by itself after so many
operations, or is killed.
"""

from __future__ import annotations

import contextlib
import random
import sys
from typing import Any

import zapdb
from zapdb.database import Database
from zapdb.errors import RecordExists

EXPLICIT = "explicit"
"""The text of records whose numbers were given: one may be stored and not told yet in a kill."""


class _Undone(Exception):
    pass


def main(address: str, directory: str, seed: str, operations: str) -> None:
    drawn = random.Random(int(seed))
    with zapdb.open(address, migrations=directory) as db:
        print("open", flush=True)
        for _ in range(int(operations)):
            _operate(db, drawn)
    print("end", flush=True)


def _operate(db: Database, drawn: random.Random) -> None:
    orders, count = db.table("orders"), drawn.choice((1, 1, 2, 7))
    match drawn.choice(("insert", "insert", "many", "block", "undone", "explicit", "upsert")):
        case "insert":
            _tell("+", orders.insert())
        case "upsert":
            _tell("+", orders.upsert(text="x"))
        case "many":
            # Its numbers are not returned: they are looked up by a text of their own.
            mark = f"{drawn.getrandbits(64)}"
            orders.insert_many([{"text": mark}] * count)
            _tell("+", *orders.where(text=mark))
        case "block":
            _tell("+", *db.run(lambda: _insert_in_block(db, count, undone=False)))
        case "undone":
            _tell("-", *db.run(lambda: _insert_in_block(db, count, undone=True)))
        case "explicit":
            highest = orders.max("id") or 0
            given = {"id": highest + drawn.choice((1, 5)), "number": highest + 1}
            with contextlib.suppress(RecordExists):  # it was given meanwhile
                _tell("e", orders.insert(**given, text=EXPLICIT))


def _insert_in_block(db: Database, count: int, *, undone: bool) -> list[Any]:
    made = list[Any]()
    try:
        with db.transaction() as tx:
            made += [tx.table("orders").insert() for _ in range(count)]
            if undone:
                raise _Undone
    except _Undone:
        pass
    return made


def _tell(sign: str, *records: Any) -> None:
    for record in records:
        print(sign, record.id, record.number, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
