"""Large values: kept beside their records, read and written as files, converted."""

from __future__ import annotations

import io
import pickle
import random
import tracemalloc
from typing import Any

import pytest

from tests.lookups import find
from tests.support import WAYS, Faults, Way, Workspace, error_of
from zapdb.activation.rollback import roll_back
from zapdb.database import (
    Database,
)
from zapdb.errors import (
    BlobMissing,
    InvalidValue,
    RecordExists,
    RecordNotFound,
    TransactionConflict,
    UnknownField,
    UsageError,
)
from zapdb.jobs.blob_sweep import SweepReport
from zapdb.limits import BLOB_CHUNK_SIZE_BYTES, INLINE_SIZE_BYTES_MAX
from zapdb.records import asdict
from zapdb.storage import Connection
from zapdb.tables import (
    table_reading,
)

PHOTOS = """\
create_table: {table: photos, key: [id], fields: [
      {name: id, type: integer},
      {name: title, type: string},
      {name: data, type: binary, optional: true},
      {name: notes, type: string, default: ""}]}"""
DOUBLE_TITLE = """\
transform: {table: photos, from: {title: string}, into: {titles: string},
      up: {titles: "join('|', title, title)"}, down: {title: "before(titles, '|')"},
      reversibility: lossy, because: what follows a bar is cut off}"""
ADD_STARS = "add_field: {table: photos, field: {name: stars, type: integer, default: 3}}"
INDEX_TITLE = """\
create_index: {table: photos, index: by_title, fields: [
      {field: title, collation: {locale: und}}]}"""
CHUNK = BLOB_CHUNK_SIZE_BYTES
LARGE = random.Random(5).randbytes(2 * CHUNK + 1000)
LONG = "ünïcödé " * 1_000
HALF = "0123456789" * 300
"""Two of them are too long for a record."""


@pytest.fixture
def db(workspace: Workspace) -> Database:
    workspace.write(1, PHOTOS)
    return workspace.open()


