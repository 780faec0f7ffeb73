"""What people who may send statements can't do: read files, write them, take more than they may."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any

import pytest

from tests.contract.sql_attacks import REACH, TOO_MUCH
from tests.support import Workspace
from zapdb.database import Database
from zapdb.errors import SqlLimitExceeded, ZapdbError

ORDERS = (
    "create_table: {table: orders, key: [id], fields: ["
    "{name: id, type: integer}, {name: title, type: string}]}"
)
SECRET = "k9Xq-not-for-you"
OTHERS = "row-of-another-tenant"
MEMORY = 64 * 1024 * 1024

pytestmark = pytest.mark.parametrize("engine", ["sqlite"])  # which one does not matter here


@pytest.fixture
def db(workspace: Workspace) -> Database:
    workspace.write(1, ORDERS)
    opened = workspace.open()
    opened.table("orders").insert_many({"id": n, "title": f"order {n}"} for n in range(40))
    opened.admin.create_tenant("other")
    opened.for_tenant("other").table("orders").insert(id=1, title=OTHERS)
    return opened


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with secrets where DuckDB would look."""
    place = tmp_path / "place"
    (place / ".tmp").mkdir(parents=True)
    for name in ("secret.csv", ".tmp/spilled", ":memory:"):
        (place / name).write_text(f"a,b\n{SECRET},1\n")
    (place / "link").symlink_to(place / "secret.csv")
    monkeypatch.chdir(place)
    monkeypatch.setenv("ZAPDB_SECRET", SECRET)
    return place


def listed(place: Path) -> list[str]:
    return sorted(str(path.relative_to(place)) for path in place.rglob("*"))


def test_nothing_beyond_the_tables_is_within_reach(db: Database, place: Path) -> None:
    import pandas

    secret_frame = pandas.DataFrame({"a": [SECRET]})
    secret = secret_frame["a"].tolist()
    before, answered = listed(place), 0
    for statement in REACH:
        filled = statement.replace("{file}", f"{place}/secret.csv").replace("{dir}", str(place))
        try:
            found = repr(db.sql(filled.replace("{name}", place.name)).fetchall())
            answered += 1
        except ZapdbError as error:
            found = f"{error}{error.context}{error.hint}"
        for hidden in (*secret, OTHERS, "root:"):
            assert hidden not in found, statement
    assert listed(place) == before
    assert 10 < answered < 40
    assert db.sql("SELECT count(*) FROM orders").fetchall() == [(40,)]


def test_where_a_statement_may_spill_nothing_else_is_within_reach(
    db: Database, place: Path
) -> None:
    spill = place / "spill"
    spill.mkdir()
    (spill / "secret.csv").write_text(f"a\n{SECRET}\n")
    (spill / "zapdb-sql-leftover").mkdir()
    (spill / "zapdb-sql-leftover" / "rows").write_text(SECRET)
    for statement in REACH:
        if not any(part in statement for part in ("{dir}", ".tmp", "memory", "temp")):
            continue  # where it may spill makes no difference
        filled = statement.replace("{file}", f"{place}/secret.csv").replace("{dir}", str(spill))
        try:
            found = repr(db.sql(filled.replace("{name}", "spill"), spill_to=spill).fetchall())
        except ZapdbError as error:
            found = f"{error}{error.context}{error.hint}"
        for hidden in (SECRET, OTHERS, "root:"):
            assert hidden not in found, statement
    assert listed(spill) == ["secret.csv"]


@pytest.mark.parametrize("part", range(4))
def test_a_statement_takes_no_more_than_it_may(db: Database, part: int) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for statement in TOO_MUCH[part::4]:
        with pytest.raises(SqlLimitExceeded) as caught:
            db.sql(statement, max_memory=MEMORY, seconds=0.4, max_rows=9_000)
        assert caught.value.hint
        assert set(caught.value.context) <= {"max_memory", "seconds", "max_rows"}
        assert not running(), statement
    taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert taken * 1024 < 3 * MEMORY
    assert db.sql("SELECT count(*) FROM orders").fetchone() == (40,)


def running() -> list[Any]:
    """The processes of statements that there are: of the children of this process, the children."""
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:
            continue  # it is gone
        parents[int(path.parent.name)] = int(text.rpartition(")")[2].split()[1])
    keepers = {
        child
        for child, parent in parents.items()
        if parent == os.getpid() and "zapdb_sandbox" in _command(child)
    }
    return [child for child, parent in parents.items() if parent in keepers]


def _command(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text()
    except OSError:
        return ""
