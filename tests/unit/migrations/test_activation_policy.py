"""When a migration takes force: at once, or once all nodes know it (rules 5 and 12)."""

from __future__ import annotations

import cbor2
import pytest

from tests.documents import PEOPLE, document, resolve_documents, show
from zapdb.errors import CorruptCatalog, InvalidMigration
from zapdb.migrations import Migration, read_stored

WAITS = "activation: wait_for_nodes\n"
RENAME = "rename_table: {table: people, to: persons}"
DROP = "drop_table: {table: people, records: archive}"


def migrate(*operations: str, text: str = "", rollback: str = "inferred") -> Migration:
    given = document(*operations, rollback=rollback) + text
    return resolve_documents(document(PEOPLE), given).migrations[-1]


def read(migration: Migration, structure: bytes) -> Migration:
    return read_stored(structure, "a", "", migration.drawn, migration.before)


def test_rule_12_a_migration_waits_where_it_says_so() -> None:
    assert not migrate(RENAME).waits_for_nodes
    assert migrate(RENAME, text=WAITS).waits_for_nodes


def test_rule_05_activation_is_digested_where_it_is_written() -> None:
    at_once, waiting = migrate(RENAME), migrate(RENAME, text=WAITS)
    assert at_once.digest != waiting.digest
    content = cbor2.loads(waiting.structure)
    assert content.pop("activation") == "wait_for_nodes"
    assert content == cbor2.loads(at_once.structure)


def test_rule_12_a_dropped_table_implies_it() -> None:
    assert migrate(DROP).waits_for_nodes
    assert migrate(RENAME, "drop_table: {table: persons, records: discard}").waits_for_nodes


def test_rule_12_a_table_that_a_rollback_drops_implies_nothing() -> None:
    created = resolve_documents(document(PEOPLE)).migrations[0]
    assert [operation.keyword for operation in created.rollback] == ["drop_table"]
    assert not created.waits_for_nodes


def test_rule_05_what_is_implied_may_be_written_and_is_the_same() -> None:
    silent, written = migrate(DROP), migrate(DROP, text=WAITS)
    assert silent.digest == written.digest
    assert silent == written


@pytest.mark.parametrize("text", [WAITS, ""])
@pytest.mark.parametrize("operation", [RENAME, DROP])
def test_rule_12_what_was_stored_still_waits(operation: str, text: str) -> None:
    migration = migrate(operation, text=text)
    found = read(migration, migration.structure)
    assert found.waits_for_nodes == migration.waits_for_nodes
    assert found.activation == migration.activation


@pytest.mark.parametrize(
    ("text", "column"), [("immediately", 13), ("null", 13), ("[wait_for_nodes]", 13), ("true", 13)]
)
def test_nothing_else_is_an_activation(text: str, column: int) -> None:
    with pytest.raises(InvalidMigration) as caught:
        migrate(RENAME, text=f"activation: {text}\n")
    (violation,) = caught.value.violations
    assert show(violation) == f"0002_test.yaml:6:{column}: one of wait_for_nodes is needed here"


def test_a_stored_activation_of_another_kind_is_a_corrupt_catalog() -> None:
    migration = migrate(RENAME, text=WAITS)
    content = cbor2.loads(migration.structure) | {"activation": "later"}
    with pytest.raises(CorruptCatalog):
        read(migration, cbor2.dumps(content, canonical=True))
