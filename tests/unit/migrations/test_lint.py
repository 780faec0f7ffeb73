"""Every code of the linter: what it finds, what it lets pass, and how it is allowed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.documents import PEOPLE, document
from zapdb.migrations import Chain, list_files, resolve_files
from zapdb.migrations.document import DocumentText
from zapdb.migrations.lint import RULES, LintFinding, lint, read_suppressed

TYPES = (
    "create_type: {type: state, enum: [open, done, lost]}",
    "create_table: {table: towns, key: [id], fields: [{name: id, type: integer}]}",
    "create_table: {table: orders, key: [id], fields: [{name: id, type: integer},"
    " {name: state, type: state}, {name: town, type: reference, to: towns},"
    " {name: source, type: reference, to: towns, optional: true}]}",
    "create_index: {table: orders, index: by_town, fields: [{field: town}]}",
)
SPLIT = (
    "transform: {table: people, from: {name: string}, into: {first: string, last: string},"
    " up: {first: \"before(name, ' ')\", last: \"after(name, ' ')\"},"
    " down: {name: \"join(' ', first, last)\"}, reversibility: lossy}"
)
BECAUSE = SPLIT[:-1] + ", because: a blank}"
DROP = "drop_field: {table: people, field: name, restore: {value: x}}"
ARCHIVE = (
    "drop_field: {table: people, field: name, restore: {archive: true, otherwise: {value: x}}}"
)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "0001_base.yaml").write_text(document(PEOPLE, *TYPES))
    return tmp_path


def load(directory: Path) -> tuple[Chain, dict[int, DocumentText]]:
    files = list_files(directory)
    return resolve_files(files), {file.number: file.read() for file in files}


def lint_texts(directory: Path, *texts: str) -> list[LintFinding]:
    for number, text in enumerate(texts, 2):
        (directory / f"{number:04d}_test.yaml").write_text(text)
    return lint_new(directory)


def lint_new(directory: Path) -> list[LintFinding]:
    """The findings of the files after the first."""
    return lint(*load(directory), lambda number: number > 1)


def codes(directory: Path, *operations: str) -> list[str]:
    return [finding.code for finding in lint_texts(directory, document(*operations))]


@pytest.mark.parametrize(
    ("operation", "found"),
    [
        (DROP, ["ZL001", "ZL009"]),
        (ARCHIVE, []),
        ("drop_table: {table: people, records: discard}", ["ZL002"]),
        ("drop_table: {table: people, records: archive}", []),
        ("make_required: {table: people, field: age, fill: {value: 1}}", ["ZL003", "ZL009"]),
        (
            "create_index: {table: people, index: by_name, fields: [{field: name}], unique: true}",
            ["ZL004", "ZL010"],
        ),
        ("create_index: {table: people, index: by_name, fields: [{field: name}]}", ["ZL010"]),
        ('add_check: {table: people, check: named, expression: "length(name) > 0"}', ["ZL005"]),
        ("add_reference: {table: orders, field: town, on_delete: restrict}", ["ZL006"]),
        (
            "change_type: {table: people, field: name, type: integer, reversibility: lossy,"
            ' because: x, up: "integer(name, else=0)", down: text(name)}',
            ["ZL007", "ZL009"],
        ),
        (
            "change_type: {table: people, field: age, type: string, up: text(age),"
            ' down: "integer(age, else=0)"}',
            [],
        ),
        ("alter_type: {type: state, remove: {lost: {to: done}}}", ["ZL008", "ZL009"]),
        ("alter_type: {type: state, add: [{name: late, back: open}]}", []),
        (BECAUSE, ["ZL009"]),
        (SPLIT, ["ZL009", "ZL011"]),
        (SPLIT[:-1] + ', because: " "}', ["ZL009", "ZL011"]),
        (
            "transform: {table: people, from: {name: string}, into: {size: integer},"
            " up: {size: length(name)}, down: {name: \"'(gone)'\"}, reversibility: lossy,"
            " because: x}",
            ["ZL009", "ZL012"],
        ),
        (
            "transform: {table: people, from: {name: string}, into: {title: string},"
            " up: {title: name}, down: {name: title}, reversibility: lossy, because: x}",
            ["ZL009", "ZL013"],
        ),
        (
            "add_field: {table: people, field: {name: home, type: reference, to: towns},"
            " fill: {value: 1}}",
            ["ZL019", "ZL020"],
        ),
        (
            "add_field: {table: people, field: {name: home, type: reference, to: towns,"
            " default: 0}}",
            ["ZL019", "ZL020"],
        ),
        (
            "add_field: {table: people, field: {name: homes, type: list,"
            " of: {type: reference, to: towns}, default: [1]}}",
            ["ZL020"],
        ),
        (
            "add_field: {table: people, field: {name: homes, type: list,"
            " of: {type: reference, to: towns}, default: []}}",
            [],
        ),
        (
            "add_field: {table: people, field: {name: home, type: reference, to: towns,"
            " optional: true}}",
            ["ZL019"],
        ),
        (
            "add_field: {table: orders, field: {name: from, type: reference, to: towns},"
            " fill: {expression: town}}",
            ["ZL019"],
        ),
        (
            "make_required: {table: orders, field: source, fill: {value: 1}}",
            ["ZL003", "ZL009", "ZL020"],
        ),
        (
            "drop_field: {table: orders, field: source, restore: {archive: true}}",
            [],
        ),
        ("rename_field: {table: people, field: name, to: title}", []),
        ("add_field: {table: people, field: {name: fax, type: string, default: x}}", []),
        (
            "add_field: {table: people, field: {name: at, type: timestamp, default: now,"
            " optional: true}}",
            ["ZL017"],
        ),
        (
            "add_field: {table: people, field: {name: nr, type: integer, generated: sequence},"
            " fill: {value: 0}}",
            ["ZL017", "ZL018"],
        ),
        (
            "create_table: {table: t, key: [id], fields: [{name: id, type: integer,"
            " generated: sequence}, {name: at, type: timestamp, default: now}]}",
            [],
        ),
        (
            "create_table: {table: t, key: [at, id], fields: [{name: id, type: integer,"
            " generated: sequence}, {name: at, type: date}]}",
            ["ZL018"],
        ),
    ],
)
def test_what_an_operation_is_told(directory: Path, operation: str, found: list[str]) -> None:
    assert codes(directory, operation) == found


def test_a_unique_index_in_the_same_migration_is_one_for_the_sequence(directory: Path) -> None:
    fields = "[{name: id, type: uuid}, {name: nr, type: integer, generated: sequence}]"
    index = "create_index: {table: t, index: by_nr, fields: [{field: nr}], unique: true}"
    table = f"create_table: {{table: t, key: [id], fields: {fields}}}"
    assert codes(directory, table, index) == []
    assert codes(directory, table) == ["ZL018"]


def test_a_reference_is_reported_until_some_migration_checks_it(directory: Path) -> None:
    fields = "[{name: id, type: integer}, {name: town, type: reference, to: towns}]"
    visits = document(f"create_table: {{table: visits, key: [id], fields: {fields}}}")
    optional = "{name: home, type: reference, to: towns, optional: true}"
    home = document(f"add_field: {{table: people, field: {optional}}}")
    found = lint_texts(directory, visits, home)
    assert [(f.code, f.migration, f.message) for f in found] == [
        ("ZL019", "0002_test", "visits.town may name a record that does not exist"),
        ("ZL019", "0003_test", "people.home may name a record that does not exist"),
    ]
    checks = [
        change
        for table, field in (("visits", "town"), ("people", "home"))
        for change in (
            f"create_index: {{table: {table}, index: by_{field}, fields: [{{field: {field}}}]}}",
            f"add_reference: {{table: {table}, field: {field}, on_delete: restrict}}",
        )
    ]
    found = lint_texts(directory, visits, home, document(*checks[:2]))
    assert [f.message.split()[0] for f in found if f.code == "ZL019"] == ["people.home"]
    found = lint_texts(directory, visits, home, document(*checks))
    assert "ZL019" not in {f.code for f in found}
    drop = "drop_field: {table: people, field: home, restore: {archive: true}}"
    found = lint_texts(directory, visits, home, document(drop, *checks[:2]))
    assert "ZL019" not in {f.code for f in found}


REFER = "add_reference: {table: orders, field: other, on_delete: set_null}"
INDEX_OTHER = "create_index: {table: orders, index: by_other, fields: [{field: other}]}"


@pytest.mark.parametrize(
    ("field", "found"),
    [
        ("field: {name: other, type: reference, to: towns, optional: true}", ["ZL010"]),
        (
            "field: {name: other, type: reference, to: towns, optional: true}, fill: {value: 3}",
            ["ZL020", "ZL010", "ZL006"],
        ),
        (
            "field: {name: other, type: reference, to: towns, optional: true, default: 3}",
            ["ZL020", "ZL010", "ZL006"],
        ),
    ],
)
def test_a_reference_on_nothing_but_nulls_needs_no_look(
    directory: Path, field: str, found: list[str]
) -> None:
    add = f"add_field: {{table: orders, {field}}}"
    assert codes(directory, add, INDEX_OTHER, REFER) == found
    # In a later migration there may be records with others.
    later = lint_texts(directory, document(add), document(INDEX_OTHER, REFER))
    assert [finding.code for finding in later if finding.code != "ZL020"] == ["ZL010", "ZL006"]


def test_every_code_is_explained() -> None:
    assert list(RULES) == [f"ZL{number:03d}" for number in range(1, len(RULES) + 1)]
    for rule in RULES.values():
        assert rule.level in ("error", "warning", "note")
        assert re.fullmatch(r"an? .*[a-z]", rule.title) or rule.title[0].islower()
        assert rule.description.endswith(".")
        assert not rule.fix.endswith(".")


def test_every_code_has_its_heading_in_the_reference() -> None:
    page = Path(__file__).parents[3] / "docs" / "reference" / "lint.md"
    headings = re.findall(r"^## (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert headings == list(RULES)


def test_a_table_that_is_made_here_has_no_records_yet(directory: Path) -> None:
    made = "create_table: {table: new, key: [id], fields: [{name: id, type: integer},"
    made += " {name: a, type: string, optional: true}, {name: b, type: string}]}"
    assert (
        codes(
            directory,
            made,
            "make_required: {table: new, field: a, fill: {value: x}}",
            "create_index: {table: new, index: by_a, fields: [{field: a}], unique: true}",
            "drop_field: {table: new, field: b, restore: {value: x}}",
        )
        == []
    )


def test_a_name_that_is_used_again(directory: Path) -> None:
    add = "add_field: {table: people, field: {name: name, type: string, default: x}}"
    found = lint_texts(directory, document(ARCHIVE), document(add))
    assert [(f.code, f.message, str(f.place)[-18:]) for f in found] == [
        ("ZL014", "people.name was another field before", "0003_test.yaml:5:5")
    ]


def test_a_name_that_is_used_again_at_once(directory: Path) -> None:
    add = "add_field: {table: people, field: {name: name, type: string, default: x}}"
    assert codes(directory, ARCHIVE, add) == ["ZL014"]


def test_a_field_that_is_replaced_under_its_name_is_not_another_one(directory: Path) -> None:
    assert codes(
        directory,
        "transform: {table: people, from: {name: string}, into: {name: {type: string,"
        " optional: true}}, up: {name: name}, down: {name: \"coalesce(name, '')\"}}",
    ) == []  # fmt: skip


def test_names_that_come_back_are_not_used_again(directory: Path) -> None:
    restore = "restore_field: {table: people, field: name, archived_by: 2, otherwise: {value: x}}"
    assert lint_texts(directory, document(ARCHIVE), document(restore)) == []
    drop, back = (
        "drop_table: {table: people, records: archive}",
        "restore_table: {table: people, archived_by: 2}",
    )
    assert lint_texts(directory, document(drop), document(back)) == []
    (found,) = lint_texts(directory, document(drop), document(PEOPLE))
    assert (found.code, found.message) == ("ZL014", "'people' was another table before")


def test_findings_are_in_the_order_of_the_file(directory: Path) -> None:
    make = "make_required: {table: people, field: age, fill: {value: 1}}"
    found = lint_texts(directory, document(make, DROP))
    assert [(f.place.line, f.code) for f in found] == [
        (5, "ZL003"), (5, "ZL009"), (6, "ZL001"), (6, "ZL009")
    ]  # fmt: skip


def test_only_some_migrations_are_looked_at(directory: Path) -> None:
    lint_texts(directory, document(DROP), document("drop_table: {table: people, records: discard}"))
    found = lint(*load(directory), only=lambda number: number == 3)
    assert [f.code for f in found] == ["ZL002"]


# Suppressions


def allowed(directory: Path, before: str, after: str = "") -> list[tuple[str, str]]:
    text = document(DROP).replace("  - drop_field: {", f"{before}  - drop_field: {{")
    found = lint_texts(directory, text.rstrip("\n") + after + "\n")
    return [(f.code, f.allowed) for f in found]


def test_a_finding_is_allowed_for_a_reason(directory: Path) -> None:
    comment = "# zapdb: allow ZL001 because nobody reads it"
    wanted = [("ZL001", "nobody reads it"), ("ZL009", "")]
    assert allowed(directory, f"  {comment}\n") == wanted
    assert allowed(directory, "", f"  {comment}") == wanted
    assert allowed(directory, f"{comment}\n\n  # and more\n") == wanted
    assert allowed(directory, f"  {comment.replace('ZL001', 'ZL001, ZL009')}\n") == [
        ("ZL001", "nobody reads it"),
        ("ZL009", "nobody reads it"),
    ]
    two = f"  {comment}\n  #zapdb:allow ZL009 because of that\n"
    assert allowed(directory, two) == [("ZL001", "nobody reads it"), ("ZL009", "of that")]


def test_a_finding_is_not_allowed_without_a_reason(directory: Path) -> None:
    for comment in ("ZL001", "ZL001 because", "ZL001 because  "):
        assert allowed(directory, f"  # zapdb: allow {comment}\n") == [
            ("ZL015", ""), ("ZL001", ""), ("ZL009", "")
        ]  # fmt: skip


@pytest.mark.parametrize(
    ("comment", "message"),
    [
        ("ZL002 because x", "the operation has no finding ZL002"),
        ("ZL999 because x", "there is no code ZL999"),
        ("that because x", "no code is named"),
    ],
)
def test_a_suppression_for_nothing_is_found(directory: Path, comment: str, message: str) -> None:
    assert allowed(directory, f"  # zapdb: allow {comment}\n") == [
        ("ZL016", ""), ("ZL001", ""), ("ZL009", "")
    ]  # fmt: skip
    (found, *_) = lint_new(directory)
    assert (found.message, found.place.line, found.place.column) == (message, 5, 3)


def test_a_suppression_is_for_one_operation(directory: Path) -> None:
    make = "make_required: {table: people, field: age, fill: {value: 1}}"
    text = document(make, DROP).replace(
        "  - make", "  # zapdb: allow ZL009, ZL003 because x\n  - make"
    )
    found = lint_texts(directory, text)
    assert [(f.code, f.allowed) for f in found] == [
        ("ZL003", "x"), ("ZL009", "x"), ("ZL001", ""), ("ZL009", "")
    ]  # fmt: skip


def test_other_comments_allow_nothing() -> None:
    text = "# zapdb allow ZL001\n# zapdb: allowed\nx: 'a#zapdb: allow ZL001'\n# allow ZL001\n"
    assert read_suppressed(DocumentText("x", text.encode())) == []
