"""Rebuilding the manifest of a history store: from its directory alone, all is as it was, and what
was replaced, purged or erased stays away."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from tests.contract.stored_pasts import (
    begin,
    check_store,
    current_state,
    flush,
    read_manifest,
    stored_state,
    write_some,
)
from tests.contract.tables import ADD_COLOR, ITEMS
from tests.contract.test_backups import copy_to, dsn_of, run
from tests.contract.test_history_erased import (
    ANOTHER,
    KEY,
    all_names,
    assert_gone,
    delete_and_drop,
    kill_at_each_step,
    list_marked,
    make_people,
    names_at,
)
from tests.contract.test_history_store import LATER
from tests.forms import cases
from tests.support import PostgresServer, Workspace
from zapdb.catalog.cluster.leases import Owner
from zapdb.database import Database
from zapdb.errors import HistoryDamaged, HistoryPurged, UsageError, ZapdbError
from zapdb.past.files.cleaning import delete_orphans
from zapdb.past.files.file_columns import FIELD_ID
from zapdb.past.files.history_file import ROW_GROUP_ROWS, read_digest
from zapdb.past.files.history_manifest import HistoryEra, HistoryFile, HistoryStore
from zapdb.past.files.manifest_files import (
    ManifestFile,
    list_manifests,
    read_manifest_file,
    write_manifest,
)
from zapdb.past.files.stores import hold_store

Manifest = tuple[HistoryStore, list[HistoryEra], list[HistoryFile]]
ROWS = ("stores", "files", "eras")


def lose_manifest(workspace: Workspace) -> None:
    for name in ROWS:
        workspace.execute(f"DELETE FROM zapdb_history_{name}")


def rebuild(workspace: Workspace, db: Database, directory: Path) -> Manifest:
    """Lose the rows and make them anew, in another process than the one that read them."""
    lose_manifest(workspace)
    planned = db.history.rebuild_manifest(directory, dry_run=True)
    with pytest.raises(UsageError, match="has no history store"):
        db.history.status()
    assert db.history.rebuild_manifest(directory) == planned
    return read_manifest(db)


def newest(db: Database) -> int:
    return next(db.moments()).number


@pytest.mark.parametrize("seed", range(cases(4)))
def test_h1_after_a_life_all_rows_and_moments_are_as_they_were(
    workspace: Workspace, tmp_path: Path, seed: int
) -> None:
    rnd, place, cold = random.Random(seed), tmp_path / "store", tmp_path / "cold"
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    write_some(db, rnd)
    begin(db, place)
    db.admin.set_setting("history_store_flush_changes", "6")
    db.admin.set_setting("history_checkpoint_percent", str(rnd.choice((1, 50, 100))))
    states, later, kept_from = {newest(db): current_state(db)}, list(LATER), 0
    for turn in range(30):
        chance = rnd.random()
        if chance < 0.6:
            write_some(db, rnd)
            states[newest(db)] = current_state(db)
        elif chance < 0.8:
            flush(db)
        elif chance < 0.88 and later:
            db.close()
            workspace.write(2 + len(LATER) - len(later), later.pop(0))
            db = workspace.open()
        elif chance < 0.94:
            cut = flush(db).ends
            kept_from = max(kept_from, rnd.choice([n for n in states if n <= cut]))
            db.history.purge(kept_from, exact=rnd.random() < 0.5)
        else:
            db.history.move(flush(db).ends, cold)
        if turn % 10 == 9:
            wanted = read_manifest(db)
            found = rebuild(workspace, db, place)
            assert found[0] == wanted[0]
            assert found[1:] == wanted[1:]
    store = flush(db)
    for moment, state in states.items():
        if max(store.begins, kept_from) <= moment:
            assert stored_state(db, moment) == state, moment
    assert db.history.verify(sample=20).problems == ()
    if not kept_from:
        check_store(db)


@pytest.mark.long_on("sqlite")
def test_h13_what_was_erased_or_purged_does_not_come_back(
    workspace: Workspace, tmp_path: Path
) -> None:
    """The former files are still there when the rows are lost: of a reader that has pinned them, or
    put back from a backup of the directory."""
    place, backup = tmp_path / "store", tmp_path / "backup"
    db = delete_and_drop(workspace, make_people(workspace, place))
    store = flush(db)
    shutil.copytree(place, backup)
    assert db.history.erase("people", KEY).rows > 0
    wanted, before = read_manifest(db), all_names(db, store.begins)
    for path in backup.rglob("*.parquet"):
        again = place / path.relative_to(backup)
        if not again.exists():
            shutil.copy(path, again)
    assert list_marked(place)
    assert rebuild(workspace, db, place) == wanted
    assert all_names(db, store.begins) == before
    live = {str(file.place_in(place)) for file in wanted[2]}
    assert not live & set(list_marked(place))
    with hold_store(db._storage, 1, Owner.here()) as working:
        assert delete_orphans(working, age_seconds=-1) > 0
    assert_gone(workspace, place)
    # A purge stays, too, though its files are there for the grace.
    cut = flush(db).ends
    db.history.purge(cut)
    flush(db)
    db.change_log.prune(db.change_log.end())
    wanted = read_manifest(db)
    assert rebuild(workspace, db, place) == wanted
    assert wanted[0].purged_before == cut
    with pytest.raises(HistoryPurged):
        db.at(cut - 1).table("people").get(KEY)
    # With a manifest from before it, files that were written since tell.
    for path in list_manifests(place, 1):
        path.unlink()
    for path in list_manifests(backup, 1):
        shutil.copy(path, place / "1")
    lose_manifest(workspace)
    with pytest.raises(UsageError, match=r"newest manifest .* is missing"):
        db.history.rebuild_manifest(place)


@pytest.mark.long_on("sqlite")
def test_h3_killed_at_each_step_a_rebuilding_is_whole_or_not_there(
    workspace: Workspace, tmp_path: Path
) -> None:
    place = tmp_path / "store"
    db = make_people(workspace, place)
    wanted, before = read_manifest(db), all_names(db, 0)
    lose_manifest(workspace)
    assert kill_at_each_step(workspace, "rebuild", str(place), apart=1) > 0
    assert read_manifest(db) == wanted
    assert all_names(db, 0) == before
    db.table("people").insert(mail="later@example.org", name="PendingRows")
    flush(db)
    check_store(db)


def back_up(workspace: Workspace, server: PostgresServer, file: Path) -> Callable[[], object]:
    """Copy the database; returns what puts it back."""
    if workspace.engine == "sqlite":
        database = Path(workspace.address.removeprefix("sqlite:///"))
        workspace.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        shutil.copy(database, file)

        def put_back() -> None:
            workspace.control.close()
            workspace._control = None
            for suffix in ("-wal", "-shm"):
                database.with_name(database.name + suffix).unlink(missing_ok=True)
            shutil.copy(file, database)

        return put_back
    dsn = dsn_of(server, workspace.address)
    run(server, "pg_dump", "--format=custom", f"--file={file}", f"--dbname={dsn}")
    restore = "--clean", "--if-exists", "--no-owner", "--exit-on-error"
    return lambda: run(server, "pg_restore", *restore, f"--dbname={dsn}", str(file))


@pytest.mark.long_on("postgresql")
@pytest.mark.parametrize("is_written_to", [False, True])
def test_an_older_backup_has_the_past_up_to_its_log(
    workspace: Workspace, postgres: PostgresServer, tmp_path: Path, is_written_to: bool
) -> None:
    """With eras, merges and a migration behind the backup; where it was written to before, the
    moments since have numbers that files have, too."""
    place, rnd = tmp_path / "store", random.Random(7)
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    write_some(db, rnd)
    begin(db, place)
    db.admin.set_setting("history_store_flush_changes", "6")
    states = {newest(db): current_state(db)}
    for _ in range(4):
        write_some(db, rnd)
        flush(db)
        states[newest(db)] = current_state(db)
    cut = newest(db)
    db.close()
    put_back = back_up(workspace, postgres, tmp_path / "backup")
    db = workspace.open()
    for _ in range(4):
        write_some(db, rnd)
        flush(db)
    db.close()
    workspace.write(2, ADD_COLOR)
    db = workspace.open()
    write_some(db, rnd)
    commits = flush(db).commits
    db.close()
    put_back()
    (workspace.directory / "0002_test.yaml").unlink()
    db = workspace.open()
    if is_written_to:
        for _ in range(3):
            write_some(db, rnd)
            states[newest(db)] = current_state(db)
    assert kill_at_each_step(workspace, "rebuild", str(place)) > 0
    store, _, _ = read_manifest(db)
    assert (store.ends, store.state) == (cut, "follows")
    assert store.commits > commits  # for who is behind, and may still be there
    write_some(db, rnd)
    states[newest(db)] = current_state(db)
    for _ in range(2):
        for moment, state in states.items():
            if moment <= read_manifest(db)[0].ends:
                assert stored_state(db, moment) == state, moment
        assert db.history.verify(sample=20).problems == ()
        flush(db)
    check_store(db)


@pytest.mark.parametrize("is_left", [False, True])
def test_h3_a_copy_of_the_database_leaves_the_files_to_the_one_that_moved_on(
    workspace: Workspace, postgres: PostgresServer, tmp_path: Path, is_left: bool
) -> None:
    """A backup that was put back, or a copy for tests, which somebody follows by mistake."""
    place = tmp_path / "store"
    db = make_people(workspace, place)
    db.close()
    put_back = back_up(workspace, postgres, tmp_path / "backup")
    (former,) = list_manifests(place, 1)
    raw, db = former.read_bytes(), workspace.open()
    for name in ("PendingRows", "Latest"):
        db.table("people").update(ANOTHER, name=name)
        flush(db)
    db.close()
    put_back()
    if is_left:  # it could not be deleted
        former.write_bytes(raw)
    db = workspace.open()
    files = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    with hold_store(db._storage, 1, Owner.here()) as working:
        assert delete_orphans(working, age_seconds=-1) == 0
        with pytest.raises(UsageError, match="later commits than the database"):
            delete_orphans(working, age_seconds=-1, strict=True)
    db.table("people").update(ANOTHER, name="Another")
    with pytest.raises(UsageError, match="later commits than the database"):
        db.history.flush()
    with pytest.raises(UsageError, match="later commits than the database"):
        db.history.purge(next(db.moments()).number - 1)
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == files
    db.history.rebuild_manifest(place)
    flush(db)
    assert names_at(db, next(db.moments()).number)[ANOTHER] == "Another"
    assert db.history.verify(sample=9).problems == ()


def test_h3_what_is_not_this_store_or_not_whole_is_refused(
    workspace: Workspace, tmp_path: Path
) -> None:
    place = tmp_path / "store"
    db = make_people(workspace, place)
    (manifest,) = list_manifests(place, 1)
    wanted = read_manifest(db)

    def refused(match: str, *, error: type[ZapdbError] = UsageError) -> dict[str, Any]:
        with pytest.raises(error, match=match) as caught:
            db.history.rebuild_manifest(place)
        return caught.value.context

    # The database has a later commit than the directory.
    workspace.execute("UPDATE zapdb_history_stores SET commits = commits + 1")
    refused("later rows")
    lose_manifest(workspace)
    with pytest.raises(UsageError, match="has no manifest"):
        db.history.rebuild_manifest(tmp_path)
    # It has a newer format, and its bytes are not what was written.
    found = read_manifest_file(manifest)
    assert {(file.key_lower, file.key_upper) for file in found.files} == {(None, None)}
    newer = write_manifest(replace(found, format=2))
    assert "this release knows 1" in refused("not a manifest", error=HistoryDamaged)["cause"]
    newer.unlink()
    raw = manifest.read_bytes()
    manifest.write_bytes(raw.replace(b'"follows"', b'"stopped"'))
    refused("not a manifest", error=HistoryDamaged)
    manifest.write_bytes(raw)
    # A file is missing, damaged, of something else, or of another tenant.
    victim = wanted[2][0].place_in(place)
    victim.rename(tmp_path / "away")
    assert refused("are missing")["files"] == 1
    whole = (tmp_path / "away").read_bytes()
    victim.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    assert refused("not what was written", error=HistoryDamaged)["path"] == str(victim)
    (tmp_path / "away").rename(victim)
    other = victim.with_name("other.parquet")
    other.write_bytes(b"other")
    refused("not a file of a history store", error=HistoryDamaged)
    other.unlink()
    db.admin.create_tenant("other")
    with pytest.raises(UsageError, match="has no manifest"):
        db.for_tenant("other").history.rebuild_manifest(place)
    shutil.copytree(place / "1", place / "2")
    with pytest.raises(UsageError, match="of another tenant"):
        db.for_tenant("other").history.rebuild_manifest(place)
    (tmp_path / "strange").mkdir()
    strange = f"sqlite:///{tmp_path / 'strange.db'}", tmp_path / "strange"
    with Workspace("sqlite", *strange) as stranger:
        stranger.write(1, ITEMS)
        with pytest.raises(UsageError, match="of another database"):
            stranger.open().history.rebuild_manifest(place)
    # Files of a commit that did not end don't matter.
    half = victim.with_name("segment-0.parquet.part")
    half.write_bytes(b"half")
    found = db.history.rebuild_manifest(place)
    assert found.unnamed > 0
    assert read_manifest(db) == wanted
    assert {file.sha256 for file in wanted[2]} == {
        read_digest(file.place_in(place)) for file in wanted[2]
    }
    # The directory has another place by now.
    former, place = str(place), place.rename(tmp_path / "renamed")
    store = replace(wanted[0], directory=str(place), former_directories=(former,))
    assert rebuild(workspace, db, place) == (store, *wanted[1:])
    assert db.history.verify(sample=9).problems == ()
    # The change log does not go on where the files end.
    db.table("people").update(ANOTHER, name="Lost")
    db.change_log.follower("zapdb.history").remove()
    db.change_log.prune(db.change_log.end())
    assert rebuild(workspace, db, place)[0].state == "broken"
    assert names_at(db, store.ends) == all_names(db, 0)[store.ends]


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_store_is_rebuilt_whose_tables_are_still_read_for_the_first_time(
    workspace: Workspace, tmp_path: Path
) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    db.table("items").insert(id=1, title="Milk")
    assert db.history.start(tmp_path / "store").unfinished == ("items",)
    store, eras, _ = rebuild(workspace, db, tmp_path / "store")
    assert (store.state, [era.state for era in eras]) == ("baseline", ["baseline"])
    assert db.history.flush().state == "follows"
    check_store(db)


@pytest.mark.parametrize("engine", ["sqlite"])
def test_h7_files_are_not_cut_where_they_were_purged(
    workspace: Workspace, postgres: PostgresServer, tmp_path: Path
) -> None:
    """The moment up to which the log of a backup has them is in a file that later ones kept."""
    place = tmp_path / "store"
    db = make_people(workspace, place)
    db.table("people").update(ANOTHER, name="Backed up")
    db.close()
    put_back = back_up(workspace, postgres, tmp_path / "backup")
    db = workspace.open()
    for turn in range(2):
        db.table("people").update(ANOTHER, name=f"Later {turn}")
    db.history.purge(flush(db).ends)
    db.close()
    put_back()
    db = workspace.open()
    with pytest.raises(UsageError, match="no moment in common"):
        db.history.rebuild_manifest(place)


@contextmanager
def copied(
    workspace: Workspace, server: PostgresServer, directory: Path
) -> Iterator[tuple[Workspace, Database]]:
    """A copy of the database, with the same migrations."""
    with ExitStack() as stack:
        if workspace.engine == "sqlite":
            workspace.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            shutil.copy(workspace.address.removeprefix("sqlite:///"), directory / "copy.db")
            address = f"sqlite:///{directory / 'copy.db'}"
        else:
            address = stack.enter_context(server.fresh_database())
            source, target = dsn_of(server, workspace.address), dsn_of(server, address)
            copy_to(server, source, target, directory / "copy.dump")
        copy = Workspace(workspace.engine, address, workspace.directory)
        stack.enter_context(copy)
        yield copy, copy.open()


def read_bytes(place: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}


@pytest.mark.on_each_engine
def test_h3_a_copy_of_the_database_moves_to_files_of_its_own(
    workspace: Workspace, postgres: PostgresServer, tmp_path: Path
) -> None:
    """Whether the original has moved the store on since or not; what was moved elsewhere is copied
    too. Both go on, and neither touches the files of the other."""
    place, own, cold = tmp_path / "store", tmp_path / "own", tmp_path / "cold"
    db = make_people(workspace, place)
    db.history.move(flush(db).ends, cold)
    for is_ahead in (False, True):
        with copied(workspace, postgres, tmp_path) as (there, copy):
            before = all_names(copy, 0)
            if is_ahead:
                for turn in range(3):
                    db.table("people").update(ANOTHER, name=f"Original {turn}")
                    flush(db)
                copy.table("people").update(ANOTHER, name="Copy")
                with pytest.raises(UsageError, match="later commits") as refused:
                    copy.history.flush()
                assert "history move --to" in refused.value.hint
            if is_ahead:  # and so it has another timeline, which the copy does not know
                (one,) = map(read_manifest_file, list_manifests(place, 1))
                store, *found = (
                    [replace(row, timeline="f" * 32) for row in rows]
                    for rows in ([one.store], one.eras, one.files)
                )
                write_manifest(replace(one, store=store[0], eras=found[0], files=found[1]))
            files = read_bytes(place) | read_bytes(cold)
            with pytest.raises(UsageError, match="in this directory already"):
                copy.history.move(None, place)
            (own / "1" / "1").mkdir(parents=True)
            (own / "1" / "1" / "mine.txt").write_text("mine")
            with pytest.raises(UsageError, match="has files already"):
                copy.history.move(None, own)
            shutil.rmtree(own)
            if not is_ahead:
                assert kill_at_each_step(there, "move_store", str(own), apart=9) > 0
            else:
                copy.history.move(None, own)
            assert copy.history.status().directory == str(own)
            assert there.execute("SELECT count(*) FROM zapdb_history_stores") == [(1,)]
            copy.table("people").update(ANOTHER, name="Copied")
            check_store_of(copy, own)
            copy.history.purge(flush(copy).ends)
            with hold_store(copy._storage, 1, Owner.here()) as working:
                assert delete_orphans(working, age_seconds=-1) >= 0
            found = all_names(copy, 0)
            assert {number: found[number] for number in before} == before
            assert read_bytes(place) | read_bytes(cold) == files
            db.table("people").update(ANOTHER, name="Original")
            flush(db)
            assert db.history.verify(sample=9).problems == ()
            with pytest.raises(UsageError, match="has a history store"):
                db.history.move(None, own)
            shutil.rmtree(own)


def check_store_of(db: Database, directory: Path) -> None:
    store = flush(db)
    assert store.directory == str(directory)
    assert all(file.directory is None for file in read_manifest(db)[2])
    assert db.history.verify(sample=9).problems == ()
    check_store(db)


def test_h3_hostile_files_are_refused_though_the_manifest_names_them(
    workspace: Workspace, tmp_path: Path
) -> None:
    """Their digests are right, and what they say of themselves."""
    place = tmp_path / "store"
    db = make_people(workspace, place)
    wanted = read_manifest(db)
    lose_manifest(workspace)
    (path,) = list_manifests(place, 1)
    manifest = read_manifest_file(path)
    for kind in ("checkpoint", "moments"):
        victim = next(file for file in manifest.files if file.kind == kind)
        there = victim.place_in(place)
        raw, rows = there.read_bytes(), parquet.read_table(there)
        deep = pyarrow.int8()
        for _ in range(60):
            deep = pyarrow.struct([("a", deep)])
        keys = pyarrow.array([bytes(2_000)] * rows.num_rows)
        too_long = "too large" if kind == "checkpoint" else "other columns"
        text = pyarrow.array([str(at) for at in range(rows.num_rows)])
        no_id, no_field, missing = ["other columns"] * 3
        if kind == "checkpoint":
            no_id, no_field = "'more' has no field id", "'more' has a field id of no field"
            missing = "none of its columns has the field id"
        for table, problem in (
            (rows.append_column("deep", pyarrow.nulls(rows.num_rows, deep)), "nested too deeply"),
            (rows.append_column("more", text), no_id),
            *(
                (rows.append_column(_with_id("more", number), text), no_field)
                for number in ("9", "abc", " 9 ", "٣", "", "-1", "9" * 11, "9" * 5_000, b"\xff\n")
            ),
            (rows.drop_columns(rows.column_names[-1]), missing),
            (rows.rename_columns([*rows.column_names[:-1], "more"]), "other columns"),
            (rows.set_column(0, rows.column_names[0], text), "other columns"),
            (rows.set_column(0, rows.column_names[0], keys), too_long),
            (pyarrow.concat_tables([rows] * (1 + ROW_GROUP_ROWS)), "too large"),
        ):
            parquet.write_table(table.replace_schema_metadata(rows.schema.metadata), there)
            name_file(manifest, replace(victim, sha256=read_digest(there)))
            with pytest.raises(HistoryDamaged, match=problem):
                db.history.rebuild_manifest(place)
        there.write_bytes(raw)
    name_file(manifest, manifest.files[0])
    db.history.rebuild_manifest(place)
    assert read_manifest(db) == wanted


def _with_id(name: str, number: str | bytes) -> Any:
    """The column of a field."""
    return pyarrow.field(name, pyarrow.string(), metadata={FIELD_ID: number})


def name_file(manifest: ManifestFile, changed: HistoryFile) -> None:
    """Write the manifest with another row of a file."""
    files = [changed if file.sha256 == changed.sha256 else file for file in manifest.files]
    if changed.id in {file.id for file in manifest.files}:
        files = [changed if file.id == changed.id else file for file in manifest.files]
    directory = Path(manifest.store.directory)
    for path in list_manifests(directory, 1):
        path.unlink()
    write_manifest(replace(manifest, files=files))


@pytest.mark.on_each_engine
def test_a_tenant_that_is_removed_from_a_copy_leaves_the_files_of_the_original(
    workspace: Workspace, postgres: PostgresServer, tmp_path: Path
) -> None:
    """Whether the copy was given files of its own or not, and with eras that were moved; those of
    the original go with its own removal."""
    place, own, cold = tmp_path / "store", tmp_path / "own", tmp_path / "cold"
    db = make_people(workspace, place)
    db.admin.create_tenant("other")
    other = db.for_tenant("other")
    begin(other, place)
    other.admin.set_setting("history_store_flush_changes", "1")
    for turn in range(3):
        other.table("people").upsert(mail="x@example.org", name=f"X{turn}")
        flush(other)
    assert other.history.move(read_manifest(other)[0].ends, cold).files > 0
    files = read_bytes(place / "2") | read_bytes(cold / "2")
    for has_own in (False, True):
        with copied(workspace, postgres, tmp_path) as (_, copy):
            if has_own:
                copy.for_tenant("other").history.move(None, own)
                assert read_bytes(own / "2")
            removed = copy.admin.remove_tenant("other")
            left = () if has_own else (str(cold / "2"), str(place / "2"))
            assert removed.history_left == left
            assert read_bytes(own) == {}
            assert read_bytes(place / "2") | read_bytes(cold / "2") == files
    assert other.history.verify(sample=0).problems == ()
    other.close()
    assert db.admin.remove_tenant("other").history_left == ()
    assert read_bytes(place / "2") | read_bytes(cold / "2") == {}
