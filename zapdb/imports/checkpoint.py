"""How far an import has come: a row that each batch updates in its own transaction.

An import is one range of a job, with that range's fence and lease. So an import whose process died
goes on after its last batch, nothing is imported twice, and a second process that imports the same
source into the same table at the same time is refused. The row goes when the import has ended.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from zapdb.catalog.cluster.leases import Owner
from zapdb.errors import LeaseHeld
from zapdb.jobs.job import (
    Range,
    claim,
    draw_first_fence,
    give_back,
    insert_ranges,
    open_ranges,
)
from zapdb.jobs.progress import BatchCounts, record_progress
from zapdb.storage import Connection, Storage, TransactionMode
from zapdb.storage.fixed_tables import RANGES

PREFIX = "import"


def checkpoint_id(tenant: int, table: int, identity: str) -> str:
    """What the row of a source and a table is called."""
    digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
    return f"{PREFIX}/{tenant}/{table}/{digest}"


@dataclass
class Checkpoint:
    """The claimed row of an import; `state` is what its last batch said, empty before the first."""

    storage: Storage
    claimed: Range
    state: dict[str, Any]

    @classmethod
    def claim(cls, storage: Storage, name: str, shown: str, *, anew: bool) -> Checkpoint:
        """Claim the row, which is made if there is none; `anew` forgets what it says.

        Raises `LeaseHeld` while another process works on the same import.
        """
        with storage.transaction(TransactionMode.CATALOG) as connection:
            if not open_ranges(connection, name):
                insert_ranges(connection, name, [(None, None)], fence=draw_first_fence())
        claimed = claim(storage, name, Owner.here())
        if claimed is None:
            raise LeaseHeld(
                "another process is importing this source into this table",
                source=shown,
                hint="wait until it has finished; if it has died, try again in some seconds",
            )
        state = {}
        if claimed.resume_after is not None and not anew:
            state = json.loads(claimed.resume_after)
        return cls(storage, claimed, state)

    def save(self, connection: Connection, state: dict[str, Any], read: int, written: int) -> None:
        """Note what a batch has done, in its transaction; raises `LeaseLost`."""
        packed = json.dumps(state).encode()
        record_progress(connection, self.claimed, packed, BatchCounts(read, written))

    def release(self) -> None:
        """Let the next run go on at once."""
        give_back(self.storage, self.claimed)

    def forget(self) -> None:
        """Take the row away: the import has ended."""
        forget_all([self])


def forget_all(checkpoints: Sequence[Checkpoint]) -> None:
    """Take the rows of one import away, all or none: it has ended.

    Its job is to be done before. A process that is killed between goes on behind the last row when
    it is run again; without the rows it would import everything once more.
    """
    if not checkpoints:
        return
    with checkpoints[0].storage.transaction(TransactionMode.CATALOG) as connection:
        for claimed in (one.claimed for one in checkpoints):
            connection.core_execute(
                sa.delete(RANGES).where(
                    RANGES.c.job == claimed.job, RANGES.c.fence == claimed.fence
                )
            )
