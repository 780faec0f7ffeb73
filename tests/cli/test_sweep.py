"""`zapdb sweep`: large values without a record go; what verification says of them."""

from __future__ import annotations

import pytest

import zapdb
from tests.cli.program import Project
from zapdb.cli.output import format_bytes
from zapdb.cli.sweep import read_age
from zapdb.errors import UsageError

LONG = "L" * 5_000


@pytest.fixture
def swept(current: Project) -> Project:
    """Two blobs, of which one has no owner any more."""
    url = f"sqlite:///{current.database}"
    with zapdb.open(url, migrations=current.migrations) as db:
        for key in (100, 101):
            db.table("people").insert(id=key, first=LONG, last="L", fax="1")
    current.sql("DELETE FROM zapdb_records_1 WHERE key = x'c064'")  # 100
    current.sql("DELETE FROM zapdb_entries_1 WHERE record = x'c064'")
    return current


def test_what_has_no_owner_is_removed(swept: Project) -> None:
    result = swept.run("sweep", "--older-than", "0s", "--dry-run")
    assert (result.status, result.err) == (0, "")
    assert result.out.startswith("would remove 1 of 2 blobs older than 0s: 5.0 kB, ")
    verified = swept.run("verify")
    assert verified.status == 0
    assert "\n2 blobs, 1 without an owner\nok: " in verified.out
    found = swept.run("verify", "--json").json
    assert found["blobs"] == {"blobs": 2, "unowned": 1}
    report = swept.run("sweep", "--older-than", "0s", "--json").json
    assert report.pop("seconds") < 10
    assert report == {
        "dry_run": False,
        "older_than_seconds": 0,
        "blobs": 2,
        "unowned": 1,
        "unowned_bytes": 5_000,
        "deleted": 1,
        "tokens": 0,
    }
    assert swept.sql("SELECT count(*) FROM zapdb_blobs") == [(1,)]
    assert swept.run("verify", "--json").json["blobs"] == {"blobs": 1, "unowned": 0}


def test_what_is_young_stays(swept: Project) -> None:
    before = swept.dump()
    result = swept.run("sweep")
    assert result.status == 0
    assert result.out.startswith("removed 0 of 0 blobs older than 1h: 0 bytes, ")
    assert swept.dump() == before


def test_a_blob_that_is_missing_is_a_problem(swept: Project) -> None:
    swept.sql("DELETE FROM zapdb_blobs")
    result = swept.run("verify")
    assert result.status == 1
    assert "people: record 101 (c065): 0 of the 5000 bytes of a blob\n" in result.out


def test_a_record_that_can_not_be_read_ends_the_sweep(swept: Project) -> None:
    # One of a byte or two more could not own a blob, and would not be looked at.
    swept.sql("UPDATE zapdb_records_1 SET value = ? WHERE key = x'87'", b"\xbf" + bytes(30))
    result = swept.run("sweep", "--older-than", "0s")
    assert result.status == 1
    assert "record of the unknown revision 63" in result.err
    assert swept.sql("SELECT count(*) FROM zapdb_blobs") == [(2,)]
    verified = swept.run("verify", "--json")
    assert (verified.status, verified.json["blobs"]) == (1, None)


@pytest.mark.parametrize("age", ["", "1", "h", "1.5h", "-1h", "1w", "1h ", "٣h", "9999999999s"])
def test_what_is_no_age(project: Project, age: str) -> None:
    with pytest.raises(UsageError):
        read_age(age)
    result = project.run("sweep", "--older-than", age)
    assert result.status == 2
    assert "for example 15m" in result.err


def test_ages_and_sizes() -> None:
    ages = {"0s": 0, "90s": 90, "15m": 900, "1h": 3_600, "7d": 604_800}
    assert {text: read_age(text) for text in ages} == ages
    sizes = {
        0: "0 bytes",
        1: "1 byte",
        999: "999 bytes",
        1_000: "1.0 kB",
        999_949: "999.9 kB",
        999_950: "1.0 MB",
        12_345_678: "12.3 MB",
        10**9: "1.0 GB",
        5 * 10**15: "5,000.0 TB",
    }
    assert {size: format_bytes(size) for size in sizes} == sizes
