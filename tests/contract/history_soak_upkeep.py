"""What is done to the past in the soak of the history store: purges, erasures, damage and repair.

Erasures need records that nobody writes meanwhile. So the soak has some of its own, the victims,
with keys above those of the writers. What is erased is erased from the kept states, too.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.contract.stored_pasts import read_manifest
from tests.support import wait_until
from zapdb.database import Database
from zapdb.errors import HistoryBehind, LeaseHeld, UsageError

VICTIM = 1_000_000
"""Keys from here on are of victims."""
VICTIMS = 12
TABLES = ("items", "twins")
States = dict[int, dict[str, list[dict[str, Any]]]]


@dataclass
class Upkeep:
    """Changes the past of a database, and the kept states with it."""

    states: States
    done: Counter[str]
    rnd: random.Random = field(default_factory=lambda: random.Random(12))
    kept_from: int = 0
    damaged: set[str] = field(default_factory=set)
    """The files that were damaged at any time."""

    def choose_victim(self) -> int:
        return VICTIM + self.rnd.randrange(VICTIMS)

    def write(self, db: Database) -> None:
        """Write a victim in both tables."""
        key, turn = self.choose_victim(), self.done.total()

        def write(tx: Any) -> None:
            for name in TABLES:
                tx.table(name).upsert(id=key, title=f"victim{turn}", size=turn)

        db.run(write)

    def step(self, db: Database) -> None:
        self.write(db)
        chance = self.rnd.random()
        if chance < 0.15:
            self.erase(db)
        elif chance < 0.3:
            self.erase_title(db)
        elif chance < 0.4:
            self.purge(db)
        elif chance < 0.6:
            self.damage(db)

    def erase(self, db: Database) -> None:
        key = self.choose_victim()
        for name in TABLES:
            db.table(name).delete_many([key])
            _patiently(lambda name=name: db.history.erase(name, key))
            for state in self.states.values():
                state[name] = [row for row in state[name] if row["id"] != key]
        self.done["record erased"] += 1

    def erase_title(self, db: Database) -> None:
        """Erase past values of a field, which read as nothing then."""
        key = self.choose_victim()
        for name in TABLES:
            _patiently(lambda name=name: db.history.erase(name, key, fields=["title"]))
            for state in self.states.values():
                for row in state[name]:
                    row["title"] = "" if row["id"] == key else row["title"]
        self.done["field erased"] += 1

    def purge(self, db: Database) -> None:
        moment = self.rnd.choice(sorted(self.states)[: len(self.states) // 3 + 1])
        exact = self.rnd.random() < 0.5
        if moment > self.kept_from:
            _patiently(lambda: db.history.purge(moment, exact=exact))
            self.kept_from = moment
            self.done["purge"] += 1

    def damage(self, db: Database) -> None:
        """Damage a file, which is found, unless others took its place meanwhile, and repair it."""
        store, _, files = read_manifest(db)
        file = self.rnd.choice(files)
        path = file.place_in(store.directory)
        self.damaged.add(str(path))
        try:
            whole = path.read_bytes()
        except FileNotFoundError:  # it was not live any more
            return
        if self.rnd.random() < 0.5:
            path.unlink()
        else:
            wrong = bytearray(whole)
            wrong[self.rnd.randrange(len(wrong))] ^= 1 << self.rnd.randrange(8)
            path.write_bytes(wrong)
        found = {one.partition(": ")[0] for one in db.history.verify(sample=0).problems}
        is_live = file.id in {one.id for one in read_manifest(db)[2]}
        assert found <= {str(path)}, (found, path)
        assert found or not is_live, path
        repair = _patiently(db.history.repair)
        assert {one.path for one in repair.repaired} <= {str(path)}
        for left in repair.left:  # the change log does not lead back behind a migration
            assert left.startswith(f"{path}: "), left
            path.write_bytes(whole)
            self.done["not repaired"] += 1
        assert db.history.verify(sample=0).problems == ()
        self.done[f"{file.kind} damaged"] += 1

    def watch(self, db: Database, is_over: threading.Event) -> None:
        """Verify beside all of it: nothing is wrong but what was damaged."""
        while not is_over.wait(0.1):
            problems = db.history.verify(sample=6).problems
            wrong = [one for one in problems if not any(path in one for path in self.damaged)]
            assert not wrong, wrong
            self.done["verified"] += 1


def _patiently(act: Callable[[], Any]) -> Any:
    """Do what the follower's lease, or what the files lack, can be in the way of for a while."""
    made = list[Any]()

    def is_done() -> bool:
        try:
            made.append(act())
        except (LeaseHeld, HistoryBehind):
            return False
        except UsageError as error:
            if "not in the files of the history store yet" not in error.message:  # of a purge
                raise
            return False
        return True

    wait_until(is_done, "the store was changed", 0.3)
    return made[0]
