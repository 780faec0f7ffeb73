"""Whether another database has moved a store on: one that this one is a copy of, or that was
put back from a backup.

Such a database must not write beside it, nor delete what it does not know. The manifest of a
timeline's last commit stays in the directory until the next commit is in the database. So if that
of the row is not there, and a later one is, another database has committed. So it has if there is
one of more than a commit later: then the former one could not be deleted.

Two databases that commit the same number at once are not told apart: see decision 58.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from zapdb.errors import UsageError
from zapdb.past.files.history_manifest import HistoryStore, list_timelines
from zapdb.past.files.manifest_files import list_manifests
from zapdb.storage import Storage
from zapdb.storage.outside import read_in_own_transaction

LATER: Final = "the directory of the history store has later commits than the database"


def is_superseded(storage: Storage, store: HistoryStore) -> bool:
    """Return whether another database has moved a store on, whose row was just read; raises
    `OSError`."""
    if not _is_ahead(store):
        return False
    timelines = read_in_own_transaction(
        storage, lambda connection: list_timelines(connection, store.tenant)
    )
    now = {one.timeline: one.commits for one in timelines}
    return now.get(store.timeline) == store.commits  # else this database has moved it on


def require_not_superseded(storage: Storage, store: HistoryStore) -> None:
    """Raise `UsageError` if the directory has later commits of a timeline than the database, whose
    row was just read; and `OSError`."""
    if is_superseded(storage, store):
        raise UsageError(
            LATER,
            directory=store.directory,
            tenant=store.tenant,
            hint="nothing was written: if the database was restored from a backup, run `zapdb "
            "history rebuild-manifest`; if it is a copy of one that is in use, give it files of "
            "its own: `zapdb history move --to DIRECTORY`",
        )


def _is_ahead(store: HistoryStore) -> bool:
    numbers = {
        int(number)
        for path in list_manifests(Path(store.directory), store.tenant)
        for named, number in [path.stem.removeprefix("manifest-").split("-")[:2]]
        if named == store.timeline
    }
    newest = max(numbers, default=0)
    # One commit may be left that was given up, beside the one before; no more than one.
    return newest > store.commits and (store.commits not in numbers or newest > store.commits + 1)
