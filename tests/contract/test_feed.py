"""The catalog as a feed: compacted, validated, rewritten, followed."""

from __future__ import annotations

import itertools
import json
import random
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jsonschema
import pytest
from msgspec import structs

from tests.contract.tables import ADD_COLOR, INDEX_SIZE, ITEMS
from tests.support import (
    LIVE,
    Workspace,
    dump,
    error_of,
    has_waiting_session,
    wait_until,
)
from zapdb import release
from zapdb.activation import TableDescriptor, load_tenant_catalog
from zapdb.catalog import (
    DEFAULT_TENANT,
    cache,
    feed,
    row_kinds,
    rows,
)
from zapdb.catalog.cache import CatalogCache
from zapdb.catalog.cluster import ensure_database, leases
from zapdb.catalog.cluster.leases import Owner
from zapdb.catalog.cluster.level import check_level, require_level
from zapdb.catalog.row_kinds import (
    ChainState,
    DatabaseRow,
    FormatChange,
    IndexRow,
    SettingRow,
)
from zapdb.catalog.rows import catalog_schema, dump_row, load_row
from zapdb.errors import CatalogChangesPurged, CorruptCatalog, IncompatibleVersion
from zapdb.limits import TOMBSTONES_KEPT
from zapdb.storage import Storage, TransactionMode
from zapdb.storage.identities import count_of, lowest_of


@pytest.fixture
def storage(workspace: Workspace) -> Storage:
    """A database without migrations."""
    storage = workspace.connect()
    ensure_database(storage, create=True)
    return storage


def follow(storage: Storage, known: CatalogCache | None = None) -> CatalogCache:
    with storage.transaction(TransactionMode.READ) as connection:
        if known is None:
            return cache.load_cache(connection)
        return cache.refresh_cache(connection, known)


def setting(value: object, name: str = "a") -> SettingRow:
    return SettingRow("*", name, str(value))


def count(workspace: Workspace, condition: str = "1 = 1") -> int:
    return int(workspace.execute(f"SELECT count(*) FROM zapdb_catalog WHERE {condition}")[0][0])


# Compaction


def test_rule_30_the_feed_is_as_long_as_there_are_keys(
    workspace: Workspace, storage: Storage
) -> None:
    before = count(workspace)
    changes = 10_000 if workspace.engine == "sqlite" else 1_000
    with storage.transaction(TransactionMode.CATALOG) as connection:
        for number in range(changes):
            seq = rows.put(connection, setting(number, f"key {number % 10}"))
        assert seq == feed.read_seq(connection)
    assert count(workspace) == before + 10
    assert follow(storage).get(SettingRow, "*", "key 9") == setting(changes - 1, "key 9")


def test_rule_30_what_comes_and_goes_leaves_nothing_after_a_purge(
    workspace: Workspace, storage: Storage
) -> None:
    workspace.write(1, ITEMS)
    workspace.open().close()
    before = count(workspace, "value IS NOT NULL")
    for _ in range(5):
        workspace.open().close()
    assert count(workspace, "value IS NULL") >= 6  # nodes
    assert feed.purge(storage, kept=0) >= 6
    assert count(workspace) == before
    assert feed.purge(storage, kept=0) == 0


def test_rule_30_a_sweep_purges_what_is_older_than_the_last_changes(
    workspace: Workspace, storage: Storage
) -> None:
    def come_and_go(key: str) -> int:
        with storage.transaction(TransactionMode.CATALOG) as connection:
            rows.put(connection, setting(1, key))
            return rows.delete(connection, SettingRow, "*", key)

    seq = come_and_go("old")
    assert feed.purge_if_long(storage) == 0
    with storage.transaction(TransactionMode.CATALOG) as connection:
        later = lowest_of(count_of(seq) + 2 * TOMBSTONES_KEPT)
        connection.run(f"UPDATE zapdb_counters SET value = {later} WHERE name = 'seq'")
    seq = come_and_go("new")
    assert feed.purge_if_long(storage) == 1
    assert workspace.execute("SELECT key FROM zapdb_catalog WHERE value IS NULL") == [("*/new",)]
    assert feed.read_horizon(storage.connection()) < seq


