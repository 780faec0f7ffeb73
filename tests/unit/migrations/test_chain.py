"""Directories of migrations, and paths of conversion along the chain."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documents import PEOPLE, document, people_of, resolve_documents, show
from zapdb.errors import InvalidMigration, UnknownName, UsageError
from zapdb.migrations import (
    Chain,
    NumberAllocator,
    find_file,
    list_files,
    load_directory,
    resolve_files,
)
from zapdb.records import Computed, Constant, SourceField
from zapdb.schema import Schema

EXAMPLE = Path(__file__).parents[3] / "examples" / "cities" / "migrations"

TEXTS = {
    "0001_people": document(PEOPLE),
    "0002_rename": document("rename_field: {table: people, field: name, to: title}"),
    "0003_fax": document(
        "add_field: {table: people, field: {name: fax, type: string, default: x}}"
    ),
}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    for name, text in TEXTS.items():
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    return tmp_path


def violations(directory: Path) -> list[str]:
    with pytest.raises(InvalidMigration) as caught:
        list_files(directory)
    return [show(v).removeprefix(f"{directory}/") for v in caught.value.violations]


def test_files_are_listed_by_number_and_others_are_passed_over(directory: Path) -> None:
    for name in ("zapdb.lock", "README.md", ".hidden.yaml", ".#0001_people.yaml", "notes.txt"):
        (directory / name).write_text("")
    files = list_files(directory)
    assert [(f.number, f.name, f.label) for f in files] == [
        (1, "people", "0001_people"),
        (2, "rename", "0002_rename"),
        (3, "fax", "0003_fax"),
    ]
    assert files[0].path == directory / "0001_people.yaml"
    assert find_file(files, 2) is files[1]
    with pytest.raises(UnknownName):
        find_file(files, 4)


def test_numbers_sort_as_numbers(directory: Path) -> None:
    """As from 9999 to 10000: here the second file would be the first by its text."""
    (directory / "0002_rename.yaml").rename(directory / "00002_rename.yaml")
    assert [f.number for f in list_files(directory)] == [1, 2, 3]
    assert [f.path.name[:5] for f in list_files(directory)] == ["0001_", "00002", "0003_"]


def test_a_gap_is_refused(directory: Path) -> None:
    (directory / "0002_rename.yaml").unlink()
    assert violations(directory) == ["0003_fax.yaml: migration 2 is missing before this one"]


def test_a_chain_begins_at_1(directory: Path) -> None:
    (directory / "0001_people.yaml").unlink()
    assert violations(directory) == ["0002_rename.yaml: migration 1 is missing before this one"]
    (directory / "0000_zero.yaml").touch()
    assert "0000_zero.yaml: migrations are numbered from 1" in violations(directory)


def test_twins_are_refused_with_the_number_that_is_free(directory: Path) -> None:
    (directory / "0002_other.yaml").touch()
    (directory / "00003_fax_too.yaml").touch()
    with pytest.raises(InvalidMigration) as caught:
        list_files(directory)
    assert [v.message for v in caught.value.violations] == [
        "two migrations have the number 2; the other is 0002_other.yaml",
        "two migrations have the number 3; the other is 0003_fax.yaml",
    ]
    assert caught.value.violations[0].location.file.endswith("0002_rename.yaml")
    assert "0004" in caught.value.violations[0].hint


@pytest.mark.parametrize(
    "name",
    ["1_x.yaml", "0004.yaml", "0004-x.yaml", "0004_X.yaml", "0004_ä.yaml", "x.yaml", "0004_x.yml",
        "0004_x.YAML",
     "0004_x y.yaml", "٠٠٠٤_x.yaml", "0004_.x.yaml"],
)  # fmt: skip
def test_strangers_are_refused(directory: Path, name: str) -> None:
    (directory / name).touch()
    assert violations(directory) == [f"{name}: this is not the name of a migration file"]


def test_an_empty_or_missing_directory_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="the directory contains no migrations") as caught:
        list_files(tmp_path)
    assert "zapdb migrate new" in caught.value.hint
    for missing in (tmp_path / "none", tmp_path / "file"):
        (tmp_path / "file").touch()
        with pytest.raises(UsageError, match="the migration directory does not exist"):
            list_files(missing)


def test_a_directory_called_like_a_migration_cannot_be_read(directory: Path) -> None:
    (directory / "0004_x.yaml").mkdir()
    with pytest.raises(InvalidMigration, match="the file can't be read"):
        load_directory(directory)


def test_a_violation_names_the_file(directory: Path) -> None:
    (directory / "0004_x.yaml").write_text("zapdb: 1\nzapdb: 2\n")
    with pytest.raises(InvalidMigration) as caught:
        load_directory(directory)
    assert (
        show(caught.value.violations[0])
        == f"{directory}/0004_x.yaml:2:1: the key 'zapdb' stands twice"
    )


def test_a_chain_is_the_sum_of_its_files(directory: Path) -> None:
    chain = load_directory(directory)
    assert chain.end == 3
    assert chain.schema_at(0) == Schema()
    assert [f.name for f in people_of(chain.schema_at(3)).fields][-1] == "fax"
    read = resolve_documents(*TEXTS.values())
    assert [m.digest for m in chain.migrations] == [m.digest for m in read.migrations]
    assert chain.schema_at(3) == read.schema_at(3)
    assert chain.up_to(2) == resolve_files(list_files(directory)[:2])
    assert chain.up_to(3) is chain


def test_a_chain_is_extended_by_the_files_that_follow(directory: Path) -> None:
    numbers = NumberAllocator()
    files = list_files(directory)
    half = resolve_files(files[:2], numbers=numbers)
    assert resolve_files(files[2:], half, numbers) == load_directory(directory)
    assert half.end == 2


# --- paths ---------------------------------------------------------------------------------------

LONG = resolve_documents(
    *TEXTS.values(),
    document("create_index: {table: people, index: by_fax, fields: [{field: fax}]}"),
    document("create_table: {table: towns, key: [id], fields: [{name: id, type: integer}]}"),
    document(
        "drop_index: {table: people, index: by_fax}",
        "drop_field: {table: people, field: fax, restore: {expression: lower(title)}}",
    ),
)


def test_rule_02_a_path_goes_along_the_chain() -> None:
    keep = {n: SourceField(n) for n in range(1, 7)}
    assert LONG.conversion_plan(1, 1, 1).derivations == keep
    assert LONG.conversion_plan(1, 1, 2).derivations == keep
    there = LONG.conversion_plan(1, 1, 3).derivations
    assert isinstance(there[7], Constant)
    assert LONG.conversion_plan(1, 3, 5).derivations == keep | {7: SourceField(7)}
    assert LONG.conversion_plan(1, 3, 1).derivations == keep
    assert LONG.conversion_plan(1, 1, 6).derivations == keep
    back = LONG.conversion_plan(1, 6, 3).derivations
    assert isinstance(back[7], Computed)
    assert back[7].inputs == {"title": SourceField(2)}
    assert LONG.conversion_plan(1, 6, 3).derivations is back


def test_rule_02_what_is_dropped_on_the_way_is_never_computed() -> None:
    assert LONG.conversion_plan(1, 2, 6).derivations == {n: SourceField(n) for n in range(1, 7)}


def test_a_table_has_a_path_from_where_it_began() -> None:
    assert LONG.conversion_plan(2, 5, 6).derivations == {8: SourceField(8)}


def test_paths_of_a_chain_and_of_a_longer_one_agree() -> None:
    short = Chain(LONG.migrations[:4])
    assert (
        short.conversion_plan(1, 2, 3).derivations.keys()
        == LONG.conversion_plan(1, 2, 3).derivations.keys()
    )


def test_the_example_of_the_cities_resolves() -> None:
    chain = load_directory(EXAMPLE)
    assert chain.end == len(list(EXAMPLE.glob("*.yaml"))) >= 8
    (table,) = chain.schema_at(8)
    assert [f.name for f in table.fields] == [
        *("id", "name", "local_name", "country", "region", "latitude", "longitude"),
        *("population", "zone", "other_names", "capital"),
    ]
    assert [i.name for i in table.indexes] == ["by_people", "by_local_name"]
    for source in range(1, 9):
        for target in range(1, 9):
            (there,) = chain.schema_at(target)
            derived = chain.conversion_plan(table.number, source, target).derivations
            assert {f.number for f in there.fields} <= derived.keys()
