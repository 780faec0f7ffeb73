"""Large values whose chunks were changed, exchanged, cut or lost are never taken for whole."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.support import Workspace, error_of
from zapdb.database import Database, Table
from zapdb.errors import BlobMissing, CorruptBlob
from zapdb.limits import BLOB_CHUNK_SIZE_BYTES

CHUNK = BLOB_CHUNK_SIZE_BYTES
PHOTOS = """\
create_table: {table: photos, key: [id], fields: [
      {name: id, type: integer},
      {name: data, type: binary},
      {name: notes, type: string, default: ""}]}"""
DATA = [random.Random(number).randbytes(2 * CHUNK + 1_000) for number in (1, 2)]
LONG = "a long text " * 1_000


@pytest.fixture
def db(workspace: Workspace) -> Database:
    workspace.write(1, PHOTOS)
    db = workspace.open()
    for key, data in enumerate(DATA, 1):
        db.table("photos").insert(id=key, data=data)
    return db


@pytest.fixture
def photos(db: Database) -> Table:
    return db.table("photos")


Rows = list[tuple[bytes, int, int, bytes]]


def read_rows(place: Workspace) -> Rows:
    """(id, chunk, checksum, bytes) of all rows, in order."""
    found = place.execute("SELECT id, chunk, checksum, data FROM zapdb_blobs ORDER BY id, chunk")
    return [(bytes(made), number, sum, bytes(data)) for made, number, sum, data in found]


def write_rows(place: Workspace, rows: Rows) -> None:
    place.execute("DELETE FROM zapdb_blobs")
    for row in rows:
        place.execute(
            "INSERT INTO zapdb_blobs (id, chunk, checksum, data) VALUES (?, ?, ?, ?)", row
        )


def flip(rows: Rows, at: int, bit: int) -> None:
    made, number, sum, data = rows[at]
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    rows[at] = (made, number, sum, bytes(changed))


def swap_numbers(rows: Rows, one: int, other: int) -> None:
    """As if two rows stood under each other's keys."""
    (a, n, s, d), (b, m, t, e) = rows[one], rows[other]
    rows[one], rows[other] = (a, n, t, e), (b, m, s, d)


def swap_bytes(rows: Rows, one: int, other: int) -> None:
    (a, n, s, d), (b, m, t, e) = rows[one], rows[other]
    rows[one], rows[other] = (a, n, s, e), (b, m, t, d)


def cut(rows: Rows, at: int) -> None:
    made, number, sum, data = rows[at]
    rows[at] = (made, number, sum, data[:-1])


def lengthen(rows: Rows, at: int) -> None:
    made, number, sum, data = rows[at]
    rows[at] = (made, number, sum, data + b"\0")


def add(rows: Rows) -> None:
    made, _, sum, _ = rows[2]
    rows.append((made, 3, sum, b"more"))


def change_sum(rows: Rows) -> None:
    made, number, sum, data = rows[1]
    rows[1] = (made, number, sum ^ 1, data)


