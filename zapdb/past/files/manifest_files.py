"""The manifest beside the files: a copy of a timeline's rows, written with each commit.

The rows of the database say which files count. Should they be lost, the directory alone could not
tell live files from retired ones, nor from those of work that did not end. So each transaction that
changes which files or eras a timeline has writes these rows into a file before, with the number of
the commit: the manifest with the highest number is what is, or was about to be, in the database.
The ones before it are deleted as soon as the transaction is over.

So a manifest of a later commit than that of the row is of another database that has moved the store
on: one that this one is a copy of, or that was put back from a backup. If there is one of more than
a commit later, the former one could not be deleted. Such a database must not write beside it, nor
delete what it does not know. Two databases that commit the same number at once are not told apart:
see decision 58.

It has no keys of records, which an erasure would have to find here: those of a file are read from
that again.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec

from zapdb.errors import HistoryDamaged, UsageError
from zapdb.limits import HISTORY_MANIFEST_SIZE_BYTES_MAX
from zapdb.past.files.history_file import writing_new
from zapdb.past.files.history_manifest import (
    HISTORY_FORMAT,
    NAMED,
    HistoryEra,
    HistoryFile,
    HistoryStore,
    list_timelines,
)
from zapdb.storage import Storage

DIGEST_DIGITS: Final = 32
"""How much of the SHA-256 of its bytes stands in a manifest's name."""
LATER: Final = "the directory of the history store has later commits than the database"
_NAME: Final = re.compile(
    f"manifest-{NAMED.pattern}-[0-9]{{1,19}}-[0-9a-f]{{{DIGEST_DIGITS}}}[.]json"
)


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """The live rows of one timeline as of the commit `store.commits`; files without their keys.

    `database` is the id of the database, `written_at` when it was written, in microseconds, and
    `place` where the database was: a copy of it has the same id.
    """

    format: int
    database: str
    written_at: int
    store: HistoryStore
    eras: list[HistoryEra]
    files: list[HistoryFile]
    place: str = ""

    @property
    def order(self) -> tuple[int, int]:
        """By which the newest is found. Two may have one number, if one was given up."""
        return self.store.commits, self.written_at


def write_manifest(made: ManifestFile) -> Path:
    """Write a manifest into its store's directory, and return its path; raises `OSError`."""
    plain = [replace(file, key_lower=None, key_upper=None) for file in made.files]
    raw = msgspec.json.encode(replace(made, files=plain))
    directory = Path(made.store.directory) / str(made.store.tenant)
    digest = hashlib.sha256(raw).hexdigest()[:DIGEST_DIGITS]
    path = directory / f"manifest-{made.store.timeline}-{made.store.commits}-{digest}.json"
    with writing_new(path) as file:
        file.write(raw)
    return path


def read_manifest_file(path: Path) -> ManifestFile:
    """Raises `HistoryDamaged` for a file that is not what was written, and `OSError`."""
    if path.stat().st_size > HISTORY_MANIFEST_SIZE_BYTES_MAX:
        limit = f"{HISTORY_MANIFEST_SIZE_BYTES_MAX:,}"
        raise _damaged(path, f"it is too large for a manifest (limit: {limit} bytes)")
    raw = path.read_bytes()
    if hashlib.sha256(raw).hexdigest()[:DIGEST_DIGITS] != path.stem.rpartition("-")[2]:
        raise _damaged(path, "its digest is another one")
    try:
        form = msgspec.json.decode(raw, type=dict[str, Any]).get("format")
        if not isinstance(form, int) or form > HISTORY_FORMAT:
            raise _damaged(path, f"it has format {form}, and this release knows {HISTORY_FORMAT}")
        made = msgspec.json.decode(raw, type=ManifestFile)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _damaged(path, str(error)[:200]) from error
    contradiction = find_contradiction(made)
    if contradiction is not None:
        raise _damaged(path, contradiction)
    return made


