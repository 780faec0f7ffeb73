"""The examples of the reference page and of new files do what they are shown for."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import zapdb
from tests.documents import resolve_documents
from zapdb.activation.rollback import roll_back
from zapdb.errors import InvalidMigration
from zapdb.migrations import OPERATIONS, Chain
from zapdb.migrations.operations.operation_examples import (
    ALL,
    ALLOWED,
    EXAMPLES,
    EXAMPLES_REFUSED,
    FIRST,
)
from zapdb.records import Layout, asdict
from zapdb.storage import connect


def document_of(item: str) -> str:
    changes = "".join(f"  {line}\n" for line in item.splitlines())
    return f"zapdb: 1\nsummary: Example\nchanges:\n{changes}rollback: inferred\n"


def documents_for(keyword: str) -> list[str]:
    """Those that the example needs, and its own."""
    example = EXAMPLES[keyword]
    items = (FIRST, *(EXAMPLES[needed].text for needed in example.needs), example.text)
    return [document_of(item) for item in items]


def chain_for(keyword: str) -> Chain:
    return resolve_documents(*documents_for(keyword))


def test_every_operation_has_an_example_in_the_order_of_the_registry() -> None:
    assert list(EXAMPLES) == list(OPERATIONS)


@pytest.mark.parametrize("keyword", EXAMPLES)
def test_an_example_is_one_operation_that_resolves_after_what_it_needs(keyword: str) -> None:
    last = chain_for(keyword).migrations[-1]
    assert [operation.keyword for operation in last.changes] == [keyword]
    assert last.rollback


@pytest.mark.parametrize("keyword", EXAMPLES)
def test_an_example_converts_records_where_the_page_says_so(keyword: str) -> None:
    last = chain_for(keyword).migrations[-1]
    converts = False
    for table in last.before:
        after = last.after.table_numbered(table.number)
        converts |= after is not None and Layout.of(after) != Layout.of(table)
        converts |= after is not None and not last.conversion_up(table.number).is_identity
    assert converts == (EXAMPLES[keyword].records == ALL)


ON_THE_KEY = {
    "drop_field": "{table: people, field: id, restore: {value: 5}}",
    "rename_field": "{table: people, field: id, to: number}",
    "reorder_field": "{table: people, field: id, position: 3}",
    "change_type": "{table: people, field: id, type: string, up: text(id), down: length(id)}",
    "change_default": "{table: people, field: id, default: 5}",
    "make_optional": "{table: people, field: id, fill: {value: 5}}",
    "transform": "{table: people, from: {id: integer}, into: {x: integer}, up: {x: id}, "
    "down: {id: x}}",
    "create_index": "{table: people, index: by_id, fields: [{field: id}]}",
    "add_check": "{table: people, check: counted, expression: id > 0}",
}


@pytest.mark.parametrize("keyword", ON_THE_KEY)
def test_rule_21_fields_of_the_key_allow_what_the_page_says(keyword: str) -> None:
    texts = document_of(FIRST), document_of(f"- {keyword}: {ON_THE_KEY[keyword]}")
    if EXAMPLES[keyword].key == ALLOWED:
        assert resolve_documents(*texts).end == 2
        return
    assert EXAMPLES[keyword].key == EXAMPLES_REFUSED
    with pytest.raises(InvalidMigration) as caught:
        resolve_documents(*texts)
    assert any("is part of the key of 'people'" in v.message for v in caught.value.violations)


def write(directory: Path, texts: list[str]) -> None:
    directory.mkdir(exist_ok=True)
    for number, text in enumerate(texts, 1):
        (directory / f"{number:04d}_example.yaml").write_text(text, encoding="utf-8")


def people_in(url: str, files: Path, table: str = "people") -> list[dict[str, Any]]:
    with zapdb.open(url, migrations=files, apply="auto") as db:
        return [asdict(record) for record in db.table(table).scan()]


@pytest.mark.parametrize("keyword", EXAMPLES)
def test_an_example_is_applied_to_records_and_rolled_back_again(
    keyword: str, tmp_path: Path
) -> None:
    texts = documents_for(keyword)
    files, url = tmp_path / "migrations", f"sqlite:///{tmp_path / 'store.db'}"
    write(files, texts[:1])
    person = {
        "name": "Ada Lovelace",
        "joined": datetime.date(1833, 6, 5),
        "fax": "1",
        "balance": Decimal("2.50"),
        "status": "member",
        "town": 1,
    }
    with zapdb.open(url, migrations=files, apply="auto") as db:
        db.table("towns").insert(id=1, name="London")
        db.table("people").insert_many({"id": number, **person} for number in range(3))
    write(files, texts[:-1])
    before = people_in(url, files)
    assert len(before) == 3
    write(files, texts)
    after = people_in(url, files, "persons" if keyword == "rename_table" else "people")
    assert len(after) == 3
    last = resolve_documents(*texts).migrations[-1]
    people = last.after.table_numbered(2)
    assert people is not None
    assert list(after[0]) == [f.name for f in people.fields]
    storage = connect(url)
    try:
        assert roll_back(storage).migrations[0].number == len(texts)
    finally:
        storage.close()
    (files / f"{len(texts):04d}_example.yaml").unlink()
    assert people_in(url, files) == before
