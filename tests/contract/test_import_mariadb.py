"""`zapdb import` of a MySQL database: of a MariaDB server, or one of MySQL, by PyMySQL."""

from __future__ import annotations

import datetime
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.test_import_databases import Place, require_same
from tests.mariadb import MariaServer
from tests.packages import installed
from tests.support import Workspace

pytestmark = pytest.mark.long

ODD = (
    "CREATE TABLE odd (id bigint unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY,"
    " big bigint unsigned, flag tinyint(1), made year, long_time time(1), bits bit(12),"
    " members set('a', 'b c'), kind enum('x', 'y-z'), place point, day date, seen datetime(6),"
    " stamped timestamp NULL DEFAULT '2024-05-31 10:00:00', name varchar(20) CHARACTER SET latin1"
    " DEFAULT 'it''s', token uuid, address inet6, raw varbinary(9), total int AS (flag * 2)"
    " STORED) COMMENT='what is odd'",
    "INSERT INTO odd VALUES (18446744073709551615, 18446744073709551614, 1, 1999, '-101:02:03.5',"
    " b'101010', 'a,b c', 'y-z', point(1, 2), '2024-02-29', '2024-02-29 01:02:03.000004',"
    " '2024-05-31 10:00:00', 'ä', '12345678-1234-5678-1234-567812345678', '::1', x'00ff', DEFAULT)",
    "INSERT INTO odd (id, day) VALUES (7, '0000-00-00')",
    "CREATE TABLE words (word varchar(30) PRIMARY KEY, line text, FULLTEXT KEY (line))",
    "INSERT INTO words VALUES ('b', NULL), ('A', NULL), ('ö', NULL), ('c ', '')",
    "CREATE TABLE no_key (a int)",
)
NOTES = (
    "odd.flag: tinyint(1) is taken as a boolean: only 0 and 1 are",
    "odd.long_time: the type TIME has no equivalent; it is text",
    "odd.bits: bits; they are bytes, the first one first",
    "odd.members: a set; its members are one text, with commas between",
    "odd.kind: an enum whose members are no names here: 'x', 'y-z'",
    "odd.place: the type POINT has no equivalent; it is text",
    "odd.seen: its times have no zone; import takes them as UTC",
    "odd.stamped: the default has no equivalent: '2024-05-31 10:00:00'",
    "odd.address: the type INET6 has no equivalent; it is text",
    "odd.total: a computed column; its values are imported",
    "odd: comment: what is odd",
    "no_key: left out: it has no primary key",
    "words.line: an index of words or places: left out",
)
OF_MARIA = {
    " token uuid, address inet6,": "",
    " '12345678-1234-5678-1234-567812345678', '::1',": "",
}
"""What MySQL lacks of ODD."""


@pytest.fixture(scope="module")
def maria() -> Iterator[MariaServer]:
    driver = str(installed("pymysql==1.2.4"))
    sys.path.append(driver)
    with MariaServer.start() as server:
        yield server
    sys.path.remove(driver)


@pytest.fixture
def place(workspace: Workspace, maria: MariaServer, tmp_path: Path) -> Iterator[Place]:
    with maria.fresh_database() as address:
        yield Place(workspace, address, tmp_path)


def test_a_shop_of_eleven_tables_comes_over_whole(place: Place) -> None:
    # As the texts of its checks are written; the server tells them in its own quotes.
    ansi = "&init_command=SET sql_mode='ANSI_QUOTES'"
    place._replace(source=place.source + ansi).fill(60)
    place = place._replace(source=place.source.replace("mysql+pymysql", "mysql"))
    inferred = place.infer("--json")
    assert (inferred.status, inferred.err) == (0, "")
    assert len(inferred.json["tables"]) == 11
    text = place.migration()
    for part in (
        "{type: reference, to: employee, optional: true, name: reports_to}",
        "{type: reference, to: invoice, name: invoice}",
        "key: [playlist_id, track_id]",
        "add_reference: {table: track, field: album_id, on_delete: set_null}",
        "milliseconds >= 0",
        "country == 'AT'",
        'default: "0.99"',
        "enum: [audio, video]",
        "{type: timestamp, default: now, name: invoice_date}",
        "{type: integer, generated: sequence, name: track_id}",
    ):
        assert part in text, part
    (path,) = place.workspace.directory.glob("*.yaml")
    # MariaDB has JSON as a text.
    was, wanted = (f"{kind}, optional: true, name: settings" for kind in ("string", "json"))
    path.write_text(text.replace(was, wanted))
    place.migrate()
    copied = place.copy("--json", "--batch", "7")
    assert (copied.status, copied.err) == (0, "")
    assert copied.json["is_complete"]
    require_same(place._replace(source=place.source.replace("mysql:", "mysql+pymysql:")))
    again = place.copy()
    assert "already exists" in again.err
    assert place.copy("--mode", "upsert").status == 0


