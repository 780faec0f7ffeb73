"""Each call of the file system fails once while a store is followed, merged, moved, erased from and
purged: zapdb tells an error, each moment is as before or as wanted, and no file is half there."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from tests import forms
from tests.contract.stored_pasts import check_store, flush, read_manifest
from tests.contract.test_history_erased import (
    ANOTHER,
    KEY,
    all_names,
    assert_gone,
    make_people,
)
from tests.support import Workspace
from zapdb.catalog.cluster.leases import Owner
from zapdb.database import Database
from zapdb.errors import CorruptionError, StorageError, UsageError
from zapdb.past.files.cleaning import delete_orphans, delete_retired
from zapdb.past.files.erased_files import finish_erasures
from zapdb.past.files.stores import hold_store

CALLS = (
    (Path, "open"),
    (Path, "mkdir"),
    (Path, "rename"),
    (Path, "stat"),
    (Path, "unlink"),
    (os, "fsync"),
    (parquet.ParquetWriter, "__init__"),
    (parquet.ParquetWriter, "write_table"),
    (parquet.ParquetWriter, "close"),
    (parquet, "ParquetFile"),
    (parquet, "read_metadata"),
    (parquet, "read_table"),
)
Names = dict[int, dict[str, str]]


class Fault:
    """The n-th call fails; others don't."""

    def __init__(self, at: int, code: int, places: tuple[Path, ...]) -> None:
        self.left, self.code, self.places = at, code, places
        self.failed = ""

    def around(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def act(*arguments: Any, **named: Any) -> Any:
            first = arguments[0] if arguments else None
            if not isinstance(first, Path) or any(p in first.parents for p in self.places):
                self.left -= 1
                if self.left == 0:
                    self.failed = name
                    raise OSError(self.code, os.strerror(self.code), "planned")
            return call(*arguments, **named)

        return act

    @contextmanager
    def planned(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for owner, name in CALLS:
                patch.setattr(owner, name, self.around(name, getattr(owner, name)))
            yield


def fail_at_each(
    places: tuple[Path, ...], work: Callable[[], object], check: Callable[[], object]
) -> set[str]:
    """Let the next call fail each time that the work is begun again; return which have."""
    apart = 1 if forms.is_long else 9
    failed, at = set[str](), 1
    while True:
        fault = Fault(at, (errno.ENOSPC, errno.EIO)[at % 2], places)
        try:
            with fault.planned():
                work()
        except (StorageError, CorruptionError, UsageError):
            assert fault.failed
        failed.add(fault.failed)
        check()
        if not fault.failed:
            return failed
        at += apart


@pytest.mark.long_on("postgresql")
def test_h10_each_call_of_the_file_system_fails_once(workspace: Workspace, tmp_path: Path) -> None:
    place, cold = tmp_path / "store", tmp_path / "cold"
    db = make_people(workspace, place)
    db.admin.set_setting("history_grace_seconds", "0")
    people, places = db.table("people"), (place, cold)
    began = read_manifest(db)[0].begins
    kept: Names = {}
    wanted: Names = {}

    def check() -> None:
        assert db.history.verify(sample=0).problems == ()
        store, _, _ = read_manifest(db)
        first = max(began, store.purged_before)
        for moment, names in all_names(db, first).items():
            if moment in kept:  # others are of events
                assert names in (kept[moment], wanted.get(moment))

    # Following and merging.
    for turn in range(4):
        people.update(ANOTHER, name=f"New{turn}")
        people.update(f"{turn}@example.org", name=f"new{turn}")
    kept |= all_names(db, began)
    failed = fail_at_each(places, lambda: flush(db), check)
    check_store(db)

    # Moving old eras.
    newest = next(db.moments()).number
    failed |= fail_at_each(places, lambda: db.history.move(newest, cold), check)

    # Erasing.
    people.delete(KEY)
    flush(db)
    kept |= all_names(db, began)
    wanted |= {m: {k: v for k, v in n.items() if k != KEY} for m, n in kept.items()}

    def erase() -> None:
        if db.history.status().unfinished_erasures:
            with hold_store(db._storage, 1, Owner.here()) as working:
                finish_erasures(working)
        elif KEY in all_names(db, began)[began]:
            db.history.erase("people", KEY)

    failed |= fail_at_each(places, erase, check)
    assert db.history.status().unfinished_erasures == 0
    assert_gone(workspace, place)
    assert_gone(workspace, cold)
    flush(db)

    # Purging.
    kept = all_names(db, began)
    cut = read_manifest(db)[0].ends - 1

    def purge() -> None:
        db.history.purge(cut, exact=True)
        with hold_store(db._storage, 1, Owner.here()) as working:
            delete_retired(working)

    failed |= fail_at_each(places, purge, check)
    assert len(failed) > 4
    if forms.is_long:
        assert failed >= {"fsync", "rename", "unlink", "stat", "mkdir", "write_table", "open"}
    check_end(db, places, kept, cut)


def check_end(db: Database, places: tuple[Path, ...], kept: Names, cut: int) -> None:
    """All is as it was, from one moment on, and no file is left that no row names."""
    left = {moment: names for moment, names in kept.items() if moment >= cut}
    found = all_names(db, cut)
    assert {moment: found[moment] for moment in left} == left
    with hold_store(db._storage, 1, Owner.here()) as working:
        delete_retired(working)
        delete_orphans(working, age_seconds=-1)
    store, _, files = read_manifest(db)
    there = {path for place in places for path in place.rglob("*") if path.is_file()}
    there -= {path for place in places for path in place.glob("1/manifest-*.json")}
    assert there == {file.place_in(store.directory) for file in files}
