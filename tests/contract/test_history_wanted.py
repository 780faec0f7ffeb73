"""The setting `history_store`: a history store for each tenant that there is, and that comes."""

from __future__ import annotations

import asyncio
import errno
import json
import shutil
from pathlib import Path

import pytest

import zapdb
import zapdb.aio
from tests.contract.stored_pasts import check_store, flush
from tests.contract.tables import ADD_COLOR, ITEMS
from tests.contract.test_history_erased import kill_at_each_step
from tests.contract.test_history_rebuilt import copied, read_bytes
from tests.support import PostgresServer, Workspace
from zapdb.catalog import tenants
from zapdb.catalog.cluster.leases import Owner
from zapdb.database import Database
from zapdb.errors import (
    DiskFull,
    HistoryUnreachable,
    TenantExists,
    UsageError,
    ZapdbError,
)
from zapdb.past.files import manifest_files, stores
from zapdb.past.files.follower_run import Retention
from zapdb.past.files.stores import hold_store
from zapdb.past.files.wanted_stores import OWNER_FILE, start_wanted_stores
from zapdb.transfer.export.directory import export_directory
from zapdb.transfer.export.export_loading import load_export

SETTING = "history_store"


@pytest.fixture
def place(workspace: Workspace) -> Workspace:
    workspace.write(1, ITEMS)
    return workspace


def names(db: Database) -> set[str]:
    return {tenant.name for tenant in db.admin.tenants()}


def has_store(db: Database, name: str) -> bool:
    try:
        db.for_tenant(name).history.status()
    except UsageError:
        return False
    return True


def use(db: Database, directory: Path) -> None:
    """Write to a tenant, and look at its past by what is in files."""
    status = db.history.status()
    assert (status.directory, (directory / str(db._catalog.tenant)).is_dir()) == (
        str(directory),
        True,
    )
    items = db.table("items")
    items.insert(id=1, title="a")
    items.update(1, title="b")
    ends = flush(db).ends
    check_store(db)
    assert [r.title for r in db.at(ends).table("items")] == ["b"]
    assert [r.title for r in db.at(ends - 1).table("items")] == ["a"]


def test_each_tenant_that_is_there_and_each_that_comes_has_a_store(
    place: Workspace, tmp_path: Path
) -> None:
    directory = tmp_path / "past"
    db = place.open()
    db.admin.create_tenant("early")
    db.admin.set_setting(SETTING, str(directory))
    db.admin.create_tenant("late")
    assert db.admin.setting(SETTING) == str(directory)
    for name in ("default", "early", "late"):
        use(db.for_tenant(name), directory)
    assert db.for_tenant("late").history.status().begins == 0  # nothing of it is missing
    late = db.for_tenant("late")
    late.table("items").delete(1)
    assert late.history.erase("items", 1).files_rewritten > 0
    assert late.history.verify().problems == ()

    former = next(t.number for t in db.admin.tenants() if t.name == "late")
    assert db.admin.remove_tenant("late").history_left == ()
    assert not (directory / str(former)).exists()
    db.admin.create_tenant("late")
    use(db.for_tenant("late"), directory)
    with pytest.raises(TenantExists):
        db.admin.create_tenant("late")

    db.admin.set_setting(SETTING, None)  # those that there are go on
    db.admin.create_tenant("later")
    assert not has_store(db, "later")
    db.for_tenant("early").table("items").insert(id=2, title="c")
    flush(db.for_tenant("early"))
    check_store(db.for_tenant("early"))
    db.admin.set_setting(SETTING, str(directory))
    assert has_store(db, "later")
    db.admin.set_setting(SETTING, "none")
    db.admin.create_tenant("last")
    assert not has_store(db, "last")


def test_the_beginning_of_a_tenant_is_older_than_all_that_is_to_be_kept(
    place: Workspace, tmp_path: Path
) -> None:
    """Its moment has no time."""
    db = place.open()
    db.admin.set_setting(SETTING, str(tmp_path / "past"))
    db.admin.create_tenant("late")
    late = db.for_tenant("late")
    late.admin.set_setting("history_retention_seconds", "86400")
    use(late, tmp_path / "past")
    with hold_store(late._storage, late._catalog.tenant, Owner.here()) as working:
        Retention(working).step()
    assert late.history.status().purged_before == 0
    check_store(late)


