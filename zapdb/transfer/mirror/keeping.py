"""A mirror that an application keeps: a job of its database."""

from __future__ import annotations

import threading
from collections.abc import Callable

from zapdb.database import Database
from zapdb.jobs.exclusive import noted_as_job
from zapdb.transfer.mirror.mirror import Mirror
from zapdb.transfer.mirror.mirror_run import begin_mirror, run_mirror
from zapdb.transfer.mirror.mirror_structure import MirrorReport
from zapdb.transfer.mirror.target_opening import open_target


def keep_mirror(
    db: Database,
    to: str,
    *,
    once: bool = False,
    stop: threading.Event | None = None,
    on_wait: Callable[[str], object] | None = None,
    foreign_keys: bool | None = None,
) -> MirrorReport:
    """Keep plain tables of a tenant's records in another database until `stop` is set, or `once` up
    to the last change; in a thread or a process of its own. `to` is what `zapdb mirror run --to`
    takes. The tables have foreign keys where the target can have them, unless `foreign_keys` is
    False; that is kept for later calls.

    Switches the change log on. It is a job of `db.jobs`: paused, it waits here, and `on_wait` is
    called with the reason, as while the target can't be reached. Called again, it goes on where it
    was. Raises `LeaseHeld` while a process keeps the same mirror, `JobError` if the job is
    cancelled, and `UsageError` for a target that is the mirror of something else.
    """
    target = open_target(to, db._storage)
    mirror = Mirror(db, target, foreign_keys=foreign_keys)
    try:
        begin_mirror(mirror, once=once)
        with noted_as_job(db._session, "mirror", target.shown, on_wait=on_wait) as job:
            mirror.pace = job
            run_mirror(
                mirror,
                once=once,
                stop=stop,
                report=lambda mirror: mirror.report.tell(job),
                wait=on_wait or (lambda _: None),
                keep_pace=lambda: job.note(0),
            )
    finally:
        target.close()
    return mirror.report