def test_what_has_no_equivalent_is_said(place: Place, maria: MariaServer) -> None:
    odd, notes = "\n".join(ODD), {*NOTES}
    if maria.is_mysql:
        notes -= {note for note in NOTES if "odd.address" in note}
        for text, instead in OF_MARIA.items():
            odd = odd.replace(text, instead)
        place.execute("CREATE TABLE newer (id int PRIMARY KEY, v vector(3))")
        notes.add("newer: left out: SQLAlchemy can't read its columns")
    place.execute("SET time_zone = '+00:00'", *odd.split("\n"))
    inferred = place.infer()
    assert inferred.status == 3, inferred.err
    for note in notes:
        assert note in inferred.out, (note, inferred.out)
    place.migrate()
    # Moments are the same, wherever the server is, and whatever zone other times are of.
    maria.execute("SET GLOBAL time_zone = '+05:00'")
    refused = place.copy("--time-zone", "Europe/Vienna")
    assert refused.status == 1
    for part in ("field: odd.day", "value: 0000-00-00", "a date of zeros is none", "row: 1"):
        assert part in refused.err, refused.err
    place.execute("UPDATE odd SET day = NULL WHERE id = 7")
    copied = place.copy("--time-zone", "Europe/Vienna")
    maria.execute("SET GLOBAL time_zone = 'SYSTEM'")
    assert (copied.status, "not imported: no_key" in copied.err) == (3, True), copied.err
    empty, odd = place.records("odd")
    assert (empty["name"], empty["day"], empty["big"]) == ("it's", None, None)
    assert (odd["id"], odd["big"], odd["made"]) == (2**64 - 1, 2**64 - 2, 1999)
    assert (odd["flag"], odd["total"], odd["bits"], odd["raw"]) == (True, 2, b"\0*", b"\0\xff")
    assert (odd["long_time"], odd["members"], odd["kind"]) == ("-101:02:03.500000", "a,b c", "y-z")
    assert (odd["name"], odd["day"].isoformat()) == ("ä", "2024-02-29")
    assert maria.is_mysql or odd["address"] == "::1"
    assert odd["stamped"] == datetime.datetime(2024, 5, 31, 10, tzinfo=datetime.UTC)
    assert odd["seen"] == datetime.datetime(2024, 2, 29, 0, 2, 3, 4, tzinfo=datetime.UTC)
    assert sorted(one["word"] for one in place.records("words")) == ["A", "b", "c ", "ö"]
    followed = place.copy("--follow", "--table", "odd")
    assert (followed.status, "only a PostgreSQL database" in followed.err) == (2, True)


def test_wrong_addresses(place: Place, maria: MariaServer) -> None:
    gone = maria.socket.with_name("gone")
    unknown = "Access denied" if maria.is_mysql else "Unknown database"  # which has no passwords
    unknown = "Access denied" if maria.is_mysql else "Unknown database"
    for rest, status, part in (
        (f"x?unix_socket={gone}", 1, "Can't connect to MySQL server"),
        (f"none?unix_socket={maria.socket}", 1, unknown),
        (f"?unix_socket={maria.socket}", 2, "the address names no database"),
    ):
        address = f"mysql://root:secret@localhost/{rest}"
        refused = place.run("import", address, "--infer", "-m", place.migrations)
        assert (refused.status, part in refused.err) == (status, True), refused.err
        assert "secret" not in refused.err