@pytest.mark.parametrize("engine", ["postgresql"])
def test_a_purge_waits_for_who_brings_back_several_keys(
    workspace: Workspace, storage: Storage
) -> None:
    """It used to delete some tombstones and wait for others, and was ended as a deadlock."""
    keys = ["first", "second"]
    with storage.transaction(TransactionMode.CATALOG) as connection:
        for key in keys:
            rows.put(connection, setting(1, key))
            rows.delete(connection, SettingRow, "*", key)
    with ThreadPoolExecutor() as pool:
        with storage.transaction(TransactionMode.CATALOG) as connection:
            rows.put(connection, setting(2, "second"))
            purged = pool.submit(feed.purge, workspace.connect(), kept=0)
            wait_until(lambda: has_waiting_session(workspace), "the purge waits")
            rows.put(connection, setting(2, "first"))
        purged.result()
    assert [follow(storage).get(SettingRow, "*", key) for key in keys] == [
        setting(2, key) for key in keys
    ]


def test_a_deleted_key_is_no_value_and_may_come_back(storage: Storage) -> None:
    with storage.transaction(TransactionMode.CATALOG) as connection:
        first = rows.put(connection, setting(1))
        second = rows.delete(connection, SettingRow, "*/a")
        assert rows.get(connection, SettingRow, "*", "a") is None
        assert rows.list_rows(connection, SettingRow) == []
        third = rows.delete(connection, SettingRow, "*/a")
        assert first < second < third
        assert rows.put_if_absent(connection, setting(2))
        assert not rows.put_if_absent(connection, setting(3))
        assert rows.get(connection, SettingRow, "*", "a") == setting(2)
        rows.delete(connection, SettingRow, "*/a")


# Kinds


def stored(**changed: Any) -> str:
    value = {"format": 1, "scope": "*/*/*", "name": "on_read", "value": "leave"}
    return json.dumps(value | changed)


@pytest.mark.parametrize(
    ("tampered", "wrong"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "it has no format"),
        ("{}", "it has no format"),
        (stored(format=0), "it has no format"),
        (stored(format=True), "it has no format"),
        (stored(format="1"), "it has no format"),
        ('{"format":1}', "Object missing required field `scope`"),
        (stored(value=7), "Expected `str`, got `int` - at `$.value`"),
        (stored(more=1), "Object contains unknown field `more`"),
        (stored(name="convert"), "the value of another key: */*/*/convert"),
    ],
)
def test_a_row_that_was_tampered_with_is_told_and_nothing_is_written(
    workspace: Workspace, storage: Storage, tampered: str, wrong: str
) -> None:
    with storage.transaction(TransactionMode.CATALOG) as connection:
        rows.put(connection, SettingRow("*/*/*", "on_read", "leave"))
    workspace.execute("UPDATE zapdb_catalog SET value = ? WHERE kind = 'setting'", (tampered,))
    before = dump(workspace)
    for read in (
        lambda: rows.get(storage.connection(), SettingRow, "*/*/*", "on_read"),
        lambda: rows.list_rows(storage.connection(), SettingRow),
        lambda: follow(storage).get(SettingRow, "*/*/*", "on_read"),
    ):
        error = error_of(read)
        assert isinstance(error, CorruptCatalog)
        assert (error.context["kind"], error.context["key"]) == ("setting", "*/*/*/on_read")
        assert wrong in error.context["wrong"]
    assert dump(workspace) == before


def test_opening_a_database_with_such_a_row_writes_nothing(workspace: Workspace) -> None:
    workspace.write(1, ITEMS, INDEX_SIZE)
    workspace.open().close()
    for kind in ("index", "tenant", "level"):
        ((key, text),) = workspace.execute(
            f"SELECT key, value FROM zapdb_catalog WHERE kind = '{kind}'" + LIVE
        )
        update = "UPDATE zapdb_catalog SET value = ? WHERE kind = ? AND key = ?"
        workspace.execute(update, ('{"format":1}', kind, key))
        before = dump(workspace)
        with pytest.raises(CorruptCatalog, match="not valid for its kind") as caught:
            workspace.open()
        assert (caught.value.context["kind"], caught.value.context["key"]) == (kind, key)
        assert dump(workspace) == before
        workspace.execute(update, (text, kind, key))
    workspace.open()


