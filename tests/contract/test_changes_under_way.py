"""What a process sees and writes while another one changes what is in force (rules 7 and 8)."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.contract.tables import (
    ADD_COLOR,
    ADD_WEIGHT,
    DROP_NOTE,
    INDEX_SIZE,
    INDEX_TITLE,
    ITEMS,
    RENAME_SIZE,
)
from tests.lookups import between, find
from tests.support import Workspace, finish
from zapdb.activation import rollback
from zapdb.activation.up import migrate_up
from zapdb.catalog import DEFAULT_TENANT
from zapdb.database import Database
from zapdb.errors import TransactionConflict, UnknownName, UsageError
from zapdb.limits import PAGE_RECORDS_FIRST
from zapdb.records import asdict
from zapdb.storage import connect
from zapdb.storage.connection import Connection
from zapdb.storage.record_statements import RecordStatements

COUNT = 2_500  # three pages


@pytest.fixture
def db(workspace: Workspace) -> Database:
    workspace.write(1, ITEMS, INDEX_SIZE)
    workspace.open()
    db = workspace.follow()
    db.table("items").insert_many(
        {"id": number, "title": f"title {number}", "size": number % 50} for number in range(COUNT)
    )
    return db


def activate(workspace: Workspace, *operations: str, number: int = 2) -> None:
    """As another process does."""
    workspace.write(number, *operations)
    storage = connect(workspace.address)
    migrate_up(storage, DEFAULT_TENANT, workspace.directory)
    storage.close()


def roll_back(workspace: Workspace) -> None:
    storage = connect(workspace.address)
    rollback.roll_back(storage, evict=True)
    storage.close()


def write_as_newest(workspace: Workspace, **values: object) -> None:
    with workspace.open() as other:
        other.table("items").insert(**values)


# Seen with the next statement


@pytest.mark.on_each_engine
def test_rule_08_the_next_read_has_the_new_shape(workspace: Workspace, db: Database) -> None:
    items = db.table("items")
    assert asdict(items.get(1)).keys() == {"id", "title", "size", "note"}
    activate(workspace, ADD_COLOR)
    assert items.get(1).color == "red"
    assert items.field_names == ("id", "title", "size", "note", "color")
    assert db.position == 2


@pytest.mark.on_each_engine
def test_rule_08_the_next_write_has_the_new_shape(workspace: Workspace, db: Database) -> None:
    items = db.table("items")
    activate(workspace, ADD_COLOR)
    items.insert(id=-1, title="new", color="blue")
    items.update(1, color="green")
    assert db.admin.count_by_revision("items") == {1: COUNT - 1, 2: 2}
    activate(workspace, ADD_WEIGHT, number=3)
    items.insert_many([{"id": -2, "title": "newer", "weight": 3}])
    assert db.admin.count_by_revision("items") == {1: COUNT - 1, 2: 2, 3: 1}


def test_rule_08_records_of_an_unknown_revision_are_read(
    workspace: Workspace, db: Database
) -> None:
    items = db.table("items")
    activate(workspace, ADD_COLOR)
    write_as_newest(workspace, id=-1, title="new", color="blue")
    assert next(items.scan()).color == "blue"
    activate(workspace, ADD_WEIGHT, number=3)
    write_as_newest(workspace, id=-2, title="new", weight=3)
    assert items.get(-2).weight == 3


def test_rule_08_a_renamed_table_is_still_the_table(workspace: Workspace, db: Database) -> None:
    items = db.table("items")
    activate(workspace, "rename_table: {table: items, to: things}")
    assert items.get(1).title == "title 1"
    assert items.name == "things"
    items.insert(id=-1, title="new")
    assert db.table("things").get(-1).title == "new"


def test_rule_08_a_table_that_was_taken_away_is_named(workspace: Workspace, db: Database) -> None:
    activate(
        workspace, "create_table: {table: tags, key: [name], fields: [{name: name, type: string}]}"
    )
    db.table("items").get(1)
    tags = db.table("tags")
    tags.insert(name="dairy")
    roll_back(workspace)
    for read in (
        lambda: tags.find("dairy"),
        lambda: list(tags.scan()),
        tags.count,
        lambda: tags.using("by_name"),
    ):
        with pytest.raises(UnknownName):
            read()


def test_rule_08_an_index_that_was_taken_away_is_named(workspace: Workspace, db: Database) -> None:
    activate(workspace, "drop_index: {table: items, index: by_size}")
    with pytest.raises(UsageError, match="the index was dropped"):
        list(find(db.table("items"), "by_size", 3))


# In the middle of a scan, a lookup, a snapshot


@pytest.mark.on_each_engine
def test_rule_08_a_scan_goes_on_across_an_activation(workspace: Workspace, db: Database) -> None:
    scan = db.table("items").scan()
    seen = [next(scan)]
    activate(workspace, DROP_NOTE, ADD_COLOR)
    write_as_newest(workspace, id=COUNT, title="new", color="blue")
    seen += scan
    assert [record.id for record in seen] == list(range(COUNT))  # what is new does not come
    assert set(seen[0]._fields) == {"id", "title", "size", "note"}
    assert db.table("items").get(COUNT).color == "blue"


@pytest.mark.on_each_engine
def test_rule_08_an_activation_between_a_long_page_and_its_version_is_noticed(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Short pages have it in their rows; on PostgreSQL, long ones do, too."""
    asked = list[bool]()

    def activate_before_the_third(ask: Any) -> Any:
        def fetch_later(*given: Any) -> Any:
            asked.append(True)
            if len(asked) == 3:
                activate(workspace, DROP_NOTE, ADD_COLOR)
            return ask(*given)

        return fetch_later

    list(db.table("items").scan())  # what is read once is read by now
    for asker, name in ((Connection, "fetch_all"), (RecordStatements, "read_catalog_version")):
        monkeypatch.setattr(asker, name, activate_before_the_third(getattr(asker, name)))
    seen = list(db.table("items").scan())
    assert [record.id for record in seen] == list(range(COUNT))
    assert "note" in seen[PAGE_RECORDS_FIRST - 1]._fields
    assert ("color" in seen[PAGE_RECORDS_FIRST]._fields) == (not db._storage.dialect.is_remote)
    assert "color" in seen[-1]._fields


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.on_each_engine
def test_rule_08_a_lookup_goes_on_across_an_activation(
    workspace: Workspace, db: Database, descending: bool
) -> None:
    found = iter(between(db.table("items"), "by_size", descending=descending))
    seen = [next(found)]
    activate(workspace, DROP_NOTE, ADD_COLOR)
    seen += found
    expected = sorted(((n % 50, n) for n in range(COUNT)), reverse=descending)
    assert [(record.size, record.id) for record in seen] == expected


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.on_each_engine
def test_rule_23_a_lookup_goes_on_though_its_index_is_built_again(
    workspace: Workspace, db: Database, descending: bool
) -> None:
    """From its entries to a scan, with nothing missing and nothing twice."""
    found = iter(between(db.table("items"), "by_size", 5, descending=descending))
    seen = [next(found) for _ in range(100)]
    rebuild(workspace)
    seen += found
    expected = sorted(((n % 50, n) for n in range(COUNT) if n % 50 >= 5), reverse=descending)
    assert [(record.size, record.id) for record in seen] == expected


