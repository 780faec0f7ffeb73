"""A writer of the soak of the history store: `python -m tests.contract.history_soak_writer`.

It knows the tables of the first migration only, whatever comes later. Each transaction writes one
key to both tables, so that at any moment both have the same. While the file `pause` exists, it
writes nothing, and says so.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path
from typing import Any

import zapdb
from zapdb.errors import ZapdbError

KEYS = 300
"""Of each writer."""


def main(address: str, migrations: str, number: str, pause: str) -> None:
    rnd, turn, refused = random.Random(int(number)), 0, 0
    with zapdb.open(address, migrations=migrations) as db:
        while True:
            if Path(pause).exists():
                print(f"paused {turn} {refused}", flush=True)
                while Path(pause).exists():
                    time.sleep(0.02)
                print("goes on", flush=True)
            turn += 1
            keys = {int(number) * KEYS + rnd.randrange(KEYS) for _ in range(rnd.randint(1, 4))}
            try:
                db.run(lambda tx, keys=keys, turn=turn: write(tx, rnd, keys, turn))
            except ZapdbError:  # a rollback, a migration: nothing was written
                refused += 1
            time.sleep(rnd.random() * 0.02)


def write(tx: Any, rnd: random.Random, keys: set[int], turn: int) -> None:
    for key in sorted(keys):
        if rnd.random() < 0.15:
            for table in ("items", "twins"):
                tx.table(table).delete_many([key])
        else:
            for table in ("items", "twins"):
                tx.table(table).upsert(id=key, title=f"t{turn}", size=turn)


if __name__ == "__main__":
    main(*sys.argv[1:])