class Statements:
    """The statements on blobs that are sent from now on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sent: list[str] = []
        for name in ("fetch_one", "fetch_all", "run", "run_many", "send"):
            self._wrap(monkeypatch, name, is_queued=False)
        self._wrap(monkeypatch, "send_many", is_queued=True)  # else it is "run_many"

    def _wrap(self, monkeypatch: pytest.MonkeyPatch, name: str, *, is_queued: bool) -> None:
        original = getattr(Connection, name)

        def call(this: Connection, sql: str, *arguments: Any) -> Any:
            if "zapdb_blobs" in sql and (not is_queued or this.is_pipelined):
                self.sent.append(sql.split()[0])
            return original(this, sql, *arguments)

        monkeypatch.setattr(Connection, name, call)

    def take(self) -> list[str]:
        taken, self.sent = self.sent, []
        return taken


@pytest.fixture
def statements(db: Database, monkeypatch: pytest.MonkeyPatch) -> Statements:
    return Statements(monkeypatch)


def chunks(place: Workspace) -> list[tuple[bytes, int, int]]:
    """(id, chunk, size) of all rows of the blob table."""
    rows = place.execute("SELECT id, chunk, length(data) FROM zapdb_blobs ORDER BY id, chunk")
    return [(bytes(made), number, size) for made, number, size in rows]


def ids(place: Workspace) -> set[bytes]:
    return {made for made, _, _ in chunks(place)}


def sweep(db: Database) -> SweepReport:
    """Sweep blobs of any age."""
    return db.admin.sweep(older_than_seconds=0)


def lose_blobs(place: Workspace) -> None:
    place.execute("DELETE FROM zapdb_blobs")


def test_rule_28_what_a_record_does_not_hold_lies_in_chunks(
    workspace: Workspace, db: Database
) -> None:
    photos = db.table("photos")
    inserted = photos.insert(id=1, title="Sea", data=LARGE, notes=LONG)
    sizes = sorted((number, size) for _, number, size in chunks(workspace))
    assert sizes == [(0, len(LONG.encode())), (0, CHUNK), (1, CHUNK), (2, 1000)]
    for record in (inserted, photos.get(1), next(photos.scan())):
        assert (record.data, record.notes, record.title) == (LARGE, LONG, "Sea")
    assert len(ids(workspace)) == 2


@pytest.mark.parametrize(
    "size", [INLINE_SIZE_BYTES_MAX, INLINE_SIZE_BYTES_MAX + 1, CHUNK, CHUNK + 1]
)
def test_rule_28_the_bounds(workspace: Workspace, db: Database, size: int) -> None:
    db.table("photos").insert(id=1, title="x" * size, data=bytes(size))
    rows = 0 if size <= INLINE_SIZE_BYTES_MAX else -(-size // CHUNK)
    assert len(chunks(workspace)) == 2 * rows
    found = db.table("photos").get(1)
    assert (found.title, found.data) == ("x" * size, bytes(size))


def test_only_what_is_looked_at_is_loaded(db: Database, statements: Statements) -> None:
    photos = db.table("photos")
    photos.insert(id=1, title="Sea", data=LARGE, notes=LONG)
    assert statements.take() == ["INSERT"]
    record = photos.get(1)
    assert record.title == "Sea"
    assert repr(record).startswith("photos(id=1, title='Sea', data=<binary of 525,288 bytes, not")
    assert photos.get(1) == record
    assert statements.take() == []
    assert len(record.data) + len(record.data) == 2 * len(LARGE)
    assert statements.take() == ["SELECT"]
    assert len(repr(record)) < 500
    assert photos.get(1) == record  # the one is loaded, the other is not
    assert statements.take() == ["SELECT"]


def test_records_with_large_values_pickle_and_copy(workspace: Workspace, db: Database) -> None:
    photos = db.table("photos")
    photos.insert(id=1, title="Sea", data=LARGE, notes=LONG)
    record = photos.get(1)
    pickled = pickle.dumps(record)
    photos.insert(**(asdict(record) | {"id": 2}))
    assert len(ids(workspace)) == 4
    photos.delete(1)
    lose_blobs(workspace)
    assert pickle.loads(pickled) == record
    assert asdict(pickle.loads(pickled)) == {"id": 1, "title": "Sea", "data": LARGE, "notes": LONG}


def test_a_blob_that_went_meanwhile_is_named(workspace: Workspace, db: Database) -> None:
    photos = db.table("photos")
    photos.insert(id=1, title="Sea", data=LARGE)
    record = photos.get(1)
    lose_blobs(workspace)
    error = error_of(lambda: record.data)
    assert isinstance(error, BlobMissing)
    assert (error.context["size_bytes"], error.context["found_bytes"]) == (len(LARGE), 0)
    assert "read it again" in error.hint
    assert record.title == "Sea"


# Reading as a file


def test_a_field_is_read_as_a_file(db: Database, statements: Statements) -> None:
    photos = db.table("photos")
    photos.insert(id=1, title="Seä", data=LARGE, notes=LONG)
    statements.take()
    with photos.open(1, field="data") as file:
        assert statements.take() == []
        assert file.read() == LARGE
        assert statements.take() == ["SELECT"] * 3
    assert file.closed
    with pytest.raises(ValueError, match="closed"):
        file.read(1)
    assert photos.open(1, field="notes").read() == LONG.encode()
    assert photos.open(1, field="title").read() == "Seä".encode()
    assert io.TextIOWrapper(photos.open(1, field="notes"), "utf-8").read() == LONG


def test_a_file_can_seek_like_any_other(db: Database) -> None:
    photos, generator = db.table("photos"), random.Random(3)
    photos.insert(id=1, title="Sea", data=LARGE)
    wanted, found = io.BytesIO(LARGE), photos.open(1, field="data")
    assert (found.readable(), found.seekable(), found.writable()) == (True, True, False)
    for _ in range(300):
        whence = generator.choice([io.SEEK_SET, io.SEEK_END, io.SEEK_CUR])
        offset = generator.randrange(-CHUNK, len(LARGE) + 50)
        base = (0, wanted.tell(), len(LARGE))[whence]
        if base + offset < 0:
            with pytest.raises((ValueError, OSError)):
                found.seek(offset, whence)
        else:
            assert found.seek(offset, whence) == wanted.seek(offset, whence) == found.tell()
        size = generator.choice([0, 1, 100, CHUNK - 1, CHUNK, CHUNK + 1])
        assert found.read(size) == wanted.read(size)
    found.raw.close()
    for use in (found.raw.tell, lambda: found.raw.seek(0), lambda: found.raw.read(1)):
        with pytest.raises(ValueError, match="closed"):
            use()


def test_reading_and_writing_files_takes_no_memory(db: Database) -> None:
    photos, size = db.table("photos"), 32 * CHUNK
    photos.insert(id=0, title="warm", data=io.BytesIO(bytes(2 * CHUNK)))
    photos.open(0, field="data").read()
    source = Zeros(size)
    tracemalloc.start()
    photos.insert(id=1, title="Sea", data=source)
    _, peak_written = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    with photos.open(1, field="data") as file:
        assert sum(len(part) for part in iter(lambda: file.read(10_000), b"")) == size
    _, peak_read = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_written < 6 * CHUNK
    assert peak_read < 6 * CHUNK


def test_what_can_not_be_read_as_a_file(db: Database) -> None:
    photos = db.table("photos")
    photos.insert(id=1, title="Sea")
    cases: list[tuple[int, str, type[Exception], str]] = [
        (2, "data", RecordNotFound, "no record"),
        (1, "size", UnknownField, "the table has no such field"),
        (1, "id", UsageError, "only strings and binaries"),
        (1, "data", UsageError, "null"),
    ]
    for key, field, kind, message in cases:
        error = error_of(lambda key=key, field=field: photos.open(key, field=field))
        assert type(error) is kind
        assert message in error.message


def test_a_blob_that_goes_while_it_is_read(workspace: Workspace, db: Database) -> None:
    photos = db.table("photos")
    photos.insert(id=1, title="Sea", data=LARGE)
    file = photos.open(1, field="data")
    assert file.read(CHUNK) == LARGE[:CHUNK]
    lose_blobs(workspace)
    error = error_of(lambda: file.read(CHUNK))
    assert isinstance(error, BlobMissing)
    assert "read it again" in error.hint


def test_a_snapshot_reads_a_blob_that_is_gone(workspace: Workspace, db: Database) -> None:
    photos = db.table("photos")
    photos.insert(id=1, title="Sea", data=LARGE, notes=LONG)
    with db.snapshot():
        record = photos.get(1)
        file = photos.open(1, field="data")
        lose_blobs(workspace)
        assert file.read() == LARGE
        assert record.notes == LONG
    assert isinstance(error_of(lambda: photos.get(1).notes), BlobMissing)


# Writing from a file


class Zeros:
    """So many zero bytes as a file that can't seek, in reads that may be short."""

    def __init__(self, size: int, most: int = 100_000) -> None:
        self.left = size
        self.most = most

    def read(self, size: int) -> bytes:
        count = min(size, self.left, self.most)
        self.left -= count
        return bytes(count)


