"""Digests once given are given for ever (rule 5): documents of version 1 and z1.

`kept` holds documents in many spellings, a chain, and the digests that the release gave them that
they were written for. It is appended to and never refreshed: a database and a lock file out there
hold these digests, and where one differs, every open of theirs is a conflict. What has changed
then is the code, and it is the code that has to give way.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import cbor2
import pytest

from tests.documents import resolve_documents
from tests.unit.migrations.kept import write
from zapdb.migrations import OPERATIONS, Migration, digest_of, load_directory, read_stored
from zapdb.migrations.document import DocumentText, as_plain_data, read_document
from zapdb.schema import Schema

CHAIN = load_directory(write.KEPT)
DIGESTS = write.read_digests()


def test_every_document_has_a_kept_digest() -> None:
    assert [m.label for m in CHAIN.migrations] == list(DIGESTS)
    assert CHAIN.end >= 20


def test_every_operation_has_a_document() -> None:
    """One that is new gets one: `python -m tests.unit.migrations.kept.write`."""
    used = {op.keyword for m in CHAIN.migrations for op in (*m.changes, *m.rollback)}
    assert OPERATIONS.keys() - used == set()


@pytest.mark.parametrize("migration", CHAIN.migrations, ids=lambda m: m.label)
def test_rule_05_a_kept_digest_is_computed_again(migration: Migration) -> None:
    assert migration.digest == DIGESTS[migration.label], cbor2.loads(migration.structure)


@pytest.mark.parametrize("migration", CHAIN.migrations, ids=lambda m: m.label)
def test_rule_05_what_is_read_from_the_database_has_the_same_structure(
    migration: Migration,
) -> None:
    read = _read(migration, migration.before)
    assert read == migration
    anew = Migration(**{name: getattr(read, name) for name in Migration.__dataclass_fields__})
    assert anew.structure == migration.structure


def test_the_chain_is_read_from_the_database_alone() -> None:
    schema = Schema()
    for migration in CHAIN.migrations:
        schema = _read(migration, schema).after
    assert schema == CHAIN.schema_at(CHAIN.end)


def test_rule_05_a_key_that_was_added_since_leaves_stored_digests_alone() -> None:
    """As if `descending` were newer than the database, whose structures lack it."""
    migration = CHAIN.migrations[11]
    content = cbor2.loads(migration.structure)
    (index,) = content["changes"]
    assert index["create_index"]["fields"][0].pop("descending") is False
    older = cbor2.dumps(content, canonical=True)
    read = read_stored(older, migration.name, migration.summary, migration.drawn, migration.before)
    assert read == migration
    assert read.digest == digest_of(older) != migration.digest


def _read(migration: Migration, before: Schema) -> Migration:
    return read_stored(
        migration.structure, migration.name, migration.summary, migration.drawn, before
    )


def test_the_spellings_are_kept() -> None:
    """An editor or version control that tidies the files up would make the test a weaker one."""
    raw = {path.stem: path.read_bytes() for path in write.KEPT.glob("*.yaml")}
    assert raw["0008_rename_field"].startswith(b"\xef\xbb\xbf")
    windows = raw["0005_fax"]
    assert windows.count(b"\r\n") == windows.count(b"\n") > 9
    assert raw["0009_rename_table"].startswith(b"%YAML 1.1\n---\n")
    assert raw["0003_orders"].startswith(b'{"zapdb"')
    assert b"  # of all kinds\n" in raw["0002_people"]
    assert raw["0004_defaults"].startswith(b"rollback:")


# --- the script ----------------------------------------------------------------------------------


@pytest.fixture
def copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the documents, with the digests that they have now."""
    for path in write.KEPT.glob("*.yaml"):
        shutil.copy(path, tmp_path)
    monkeypatch.setattr(write, "KEPT", tmp_path)
    monkeypatch.setattr(write, "DIGESTS", tmp_path / "digests.json")
    assert write.main() == 0
    return tmp_path


NEW = (
    "zapdb: 1\nsummary: New\nrollback: inferred\nchanges:\n  - create_type: {type: x, enum: [a]}\n"
)


def test_new_documents_are_added(copied: Path) -> None:
    before = write.DIGESTS.read_bytes()
    assert write.main() == 0
    assert write.DIGESTS.read_bytes() == before
    label = f"{CHAIN.end + 1:04d}_new"
    (copied / f"{label}.yaml").write_text(NEW)
    assert write.main() == 0
    assert list(write.read_digests())[-1] == label
    assert write.DIGESTS.read_bytes().startswith(before[:-3])
    (copied / f"{label}.yaml").unlink()
    assert write.main() == 0
    assert write.DIGESTS.read_bytes() == before


def test_a_digest_that_is_there_is_never_changed(
    copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = write.DIGESTS.read_bytes()
    capsys.readouterr()
    path = copied / "0007_split_name.yaml"
    path.write_text(path.read_text().replace("after( name, ' ' )", "after(name, ',')"))
    (copied / f"{CHAIN.end + 1:04d}_new.yaml").write_text(NEW)
    assert write.main() == 1
    assert capsys.readouterr().err == ("refused: the digest is another one now: 0007_split_name\n")
    assert write.DIGESTS.read_bytes() == before


def test_only_spelling_may_change(copied: Path) -> None:
    def content(path: Path) -> Any:
        return as_plain_data(read_document(DocumentText.read(path)))

    path = copied / "0002_people.yaml"
    given = content(path)
    path.write_text(path.read_text().replace("# Two fields", "# Fields").replace("People", "Folk"))
    assert content(path) == given | {"summary": "Folk"}
    assert write.main() == 0
    assert write.digests_of(load_directory(copied)) == write.read_digests()


def test_the_example_of_the_format_page_is_right() -> None:
    page = (Path(__file__).parents[3] / "docs" / "format" / "migration.md").read_text()
    example = page.partition("## An example")[2]
    text = example.partition("```yaml ")[2].partition("\n")[2].partition("```")[0]
    (migration,) = resolve_documents(text).migrations
    assert f"\n{migration.digest}\n" in example
    assert f"has {len(migration.structure)} bytes" in example
