"""What is erased is looked for in every column of every fixed table, in every kind of row of the
catalog, in every other table and in every file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.contract.stored_pasts import flush
from tests.contract.test_history_erased import (
    DROP_NOTE,
    KEY,
    MARK,
    NAME,
    PHOTO,
    list_marked,
    make_people,
)
from tests.services import served
from tests.support import GUARD_SECONDS, Workspace
from zapdb.catalog import rows
from zapdb.catalog.retired_tables import retire_entries
from zapdb.catalog.row_kinds import KINDS, EntryTableRow
from zapdb.control.catalog import HistoryBound
from zapdb.control.jobs.listing import ThrottleChange
from zapdb.control.settings import SettingScope
from zapdb.database import Database
from zapdb.jobs import plan_jobs
from zapdb.jobs.job import insert_ranges
from zapdb.jobs.job_run import run_locally
from zapdb.jobs.quarantine import put_in_quarantine
from zapdb.jobs.verification_jobs import VerifyWork
from zapdb.release import LEVEL
from zapdb.service.client import Client, connect
from zapdb.service.methods import METHODS
from zapdb.storage import TransactionMode
from zapdb.storage.data_tables import create_index_table
from zapdb.storage.fixed_tables import METADATA

GUESTS = """\
create_table: {table: guests, key: [mail], fields: [
      {name: mail, type: string}, {name: note, type: string, optional: true}]}"""
LETTERS = """\
create_table: {table: letters, key: [id], fields: [
      {name: id, type: integer}, {name: receiver, type: reference, to: people}]}"""
PLAIN_PEOPLE = """\
create_table: {table: people, key: [mail], fields: [{name: mail, type: string}]}"""
BY_MAIL = "create_index: {table: people, index: by_mail, fields: [{field: mail}]}"
BY_NAME = "create_index: {table: people, index: by_name, fields: [{field: name}]}"
BY_RECEIVER = "create_index: {table: letters, index: mail, fields: [{field: receiver}]}"
NAMED = 'add_check: {table: people, check: plain, expression: "length(name) < 5"}'
REFERRING = "add_reference: {table: letters, field: receiver, on_delete: restrict}"

HOLDS = {
    "zapdb_catalog.value of job",
    "zapdb_catalog.value of finding",
    "zapdb_ranges.lower",
    "zapdb_ranges.upper",
    "zapdb_ranges.resume_after",
    "zapdb_range_revisions.lower",
    "zapdb_range_revisions.upper",
    "zapdb_quarantine.key",
    "zapdb_archives.key",
    "zapdb_archives.value",
    "zapdb_blobs.data",
    "zapdb_changes.key",
    "zapdb_changes.before",
    "zapdb_changes.after",
    "zapdb_changes.archive_before",
    "zapdb_followers.bookmark",
    "zapdb_history_files.key_lower",
    "zapdb_history_files.key_upper",
}
"""Where keys and values of records are, in whatever form."""
SELDOM = {"zapdb_changes.archive_after"}
"""Where they are by what an older process writes to a field that was dropped."""
IN_BETWEEN = {"zapdb_history_erasures.key", "zapdb_history_erasures.resume_after"}
"""Where they are while an erasure is under way."""
NEVER = {
    *(f"zapdb_catalog.value of {kind}" for kind in KINDS if kind not in ("job", "finding")),
    "zapdb_catalog.kind",
    "zapdb_catalog.key",
    "zapdb_leases.name",
    "zapdb_leases.owner",
    "zapdb_counters.name",
    "zapdb_migrations.name",
    "zapdb_migrations.summary",
    "zapdb_migrations.state",
    "zapdb_migrations.digest",
    "zapdb_migrations.structure",
    "zapdb_migrations.numbers",
    "zapdb_migrations.source_hash",
    "zapdb_migrations.stored_by",
    "zapdb_migrations.rolled_back_by",
    "zapdb_schema_history.event",
    "zapdb_schema_history.fingerprint",
    "zapdb_schema_history.migrated_by",
    "zapdb_schema_history.table_schema",
    "zapdb_schemas.content",
    "zapdb_blobs.id",
    "zapdb_zones.name",
    "zapdb_ranges.job",
    "zapdb_ranges.state",
    "zapdb_ranges.owner",
    "zapdb_quarantine.job",
    "zapdb_quarantine.reason",
    "zapdb_probes.job",
    "zapdb_probes.worker",
    "zapdb_probes.owner",
    *(
        f"zapdb_calls.{name}"
        for name in ("id", "principal", "method", "tenant_name", "tables", "status")
    ),
    *(f"zapdb_requests.{name}" for name in ("principal", "key", "request", "owner", "answer")),
    "zapdb_commit_tokens.id",
    "zapdb_commit_tokens.owner",
    "zapdb_transactions.principal",
    "zapdb_changes.event",
    "zapdb_incarnations.server",
    "zapdb_stamps.snapshot",
    "zapdb_followers.name",
    "zapdb_history_stores.timeline",
    "zapdb_history_stores.directory",
    "zapdb_history_stores.state",
    "zapdb_history_stores.ends_bookmark",
    "zapdb_history_stores.problem",
    "zapdb_history_stores.former_directories",
    "zapdb_history_files.timeline",
    "zapdb_history_files.id",
    "zapdb_history_files.kind",
    "zapdb_history_files.sha256",
    "zapdb_history_files.directory",
    "zapdb_history_files.state",
    "zapdb_history_erasures.id",
    "zapdb_history_erasures.fields",
    "zapdb_history_erasures.counted",
    "zapdb_history_erasures.key_sha256",
    "zapdb_history_erasures.proof",
    "zapdb_history_eras.timeline",
    "zapdb_history_eras.state",
    "zapdb_history_eras.doubt",
}


def list_places() -> Iterator[str]:
    """Every column of the fixed tables that may have more than a number, and every kind of row."""
    for table in METADATA.sorted_tables:
        for column in table.columns:
            if isinstance(column.type, sa.Text | sa.LargeBinary):
                name = f"{table.name}.{column.name}"
                if name == "zapdb_catalog.value":
                    yield from (f"{name} of {kind}" for kind in KINDS)
                else:
                    yield name


def test_every_column_and_kind_says_whether_it_has_what_is_erased() -> None:
    places = [*list_places()]
    assert {*places} == HOLDS | SELDOM | IN_BETWEEN | NEVER
    assert len(places) == len(HOLDS) + len(SELDOM) + len(IN_BETWEEN) + len(NEVER)


def find_places(workspace: Workspace) -> set[str]:
    """Where the database has a piece of what is to be erased, in its own and in other tables."""
    if workspace.engine == "sqlite":
        names = workspace.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    else:
        names = workspace.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    found = set[str]()
    for (name,) in names:
        columns = [*METADATA.tables[name].columns.keys()] if name in METADATA.tables else ["*"]
        for row in workspace.execute(f"SELECT {', '.join(columns)} FROM {name}"):
            cells = dict(zip(columns, row, strict=True)) if columns != ["*"] else {"*": row}
            for column, cell in cells.items():
                if _is_marked(cell):
                    kind = f" of {cells['kind']}" if (name, column) == _VALUE else ""
                    found.add(f"{name}.{column}{kind}")
    return found


_VALUE = ("zapdb_catalog", "value")


def _is_marked(cell: Any) -> bool:
    cells = cell if isinstance(cell, tuple) else (cell,)
    texts = [bytes(c) if isinstance(c, memoryview) else c for c in cells]
    held = repr([c.decode("latin-1") if isinstance(c, bytes) else c for c in texts])
    return MARK in held or MARK.encode().hex() in held.lower()


def spread(workspace: Workspace, directory: Path) -> Database:
    """A person whose key and values are wherever zapdb may put them."""
    make_people(workspace, directory).close()
    workspace.write(2, GUESTS, LETTERS)
    db = workspace.open()
    db.table("guests").insert(mail=KEY, note=MARK)
    db.close()
    workspace.write(3, DROP_NOTE, DROP_NOTE.replace("people", "guests"))
    workspace.write(4, BY_NAME, BY_RECEIVER)
    db = workspace.open()
    people = db.table("people")
    people.insert(mail="marked", name=NAME, photo=PHOTO)  # stays, as it is then
    db.table("letters").insert(id=1, receiver=KEY)
    db.admin.run_jobs()
    db.close()
    workspace.write(5, NAMED)
    db = workspace.open()
    (report,) = db.admin.run_jobs()  # the name is too long
    assert report.job.state == "blocked"
    job = report.job.id
    people = db.table("people")
    people.update("marked", name="n", photo=None)
    people.delete(KEY)
    db.close()
    workspace.write(6, REFERRING, "drop_table: {table: guests, records: archive}")
    db = workspace.open()
    (report,) = [one for one in db.admin.run_jobs() if one.job.table_name == "letters"]
    assert report.job.state == "blocked"  # of a letter to somebody who is not there
    db.table("letters").delete(1)
    db.table("people").insert(mail=KEY, name="n")
    db.table("people").delete(KEY)
    flush(db)
    last = list(db.change_log.read())[-1]
    assert last.bookmark.key.startswith(MARK.encode())
    db.change_log.follower("reader").advance(last.bookmark)
    plant(db, job, last.bookmark.key)
    return db


def plant(db: Database, job: str, key: bytes) -> None:
    """Put the key where jobs that were killed, and indexes that were replaced, may have it."""
    index = db._catalog.table("people").indexes[0].index
    with db._storage.transaction(TransactionMode.DDL) as connection:
        mark = connection.storage.placeholder
        insert_ranges(connection, job, [(b"", key), (key, None)], fence=0, first=100)
        connection.run(f"UPDATE zapdb_ranges SET resume_after = {mark} WHERE range = 100", (key,))
        put_in_quarantine(connection, 1, job, {key: "it can't be read"})
        for lower, upper in ((b"", key), (key, None)):
            connection.run(
                "INSERT INTO zapdb_range_revisions (tenant, table_number, revision, lower, upper)"
                f" VALUES (1, 1, 1, {mark}, {mark})",
                (lower, upper),
            )
        former = rows.draw(connection, "entry_table")
        create_index_table(connection, former, unique=index.unique)
        connection.run(
            f"INSERT INTO zapdb_entries_{former} (tenant, key, record) VALUES (1, {mark}, {mark})",
            (NAME.encode(), key),
        )
        rows.put(connection, EntryTableRow(index.number, former, index.unique))
        retire_entries(connection, 1, index.number, former)


@pytest.mark.parametrize("kind", ["record", "fields"])
def test_h13_what_is_erased_is_in_no_column_no_kind_of_row_and_no_file(
    workspace: Workspace, tmp_path: Path, kind: str
) -> None:
    place = tmp_path / "store"
    db = spread(workspace, place)
    found = find_places(workspace)
    assert {one for one in found if one.partition(".")[0] in METADATA.tables} == HOLDS
    assert sum(one.startswith("zapdb_entries") for one in found) == 1
    assert list_marked(place)

    db.history.erase("letters", 1)
    db.history.erase("guests", KEY)
    db.history.erase("people", KEY)
    if kind == "fields":
        db.history.erase_fields("people", "name", "photo", "note")
    else:
        db.history.erase("people", "marked", fields=["name", "photo", "note"])
    assert find_places(workspace) == set()
    assert list_marked(place) == []
    findings = [one for job in db.jobs.list() for one in job.findings]
    assert {(one.count, one.examples) for one in findings} == {(1, ())}


def test_h13_the_directories_that_the_store_was_moved_out_of_are_named_as_not_reached(
    workspace: Workspace, tmp_path: Path
) -> None:
    places = [tmp_path / name for name in ("store", "old", "second", "third")]
    db = make_people(workspace, places[0])
    db.table("people").delete(KEY)
    flush(db)
    db.history.move(None, places[2])
    db.history.move(next(db.moments()).number, places[1])
    db.history.move(None, places[3])
    db.history.rebuild_manifest(places[3])
    done = db.history.erase("people", KEY)
    named = [place for place in done.not_reached if "former directory" in place]
    left = [place for place in places if list_marked(place)]
    assert left == [places[0], places[1], places[2]]
    assert all(any(str(place) in one for one in named) for place in left)
    assert not any(str(places[3]) in one for one in named)
    db.history.move(None, tmp_path / "fourth")
    assert any(str(places[3]) in one for one in db.history.erase("people", KEY).not_reached)


@pytest.mark.parametrize("when", ["a batch is examined", "all findings are collected"])
def test_h13_a_verification_that_an_erasure_overtakes_keeps_nothing_of_what_was_erased(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Its snapshot is from before; what it found there is stored behind the erasure, and says no
    more than what a verification finds that begins then."""
    workspace.write(1, PLAIN_PEOPLE, BY_MAIL)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    people = db.table("people")
    people.insert_many([{"mail": mail} for mail in ("damaged, and stays", KEY, "z")])
    index = db._catalog.table("people").indexes[0]
    workspace.execute(f"DELETE FROM zapdb_entries_{index.entry_table}")
    erased = list[bool]()

    def erase() -> None:
        people.delete(KEY)
        db.history.erase("people", KEY)

    def overtaken(collect: Callable[..., Any]) -> Callable[..., Any]:
        def collect_and_erase(*given: Any) -> Any:
            found = collect(*given)
            if not erased:
                erased.append(True)
                assert KEY in repr(found)
                with ThreadPoolExecutor(1) as pool:
                    pool.submit(erase).result(GUARD_SECONDS)
            return found

        return collect_and_erase

    method = "examine" if when == "a batch is examined" else "finish"
    monkeypatch.setattr(VerifyWork, method, overtaken(getattr(VerifyWork, method)))
    (report,) = db.admin.verify(partial(run_locally, workers=1))
    assert erased
    assert find_places(workspace) == set()
    assert KEY not in str(report.problems)
    (report,) = db.admin.verify(partial(run_locally, workers=1))
    assert "damaged, and stays" in str(report.problems)


