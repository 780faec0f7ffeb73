"""What tests of rollbacks share: interrupted ones, and random lives that tell what they did."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from tests.contract.tables import ITEMS
from tests.support import Workspace
from zapdb.activation import rollback
from zapdb.database import Database


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