def test_a_store_that_is_elsewhere_or_was_stopped_stays_as_it_is(
    place: Workspace, tmp_path: Path
) -> None:
    db = place.open()
    db.admin.create_tenant("other")
    db.admin.set_setting("change_log", "on")
    db.history.start(tmp_path / "elsewhere")
    db.history.stop()
    db.admin.set_setting(SETTING, str(tmp_path / "past"))
    status = db.history.status()
    assert (status.directory, status.state) == (str(tmp_path / "elsewhere"), "stopped")
    assert db.for_tenant("other").history.status().directory == str(tmp_path / "past")


def test_a_directory_that_takes_no_store_makes_no_tenant(
    place: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "past"
    db = place.open()
    (tmp_path / "file").write_text("")
    for wrong in ("file", "a*b", "file/below"):
        with pytest.raises(UsageError):
            db.admin.set_setting(SETTING, str(tmp_path / wrong))
        assert db.admin.setting(SETTING) == "none"
    with pytest.raises(UsageError, match="cannot be set for"):
        db.admin.set_setting(SETTING, str(directory), tenant="default")
    assert not directory.exists()
    db.admin.set_setting(SETTING, str(directory))

    def refuse(expected: type[ZapdbError]) -> ZapdbError:
        before = sorted(directory.rglob("*")) if directory.is_dir() else []
        with pytest.raises(expected) as caught:
            db.admin.create_tenant("late")
        assert names(db) == {"default"}
        assert (sorted(directory.rglob("*")) if directory.is_dir() else []) == before
        return caught.value

    directory.rename(tmp_path / "away")
    assert "is not there" in refuse(HistoryUnreachable).message
    directory.mkdir()  # as of a disk that is not mounted
    assert "is not there" in refuse(HistoryUnreachable).message
    directory.rmdir()
    (tmp_path / "away").rename(directory)
    (directory / OWNER_FILE).write_text("{")
    assert "does not say whose it is" in refuse(HistoryUnreachable).message
    db.admin.set_setting(SETTING, None)
    (directory / OWNER_FILE).unlink()
    db.admin.set_setting(SETTING, str(directory))

    def is_full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(stores, "write_manifest", is_full)
        refuse(DiskFull)
    with monkeypatch.context() as patched:
        patched.setattr(stores, "insert_files", is_full)  # the files are written by then
        with pytest.raises(OSError, match="no space"):
            db.admin.create_tenant("late")
        assert names(db) == {"default"}
    db.admin.create_tenant("late")
    use(db.for_tenant("late"), directory)


def test_a_tenant_and_its_store_are_made_together_or_neither_is(
    place: Workspace, tmp_path: Path
) -> None:
    """Whenever the process is killed that makes them."""
    directory = tmp_path / "past"
    db = place.open()
    db.admin.set_setting(SETTING, str(directory))
    assert kill_at_each_step(place, "create_tenant", apart=2) > 3
    made = names(db) - {"default"}
    assert made
    for name in made:
        use(db.for_tenant(name), directory)
    db.admin.create_tenant("late")
    use(db.for_tenant("late"), directory)


def test_one_that_refuses_is_named_and_the_others_get_theirs(
    place: Workspace, tmp_path: Path
) -> None:
    db = place.open()
    for name in ("acme", "other"):
        db.admin.create_tenant(name)
    db.admin.set_setting("change_log", "off", tenant="acme")
    with pytest.raises(UsageError, match="the setting is stored") as refused:
        db.admin.set_setting(SETTING, str(tmp_path / "past"))
    assert refused.value.context["tenants"] == "acme"
    assert [name for name in sorted(names(db)) if has_store(db, name)] == ["default", "other"]
    db.admin.set_setting("change_log", "on", tenant="acme")
    assert start_wanted_stores(db._storage) == {}
    use(db.for_tenant("acme"), tmp_path / "past")


@pytest.mark.on_each_engine
def test_a_copy_writes_nothing_into_the_directory_of_the_original(
    place: Workspace, postgres: PostgresServer, tmp_path: Path
) -> None:
    directory, own = tmp_path / "past", tmp_path / "own"
    db = place.open()
    db.admin.set_setting(SETTING, str(directory))
    with copied(place, postgres, tmp_path) as (_, copy):
        files = read_bytes(directory)
        with pytest.raises(UsageError, match="another place, of which it may be a copy"):
            copy.admin.create_tenant("late")
        with pytest.raises(UsageError, match="another place, of which it may be a copy"):
            copy.admin.set_setting(SETTING, str(directory))
        assert names(copy) == {"default"}
        assert read_bytes(directory) == files
        copy.admin.set_setting(SETTING, str(own))
        copy.admin.create_tenant("late")
        use(copy.for_tenant("late"), own)
        assert read_bytes(directory) == files
        copy.admin.remove_tenant("late")
        copy.admin.set_setting(SETTING, None)
        copy.admin.create_tenant("last")
        assert not has_store(copy, "last")
        assert read_bytes(directory) == files
    db.admin.create_tenant("late")
    use(db.for_tenant("late"), directory)


def test_another_database_gets_no_store_there(place: Workspace, tmp_path: Path) -> None:
    directory = tmp_path / "past"
    db = place.open()
    db.admin.set_setting(SETTING, str(directory))
    (tmp_path / "m").mkdir()
    with Workspace("sqlite", f"sqlite:///{tmp_path / 'other.db'}", tmp_path / "m") as there:
        there.write(1, ITEMS)
        other = there.open()
        for _ in range(2):
            with pytest.raises(UsageError, match="of another database"):
                other.admin.set_setting(SETTING, str(directory))
            (directory / OWNER_FILE).unlink(missing_ok=True)  # its files tell it, too
            flush(db)
        assert other.admin.setting(SETTING) == "none"


def test_a_number_whose_directory_is_there_is_not_given_again(
    place: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the database was restored from a backup of before the tenant."""
    directory = tmp_path / "past"
    db = place.open()
    db.admin.set_setting(SETTING, str(directory))
    db.admin.create_tenant("lost")
    (manifest,) = manifest_files.list_manifests(directory, 2)
    shutil.copytree(directory / "2", directory / "3")
    db.admin.create_tenant("late")
    assert {tenant.name: tenant.number for tenant in db.admin.tenants()}["late"] == 4
    assert manifest.is_file()
    shutil.copytree(directory / "2", directory / "5")
    add_tenant = tenants.add_tenant
    with monkeypatch.context() as patched:  # it is made at the same moment
        patched.setattr(tenants, "add_tenant", lambda *given: add_tenant(*given[:2]))
        with pytest.raises(HistoryUnreachable, match="can't be written to"):
            db.admin.create_tenant("plain")
    assert (directory / "5" / manifest.name).is_file()
    shutil.rmtree(directory / "5")
    db.admin.set_setting(SETTING, None)
    db.admin.create_tenant("plain")  # 5
    shutil.copytree(directory / "2", directory / "5")
    with pytest.raises(UsageError, match="have no history store yet") as refused:
        db.admin.set_setting(SETTING, str(directory))
    assert "the database does not know" in refused.value.context["first"]


def test_it_is_no_part_of_an_export(place: Workspace, tmp_path: Path) -> None:
    db = place.open()
    db.admin.set_setting(SETTING, str(tmp_path / "past"))
    db.table("items").insert(id=1, title="a")
    export_directory(db, tmp_path / "export", migrations=place.directory)
    assert 'history_store"' not in (tmp_path / "export" / "manifest.json").read_text()
    db.admin.create_tenant("made")
    load_export(tmp_path / "export", place.address, tenant="loaded")  # it makes the tenant
    loaded = db.for_tenant("loaded")
    assert [r.title for r in loaded.table("items")] == ["a"]
    flush(loaded)
    check_store(loaded)


def test_who_only_reads_sets_nothing_and_an_older_process_makes_tenants_with_stores(
    place: Workspace, tmp_path: Path
) -> None:
    directory = tmp_path / "past"
    db = place.open()
    with zapdb.open(place.address, read_only=True) as reader:
        with pytest.raises(UsageError, match="read-only"):
            reader.admin.set_setting(SETTING, str(directory))
        assert not directory.exists()
        db.admin.set_setting(SETTING, str(directory))
        assert reader.admin.setting(SETTING) == str(directory)
    place.write(2, ADD_COLOR)
    newer = place.open()
    db.admin.create_tenant("late")
    use(db.for_tenant("late"), directory)
    assert newer.for_tenant("late").table("items").get(1).color == "red"


def test_asyncio(place: Workspace, tmp_path: Path) -> None:
    directory = tmp_path / "past"
    place.open()

    async def run() -> None:
        async with await zapdb.aio.open(place.address) as db:
            await db.admin.set_setting(SETTING, str(directory))
            await db.admin.create_tenant("late")
            late = await db.for_tenant("late")
            assert (await late.history.status()).directory == str(directory)
            await late.table("items").insert(id=1, title="a")
            assert (await late.history.flush()).lag.changes == 0

    asyncio.run(run())
    assert json.loads((directory / OWNER_FILE).read_text())["database"]