def find_contradiction(made: ManifestFile) -> str | None:
    """Return what no commit has written: rows of others, eras and files twice or outside of what
    there is, and moments that no file has; None for a manifest that may be right."""
    store, eras, files = made.store, made.eras, made.files
    rows: list[HistoryEra | HistoryFile] = [*eras, *files]
    if any((one.tenant, one.timeline) != (store.tenant, store.timeline) for one in rows):
        return "it has rows of another tenant or timeline"
    if len({file.id for file in files}) != len(files):
        return "it names a file twice"
    if any(file.state != "live" for file in files):
        return "it names a retired file"
    known = {era.place for era in eras}
    if len(known) != len(eras):
        return "it has an era twice"
    for file in files:
        if file.kind != "moments" and file.place not in known:
            return f"file {file.id} is of no era"
        if file.last_moment > store.ends:
            return f"file {file.id} ends behind the store"
    return _find_contradicting_era(made) or _find_missing_moments(made)


def _find_contradicting_era(made: ManifestFile) -> str | None:
    # Of rows that have all ended, no checkpoint is left.
    begun = {file.place for file in made.files if file.kind in ("checkpoint", "ended")}
    last: HistoryEra | None = None
    for era in sorted(made.eras, key=lambda one: one.place):
        name = f"era {era.era} of table {era.table_number}"
        if max(era.first_moment, era.last_moment or 0) > made.store.ends:
            return f"{name} ends behind the store"
        if era.live_rows and era.state != "baseline" and era.place not in begun:
            return f"{name} has no checkpoint"
        is_next = last is not None and last.table_number == era.table_number
        if (
            last is not None
            and is_next
            and (last.last_moment or era.first_moment) >= era.first_moment
        ):
            return f"{name} begins before the end of the one before"
        last = era
    return None


def _find_missing_moments(made: ManifestFile) -> str | None:
    reached = first = max(made.store.begins, made.store.purged_before - 1)
    for file in sorted(made.files, key=lambda one: one.first_moment):
        if file.kind == "moments":
            if file.first_moment > reached + 1:
                break
            reached = max(reached, file.last_moment)
    if reached < made.store.ends:
        return f"no file has the moments {reached + 1} to {made.store.ends}"
    return None if first <= made.store.ends else "it was purged behind its end"


def _damaged(path: Path, cause: str) -> HistoryDamaged:
    return HistoryDamaged(
        "this is not a manifest of a history store",
        path=str(path),
        cause=cause,
        hint="restore it from a backup",
    )


def list_manifests(directory: Path, tenant: int) -> Iterator[Path]:
    """Yield the manifests of a tenant in a store's directory; raises `OSError` if it can't be
    looked through."""
    inside = directory / str(tenant)
    for name in sorted(os.listdir(inside)) if inside.is_dir() else []:  # noqa: PTH208 - a third of it
        if _NAME.fullmatch(name):
            yield inside / name


def delete_former_manifests(store: HistoryStore, database: str, kept: Path) -> None:
    """Delete the manifests of a timeline's earlier commits, and of those that were given up. What
    can't be deleted now is deleted with the next commit."""
    with suppress(OSError):
        for path in list_manifests(Path(store.directory), store.tenant):
            named, number = path.stem.removeprefix("manifest-").split("-")[:2]
            is_former = named == store.timeline and int(number) <= store.commits
            if path != kept and is_former and is_of_database(path, database):
                path.unlink()


def is_of_database(path: Path, database: str) -> bool:
    """Whether a manifest is of a database, as it begins: so that rows that somebody else wrote
    delete no others."""
    begins = msgspec.json.encode({"format": HISTORY_FORMAT, "database": database})[:-1]
    with path.open("rb") as file:
        return file.read(len(begins)) == begins


def is_superseded(storage: Storage, store: HistoryStore) -> bool:
    """Return whether another database has moved a store on, whose row was just read; raises
    `OSError`."""
    if not _is_ahead(store):
        return False
    timelines = storage.read_in_own_transaction(
        lambda connection: list_timelines(connection, store.tenant)
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