UNIQUE = "create_index: {table: people, index: named, fields: [{field: name}], unique: true}"
NAMED_PEOPLE = """\
create_table: {table: people, key: [mail], fields: [
      {name: mail, type: string}, {name: name, type: string}]}"""


def test_no_answer_that_a_service_keeps_has_keys_or_values(
    workspace: Workspace, tmp_path: Path
) -> None:
    """So that no erasure has to reach it: every method that changes something is called with an
    idempotency key, and its answer has all that it can have."""
    workspace.write(1, NAMED_PEOPLE)
    db = workspace.open()
    for at in range(2):
        db.table("people").insert(mail=f"{KEY}{at}", name=NAME)
    db.close()
    with served(workspace.address) as service, connect(f"grpc://{service.address}") as client:

        def of(key: str) -> Client:
            return client.with_key(key)

        def register(key: str = "") -> str:
            return (of(key) if key else client).cluster.register("host", 1, "0", LEVEL).node

        def migrate() -> None:
            *told, done = of("up").migrations.up(workspace.directory)
            assert KEY in repr(told)
            assert [one.count for job in done.built for one in job.findings] == [1]
            (again,) = of("up").migrations.up(workspace.directory)
            assert again == done

        def roll_back() -> None:
            *_, done = of("rollback").migrations.rollback()
            assert done.rolled_back

        workspace.write(2, UNIQUE)
        migrate()
        workspace.write(3, BY_MAIL)
        list(client.migrations.up(workspace.directory, no_build=True))
        storage = workspace.connect()
        job = plan_jobs(storage, 1, kinds=["index"])[-1].id
        calls: dict[str, Callable[[], Any]] = {
            "PruneFingerprintHistory": lambda: of("prune").catalog.prune_fingerprint_history(
                HistoryBound(keep_last=1), "people"
            ),
            "EvictNodes": lambda: of("evict").cluster.evict_nodes((register(),)),
            "Upgrade": lambda: of("upgrade").cluster.upgrade(),
            "Register": lambda: register("register"),
            "Deregister": lambda: of("leave").cluster.deregister(register()),
            "SetSetting": lambda: of("set").settings.set_setting(
                "on_read", "leave", SettingScope()
            ),
            "UnsetSetting": lambda: of("unset").settings.unset_setting("on_read", SettingScope()),
            "SetJobPriority": lambda: of("priority").jobs.set_job_priority(job, 7),
            "ThrottleJob": lambda: of("throttle").jobs.throttle_job(
                job, ThrottleChange(records_per_second=1)
            ),
            "PauseJob": lambda: of("pause").jobs.pause_job(job),
            "ResumeJob": lambda: of("resume").jobs.resume_job(job),
            "CancelJob": lambda: of("cancel").jobs.cancel_job(job),
            "Rollback": roll_back,
            "Forget": lambda: of("forget").migrations.forget(),
        }
        assert {*calls, "Up"} == {method.name for method in METHODS if method.changes}
        for call in calls.values():
            call()
    workspace.follow().admin.run_jobs()  # one finds records that are in its way
    ((kept,),) = workspace.execute("SELECT count(*) FROM zapdb_requests WHERE answer IS NOT NULL")
    assert kept == len(calls) + 1
    found = find_places(workspace)
    assert {one for one in found if one.startswith(("zapdb_requests", "zapdb_calls"))} == set()
    assert "zapdb_catalog.value of job" in found  # which erasures reach
