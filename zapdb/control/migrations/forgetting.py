"""Forgetting migrations that were rolled back and are kept."""

from __future__ import annotations

from dataclasses import dataclass

from zapdb.catalog.feed import read_seq
from zapdb.control.migrations.comparing import KeptStatus, list_kept_migrations
from zapdb.control.target import Target
from zapdb.jobs.archive_pruning import forget_migrations


@dataclass(frozen=True, slots=True)
class Forgetting:
    """The migrations that were forgotten, the newest first; `values` is how many archived values
    were deleted that only they had made. A process whose catalog cache has the seq sees it."""

    forgotten: tuple[KeptStatus, ...]
    values: int
    seq: int


def forget(target: Target, evict: bool = False, dry_run: bool = False) -> Forgetting:
    """Forget all migrations that were rolled back and are kept: nobody is served the schemas that
    they lead to any more, and the values that only they made are deleted. With `dry_run`, only
    answers which these are.

    Raises `UsageError` while live processes are served one of them, unless they are to be evicted
    (`evict`).
    """
    target.require_rows()
    storage = target.storage
    with target.reading() as connection:
        known = list_kept_migrations(connection)
    gone, values = known, 0
    if not dry_run:
        done, values = forget_migrations(storage, now=True, evict=evict)
        forgotten = {(one.number, one.digest) for one in done}
        gone = tuple(one for one in known if (one.number, one.digest) in forgotten)
    return Forgetting(gone, values, read_seq(storage.connection()))
