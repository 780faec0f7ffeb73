"""Where a row has one word of a closed set, one of a later release is told as such, by whoever
reads the row: it is not taken for another word, left out, or called tampered with (rule 34)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import cbor2
import pytest
import sqlalchemy as sa

from tests.contract.test_tampering import fill
from tests.support import Workspace, error_of
from zapdb.catalog.row_kinds import KINDS
from zapdb.catalog.rows import closed_sets
from zapdb.catalog.schema_history import POSITIONS, REVISIONS, SWITCHES
from zapdb.catalog.settings import SETTINGS
from zapdb.catalog.stored_migrations import ROLLED_BACK, STORED
from zapdb.database import Database
from zapdb.errors import CorruptCatalog, IncompatibleVersion
from zapdb.jobs.job import DONE, FREE, RUNNING
from zapdb.log import pending_changes
from zapdb.past.files.history_manifest import Doubt
from zapdb.schema import canonical_bytes
from zapdb.schema.canonical_schema import read_canonical_bytes
from zapdb.storage.fixed_tables import CHANGES, HISTORY_ERAS, METADATA, MIGRATIONS, RANGES, WORDS
from zapdb.values.json import dumps

LATER: Final = "of_tomorrow"
Look = Callable[[Database], object]


def look_at_past(db: Database) -> object:
    return db.history.verify()


LOOKS: dict[str, Look] = {
    "zapdb_migrations.state": lambda db: db.admin.schema_history("items"),
    "zapdb_schema_history.event": lambda db: db.admin.schema_history("items"),
    "zapdb_ranges.state": lambda db: db.jobs.get("verify/1/0"),
    "zapdb_changes.event": lambda db: list(db.change_log.read()),
    "zapdb_history_stores.state": lambda db: db.history.status(),
    "zapdb_history_files.kind": look_at_past,
    "zapdb_history_files.state": look_at_past,
    "zapdb_history_eras.state": look_at_past,
    "zapdb_history_eras.doubt": look_at_past,
}
"""By column of a closed set: what reads it."""
ROW_LOOKS: dict[str, Look] = {
    "index.state": lambda db: db.table("items").order_by("size").page(1),
    "constraint.kind": lambda db: db.table("items").insert(id=77, title="77", size=-1, age=1),
    "constraint.state": lambda db: db.table("items").insert(id=77, title="77", size=-1, age=1),
    "job.kind": lambda db: db.jobs.list(),
    "job.state": lambda db: db.jobs.list(),
}
"""The same by kind and member of the catalog's rows."""

FREE_TEXTS: Final = {
    "catalog": "kinds that are not known are not read; keys; JSON, of which `closed_sets` tells",
    "leases": "names of leases and processes",
    "counters": "names that are asked for",
    "migrations": "names, digests and people",
    "schema_history": "people and digests",
    "zones": "names",
    "ranges": "jobs and processes",
    "quarantine": "jobs, and reasons for people",
    "probes": "jobs and processes",
    "commit_tokens": "processes",
    "transactions": "people",
    "incarnations": "servers",
    "stamps": "snapshots",
    "followers": "names and places",
    "history_stores": "ids, directories, places and problems for people",
    "history_files": "ids and directories",
    "history_erasures": "ids and JSON of numbers",
    "calls": "people, names, and a status of gRPC that is only shown",
    "requests": "people, keys and processes",
    "history_eras": "ids",
}
"""What the other texts of a table are: no words of a closed set."""


def texts(are_words: bool) -> set[str]:
    return {
        f"{table.name}.{column.name}"
        for table in METADATA.tables.values()
        for column in table.columns
        if isinstance(column.type, sa.Text) and (WORDS in column.info) == are_words
    }


def test_every_closed_set_of_a_row_is_tried() -> None:
    assert texts(are_words=True) == LOOKS.keys()
    assert {name.partition(".")[0].removeprefix("zapdb_") for name in texts(are_words=False)} == (
        FREE_TEXTS.keys()
    )
    members = {f"{kind.KIND}.{name}" for kind in KINDS.values() for name in closed_sets(kind)}
    assert members == ROW_LOOKS.keys()


def test_the_words_of_a_column_are_those_that_the_code_writes() -> None:
    operator = {
        getattr(pending_changes, name)
        for name in dir(pending_changes)
        if name.startswith(("CHANGE_LOG_", "ARCHIVE_", "HISTORY_"))
    }
    assert {*CHANGES.c.event.info[WORDS]} == REVISIONS | POSITIONS | SWITCHES | operator
    assert {*RANGES.c.state.info[WORDS]} == {FREE, RUNNING, DONE}
    assert {*MIGRATIONS.c.state.info[WORDS]} == {STORED, ROLLED_BACK}
    assert {*HISTORY_ERAS.c.doubt.info[WORDS]} == {*Doubt}