def test_a_file_is_stored_from_where_it_stands(workspace: Workspace, db: Database) -> None:
    photos = db.table("photos")
    file = io.BytesIO(b"head" + LARGE)
    file.seek(4)
    assert photos.insert(id=1, title="Sea", data=file).data == LARGE
    assert [size for _, _, size in chunks(workspace)] == [CHUNK, CHUNK, 1000]
    assert photos.get(1).data == LARGE
    for size in (0, 1, INLINE_SIZE_BYTES_MAX, INLINE_SIZE_BYTES_MAX + 1, CHUNK, CHUNK + 1):
        assert photos.update(1, data=Zeros(size, most=4_000)).data == bytes(size)
        assert photos.get(1).data == bytes(size)
    photos.insert(id=2, title="Lake", data=photos.open(1, field="data"))
    assert photos.get(2).data == bytes(CHUNK + 1)
    assert db.admin.verify()[0].problem_count == 0


def test_a_file_that_is_refused_leaves_nothing(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Small(Zeros):
        pass

    photos = db.table("photos")
    photos.insert(id=1, title="Sea")
    kind = type(db._catalog.table("photos").schema.fields[2].type)
    monkeypatch.setattr(kind, "size_bytes_max", 3 * CHUNK)
    refused: list[dict[str, Any]] = [
        {"id": 2, "title": "a", "data": Small(3 * CHUNK + 1)},
        {"id": 2, "title": "a", "data": io.StringIO("text")},
        {"id": 2, "title": Zeros(10)},
        {"id": 2, "title": 5, "data": Zeros(CHUNK)},
        {"id": Zeros(10), "title": "a"},
    ]
    for values in refused:
        error = error_of(lambda values=values: photos.insert(**values))
        assert isinstance(error, InvalidValue)
        assert error.context["field"].startswith("photos.")
    assert isinstance(
        error_of(lambda: photos.insert(id=1, title="a", data=Zeros(CHUNK))), RecordExists
    )
    with pytest.raises(OSError, match="broken"):
        photos.update(1, data=Broken())
    assert chunks(workspace) == []
    assert photos.insert(id=2, title="a", data=Zeros(3 * CHUNK)).data == bytes(3 * CHUNK)


class Broken:
    """A file whose second read fails."""

    def __init__(self) -> None:
        self.reads = 0

    def read(self, size: int) -> bytes:
        self.reads += 1
        if self.reads == 2:
            raise OSError("broken")
        return bytes(size)


@pytest.mark.parametrize("is_seekable", [True, False])
def test_rule_15_a_repeated_operation_reads_the_file_again(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch, is_seekable: bool
) -> None:
    sender = type(db._storage.connection())
    original, calls = sender.send, [0]

    def send(this: Connection, sql: str, *arguments: Any) -> None:
        if "INTO zapdb_records_" in sql:
            calls[0] += 1
            if calls[0] < 3:
                raise TransactionConflict("made by a test")
        original(this, sql, *arguments)

    monkeypatch.setattr(sender, "send", send)
    photos = db.table("photos")
    file: Any = io.BytesIO(LARGE) if is_seekable else Zeros(CHUNK)
    if is_seekable:
        assert photos.insert(id=1, title="Sea", data=file).data == LARGE
        assert len(ids(workspace)) == 1
        assert calls == [3]
        return
    error = error_of(lambda: photos.insert(id=1, title="Sea", data=file))
    assert isinstance(error, UsageError)
    assert "second time" in error.message
    assert "seekable" in error.hint
    assert chunks(workspace) == []


# Changing


def test_an_update_leaves_the_blobs_of_other_fields(
    workspace: Workspace, db: Database, statements: Statements
) -> None:
    photos = db.table("photos")
    photos.insert(id=1, title="Sea", data=LARGE, notes=LONG)
    before = chunks(workspace)
    statements.take()
    assert photos.update(1, title="Ocean").title == "Ocean"
    assert statements.take() == []
    assert chunks(workspace) == before
    photos.update(1, notes=LONG * 2)
    assert statements.take() == ["INSERT"]
    after = chunks(workspace)
    assert set(before) < set(after)
    assert len(after) == len(before) + 1
    photos.update(1, data=None)
    photos.delete(1)
    assert statements.take() == []
    assert chunks(workspace) == after
    assert sweep(db).unowned == 3


def test_an_update_beside_an_index_on_a_large_field(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.write(2, INDEX_TITLE)
    with workspace.open() as db:
        db.admin.run_jobs()
        photos, sent = db.table("photos"), Statements(monkeypatch)
        photos.insert(id=1, title=LONG, notes="a")
        assert sent.take() == ["INSERT"]
        photos.update(1, notes="b")
        assert sent.take() == []
        photos.update(1, title=LONG + "!")
        assert [r.id for r in find(photos, "by_title", LONG + "!")] == [1]
        assert list(find(photos, "by_title", LONG)) == []
        photos.delete(1)
        photos.insert(id=1, title="short", notes="a")
        assert db.admin.verify()[0].problems == ()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.on_each_engine
def test_rule_15_a_failed_insert_leaves_no_blob(
    workspace: Workspace, db: Database, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it fails: the record and its blobs are there, or neither.

    What is certain to have written nothing is done again, and then nobody hears of the fault: a
    session lost before COMMIT, and a COMMIT whose outcome a token tells.
    """
    workspace.control.connection()
    faults = Faults(workspace, db._storage, way, lasting=False)
    faults.install(monkeypatch)
    photos, at, faults_struck = db.table("photos"), 0, True
    photos.insert(id=1, title="a")  # the first one has more to do, whose faults are nobody's
    photos.delete(1)
    while faults_struck:
        at += 1
        faults.arm(at)
        error = error_of(lambda: photos.insert(id=1, title="a", data=LARGE, notes=LONG))
        struck, faults_struck = faults.struck, bool(faults.struck)
        faults.arm(0)
        there = photos.find(1) is not None
        if error is None:
            is_settled = workspace.engine == "postgresql" and struck == ["commit"]
            assert not struck or way == "drop" or is_settled
            assert there
        else:
            assert struck
        assert len(ids(workspace)) == (2 if there else 0)
        if there:
            assert photos.get(1).data == LARGE
            photos.delete(1)
            lose_blobs(workspace)
    assert at > 5 - (way == "drop")


def test_a_batch_stores_its_blobs_or_none(workspace: Workspace, db: Database) -> None:
    photos = db.table("photos")
    records = [{"id": at, "title": LONG} for at in range(20)]
    with pytest.raises(RecordExists):
        photos.insert_many([*records, records[0]])
    assert chunks(workspace) == []
    assert photos.insert_many(records, batch_records=7) == 20
    assert len(ids(workspace)) == 20
    assert {record.title for record in photos.scan()} == {LONG}
    with db.transaction():
        assert isinstance(error_of(lambda: photos.insert(id=0, title=LONG)), RecordExists)
        photos.insert(id=20, title=LONG)
    assert len(ids(workspace)) == 21


# Conversion


@pytest.fixture
def stale(workspace: Workspace, db: Database) -> Database:
    """Photos of revision 1: a title that is large once doubled, one that is large already, one
    that never is; each with large data that no conversion touches."""
    photos = db.table("photos")
    for key, title in enumerate((HALF, LONG, "Sea"), 1):
        photos.insert(id=key, title=title, data=LARGE)
    workspace.write(2, DOUBLE_TITLE, name="double")
    db.close()
    return workspace.open()


EXPECTED = {1: f"{HALF}|{HALF}", 2: f"{LONG}|{LONG}", 3: "Sea|Sea"}


def check_converted(db: Database) -> None:
    found = {record.id: record for record in db.table("photos").scan()}
    assert {key: record.titles for key, record in found.items()} == EXPECTED
    assert {record.data for record in found.values()} == {LARGE}
    (report,) = db.admin.verify()
    assert report.problems == ()


def test_rule_19_a_mere_read_stores_no_blob(
    workspace: Workspace, stale: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = chunks(workspace)
    sent = Statements(monkeypatch)
    record = stale.table("photos").get(1)
    assert len(record.titles) == 2 * len(HALF) + 1
    assert sent.take() == []
    assert stale.table("photos").open(1, field="titles").read() == EXPECTED[1].encode()
    assert stale.table("photos").get(2).titles == EXPECTED[2]
    assert sent.take() == ["SELECT"]  # the title that is an input, and no data
    assert stale.table("photos").get(3).titles == EXPECTED[3]
    assert sent.take() == []
    check_converted(stale)
    assert chunks(workspace) == before
    assert stale.admin.count_by_revision("photos") == {1: 3}


def test_rule_19_a_job_stores_what_it_makes(
    workspace: Workspace, stale: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = ids(workspace)
    sent = Statements(monkeypatch)
    monkeypatch.setattr("zapdb.tables.writes.conversion_writes.BATCH_BLOBS", 1)
    stale.admin.run_jobs()
    assert sorted(sent.take()) == ["INSERT", "INSERT", "SELECT"]
    assert stale.admin.count_by_revision("photos") == {2: 3}
    assert len(ids(workspace) - before) == 2
    assert before < ids(workspace)
    check_converted(stale)
    swept = sweep(stale)
    assert (swept.unowned, swept.unowned_bytes, swept.deleted) == (1, len(LONG.encode()), 1)
    check_converted(stale)


def test_rule_16_a_write_back_stores_what_it_makes(workspace: Workspace, stale: Database) -> None:
    before = ids(workspace)
    stale.admin.set_setting("on_read", "write_back")
    read = [stale.table("photos").get(key) for key in (1, 2, 3)]
    assert stale.admin.count_by_revision("photos") == {2: 3}
    assert len(ids(workspace) - before) == 2
    assert read == [stale.table("photos").get(key) for key in (1, 2, 3)]
    check_converted(stale)


def test_rule_16_a_write_back_that_is_late_stores_nothing(
    workspace: Workspace, stale: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale.admin.set_setting("on_read", "write_back")
    before = ids(workspace)
    original = table_reading.write_back

    def write_back(*arguments: Any) -> None:
        workspace.open().table("photos").update(1, titles="other")
        original(*arguments)

    monkeypatch.setattr(table_reading, "write_back", write_back)
    assert stale.table("photos").get(1).titles == EXPECTED[1]
    assert stale.table("photos").get(1).titles == "other"
    assert ids(workspace) == before


def test_rule_19_an_update_of_a_stale_record_stores_what_its_conversion_makes(
    workspace: Workspace, stale: Database
) -> None:
    before = ids(workspace)
    photos = stale.table("photos")
    assert photos.update(1, notes="new").titles == EXPECTED[1]
    assert photos.get(1).titles == EXPECTED[1]
    assert len(ids(workspace) - before) == 1
    photos.update(2, titles="short")  # what the conversion would have made is not stored
    assert len(ids(workspace) - before) == 1
    photos.update(2, titles=EXPECTED[2])
    check_converted(stale)


@pytest.mark.parametrize("is_converted", [True, False])
def test_rule_13_a_rollback_takes_large_values_back(
    workspace: Workspace, stale: Database, is_converted: bool
) -> None:
    if is_converted:
        stale.admin.run_jobs()
    stale.table("photos").insert(id=4, titles=f"{LONG}|{LONG}", data=LARGE)
    stale.close()
    storage = workspace.connect()
    assert roll_back(storage).migrations[0].number == 2
    workspace.remove(2)
    with workspace.open() as db:
        titles = {record.id: record.title for record in db.table("photos").scan()}
        assert titles == {1: HALF, 2: LONG, 3: "Sea", 4: LONG}
        assert {record.data for record in db.table("photos").scan()} == {LARGE}
        assert db.admin.verify()[0].problems == ()
        db.admin.run_jobs()
        sweep(db)
        assert len(ids(workspace)) == 4 + 2
        assert db.admin.verify()[0].problems == ()
        assert db.admin.verify()[0].problems == ()


def test_a_conversion_that_touches_no_blob_loads_none(
    workspace: Workspace, db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.table("photos").insert(id=1, title=LONG, data=LARGE, notes=LONG)
    workspace.write(2, ADD_STARS)
    db.close()
    with workspace.open() as db:
        before, sent = chunks(workspace), Statements(monkeypatch)
        sent.take()
        assert db.table("photos").get(1).stars == 3
        db.admin.run_jobs()
        assert db.admin.count_by_revision("photos") == {2: 1}
        assert sent.take() == []
        assert chunks(workspace) == before
        assert db.table("photos").get(1).data == LARGE