def rebuild(workspace: Workspace) -> None:
    from zapdb.activation import load_tenant_catalog
    from zapdb.activation.activate import rebuild_index
    from zapdb.storage import TransactionMode

    storage = connect(workspace.address)
    with storage.transaction(TransactionMode.DDL) as connection:
        catalog = load_tenant_catalog(connection, DEFAULT_TENANT)
        state = catalog.table("items")
        rebuild_index(connection, DEFAULT_TENANT, state, state.indexes[0].index)
    storage.close()


def test_rule_23_a_lookup_held_across_a_rebuild_answers_by_a_scan_and_then_by_the_index(
    workspace: Workspace, db: Database
) -> None:
    assert "by_size" in db.table("items").readable_indexes()
    rebuild(workspace)
    assert [record.id for record in find(db.table("items"), "by_size", 3)][:2] == [3, 53]
    assert "by_size" not in db.table("items").readable_indexes()
    # While it scans, it meets records of a revision that it does not know.
    activate(workspace, ADD_COLOR)
    write_as_newest(workspace, id=-1, title="new", size=3, color="blue")
    assert next(iter(find(db.table("items"), "by_size", 3))).color == "blue"
    db.admin.run_jobs()
    assert [record.id for record in find(db.table("items"), "by_size", 3)][:2] == [-1, 3]
    assert "by_size" in db.table("items").readable_indexes()


def test_rule_20_a_lookup_follows_a_change_of_its_key_bytes(
    workspace: Workspace, db: Database
) -> None:
    started = iter(db.table("items").using("by_size"))
    first = next(started)
    activate(
        workspace,
        "change_type: {table: items, field: size, type: decimal, scale: 2,"
        " up: 'decimal(size, 2, else=0)', down: 'integer(size, else=0)', default: 0,"
        " reversibility: lossy, because: fractions are cut}",
    )
    assert [record.id for record in find(db.table("items"), "by_size", 3)][:2] == [3, 53]
    assert first.size == 0
    with pytest.raises(TransactionConflict, match="changed during the read"):
        list(started)
    db.admin.run_jobs()
    assert [record.id for record in find(db.table("items"), "by_size", 3)][:2] == [3, 53]
    assert "by_size" in db.table("items").readable_indexes()


