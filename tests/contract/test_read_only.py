"""Opening a database read-only: nothing is written, and nobody else knows of the process."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

import zapdb
from tests import processes
from tests.contract.tables import ADD_COLOR, ADD_WEIGHT, INDEX_SIZE, INDEX_TITLE, ITEMS
from tests.lookups import find, starts_with
from tests.support import (
    GUARD_SECONDS,
    ROOT,
    PostgresServer,
    Workspace,
    count_connections,
    error_of,
    wait_until,
)
from zapdb import release
from zapdb.activation.rollback import roll_back
from zapdb.database import Database
from zapdb.errors import (
    IncompatibleVersion,
    MigrationConflict,
    PendingMigrations,
    StorageError,
    UsageError,
)

pytestmark = pytest.mark.empty

NEWER_LEVEL = (
    "UPDATE zapdb_catalog SET value = replace(value, '\"level\":1', '\"level\":917')"
    " WHERE kind = 'level'"
)


@pytest.fixture
def place(workspace: Workspace) -> Workspace:
    """Stale records, indexes that are not built and outdated, zones that are missing, a large
    value that nobody owns: whatever an ordinary process would look after."""
    workspace.write(1, ITEMS, INDEX_TITLE)
    with workspace.open() as db:
        db.admin.set_setting("convert", "on_access")
        db.admin.set_setting("on_read", "write_back")
        items = db.table("items")
        items.insert_many({"id": n, "title": f"Item {n}", "size": n % 5} for n in range(20))
        items.update(3, note="long " * 2_000)
        items.update(3, note="short")
        items.update(4, note="long " * 2_000)
    workspace.write(2, ADD_COLOR, INDEX_SIZE)
    workspace.open().close()
    workspace.execute("DELETE FROM zapdb_zones WHERE name LIKE 'Europe/%%'")
    ((key, row),) = workspace.execute(
        "SELECT key, value FROM zapdb_catalog WHERE kind = 'index' AND value LIKE '%%und%%'"
    )
    value = json.loads(row)
    for dataset in value["built_with"].values():
        dataset["fingerprint"] = "ab" * 32
    workspace.execute(
        "UPDATE zapdb_catalog SET value = ? WHERE kind = 'index' AND key = ?",
        (json.dumps(value, sort_keys=True, separators=(",", ":")), key),
    )
    return workspace


@pytest.fixture
def db(place: Workspace) -> Iterator[Database]:
    with open_read_only(place, migrations=place.directory) as db:
        yield db


def open_read_only(place: Workspace, **options: Any) -> Database:
    return zapdb.open(place.address, read_only=True, **options)


def all_rows(place: Workspace) -> dict[str, list[str]]:
    connection = place.control.connection()
    tables = place.control.dialect.table_names(connection)
    return {t: sorted(map(repr, connection.fetch_all(f"SELECT * FROM {t}"))) for t in tables}


def read_everything(db: Database) -> None:
    items = db.table("items")
    assert items.get(7).color == "red"
    assert items.find(99) is None
    assert len(items.get(4).note) == 10_000
    assert items.get_many([3, 99])[0].note == "short"
    assert [r.id for r in items.scan()] == list(range(20))
    assert [r.id for r in find(items, "by_size", 2)] == [2, 7, 12, 17]
    assert next(iter(starts_with(items, "by_title", "Item 19"))).id == 19
    assert items.where(items.f.size > 3, items.f.color == "red").order_by("title").count() == 4
    page = items.order_by("-size").page(3)
    assert len(items.order_by("-size").page(30, page.cursor)) == 17
    with items.open(4, field="note") as file:
        assert len(file.read()) == 10_000
    with db.snapshot():
        assert (items.count(), items.exists(0), items.get(5).size) == (20, True, 0)
    assert db.admin.catalog().position == 2
    assert db.admin.cluster_level() <= release.LEVEL
    assert "zapdb" in db.admin.metrics()
    assert len(db.admin.schema_history("items")) == 2
    assert sum(report.records for report in db.admin.verify()) == 20
    assert [tenant.name for tenant in db.admin.tenants()] == ["default"]
    assert db.admin.setting("on_read") == "write_back"
    assert db.admin.count_by_revision("items") == {1: 20}
    assert db.admin.sweep(older_than_seconds=0, dry_run=True).unowned == 1


def test_nothing_is_written(place: Workspace, tmp_path: Path) -> None:
    before = all_rows(place)
    place.control.close()
    place._control = None
    file = Path(place.address.removeprefix("sqlite:///"))
    stored = file.read_bytes() if place.engine == "sqlite" else b""
    for options in ({}, {"migrations": place.directory}):
        with open_read_only(place, **options) as db:
            read_everything(db)
            db.admin.wait_for_catalog(db.admin.catalog_seq())
    if place.engine == "sqlite":
        assert file.read_bytes() == stored
    assert all_rows(place) == before


def test_every_write_says_that_it_is_read_only(place: Workspace, db: Database) -> None:
    items, before = db.table("items"), all_rows(place)
    for act in (
        lambda: items.insert(id=99, title="x"),
        lambda: items.insert_many([{"id": 99, "title": "x"}]),
        lambda: items.upsert(id=3, title="x"),
        lambda: items.update(3, title="x"),
        lambda: items.delete(3),
        lambda: items.delete_many([3]),
        lambda: db.run(lambda: None),
        lambda: db.run(lambda: None, token=True),
        lambda: db.transaction().__enter__(),
        lambda: db.admin.create_tenant("other"),
        lambda: db.admin.set_setting("convert", "background"),
        lambda: db.admin.run_jobs(),
        lambda: db.admin.sweep(older_than_seconds=0),
    ):
        error = error_of(act)
        assert isinstance(error, UsageError)
        assert str(error) == (
            "the database was opened read-only\n"
            f"  database: {db._storage.shown_url}\n"
            "  hint: open it without read_only=True; a preview is never written to"
        )
    with db.snapshot():
        error = error_of(lambda: items.insert(id=99, title="x"))
        assert error is not None
        assert error.message == "the database was opened read-only"
    assert all_rows(place) == before
    # Not even behind zapdb's back, on the connection itself.
    with pytest.raises(StorageError):
        db._storage.connection().run("DELETE FROM zapdb_catalog")
    assert all_rows(place) == before


@pytest.mark.parametrize("apply", [True, "yes", "Auto", None])
def test_any_other_apply_is_refused(place: Workspace, apply: Any) -> None:
    with pytest.raises(UsageError, match="apply must be 'auto' or 'never'"):
        place.open(apply=apply)


def test_read_only_and_applying_contradict(place: Workspace) -> None:
    with pytest.raises(UsageError, match="leave out one of them"):
        open_read_only(place, migrations=place.directory, apply="auto")


def test_rule_10_a_read_only_process_is_no_node_and_looks_at_the_level_itself(
    place: Workspace, db: Database
) -> None:
    items = db.table("items")
    assert place.execute(
        "SELECT count(*) FROM zapdb_catalog WHERE kind = 'node' AND value IS NOT NULL"
    ) == [(0,)]
    with db.snapshot():
        assert items.count() == 20
        place.execute(NEWER_LEVEL)
        assert items.get(3).id == 3  # it reads what was before
        assert db.admin.cluster_level() <= release.LEVEL
    for act in (
        lambda: items.get(3),
        lambda: items.find(99),
        lambda: items.get_many([3]),
        lambda: items.exists(3),
        lambda: items.count(),
        lambda: list(items.scan()),
        lambda: items.where(items.f.size == 3).first(),
        lambda: list(find(items, "by_size", 3)),
        lambda: db.snapshot().__enter__(),
        lambda: db.admin.schema_history("items"),
        lambda: open_read_only(place),
    ):
        error = error_of(act)
        assert isinstance(error, IncompatibleVersion)
        assert error.context["level_needed"] == 917


def test_what_others_change_is_seen(place: Workspace, db: Database) -> None:
    tool = open_read_only(place)
    with tool:
        assert tool.table("items").get(3).color == "red"
        assert db.table("items").get(3).color == "red"
        place.write(3, ADD_WEIGHT, "rename_field: {table: items, field: color, to: colour}")
        other = place.open()
        other.table("items").update(3, size=17, colour="green")
        other.table("items").insert(id=50, title="New")
        assert tool.table("items").get(3).colour == "green"
        assert tool.table("items").get(50).weight == 7
        # Its files end before: it goes on in their shape (rule 11).
        assert db.table("items").get(3).color == "green"
        assert not hasattr(db.table("items").get(50), "weight")
        assert db.table("items").get(50).title == "New"
        wait_until(lambda: tool.position == 3, "the follower saw it")


def test_rule_06_what_would_have_to_be_brought_up_is_refused(place: Workspace) -> None:
    path = place.write(3, ADD_WEIGHT)
    before = all_rows(place)

    def refusal(kind: type[Exception], **options: Any) -> str:
        with pytest.raises(kind) as caught:
            open_read_only(place, migrations=place.directory, **options)
        assert all_rows(place) == before
        return str(caught.value)

    text = refusal(PendingMigrations)
    assert "first: 0003_test" in text
    assert "with apply='auto', once without read_only" in text
    with open_read_only(place, migrations=place.directory, serve_as=2) as db:
        assert db.table("items").get(3).color == "red"
    with open_read_only(place, migrations=place.directory, serve_as=1) as db:
        assert db.table("items").field_names == ("id", "title", "size", "note")
    path.unlink()
    with place.open() as db:
        db.admin.create_tenant("behind")
    before = all_rows(place)
    text = refusal(PendingMigrations, tenant="behind")
    assert text.endswith(
        "  files_end: 2\n"
        "  position: 0\n"
        "  hint: run `zapdb migrate up`, or open the database once without read_only; "
        "serve_as=N serves the schema of an earlier file"
    )
    with open_read_only(place, migrations=place.directory) as db:
        error = error_of(lambda: db.for_tenant("behind"))
        assert isinstance(error, PendingMigrations)
    with open_read_only(place) as db, pytest.raises(LookupError):
        db.for_tenant("behind").table("items")
    place.write(2, ADD_COLOR)
    refusal(MigrationConflict)


def test_rule_13_a_rolled_back_migration_of_the_files_is_noticed(
    place: Workspace, db: Database
) -> None:
    items = db.table("items")
    assert items.get(3).color == "red"
    roll_back(place.control)
    error = error_of(lambda: items.get(3))
    assert isinstance(error, PendingMigrations)
    assert error.context == {"files_end": 2, "position": 1}
    with pytest.raises(PendingMigrations), db.snapshot():
        pass
    with open_read_only(place) as tool:
        assert tool.table("items").field_names == ("id", "title", "size", "note")


def test_a_database_that_is_not_there_is_not_made(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    for options in ({}, {"migrations": workspace.directory}):
        with pytest.raises(PendingMigrations, match="empty"):
            open_read_only(workspace, **options)
    if workspace.engine == "sqlite":
        file = Path(workspace.address.removeprefix("sqlite:///"))
        assert list(file.parent.glob("*.db*")) == []
        with pytest.raises(PendingMigrations, match="empty"):
            zapdb.open(f"sqlite:///file:{file}?uri=true", read_only=True)
    else:
        assert all_rows(workspace) == {}


def test_it_leaves_no_connection_behind(place: Workspace) -> None:
    place.control.close()  # SQLite keeps files open as long as it has one of them open
    place._control = None
    before = count_connections(place)
    for _ in range(2):
        open_read_only(place).close()
        with pytest.raises(LookupError):
            open_read_only(place, tenant="nobody")
    wait_until(lambda: count_connections(place) == before, "the server noticed")


@pytest.mark.parametrize("engine", ["postgresql"])
def test_a_role_that_may_only_read_is_enough(place: Workspace, postgres: PostgresServer) -> None:
    postgres.execute("DROP ROLE IF EXISTS zapdb_reader")
    postgres.execute("CREATE ROLE zapdb_reader LOGIN")
    try:
        url = make_url(place.address).set(username="zapdb_reader")
        place.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO zapdb_reader")
        address = url.render_as_string(hide_password=False)
        with zapdb.open(address, migrations=place.directory, read_only=True) as db:
            read_everything(db)
        error = error_of(lambda: zapdb.open(address, migrations=place.directory))
        assert isinstance(error, StorageError)
        place.execute("REVOKE SELECT ON zapdb_catalog FROM zapdb_reader")
        error = error_of(lambda: zapdb.open(address, read_only=True))
        assert isinstance(error, StorageError)
        assert error.context["detail"] == "permission denied for table zapdb_catalog"
        assert "needs SELECT on all tables" in error.hint
    finally:
        place.execute("DROP OWNED BY zapdb_reader")
        postgres.execute("DROP ROLE zapdb_reader")


AS_NOBODY = """
import os, sys
import zapdb
first, *addresses = sys.argv[1:]
with zapdb.open(first, read_only=True) as db:  # whatever is imported late
    list(db.table("items").where(db.table("items").f.size > 3))