Damage = Callable[[Rows], object]
DAMAGES: dict[str, tuple[Damage, set[int]]] = {
    "first bit": (lambda rows: flip(rows, 0, 0), {0}),
    "a bit in the middle": (lambda rows: flip(rows, 1, 1_234_567), {1}),
    "last bit": (lambda rows: flip(rows, 2, 7_999), {2}),
    "a checksum": (change_sum, {1}),
    "two chunks exchanged": (lambda rows: swap_numbers(rows, 0, 1), {0, 1}),
    "their bytes exchanged": (lambda rows: swap_bytes(rows, 0, 1), {0, 1}),
    "a chunk of another blob": (lambda rows: swap_numbers(rows, 1, 4), {1}),
    "the bytes of another blob's": (lambda rows: swap_bytes(rows, 1, 4), {1}),
    "the last chunk cut": (lambda rows: cut(rows, 2), {2}),
    "a chunk cut": (lambda rows: cut(rows, 0), {0}),
    "a chunk lengthened": (lambda rows: lengthen(rows, 2), {2}),
    "the first chunk lost": (lambda rows: rows.pop(0), {0}),
    "a chunk lost": (lambda rows: rows.pop(1), {1}),
    "the last chunk lost": (lambda rows: rows.pop(2), {2}),
    "a chunk too many": (add, set()),
}
"""What was done to the six rows of two blobs, and which chunks of the first one suffered."""


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.on_each_engine
def test_rule_28_damage_is_told_with_blob_and_chunk(
    workspace: Workspace, db: Database, photos: Table, damage: str
) -> None:
    spoil, suffered = DAMAGES[damage]
    rows = read_rows(workspace)
    whole, made = list(rows), rows[0][0].hex()
    (key,) = (key for key, data in enumerate(DATA, 1) if data.startswith(whole[0][3]))
    spoil(rows)
    write_rows(workspace, rows)
    first = min(suffered, default=3)
    for read in (
        lambda: photos.get(key).data,
        lambda: [record.data for record in photos.scan()],
        lambda: [batch.num_rows for batch in photos.to_arrow()],
        lambda: photos.open(key, field="data").read() if suffered else photos.get(key).data,
    ):
        error = error_of(read)
        assert isinstance(error, CorruptBlob), read
        if error.context["blob"] == made:  # a scan may come to the other one first
            assert error.context["chunk"] == first
    # A file is read chunk by chunk: those that are whole are still there.
    with photos.open(key, field="data") as file:
        for number in range(3):
            start = number * CHUNK
            file.seek(start)
            part = DATA[key - 1][start : start + 100]
            if number in suffered:
                error = error_of(lambda file=file: file.read(100))
                assert isinstance(error, CorruptBlob)
                assert (error.context["blob"], error.context["chunk"]) == (made, number)
            else:
                assert file.read(100) == part
    (report,) = db.admin.verify()
    assert report.problem_count == (2 if "another blob" in damage else 1)
    assert report.problems[0].startswith(f"record {key} (8{key}): ")
    write_rows(workspace, whole)
    assert photos.get(key).data == DATA[key - 1]
    assert db.admin.verify()[0].problems == ()


def test_rule_28_verification_names_chunk_and_blob(workspace: Workspace, db: Database) -> None:
    rows = read_rows(workspace)
    flip(rows, 1, 5)
    write_rows(workspace, rows)
    (report,) = db.admin.verify()
    assert f"chunk 1 of blob {rows[1][0].hex()} is not what was written" in report.problems[0]


def test_a_text_with_one_other_letter_is_told(workspace: Workspace, db: Database) -> None:
    """It would decode: nothing but the checksum shows that it is another."""
    photos = db.table("photos")
    photos.insert(id=3, data=b"", notes=LONG)
    rows = read_rows(workspace)
    (at,) = (at for at, row in enumerate(rows) if row[3] == LONG.encode())
    flip(rows, at, 8 * 5_000)
    assert rows[at][3].decode() != LONG
    write_rows(workspace, rows)
    assert isinstance(error_of(lambda: photos.get(3).notes), CorruptBlob)
    assert isinstance(error_of(lambda: db.sql("SELECT notes FROM photos").fetchall()), CorruptBlob)


@pytest.mark.parametrize("kept", [0, 1])
@pytest.mark.on_each_engine
def test_verification_goes_on_where_an_index_needs_the_damaged_value(
    workspace: Workspace, db: Database, kept: int
) -> None:
    workspace.write(2, "create_index: {table: photos, index: by_notes, fields: [{field: notes}]}")
    db.close()
    db = workspace.open()
    photos = db.table("photos")
    photos.insert(id=3, data=b"", notes=LONG)
    db.admin.run_jobs()
    rows = read_rows(workspace)
    (at,) = (at for at, row in enumerate(rows) if row[3] == LONG.encode())
    if kept:
        flip(rows, at, 9)
    else:
        rows.pop(at)
    write_rows(workspace, rows)
    (report,) = db.admin.verify()
    assert report.problem_count == 1
    assert report.problems[0].startswith("record 3 (83): ")
    error = error_of(lambda: photos.get(3).notes)
    assert type(error) is (CorruptBlob if kept else BlobMissing)


def test_rule_28_what_a_file_brought_has_checksums_too(workspace: Workspace, db: Database) -> None:
    photos = db.table("photos")
    with photos.open(1, field="data") as file:
        photos.insert(id=3, data=file)
    assert photos.get(3).data == DATA[0]
    assert db.admin.verify()[0].problems == ()
