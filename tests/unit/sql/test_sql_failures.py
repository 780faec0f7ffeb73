"""What a failed statement is told: nothing of values, and nothing of files and views of zapdb's."""

from __future__ import annotations

from typing import Any

from zapdb.past.reading.stored_files import RelationFiles
from zapdb.sql.sandboxed_statement import FILES_HINT, StatementLimits, explain_failure

FILES = {"zapdb_files_1_0": RelationFiles(["/past/1/1/checkpoint-1.parquet"], {"f1": "id"})}


def explain(**failure: Any) -> str:
    told = {"class": "Error", "about_values": False, "lead": 0, **failure}
    allowance = StatementLimits(1 << 20, 1.0, 1, None)
    return str(explain_failure(told, "SELECT 1 FROM items", ("items",), FILES, allowance))


def test_files_of_the_store_have_no_names() -> None:
    text = 'IO Error: Cannot open file "/past/1/1/checkpoint-1.parquet" of zapdb_files_1_0'
    for said in (explain(text=text), explain(files=text)):
        assert "a file of the history store" in said
        assert ".parquet" not in said
        assert "zapdb_files" not in said


def test_values_are_not_in_hints() -> None:
    text = "Invalid Input Error: Could not parse string 'Ada'\nAda\n^\nError: Expected a number"
    assert "Ada" not in explain(text=text, about_values=True)


def test_a_table_is_called_one_and_files_are_refused_with_a_hint() -> None:
    text = 'Binder Error: Values list "items" does not have a column named "x"'
    assert 'table "items" does not have' in explain(text=text)
    text = "Permission Error: File system LocalFileSystem has been disabled by configuration"
    assert FILES_HINT in explain(text=text)