@pytest.fixture
def filled(workspace: Workspace, tmp_path: Path) -> Workspace:
    """A row in each table that has a column of words, and in each kind of the catalog's rows."""
    fill(workspace, tmp_path / "past")
    job = (
        '{"format":1,"id":"verify/1/0","kind":"verify","tenant":1,"table":0,"table_name":"","target":0,'
        '"position":2,"migration":0,"datasets":{},"state":"paused","records":1,"created_at":1,'
        '"priority":1}'
    )
    workspace.execute(
        "INSERT INTO zapdb_catalog (kind, key, seq, value) VALUES ('job', 'verify/1/0', 1, ?)",
        [job],
    )
    workspace.execute(
        "INSERT INTO zapdb_ranges (job, range, state, fence, owner, expires_at, read, written,"
        " conflicts) VALUES ('verify/1/0', 0, 'free', 1, '', 0, 0, 0, 0)"
    )
    return workspace


def told(workspace: Workspace, name: str, look: Look) -> IncompatibleVersion:
    def read() -> None:
        with workspace.open("never") as db:
            look(db)

    refused = error_of(read)
    assert isinstance(refused, IncompatibleVersion), (name, refused)
    assert refused.context["word"] == LATER
    assert str(refused.hint).startswith("use a newer release of zapdb")
    return refused


def test_rule_34_a_word_of_a_later_release_is_told_as_such(filled: Workspace) -> None:
    for name, look in LOOKS.items():
        table, _, column = name.partition(".")
        filled.execute(f"CREATE TABLE kept_rows AS SELECT * FROM {table}")
        filled.execute(
            f"UPDATE {table} SET {column} = ?"
            + (" WHERE event IS NOT NULL" if table == CHANGES.name else ""),
            [LATER],
        )
        refused = told(filled, name, look)
        assert (refused.context["table"], refused.context["column"]) == (table, column)
        assert LATER not in refused.context["known"]
        filled.execute(f"DELETE FROM {table}")
        filled.execute(f"INSERT INTO {table} SELECT * FROM kept_rows")
        filled.execute("DROP TABLE kept_rows")


def test_rule_34_such_a_word_in_a_row_of_the_catalog(filled: Workspace) -> None:
    for name, look in ROW_LOOKS.items():
        kind, _, member = name.partition(".")
        where = "WHERE kind = ? AND value IS NOT NULL"
        rows = filled.execute(f"SELECT key, value FROM zapdb_catalog {where}", [kind])
        assert rows
        set_value = f"UPDATE zapdb_catalog SET value = ? {where} AND key = ?"
        for key, text in rows:
            changed = json.dumps(json.loads(text) | {member: LATER})
            filled.execute(set_value, [changed, kind, key])
        refused = told(filled, name, look)
        assert (refused.context["kind"], refused.context["member"]) == (kind, member)
        for key, text in rows:
            filled.execute(set_value, [text, kind, key])


def test_rule_34_such_a_word_of_a_setting(filled: Workspace) -> None:
    of_words = [one for one in SETTINGS.values() if one.values == one.choices]
    assert of_words
    for setting in of_words:
        value = json.dumps({"format": 1, "name": setting.name, "scope": "*", "value": LATER})
        filled.execute(
            "INSERT INTO zapdb_catalog (kind, key, seq, value) VALUES ('setting', ?, 2, ?)",
            [f"*/{setting.name}", value],
        )
        told(filled, setting.name, lambda db: db.admin.settings())
        filled.execute("DELETE FROM zapdb_catalog WHERE kind = 'setting' AND seq = 2")


def change(plain: Any, wanted: str) -> Any:
    """The same nested arrays with another word in the place of one."""
    if isinstance(plain, list):
        return [change(one, wanted) for one in plain]
    return LATER if plain == wanted else plain


def test_rule_34_such_a_word_and_a_later_format_in_the_bytes_of_a_schema(
    workspace: Workspace,
) -> None:
    fields = "{name: id, type: integer}, {name: title, type: string}"
    by = "{field: title, collation: {locale: de, strength: primary}}"
    workspace.write(
        1,
        f"create_table: {{table: towns, key: [id], fields: [{fields}]}}",
        f"create_table: {{table: items, key: [id], fields: [{fields},"
        " {name: sizes, type: list, of: integer},"
        " {name: town, type: reference, to: towns, optional: true}]}",
        f"create_index: {{table: items, index: by_title, fields: [{by}]}}",
        "create_index: {table: items, index: by_town, fields: [{field: town}]}",
        "add_reference: {table: items, field: town, on_delete: restrict}",
    )
    with workspace.open() as db:
        (entry,) = db.admin.schema_history("items")
    whole = canonical_bytes(entry.schema)
    for word in ("integer", "list", "reference", "primary", "restrict"):
        changed = change(cbor2.loads(whole), word)
        assert changed != cbor2.loads(whole)
        with pytest.raises(IncompatibleVersion) as caught:
            read_canonical_bytes(dumps(changed))
        assert caught.value.context["word"] == LATER
    with pytest.raises(IncompatibleVersion, match="a later release wrote this"):
        read_canonical_bytes(dumps([2, *cbor2.loads(whole)[1:]]))
    with pytest.raises(CorruptCatalog):
        read_canonical_bytes(dumps(["1", *cbor2.loads(whole)[1:]]))