if os.getuid() == 0:
    os.setuid(65534)
for address in addresses:
    try:
        with zapdb.open(address, read_only=True) as db:
            print(len(list(db.table("items").where(db.table("items").f.size > 3))))
    except zapdb.errors.StorageError as error:
        print(error.message, "|", error.hint)
"""


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_file_and_a_directory_that_can_only_be_read(place: Workspace) -> None:
    place.control.close()
    directory = Path(tempfile.mkdtemp(prefix="zapdb-ro-"))
    try:
        inside = directory / "closed"
        files = [directory / "warm.db", inside / "a b#.db", inside / "plain.db"]
        inside.mkdir()
        for file in files:
            shutil.copy(place.address.removeprefix("sqlite:///"), file)
            file.chmod(0o444)
        inside.chmod(0o555)
        directory.chmod(0o755)
        closed = f"sqlite:///{files[1]}"
        immutable = f"sqlite:///file:{files[2]}?immutable=1&uri=true"

        def read(*addresses: str) -> list[str]:
            script = [sys.executable, "-c", AS_NOBODY, f"sqlite:///{files[0]}", *addresses]
            done = processes.run(
                script, cwd=ROOT, capture_output=True, text=True, timeout=GUARD_SECONDS
            )
            assert done.returncode == 0, done.stderr
            return done.stdout.splitlines()

        refused, read_anyway = read(closed, immutable)
        assert refused.startswith("the database file cannot be opened | the file must exist")
        assert "immutable=1" in refused
        assert read_anyway == "4"
        # While somebody else has it open, the files that readers need are there.
        with zapdb.open(closed):
            for beside in inside.glob("*.db-*"):
                beside.chmod(0o644)
            assert read(closed) == ["4"]
    finally:
        inside.chmod(0o755)
        shutil.rmtree(directory)
