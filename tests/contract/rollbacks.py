"""What tests of rollbacks share: interrupted ones, and random lives that tell what they did."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager

import pytest

from tests.contract.tables import ITEMS
from tests.support import WAYS, Faults, Workspace
from zapdb.activation import rollback
from zapdb.database import Database
from zapdb.errors import ZapdbError
from zapdb.storage import Storage

STATEMENTS_MAX = 60
"""The last statement at which a command may end."""


def begin_with_three(workspace: Workspace) -> Database:
    """Store a migration and three records; returns a process that knows no files."""
    workspace.write(1, ITEMS)
    with workspace.open() as db:
        db.table("items").insert_many({"id": n, "title": f"title {n}", "size": n} for n in range(3))
    return workspace.follow()


class Stopped(Exception):
    """In place of the death of a process."""


def leave_tenants_due(place: Workspace) -> None:
    """Roll back the newest migration, and end when the end of the chain has moved, before any
    tenant has followed."""

    def stop(*_: object) -> None:
        raise Stopped

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rollback, "migrate_each_tenant", stop)
        with pytest.raises(Stopped):
            rollback.roll_back(place.connect())


@contextmanager
def telling(trace: Sequence[str]) -> Iterator[None]:
    """Print what a random life did if the block fails."""
    try:
        yield
    except BaseException:
        print("\n".join(trace))
        raise


class MortalCommands:
    """Does what commands do, each with a session of its own. Now and then one ends at one of its
    statements, as if its process had been killed there."""

    def __init__(
        self, place: Workspace, chance: random.Random, patch: pytest.MonkeyPatch, share: float
    ) -> None:
        """`share` of the commands are to end midway."""
        self._place, self._random, self._share = place, chance, share
        with closing(place.connect()) as storage:
            self._faults = Faults(place, storage, "before", lasting=True)
        self._faults.install(patch)

    def run(self, action: Callable[[Storage], object]) -> bool:
        """Return whether it came to its end."""
        with closing(self._place.connect()) as storage:
            faults, is_mortal = self._faults, self._random.random() < self._share
            faults.storage, faults.way = storage, self._random.choice(WAYS)
            faults.arm(self._random.randrange(1, STATEMENTS_MAX) if is_mortal else 0)
            try:
                action(storage)
            except ZapdbError:
                if not faults.struck:
                    raise
            is_ended = bool(faults.struck)
            faults.arm(0)
        if is_ended:  # as if its leases had expired
            self._place.execute("DELETE FROM zapdb_leases WHERE substr(name, 1, 8) = 'catalog/'")
        return not is_ended