@pytest.mark.on_each_engine
def test_rule_08_a_snapshot_keeps_the_shape_of_its_moment(
    workspace: Workspace, db: Database
) -> None:
    items = db.table("items")
    with db.snapshot():
        before = asdict(items.get(1))
        activate(workspace, DROP_NOTE, RENAME_SIZE.replace("extent", "extent"))
        write_as_newest(workspace, id=-1, title="new", extent=3)
        see_it_in_another_thread(db)
        assert asdict(items.get(1)) == before
        assert asdict(next(items.scan())) == before | {"id": 0, "title": "title 0", "size": 0}
        assert [record.id for record in find(items, "by_size", 3)][:2] == [3, 53]
        assert items.field_names == ("id", "title", "size", "note")
        assert items.find(-1) is None
        assert db.position == 1
    assert items.get(1).extent == 1
    assert items.field_names == ("id", "title", "extent")
    assert db.position == 2


@pytest.mark.on_each_engine
def test_rule_23_a_snapshot_keeps_the_index_states_of_its_moment(
    workspace: Workspace, db: Database
) -> None:
    """An index that became readable later has no entries as of then."""
    items = db.table("items")
    activate(workspace, INDEX_TITLE)
    with db.snapshot():
        assert items.get(1).id == 1
        in_another_thread(db.admin.run_jobs)
        assert "by_title" not in items.readable_indexes()
        assert [record.id for record in find(items, "by_title", "title 7")] == [7]
    assert "by_title" in items.readable_indexes()
    assert [record.id for record in find(items, "by_title", "title 7")] == [7]


@pytest.mark.on_each_engine
def test_rule_27_a_snapshot_does_not_hold_up_the_end_of_an_index(
    workspace: Workspace, db: Database
) -> None:
    """On PostgreSQL a DROP TABLE waits for all who read it; nobody can write meanwhile."""
    items = db.table("items")
    with db.snapshot():
        assert next(iter(find(items, "by_size", 3))).id == 3
        in_another_thread(lambda: activate(workspace, "drop_index: {table: items, index: by_size}"))
        see_it_in_another_thread(db)
        in_another_thread(lambda: items.insert(id=-1, title="new", size=3))
        assert [record.id for record in find(items, "by_size", 3)][:2] == [3, 53]
    workspace.open()
    names = db._storage.dialect.table_names(db._storage.connection())
    assert [name for name in names if name.startswith("zapdb_entries_")] == []


def see_it_in_another_thread(db: Database) -> None:
    in_another_thread(lambda: db.table(next(iter(db._catalog.tables))).get(1))


def in_another_thread(action: object) -> None:
    problems: list[BaseException] = []

    def run() -> None:
        try:
            action()
        except BaseException as error:
            problems.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    finish(thread)
    assert not thread.is_alive(), "it is held up"
    assert problems == []


@pytest.mark.on_each_engine
def test_rule_07_a_transaction_ends_in_the_shape_that_it_began_in(
    workspace: Workspace, db: Database
) -> None:
    items = db.table("items")
    done: list[str] = []

    def change() -> None:
        activate(workspace, ADD_COLOR)
        done.append("changed")

    with db.transaction():
        items.insert(id=-1, title="new")
        thread = threading.Thread(target=change)
        thread.start()
        thread.join(timeout=0.6)
        assert done == []
        items.update(-1, size=3)
        assert db.position == 1
    finish(thread)
    assert done == ["changed"]
    assert db.admin.count_by_revision("items") == {1: COUNT + 1}
    assert items.get(-1).color == "red"


@pytest.mark.on_each_engine
def test_rule_08_many_threads_see_each_change_once_it_is_there(
    workspace: Workspace, db: Database
) -> None:
    """Readers and writers that share a table object, while shapes change under them."""
    items, problems, stop = db.table("items"), list[BaseException](), threading.Event()

    def work(worker: int) -> None:
        try:
            turn = 0
            while not stop.is_set():
                turn += 1
                items.get(turn % COUNT)
                items.update(worker, size=turn % 50)
                list(between(items, "by_size", 49))
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for number, operation in enumerate((ADD_COLOR, INDEX_TITLE, DROP_NOTE, ADD_WEIGHT), 2):
        activate(workspace, operation, number=number)
    in_another_thread(db.admin.run_jobs)
    stop.set()
    for thread in threads:
        thread.join()
    assert problems == []
    assert [report.problems for report in db.admin.verify()] == [()]
    assert items.count() == COUNT
    assert max(db.admin.count_by_revision("items")) == 5


@pytest.mark.on_each_engine
def test_rule_08_threads_that_meet_a_revision_at_one_moment_all_read_it(
    workspace: Workspace, db: Database
) -> None:
    """Its program is compiled at its first record: what the others see half-way is complete."""
    activate(workspace, ADD_COLOR)
    items = db.table("items")
    assert items.count() == COUNT

    first = threading.current_thread()

    class Watched(dict[int, Any]):
        def __setitem__(self, key: int, value: Any) -> None:
            super().__setitem__(key, value)
            if threading.current_thread() is first:
                in_another_thread(lambda: items.get(1))

    reader = db._session.bind_served("items").reader
    reader._read, reader._convert = Watched(), Watched()
    assert items.get(2).color == "red"
    assert "by_size" in items.readable_indexes()