def test_a_format_that_a_later_release_wrote_is_refused(
    workspace: Workspace, storage: Storage
) -> None:
    with storage.transaction(TransactionMode.CATALOG) as connection:
        rows.put(connection, setting(1))
    workspace.execute("""UPDATE zapdb_catalog SET value = '{"format":2}' WHERE kind = 'setting'""")
    with pytest.raises(IncompatibleVersion, match="by a later release") as caught:
        rows.get(storage.connection(), SettingRow, "*/a")
    assert (caught.value.context["format"], caught.value.context["known"]) == (2, 1)


CANONICAL: dict[str, Any] = {"sort_keys": True, "separators": (",", ":")}


def unused(row: dict[str, Any]) -> dict[str, Any]:
    raise AssertionError(f"{row} is not written in an older format")


@pytest.mark.on_each_engine
def test_rule_10_a_row_is_written_in_the_newest_format_that_all_processes_read(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made up: format 2 of the database's row says `zapdb` before the release."""
    workspace.write(1, ITEMS)
    older = workspace.open()
    control, now = workspace.connect(), release.__version__
    newer = FormatChange(
        release.LEVEL + 1,
        lambda row: row | {"release": f"zapdb {row['release']}"},
        lambda row: row | {"release": row["release"].removeprefix("zapdb ")},
    )

    def stored() -> tuple[int, str, str]:
        ((text,),) = workspace.execute("SELECT value FROM zapdb_catalog WHERE kind = 'database'")
        row = json.loads(text)
        return row["format"], row["release"], row["created_by"]

    def write(who: str) -> None:
        with control.transaction(TransactionMode.CATALOG) as connection:
            row = rows.get(connection, DatabaseRow)
            assert row is not None
            assert row.release == f"zapdb {now}"
            rows.put(connection, structs.replace(row, created_by=who))

    with monkeypatch.context() as patched:
        patched.setattr(release, "LEVEL", newer.level)
        patched.setattr(DatabaseRow, "FORMAT", 2)
        patched.setitem(row_kinds.FORMAT_CHANGES, ("database", 1), newer)
        write("before")
        assert stored() == (1, now, "before")
        with pytest.raises(IncompatibleVersion, match="do not support the cluster level"):
            require_level(control, newer.level)
        older.close()
        require_level(control, newer.level)
        assert stored() == (2, f"zapdb {now}", "before")
        write("after")
        assert stored() == (2, f"zapdb {now}", "after")
    with pytest.raises(IncompatibleVersion, match="features that this release does not know"):
        check_level(control.connection())
    with pytest.raises(IncompatibleVersion, match="written by a later release"):
        rows.get(control.connection(), DatabaseRow)
    with pytest.raises(IncompatibleVersion):
        workspace.open()


def test_older_formats_are_read_and_rewritten(
    workspace: Workspace, storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A made-up kind of settings, which had its value as a number, in a list, and as text."""

    class Newest(SettingRow, frozen=True):
        FORMAT = 3

    def second(row: dict[str, Any]) -> dict[str, Any]:
        number = row.pop("number")
        return row | {"values": [number]}

    def third(row: dict[str, Any]) -> dict[str, Any]:
        (value,) = row.pop("values")
        return row | {"value": str(value)}

    for number, value in enumerate(({"number": 1}, {"values": [2]}, {"value": "3"}), 1):
        row = {"format": number, "scope": "*", "name": f"of {number}", **value}
        workspace.execute(
            "INSERT INTO zapdb_catalog (kind, key, seq, value) VALUES ('setting', ?, ?, ?)",
            (f"*/of {number}", 1000 + number, json.dumps(row, **CANONICAL)),
        )
    monkeypatch.setitem(row_kinds.KINDS, "setting", Newest)
    changes = row_kinds.FORMAT_CHANGES
    monkeypatch.setitem(changes, ("setting", 1), FormatChange(1, second, unused))
    monkeypatch.setitem(changes, ("setting", 2), FormatChange(1, third, unused))
    wanted = [Newest("*", f"of {number}", str(number)) for number in (1, 2, 3)]
    assert rows.list_rows(storage.connection(), Newest) == wanted
    with storage.transaction(TransactionMode.CATALOG) as connection:
        assert feed.upgrade_row_formats(connection) == 2
        assert feed.upgrade_row_formats(connection) == 0
    texts = workspace.execute("SELECT value FROM zapdb_catalog WHERE kind = 'setting' ORDER BY key")
    assert texts[:2] == [(dump_row(row),) for row in wanted[:2]]
    broken = '{"format":1,"values":[1]}'
    workspace.execute("UPDATE zapdb_catalog SET value = ? WHERE kind = 'setting'", (broken,))
    with pytest.raises(CorruptCatalog) as caught:
        rows.get(storage.connection(), Newest, "*/of 1")
    assert caught.value.context["wrong"] == "not a value of format 1: KeyError('number')"


def test_every_row_of_a_database_in_use_fits_the_published_schema(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.table("items").insert(id=1, title="Milk")
    workspace.write(2, ADD_COLOR, INDEX_SIZE)
    db.close()
    db = workspace.open()
    db.admin.run_jobs()
    validator = jsonschema.Draft202012Validator(catalog_schema())
    found = workspace.execute("SELECT kind, key, value FROM zapdb_catalog WHERE 1 = 1" + LIVE)
    seen = set()
    for kind, key, text in found:
        row = {"kind": kind, "key": key, "value": json.loads(text)}
        validator.validate(row)
        seen.add(kind)
        row["value"]["format"] = 99
        assert not validator.is_valid(row)
        assert dump_row(load_row(row_kinds.KINDS[kind], key, text)) == text
    assert {"database", "level", "tenant", "node", "index", "job"} <= seen


def test_every_format_but_the_first_can_be_upgraded_to() -> None:
    wanted = {(kind.KIND, n) for kind in row_kinds.KINDS.values() for n in range(1, kind.FORMAT)}
    assert wanted == row_kinds.FORMAT_CHANGES.keys()


def test_the_schemas_say_what_the_code_takes() -> None:
    jsonschema.Draft202012Validator.check_schema(catalog_schema())
    defined = {kind for kind in vars(row_kinds).values() if isinstance(kind, type)}
    assert {kind for kind in defined if issubclass(kind, row_kinds.CatalogRow)} == {
        row_kinds.CatalogRow,
        *row_kinds.KINDS.values(),
    }


def test_a_row_that_could_not_be_read_again_is_not_written(storage: Storage) -> None:
    wrong: Any = 7
    before = follow(storage).to_bytes()
    with (
        pytest.raises(ValueError, match=r"Expected `str`, got `int` - at `\$.value`"),
        storage.transaction(TransactionMode.CATALOG) as connection,
    ):
        rows.put(connection, SettingRow("*", "a", wrong))
    assert follow(storage).to_bytes() == before


# Following


def test_rule_30_a_follower_sees_what_changed_and_what_was_deleted(storage: Storage) -> None:
    first = follow(storage)
    assert follow(storage, first) is first
    with storage.transaction(TransactionMode.CATALOG) as connection:
        rows.put(connection, setting(1))
        rows.put(connection, setting(1, "b"))
    second = follow(storage, first)
    with storage.transaction(TransactionMode.CATALOG) as connection:
        seq = rows.delete(connection, SettingRow, "*/a")
    third = follow(storage, second)
    assert first.list(SettingRow) == []
    assert second.list(SettingRow) == [setting(1), setting(1, "b")]
    assert third.list(SettingRow, "*") == [setting(1, "b")]
    assert third.get(SettingRow, "*/a") is None
    assert third.seq == seq
    assert third.changed_since(second) == {("setting", "*/a")}
    for before in (first, second, third, None):
        assert follow(storage, before).to_bytes() == third.to_bytes()


def test_rule_30_taking_and_renewing_a_lease_is_no_change(storage: Storage) -> None:
    lease = leases.acquire(storage, "a", Owner("a", "b", 1), 30)
    before = follow(storage)
    with storage.transaction(TransactionMode.CATALOG) as connection:
        renewed = leases.renew(connection, lease, 60)
        assert renewed.expires_at > lease.expires_at
        assert leases.list_leases(connection) == [renewed]
    leases.acquire(storage, "a", Owner("a", "b", 1), 30)
    assert follow(storage, before) is before
    assert follow(storage).to_bytes() == before.to_bytes()


def test_rule_30_a_follower_behind_the_horizon_loads_the_whole(storage: Storage) -> None:
    with storage.transaction(TransactionMode.CATALOG) as connection:
        rows.put(connection, setting(1))
    behind = follow(storage)
    with storage.transaction(TransactionMode.CATALOG) as connection:
        rows.delete(connection, SettingRow, "*/a")
    at_horizon = follow(storage)
    feed.purge(storage, kept=0)
    assert follow(storage, at_horizon) is at_horizon
    with storage.transaction(TransactionMode.CATALOG) as connection:
        rows.put(connection, setting(1, "b"))
    wanted = follow(storage)
    assert follow(storage, behind).to_bytes() == wanted.to_bytes()
    assert follow(storage, at_horizon).to_bytes() == wanted.to_bytes()


@pytest.mark.on_each_engine
def test_rule_30_changes_since_a_seq_are_told_until_they_are_purged(storage: Storage) -> None:
    seqs = []
    for name in ("a", "b"):
        with storage.transaction(TransactionMode.CATALOG) as connection:
            rows.put(connection, setting(1, name))
            seqs.append(feed.read_seq(connection))
    with storage.transaction(TransactionMode.CATALOG) as connection:
        seqs.append(rows.delete(connection, SettingRow, "*/a"))
    first, second, deleted = seqs

    def since(seq: int, kinds: list[str] | None = None) -> list[tuple[str, str, int, bool]]:
        with storage.transaction(TransactionMode.READ) as connection:
            found = feed.read_changed_rows(connection, seq, kinds)
        return [(row.kind, row.key, row.seq, row.text is None) for row in found]

    gone, kept = ("setting", "*/a", deleted, True), ("setting", "*/b", second, False)
    assert since(first) == since(first, ["setting", "node"]) == [kept, gone]
    assert since(second) == [gone]
    assert since(deleted) == since(first, ["node"]) == []
    assert since(0)[-2:] == [kept, gone]
    feed.purge(storage, kept=0)
    assert since(deleted) == []
    assert since(0)[-1] == kept
    for seq in (first, second, deleted + 1):  # the last is of a database that was restored since
        with pytest.raises(CatalogChangesPurged) as caught:
            since(seq)
        assert caught.value.context == {"after": seq, "oldest": deleted, "newest": deleted}
        assert caught.value.rpc_status == "OUT_OF_RANGE"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of the rows that are read from the database from now on, and by which thread."""
    found = list[str]()

    def note(name: str, kinds_of: Callable[[Any], Iterable[str]]) -> None:
        original = getattr(rows, name)

        def read(connection: Any, wanted: Any, *key: Any, **how: Any) -> Any:
            thread = threading.current_thread().name
            found.extend(f"{kind} by {thread}" for kind in kinds_of(wanted))
            return original(connection, wanted, *key, **how)

        monkeypatch.setattr(rows, name, read)

    note("get", lambda kind: [kind.KIND])
    note("list_rows", lambda kind: [kind.KIND])
    note("read_texts", lambda kinds: [kind.KIND for kind in kinds])
    note("read_tenant_state", lambda tenant: rows.STATE_KINDS)
    return found


def test_rule_8_a_tenant_catalog_is_made_of_a_cache_that_is_not_behind(
    workspace: Workspace, reads: list[str]
) -> None:
    workspace.write(1, ITEMS)
    workspace.write(2, INDEX_SIZE)
    with workspace.open() as db:
        db.admin.set_setting("change_log", "on")
        db.admin.create_tenant("other")
    storage = workspace.connect()
    known = follow(storage)

    def load(cached: CatalogCache | None) -> tuple[TableDescriptor, ChainState, list[str]]:
        reads.clear()
        with storage.transaction(TransactionMode.READ) as connection:
            catalog = load_tenant_catalog(connection, DEFAULT_TENANT, cache=cached)
        asked = [kind.partition(" ")[0] for kind in reads]
        return catalog.table("items"), catalog.chain_state, asked

    read, state, asked = load(None)
    assert asked == ["tenant", "chain", "level", "index", "constraint", "setting"]
    assert read.logs_changes
    assert load(known) == (read, state, [])
    for kind in row_kinds.KINDS.values():
        assert known.list(kind) == rows.list_rows(storage.connection(), kind)
    with storage.transaction(TransactionMode.CATALOG) as connection:
        index = rows.list_rows(connection, IndexRow)[0]
        rows.put(connection, structs.replace(index, state="disabled"))
    changed, state, asked = load(known)
    assert asked == ["tenant", "chain", "level", "index", "constraint", "setting"]
    assert changed.indexes[0].state == "disabled"
    assert load(follow(storage, known)) == (changed, state, [])


def test_rule_8_an_open_database_follows_a_schema_by_its_cache(
    workspace: Workspace, reads: list[str]
) -> None:
    workspace.write(1, ITEMS)
    workspace.write(2, INDEX_SIZE)
    db = workspace.open()
    db.admin.catalog()  # the watcher has its cache
    storage = workspace.connect()
    with storage.transaction(TransactionMode.CATALOG) as connection:
        (index,) = rows.list_rows(connection, IndexRow)
        reads.clear()
        seq = rows.put(connection, structs.replace(index, state="disabled"))
    db.admin.wait_for_catalog(seq)
    assert [read for read in reads if read.endswith("zapdb-watch")] == []


@pytest.mark.on_each_engine
def test_rule_30_all_views_are_byte_equal_at_one_token(workspace: Workspace) -> None:
    """Writers that change and delete at random, one that purges, and views that lag and restart."""
    storage = workspace.connect()
    ensure_database(storage, create=True)
    seen: dict[int, set[bytes]] = {}
    problems: list[BaseException] = []
    writers = [threading.Thread(target=lambda at=at: guard(write, at)) for at in range(3)]
    is_over = threading.Event()

    def guard(action: Any, at: int) -> None:
        try:
            action(workspace.connect(), random.Random(at))
        except BaseException as error:
            problems.append(error)

    def write(own: Storage, chance: random.Random) -> None:
        rounds = itertools.count()
        while next(rounds) < 40 or (len(seen) <= 10 and not problems):  # readers may be slow
            with own.transaction(TransactionMode.CATALOG) as connection:
                for _ in range(chance.randint(1, 3)):
                    key = f"key {chance.randrange(12)}"
                    if chance.random() < 0.4:
                        rows.delete(connection, SettingRow, "*", key)
                    else:
                        rows.put(connection, setting(chance.random(), key))
            if chance.random() < 0.2:
                feed.purge(own, kept=chance.randint(0, 20))

    def read(own: Storage, chance: random.Random) -> None:
        known = follow(own)
        while not is_over.is_set():
            if chance.random() < 0.1:
                known = follow(own)  # a restart
            elif chance.random() < 0.7:
                is_over.wait(chance.random() / 100)  # it lags
            known = follow(own, known)
            seen.setdefault(known.seq, set()).add(known.to_bytes())

    readers = [threading.Thread(target=lambda at=at: guard(read, at)) for at in range(3, 6)]
    for thread in [*readers, *writers]:
        thread.start()
    for thread in writers:
        thread.join()
    is_over.set()
    for thread in readers:
        thread.join()
    assert problems == []
    assert len(seen) > 10
    assert {seq: len(views) for seq, views in seen.items()} == dict.fromkeys(seen, 1)


@pytest.mark.parametrize("seq", [0, -1])
def test_a_row_before_the_first_change_is_refused(storage: Storage, seq: int) -> None:
    """A follower that begins at the first change would never see it."""
    with storage.transaction(TransactionMode.CATALOG) as connection:
        connection.run(
            f"UPDATE zapdb_catalog SET seq = {seq} WHERE seq = (SELECT min(seq) FROM zapdb_catalog)"
        )
    refused = pytest.raises(CorruptCatalog, match="below 1")
    with storage.transaction(TransactionMode.READ) as connection, refused:
        cache.load_cache(connection)
