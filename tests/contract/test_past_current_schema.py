"""`past.table(name, schema="now")`: records of then in the schema of now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import zapdb
from tests.contract.stored_pasts import begin, flush
from tests.contract.tables import ADD_COLOR, ITEMS, RENAME_SIZE
from tests.support import Workspace
from zapdb.database import Database
from zapdb.errors import UnknownName, UsageError

TEXT_SIZE = (
    "change_type: {table: items, field: extent, type: string, default: '0', up: 'text(extent)',"
    " down: 'length(extent)', reversibility: lossy, because: a test}"
)
DROP_NOTE = (
    "drop_field: {table: items, field: note, restore: {archive: true, otherwise: {value: lost}}}"
)
RESTORE_NOTE = (
    "restore_field: {table: items, field: note, archived_by: 5, otherwise: {value: never}}"
)


def read(table: Any) -> list[dict[str, Any]]:
    return [zapdb.asdict(record) for record in table.scan()]


def test_records_of_then_in_the_schema_of_now(workspace: Workspace, tmp_path: Path) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    begin(db, tmp_path / "store")
    items = db.table("items")
    items.insert_many([{"id": key, "title": f"t{key}", "size": key} for key in range(5)])
    stored = flush(db).ends
    items.update(1, title="tail", size=9)
    items.delete(2)
    moments = (stored, next(db.moments()).number)
    then = [read(db.at(moment).table("items")) for moment in moments]

    def migrate(number: int, operation: str) -> Database:
        workspace.write(number, operation)
        db.close()
        return workspace.open()

    def converted(moment: int) -> Any:
        return read(db.at(moment).table("items", schema="now"))

    db = migrate(2, RENAME_SIZE)  # which is no other layout: both are rewound
    renamed = [[{**row, "extent": row["size"]} for row in rows] for rows in then]
    for rows in renamed:
        for row in rows:
            del row["size"]
    assert [converted(moment) for moment in moments] == renamed
    db = migrate(3, ADD_COLOR)
    db = migrate(4, TEXT_SIZE)
    db.table("items").where().delete()
    wanted = [
        [{**row, "extent": str(row["extent"]), "color": "red"} for row in rows] for rows in renamed
    ]
    for _ in range(2):
        assert [converted(moment) for moment in moments] == wanted
        past = db.at(moments[1])
        assert past.table("items", schema="now").get(1).color == "red"
        assert read(past.table("items")) == then[1]
        flush(db)
    db = migrate(5, DROP_NOTE)
    db = migrate(6, RESTORE_NOTE)
    with pytest.raises(UsageError, match="has restored archived values") as caught:
        converted(moments[0])
    assert caught.value.context["migration"] == "0006_test"
    with pytest.raises(UsageError, match="'then' or 'now'"):
        db.at(stored).table("items", schema="later")  # type: ignore[arg-type]  # as one may
    db = migrate(7, "drop_table: {table: items, records: archive}")
    with pytest.raises(UnknownName, match="dropped"):
        converted(moments[0])
