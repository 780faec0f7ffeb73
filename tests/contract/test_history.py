"""The schema history: what is appended, by whom, how much it takes, and what never happens."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

import pytest

from tests.contract.tables import ADD_COLOR, ADD_WEIGHT, INDEX_SIZE, ITEMS, RENAME_SIZE
from tests.support import Workspace, error_of, finish
from zapdb.activation.inspection import read_log
from zapdb.activation.rollback import roll_back
from zapdb.activation.up import MigrationChoice, migrate_up
from zapdb.catalog import DEFAULT_TENANT, principal, schema_history
from zapdb.catalog.cluster import ensure_database
from zapdb.catalog.schema_history import (
    KnownLayout,
    RevisionEntry,
    find_rollbacks,
    read_entries,
)
from zapdb.catalog.stored_migrations import ChainPlace
from zapdb.errors import ConcurrencyError, CorruptCatalog, UsageError
from zapdb.migrations import load_directory
from zapdb.past.schema_history_pruning import PruneBound, plan_pruning, prune
from zapdb.schema import fingerprint
from zapdb.storage import Storage, TransactionMode

TAGS = "create_table: {table: tags, key: [name], fields: [{name: name, type: string}]}"
INDEX_EXTENT = INDEX_SIZE.replace("field: size", "field: extent")
RENAME = "rename_table: {table: items, to: things}"
DROP = "drop_table: {table: items, records: discard}"


def entries_of(storage: Storage, name: str = "items") -> list[RevisionEntry]:
    with storage.transaction(TransactionMode.READ) as connection:
        return read_log(connection, DEFAULT_TENANT, name)


def events_of(storage: Storage, name: str = "items") -> list[tuple[int, str, str]]:
    return [(e.revision, e.event, e.schema.name) for e in entries_of(storage, name)]


def up(place: Workspace, number: int, *operations: str) -> None:
    place.write(number, *operations)
    ensure_database(place.control, create=True)
    migrate_up(place.control, DEFAULT_TENANT, place.directory, MigrationChoice(again=True))


def test_rule_01_an_unchanged_schema_writes_nothing(workspace: Workspace) -> None:
    up(workspace, 1, ITEMS)
    before = entries_of(workspace.control)
    up(workspace, 2, TAGS)
    workspace.open().close()
    with workspace.open() as db:
        db.table("items").insert(id=1, title="Milk")
        db.admin.run_jobs()
    assert entries_of(workspace.control) == before
    assert [e.revision for e in before] == [1]


def test_rule_04_a_rollback_that_returns_to_a_schema_repeats_its_fingerprint(
    workspace: Workspace,
) -> None:
    up(workspace, 1, ITEMS)
    up(workspace, 2, ADD_COLOR, INDEX_SIZE)
    roll_back(workspace.control)
    up(workspace, 2, ADD_COLOR, INDEX_SIZE)
    first, changed, back, again = entries_of(workspace.control)
    assert first.fingerprint == back.fingerprint
    assert changed.fingerprint == again.fingerprint != first.fingerprint
    # The field that is added again is another one: numbers are no part of a fingerprint.
    assert changed.schema_bytes != again.schema_bytes
    assert find_rollbacks([first, changed, back, again]) == [None, None, 2, 3]


def test_rule_01_the_log_survives_rename_and_drop_and_a_drop_appends(workspace: Workspace) -> None:
    up(workspace, 1, ITEMS)
    up(workspace, 2, RENAME)
    up(workspace, 3, DROP.replace("items", "things"))
    expected = [(1, "create", "items"), (2, "change", "things"), (3, "drop", "things")]
    assert events_of(workspace.control) == events_of(workspace.control, "things") == expected
    # A table of the same name is another one; the log of the first goes on being there.
    up(workspace, 4, ITEMS)
    assert events_of(workspace.control) == [(1, "create", "items")]
    assert events_of(workspace.control, "things") == expected


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_table_in_force_comes_before_one_that_had_its_name(workspace: Workspace) -> None:
    up(workspace, 1, ITEMS)
    up(workspace, 2, DROP, ITEMS)  # the drop is the last thing that is written down
    with workspace.open() as db:
        number = db._catalog.table("items").schema.number
    assert {e.table_number for e in entries_of(workspace.control)} == {number}
    up(workspace, 3, RENAME)
    assert events_of(workspace.control) == [(1, "create", "items"), (2, "change", "things")]


def test_rule_01_a_snapshot_is_exactly_the_schema_of_its_position(workspace: Workspace) -> None:
    up(workspace, 1, ITEMS)
    up(workspace, 2, ADD_COLOR, INDEX_SIZE)
    up(workspace, 3, RENAME_SIZE)
    with workspace.open() as db:
        chain, entries = db._catalog.chain, db.admin.schema_history("items")
    for entry in entries:
        (table,) = chain.schema_at(entry.position)
        assert entry.schema == table
        assert entry.fingerprint == fingerprint(table)
        assert entry.migration == chain.at(entry.position).id
    assert [e.position for e in entries] == [1, 2, 3]


# Generations


def run_threads(*actions: Callable[[], object]) -> list[BaseException]:
    errors: list[BaseException] = []

    def run(action: Callable[[], object]) -> None:
        try:
            action()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        finish(thread)
    return errors


@pytest.mark.on_each_engine
def test_rule_01_revisions_rise_strictly_under_concurrency(workspace: Workspace) -> None:
    """Some apply, some roll_back, one prunes, all at once: each revision is written once."""
    up(workspace, 1, ITEMS)
    up(workspace, 2, ADD_COLOR)
    second = load_directory(workspace.directory).at(2).digest
    seen: dict[int, tuple[str, int]] = {}
    stop = threading.Event()

    def apply() -> None:
        storage = workspace.connect()
        for _ in range(4):
            migrate_up(storage, DEFAULT_TENANT, workspace.directory, MigrationChoice(again=True))

    def go_back() -> None:
        storage = workspace.connect()
        for _ in range(4):
            if _end(storage) == 2:  # another one may be faster, who then finds the first
                error = error_of(lambda: roll_back(storage, digests=[second]))
                assert error is None or isinstance(error, UsageError | ConcurrencyError), error

    def watch() -> None:
        storage = workspace.connect()
        while not stop.is_set():
            for entry in entries_of(storage):
                known = seen.setdefault(entry.revision, (entry.event, entry.migrated_at))
                assert known == (entry.event, entry.migrated_at)

    watcher = threading.Thread(target=lambda: errors.extend(run_threads(watch)))
    errors: list[BaseException] = []
    watcher.start()
    errors += run_threads(apply, apply, go_back, go_back)
    stop.set()
    watcher.join()
    unexpected = [e for e in errors if not isinstance(e, ConcurrencyError)]
    assert unexpected == []
    entries = entries_of(workspace.control)
    assert [e.revision for e in entries] == list(range(1, len(entries) + 1))
    assert len(entries) >= 2
    assert [e.event for e in entries[1:]] == [
        event
        for event, _ in zip(itertools.cycle(["change", "rollback"]), entries[1:], strict=False)
    ]
    times = [e.migrated_at for e in entries]
    assert times == sorted(times)


@pytest.mark.on_each_engine
def test_rule_01_appending_from_many_threads_gives_each_a_revision_of_its_own(
    workspace: Workspace,
) -> None:
    up(workspace, 1, ITEMS)
    (first,) = entries_of(workspace.control)
    place = ChainPlace(1, first.migration)
    made = schema_history.NewRevision(
        DEFAULT_TENANT, first.schema, "change", place, KnownLayout(1, 1)
    )
    drawn: list[int] = []

    def append() -> None:
        storage = workspace.connect()
        for _ in range(10):
            with storage.transaction(TransactionMode.DDL) as connection:
                revision = schema_history.append_revision(connection, made)
            drawn.append(revision)

    assert run_threads(*[append] * 5) == []
    assert sorted(drawn) == list(range(2, 52))
    entries = entries_of(workspace.control)
    assert [e.revision for e in entries] == list(range(1, 52))
    times = [e.migrated_at for e in entries]
    assert times == sorted(times)


def _end(storage: Storage) -> int:
    with storage.transaction(TransactionMode.READ) as connection:
        rows = connection.fetch_all("SELECT number FROM zapdb_migrations WHERE state = 'stored'")
    return max((int(number) for (number,) in rows), default=0)


def test_rule_01_a_revision_is_never_used_again(workspace: Workspace) -> None:
    """Not after a drop, a roll_back, a prune, and another migration under the same number."""
    storage, used = workspace.control, dict[int, tuple[str, bytes]]()

    def look() -> list[int]:
        entries = entries_of(storage)
        for entry in entries:
            known = used.setdefault(entry.revision, (entry.event, entry.schema_bytes))
            assert known == (entry.event, entry.schema_bytes)
        return [entry.revision for entry in entries]

    up(workspace, 1, ITEMS)
    with workspace.open() as db:
        db.table("items").insert_many({"id": at, "title": f"t{at}"} for at in range(20))
    assert look() == [1]
    up(workspace, 2, ADD_COLOR)
    with workspace.open() as db:
        for at in range(0, 20, 2):
            db.table("items").update(at, color="blue")
    assert look() == [1, 2]
    roll_back(storage)
    assert look() == [1, 2, 3]
    up(workspace, 2, "drop_table: {table: items, records: archive}")
    assert look() == [1, 2, 3, 4]
    roll_back(storage)
    assert look() == [1, 2, 3, 4, 5]
    up(workspace, 2, ADD_WEIGHT)
    with workspace.open() as db:
        assert [(r.weight, r.title) for r in db.table("items").scan()][:2] == [(7, "t0"), (7, "t1")]
        db.admin.run_jobs()
        assert db.admin.count_by_revision("items") == {6: 20}
    assert look() == [1, 2, 3, 4, 5, 6]
    with storage.transaction(TransactionMode.READ) as connection:
        log = read_log(connection, DEFAULT_TENANT, "items")
        pruning = plan_pruning(connection, log, PruneBound(keep_last=1))
    prune(storage, pruning)
    assert look() == [6]
    up(workspace, 3, RENAME_SIZE)
    up(workspace, 4, DROP)
    assert look() == [6, 7, 8]


# Size


WIDE = """\
create_table: {table: orders, key: [id], fields: [
      {name: id, type: uuid, generated: true},
      {name: customer, type: reference, to: customers},
      {name: order_number, type: string},
      {name: state, type: order_state},
      {name: created_at, type: timestamp},
      {name: updated_at, type: timestamp, optional: true},
      {name: delivered_at, type: timestamp, optional: true},
      {name: total_amount, type: decimal, scale: 2},
      {name: tax_amount, type: decimal, scale: 2, default: "0.00"},
      {name: currency, type: string, default: EUR},
      {name: first_name, type: string},
      {name: last_name, type: string},
      {name: street, type: string},
      {name: postal_code, type: string},
      {name: city, type: string},
      {name: country, type: string},
      {name: email, type: string},
      {name: is_gift, type: boolean, default: false},
      {name: comment, type: string, optional: true},
      {name: quantity, type: integer, default: 1}]}"""
CONSTRAINTS = (
    "create_index: {table: orders, index: by_order_number, unique: true,"
    " fields: [{field: order_number}]}",
    "create_index: {table: orders, index: by_customer,"
    " fields: [{field: customer}, {field: created_at, descending: true}]}",
    "create_index: {table: orders, index: by_name, fields: ["
    "{field: last_name, collation: {locale: de, strength: primary}},"
    "{field: first_name, collation: {locale: de, strength: primary}}]}",
    "add_check: {table: orders, check: positive_quantity, expression: quantity > 0}",
    "add_check: {table: orders, check: positive_total, expression: total_amount >= 0}",
)
ENTRY_SIZE_BYTES_MAX = 650


def test_an_entry_of_a_table_of_20_fields_takes_at_most_650_bytes(workspace: Workspace) -> None:
    """With three indexes, two checks, a reference and an enum; all columns together."""
    with principal.acting_as("a" * 64):
        up(
            workspace,
            1,
            "create_table: {table: customers, key: [id], fields: [{name: id, type: uuid}]}",
            "create_type: {type: order_state, enum: [waiting, paid, packed, sent, returned]}",
            WIDE,
            *CONSTRAINTS,
        )
    (entry,) = entries_of(workspace.control, "orders")
    assert len(entry.schema.fields) == 20
    if workspace.engine == "postgresql":
        # The header of the row is counted, too.
        measure = "SELECT pg_column_size(f.*) FROM zapdb_schema_history AS f WHERE table_number = ?"
        measured = workspace.execute(measure, (entry.table_number,))
    else:
        names = [
            name for _, name, *_ in workspace.execute("PRAGMA table_info(zapdb_schema_history)")
        ]
        sizes = " + ".join(
            f"CASE typeof({name}) WHEN 'integer' THEN 8 ELSE length(CAST({name} AS BLOB)) END"
            for name in names
        )
        measured = workspace.execute(
            f"SELECT {sizes} FROM zapdb_schema_history WHERE table_number = ?",
            (entry.table_number,),
        )
    assert 0 < measured[0][0] <= ENTRY_SIZE_BYTES_MAX


def test_a_snapshot_that_was_tampered_with_is_corrupt(workspace: Workspace) -> None:
    up(workspace, 1, ITEMS)
    workspace.execute("UPDATE zapdb_schema_history SET table_schema = ?", (b"nonsense",))
    with workspace.control.transaction(TransactionMode.READ) as connection:
        (entry,) = read_entries(connection, DEFAULT_TENANT)
    with pytest.raises(CorruptCatalog, match="the bytes of a table schema can't be read"):
        _ = entry.schema


# Principals


def test_migrated_by_is_who_acts(workspace: Workspace) -> None:
    up(workspace, 1, ITEMS)
    with principal.acting_as("rodrigo@example.org"):
        up(workspace, 2, ADD_COLOR)
        # Another thread acts for nobody but the process.
        assert run_threads(lambda: up(workspace, 3, ADD_WEIGHT)) == []
        with principal.acting_as("token:tenant=7"):
            up(workspace, 4, RENAME_SIZE)
        assert principal.current() == "rodrigo@example.org"
    with principal.acting_as(principal.SYSTEM):
        up(workspace, 5, INDEX_EXTENT)
    first, *others = [e.migrated_by for e in entries_of(workspace.control)]
    assert "@" in first
    assert others == ["rodrigo@example.org", first, "token:tenant=7", "<system>"]
    stored = workspace.execute("SELECT stored_by FROM zapdb_migrations ORDER BY number")
    assert [by for (by,) in stored] == [first, *others]


@pytest.mark.parametrize("name", ["", "a" * 256, "two\nlines"])
def test_a_principal_has_a_name(name: str) -> None:
    with pytest.raises(UsageError, match="a valid name of a principal"), principal.acting_as(name):
        pass


def make_entry(revision: int, stamped: int, event: str = "change") -> RevisionEntry:
    return RevisionEntry(1, 1, revision, event, stamped, 0, "", 0, 0, 1, 1, 1, b"")


@pytest.mark.parametrize(
    ("fingerprints", "rolled_back"),
    [
        ([1, 2, 3], [None] * 3),
        ([1, 2, 1], [None, None, 2]),
        ([1, 2, 1, 2, 1], [None, None, 2, 3, 4]),
        ([1, 1, 1], [None] * 3),  # a drop and a restore change no schema
        ([1, 2, 2, 1], [None, None, None, 3]),
        ([1, 2, 3, 1], [None, None, None, 3]),
    ],
)
def test_a_rollback_names_the_revision_right_before(
    fingerprints: list[int], rolled_back: list[int | None]
) -> None:
    entries = [make_entry(at, stamped) for at, stamped in enumerate(fingerprints, 1)]
    assert find_rollbacks(entries) == rolled_back
