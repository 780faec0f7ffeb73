"""Erasing a record, or fields, from the files of a history store: each file that has something of
it is written anew without it.

A new file takes the place of the old one in one transaction of the manifest, so that readers see
one or the other. The old ones are deleted when no reader has pinned them any more, but after the
grace at the latest; and so are files of killed work, which may hold anything.

All files of moments that count a change of the record take the places of the old ones in one
transaction, with which the erasure has this behind it: nothing is subtracted twice.

It can be killed anywhere: the erasure has its row until all is done, and begins again with what is
left.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from zapdb.catalog.cluster.leases import delete_lease, list_leases
from zapdb.catalog.settings import HISTORY_GRACE_SECONDS, Scope
from zapdb.catalog.stored_settings import read_settings
from zapdb.jobs.erased_keys import forget_examples
from zapdb.limits import HISTORY_PINS, RECORD_KEY_SIZE_BYTES_MAX
from zapdb.past.files.cleaning import delete_files, delete_orphans, find_first_pin
from zapdb.past.files.directories import is_there
from zapdb.past.files.field_erasing import erase_from_database
from zapdb.past.files.history_erasures import Erasure, list_unfinished, write_proof
from zapdb.past.files.history_manifest import (
    NO_TABLE,
    PIN_PREFIX,
    HistoryEra,
    HistoryFile,
    HistoryStore,
    list_eras,
    list_history_files,
    list_timelines,
)
from zapdb.past.files.redaction import WithoutChanges, find_changes, find_redaction
from zapdb.past.files.rewriting import rewrite_file
from zapdb.past.files.states import open_file
from zapdb.past.files.store_changes import StoreChange, StoreCommit
from zapdb.past.files.working_store import StoreWriter
from zapdb.storage import Connection, TransactionMode
from zapdb.storage.retries import attempts
from zapdb.storage.statements import raise_catalog_version

Listed = Sequence[tuple[HistoryStore, Sequence[HistoryFile]]]
"""Timelines, and those of their files that may have the record."""
ABOVE_ALL_KEYS: Final = b"\xff" * (RECORD_KEY_SIZE_BYTES_MAX + 1)


def finish_erasures(working: StoreWriter, *, now: bool = False) -> list[Erasure]:
    """Finish what was begun to be erased; return those erasures. With `now`, files that readers
    have pinned are deleted, too.

    Raises `HistoryUnreachable` while a directory is not there, `HistoryDamaged` for a file that
    can't be read, and `DiskFull`.
    """
    unfinished = list_unfinished(working.storage.connection(), working.tenant)
    if unfinished:
        working.load()
    return [_finish(working, erasure, now=now) for erasure in unfinished]


def _finish(working: StoreWriter, erasure: Erasure, *, now: bool) -> Erasure:
    if erasure.fields:
        erasure = erase_from_database(working, erasure)
    with working.storage.transaction(TransactionMode.READ) as connection:
        timelines = list_timelines(connection, working.tenant)
        listed = [(store, _list_candidates(connection, store, erasure)) for store in timelines]
    if erasure.counted is not None:
        erasure = _erase_from_moments(working, erasure, listed)
    searched = 0
    for store, files in listed:
        for file in files:
            erasure = _erase_from(working, store, file, erasure)
            searched += 1
    # Pasts that are open, in whatever process, drop what they have in memory and look again.
    with working.changing(TransactionMode.DDL) as connection:
        raise_catalog_version(connection, working.tenant)
        forgotten = forget_examples(connection, working.tenant)
        examples = erasure.proof.examples + forgotten
        erasure = replace(erasure, proof=msgspec.structs.replace(erasure.proof, examples=examples))
        write_proof(connection, erasure)
    deleted = _delete_former(working, erasure, now=now)
    deleted += delete_orphans(working, age_seconds=-1, strict=True)
    with working.changing() as connection:
        proof = msgspec.structs.replace(
            erasure.proof,
            files_searched=searched,
            files_deleted=erasure.proof.files_deleted + deleted,
        )
        finished_at = working.storage.now_us(connection)
        erasure = replace(erasure, proof=proof, key=None, finished_at=finished_at)
        write_proof(connection, erasure)
    return erasure


def _list_candidates(
    connection: Connection, store: HistoryStore, erasure: Erasure, state: Any = "live"
) -> list[HistoryFile]:
    """Return the files whose keys are around the one that is erased; all if there is none."""
    key, table = erasure.key, erasure.table_number
    return [
        file
        for file in list_history_files(connection, store, table=table, state=state)
        if file.key_lower is not None
        and file.key_upper is not None
        and (key is None or file.key_lower <= key <= file.key_upper)
    ]


def _erase_from(
    working: StoreWriter, store: HistoryStore, file: HistoryFile, erasure: Erasure
) -> Erasure:
    """Put a file without the record in the place of one, if that has it."""
    if not is_there(store, file):  # nothing can be read there; `verify` tells
        if not erasure.fields and erasure.key in (file.key_lower, file.key_upper):
            _hide_key(working, store, file)
        return erasure
    reader = open_file(store.directory, file)
    redaction = find_redaction(working, reader, erasure)
    rows, made = rewrite_file(working, store, reader, redaction)
    if not rows:
        return erasure
    change = StoreChange(files=made, retired=[file])
    if not erasure.fields:
        with working.storage.transaction(TransactionMode.READ) as connection:
            change.eras = list(_count_less(list_eras(connection, store), file, rows))
    with working.committing([StoreCommit(store, store, change)]) as connection:
        proof = erasure.proof
        proof = msgspec.structs.replace(
            proof, files_rewritten=proof.files_rewritten + 1, rows=proof.rows + rows
        )
        erasure = replace(erasure, proof=proof)
        write_proof(connection, erasure)
    return erasure


def _erase_from_moments(working: StoreWriter, erasure: Erasure, listed: Listed) -> Erasure:
    """Take an erased record out of the counts of moments; `listed` has the newest timeline
    first."""
    commits, log_ends = list[StoreCommit](), math.inf
    for store, files in listed:
        in_files = find_changes(store, [one for one in files if is_there(store, one)], erasure)
        redaction = WithoutChanges(erasure, store.begins, in_files, log_ends)
        change = StoreChange()
        with working.storage.transaction(TransactionMode.READ) as connection:
            of_moments = list_history_files(connection, store, table=NO_TABLE)
        for file in of_moments:
            if is_there(store, file):
                reader = open_file(store.directory, file)
                rows, made = rewrite_file(working, store, reader, redaction)
                change.files += made
                change.retired += [file] if rows else []
        if change.files:
            commits.append(StoreCommit(store, store, change))
        log_ends = min(log_ends, store.begins)
    erasure = replace(erasure, counted=None)
    with working.committing(commits) as connection:
        write_proof(connection, erasure)
    return erasure


def _hide_key(working: StoreWriter, store: HistoryStore, file: HistoryFile) -> None:
    """Put wider bounds into the row of a file that is not there, of which the key is one."""
    change = StoreChange(corrected=[replace(file, key_lower=b"", key_upper=ABOVE_ALL_KEYS)])
    with working.committing([StoreCommit(store, store, change)]):
        pass


def _count_less(eras: list[HistoryEra], file: HistoryFile, rows: int) -> Iterator[HistoryEra]:
    for era in eras:
        if era.place != file.place:
            continue
        if file.kind == "checkpoint":
            yield replace(era, live_rows=max(0, era.live_rows - rows))
        elif file.kind == "segment":
            yield replace(era, changes=max(0, era.changes - rows))


def _delete_former(working: StoreWriter, erasure: Erasure, *, now: bool) -> int:
    """Delete the retired files that may hold the record, and then their rows; return how many."""
    _break_pins(working, _wait_for_pins(working, now=now))
    with working.storage.transaction(TransactionMode.READ) as connection:
        gone = [
            (store, file)
            for store in list_timelines(connection, working.tenant)
            for file in [
                *_list_candidates(connection, store, erasure, "retired"),
                *_list_former_moments(connection, store, erasure),
            ]
        ]
    return delete_files(working, gone, strict=True)


def _list_former_moments(
    connection: Connection, store: HistoryStore, erasure: Erasure
) -> list[HistoryFile]:
    """Return the files of moments that may have the key of a record."""
    if erasure.fields:
        return []
    return list_history_files(connection, store, table=NO_TABLE, state="retired")


def _wait_for_pins(working: StoreWriter, *, now: bool) -> int:
    """Wait until no reader has pinned the files, for the grace at most; return since when readers
    have pinned others."""
    connection = working.storage.connection()
    settings = read_settings(connection, working.tenant)
    grace = int(settings.find(HISTORY_GRACE_SECONDS, Scope(working.tenant))[0])
    began = working.storage.now_us(connection)
    for _ in attempts(HISTORY_PINS.within(0.0 if now else grace)):
        present = working.storage.now_us(connection)
        if find_first_pin(connection, working.tenant, present) >= began:
            break
    return began


def _break_pins(working: StoreWriter, before: int) -> None:
    """Tell those whose pins are left that their files go: they look for their leases when the
    catalog has another version, or a file is missing."""
    with working.changing(TransactionMode.DDL) as connection:
        pins = list_leases(connection, f"{PIN_PREFIX}{working.tenant}/")
        left = [lease for lease in pins if lease.since < before]
        for lease in left:
            delete_lease(connection, lease.name)
        if left:
            raise_catalog_version(connection, working.tenant)
