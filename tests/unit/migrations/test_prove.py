"""What trying a migration finds, and what it lets pass."""

from __future__ import annotations

import pickle
import time
from dataclasses import replace
from typing import Any

import pytest

from tests.documents import PEOPLE, document, resolve_after_people, resolve_documents
from tests.unit.migrations.kept import write
from zapdb.errors import ExampleNotProven, NotProven, RollbackNotProven
from zapdb.expressions import FUNCTIONS
from zapdb.limits import PROOFS_REMEMBERED_MAX
from zapdb.memo import Memo
from zapdb.migrations import Migration, load_directory
from zapdb.migrations.boundary_values import (
    ARCHIVED_MAX,
    ExpressionLiterals,
    field_values,
    generate_records,
    neutral,
    values_of,
)
from zapdb.migrations.prove import (
    _ZONES,
    Proof,
    _remembered,
    _try,
    converted_tables,
    prove,
    require_proven,
)
from zapdb.migrations.round_trip import BACK_RECORDS_MAX, RECORDS_MAX, RoundTrip
from zapdb.records import Attachments, codec_for, encode_prefix
from zapdb.schema import Field
from zapdb.values import (
    VALUE_TYPES,
    Boolean,
    Decimal,
    Enum,
    Integer,
    Json,
    List,
    Reference,
    String,
    Struct,
    ValueType,
)
from zapdb.values.struct import Member

SPLIT = """\
transform: {table: people, from: {name: string}, into: {first: string, last: string},
      up: {first: "before(name, ' ')", last: "after(name, ' ')"},
      down: {name: "join(' ', first, last)"}}"""
SPLIT_WELL = """\
transform: {table: people, from: {name: string}, into: {first: string, last: string,
        spaced: boolean},
      up: {first: "before(name, ' ')", last: "after(name, ' ')", spaced: "contains(name, ' ')"},
      down: {name: "join(' ', first, last) if spaced else first"}}"""
LOSSY_SPLIT = SPLIT[:-1] + ", reversibility: lossy, because: a blank is gained}"


def failures(proof: Proof) -> list[tuple[str, str, str]]:
    return [(f.kind, f"{f.table}.{f.field}", str(f.place)) for f in proof.failures]


def prove_after_people(*operations: str, rollback: str = "inferred") -> Proof:
    return prove(resolve_after_people(*operations, rollback=rollback))


def exact(proof: Proof) -> list[str]:
    return [name for table in proof.tables for name in table.exact]


def lossy(proof: Proof) -> list[str]:
    return [loss.field for table in proof.tables for loss in table.lossy]


# What is claimed, and does not hold


def test_a_counterexample_is_shown_field_by_field() -> None:
    (failure,) = prove_after_people(SPLIT).failures
    assert (failure.kind, failure.table, failure.field) == ("rollback", "people", "name")
    assert str(failure.place) == "0002_test.yaml:5:5"
    assert failure.record == {"name": "''"}
    assert failure.became == {"first": "''", "last": "''"}
    assert failure.back == {"name": "' '"}
    error = failure.to_error()
    assert isinstance(error, RollbackNotProven)
    assert str(error) == (
        "0002_test.yaml:5:5: the rollback does not bring back what is claimed to be exact\n"
        "  migration: 0002_test\n"
        "  table: people\n"
        "  field: name\n"
        "  record: name=''\n"
        "  became: first='', last=''\n"
        "  back: name=' '\n"
        "  hint: correct down (and up), or, if the loss is meant, say reversibility: lossy and "
        "because: why"
    )
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_what_is_claimed_and_holds_is_exact() -> None:
    proof = prove_after_people(SPLIT_WELL)
    assert proof.failures == ()
    assert exact(proof) == ["name"]
    assert lossy(proof) == []
    assert RECORDS_MAX >= proof.tables[0].tried > 70


@pytest.mark.parametrize(
    "operation",
    [
        # Digits that are no number in its shortest form, and texts that are none at all.
        "change_type: {table: people, field: name, type: integer,"
        " up: \"integer(name, else=0)\", down: text(name)}",
        # Fractions.
        "change_type: {table: people, field: balance, type: integer, default: 0,"
        " up: \"integer(balance, else=0)\", down: \"decimal(balance, 2, else=0)\"}",
        # Letter case.
        "transform: {table: people, from: {name: string}, into: {title: string},"
        " up: {title: upper(name)}, down: {name: title}}",
        "transform: {table: people, from: {name: string}, into: {title: string},"
        " up: {title: strip(name)}, down: {name: title}}",
        # A separator that stands twice, found by the literal alone.
        "transform: {table: people, from: {name: string}, into: {a: string, b: string},"
        " up: {a: \"before(name, '<->') if contains(name, '<->') else name\","
        " b: \"part(name, '<->', 2) if contains(name, '<->') else ''\"},"
        " down: {name: \"join('<->', a, b) if b != '' else a\"}}",
        # Null.
        "transform: {table: people, from: {age: {type: integer, optional: true}},"
        " into: {years: integer}, up: {years: \"coalesce(age, 0)\"}, down: {age: years}}",
        # One number, found by the literal alone.
        "transform: {table: people, from: {age: {type: integer, optional: true}},"
        " into: {years: {type: integer, optional: true}},"
        " up: {years: \"1 if coalesce(age, 0) == 98765 else age\"},"
        " down: {age: years}}",
        # A value that only two fields together lose.
        "transform: {table: people, from: {name: string, age: {type: integer, optional: true}},"
        " into: {title: string, years: {type: integer, optional: true}},"
        " up: {title: \"'' if coalesce(age, 0) == 65535 and name == 'ada' else name\""
        ", years: age}, down: {name: title, age: years}}",
    ],
)  # fmt: skip
def test_a_transform_that_is_not_exact_is_found(operation: str) -> None:
    proof = prove_after_people(operation)
    assert [kind for kind, *_ in failures(proof)] == ["rollback"], proof
    lossy_one = operation[:-1] + ", reversibility: lossy}"
    assert prove_after_people(lossy_one).failures == ()


def test_the_operation_that_is_to_blame_is_named() -> None:
    drop = "drop_field: {table: people, field: age, restore: {value: 1}}"
    add = "add_field: {table: people, field: {name: fax, type: string, default: x}}"
    proof = prove_after_people(add, drop, SPLIT)
    assert failures(proof) == [("rollback", "people.name", "0002_test.yaml:7:5")]


def test_an_explicit_rollback_is_tried_too() -> None:
    rename = "rename_field: {table: people, field: name, to: title}"
    assert prove_after_people(rename).tables == ()
    rollback = (
        "[transform: {table: people, from: {title: string}, into: {name: string},"
        " up: {name: lower(title)}, down: {title: name}, positions: [1]}]"
    )
    assert failures(prove_after_people(rename, rollback=rollback)) == [
        ("rollback", "people.name", "0002_test.yaml:5:5")
    ]


def test_a_conversion_that_raises_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """None does (rule 18): so one is made to."""
    migration = resolve_after_people(SPLIT_WELL)

    def fail(text: str, separator: str) -> str:
        if text == "007":
            raise RuntimeError("agent")
        return text

    monkeypatch.setattr(
        "zapdb.migrations.prove._remembered", Memo(1)
    )  # functions are no part of a key
    monkeypatch.setitem(FUNCTIONS, "before", replace(FUNCTIONS["before"], apply=fail))
    proof = prove(migration)
    stopped = [f for f in proof.failures if f.kind == "conversion"]
    assert [f.record for f in stopped] == [{"name": "'007'"}]
    error = stopped[0].to_error(2)
    assert type(error) is NotProven
    assert error.context["cause"] == "RuntimeError: agent"
    assert error.context["failures"] == 3


# What is lost on purpose


@pytest.mark.parametrize(
    ("operation", "fields"),
    [
        (LOSSY_SPLIT, ["name"]),
        ("drop_field: {table: people, field: name, restore: {value: x}}", ["name"]),
        ("make_required: {table: people, field: age, fill: {value: 1}}", ["age"]),
        (
            "drop_field: {table: people, field: name,"
            " restore: {archive: true, otherwise: {value: x}}}",
            [],
        ),
        ("make_optional: {table: people, field: name, fill: {value: x}}", []),
        ("add_field: {table: people, field: {name: fax, type: string, default: x}}", []),
    ],
)
def test_what_no_operation_claims_is_lossy(operation: str, fields: list[str]) -> None:
    proof = prove_after_people(operation)
    assert proof.failures == ()
    assert lossy(proof) == fields


def test_archived_values_of_every_type_come_back() -> None:
    for name in ("name", "age", "balance", "token", "extra"):
        otherwise = {"name": "x", "age": "null", "balance": "1", "extra": "null"}.get(
            name, "00000000-0000-0000-0000-000000000000"
        )
        proof = prove_after_people(
            f"drop_field: {{table: people, field: {name},"
            f" restore: {{archive: true, otherwise: {{value: {otherwise}}}}}}}"
        )
        assert (proof.failures, exact(proof)) == ((), [name])


def test_a_lost_field_that_came_from_others_makes_those_lost() -> None:
    drop = "drop_field: {table: people, field: last, restore: {value: ''}}"
    proof = prove_after_people(SPLIT, drop)
    assert proof.failures == ()
    (loss,) = proof.tables[0].lossy
    assert (loss.field, loss.operation) == ("name", "drop_field")
    assert 0 < loss.returned < loss.tried
    assert loss.example is not None
    assert loss.example.back.keys() == {"name"}


def test_the_reason_and_what_came_back_are_told() -> None:
    (loss,) = prove_after_people(LOSSY_SPLIT).tables[0].lossy
    assert (loss.operation, loss.because) == ("transform", "a blank is gained")
    assert str(loss.place) == "0002_test.yaml:5:5"
    assert 0 < loss.returned < loss.tried


def test_a_record_of_after_that_changes_is_a_remark() -> None:
    change = (
        "change_type: {table: people, field: age, type: string, up: text(age),"
        ' down: "integer(age, else=0)"}'
    )
    proof = prove_after_people(change)
    assert (proof.failures, exact(proof)) == ((), ["age"])
    (remark,) = proof.remarks
    assert (remark.field, remark.record) == ("age", {"age": "'Ada Lovelace'"})
    assert prove_after_people(SPLIT).remarks == ()


@pytest.mark.parametrize(
    ("operation", "rollback"),
    [
        (LOSSY_SPLIT, "inferred"),
        (
            LOSSY_SPLIT,
            "[transform: {table: people, from: {first: string, last: string},"
            " into: {name: string}, up: {name: \"join(' ', first, last)\"},"
            " down: {first: name, last: name}, positions: [1]}]",
        ),
        ("make_optional: {table: people, field: name, fill: {value: x}}", "inferred"),
        ("add_field: {table: people, field: {name: fax, type: string, default: x}}", "inferred"),
    ],
)
def test_what_is_lost_on_purpose_is_no_remark(operation: str, rollback: str) -> None:
    proof = prove_after_people(operation, rollback=rollback)
    assert proof.tables
    assert (proof.failures, proof.remarks) == ((), ())


# Types

TYPES = """\
zapdb: 1
summary: All types
rollback: inferred
changes:
  - create_type: {type: state, enum: [open, paused, done, lost]}
  - create_type: {type: place, struct: [
        {name: street, type: string}, {name: floor, type: integer, optional: true}]}
  - create_table: {table: towns, key: [id, at], fields: [
      {name: id, type: string}, {name: at, type: date}]}
  - create_table: {table: all, key: [id], fields: [
      {name: id, type: integer}, {name: state, type: state}, {name: place, type: place},
      {name: places, type: list, of: place}, {name: town, type: reference, to: towns},
      {name: met, type: zoned_timestamp}, {name: seen, type: timestamp}, {name: born, type: date},
      {name: raw, type: binary}, {name: size, type: float}, {name: flag, type: boolean},
      {name: extra, type: json}, {name: token, type: uuid},
      {name: cost, type: decimal, scale: 64}]}
"""


def after_types(*operations: str) -> Proof:
    return prove(resolve_documents(TYPES, document(*operations)).migrations[-1])


@pytest.mark.parametrize(
    ("name", "otherwise"),
    [
        ("state", "open"), ("place", "{street: x}"), ("places", "[]"), ("raw", '"00"'),
        ("town", '[a, "2024-01-01"]'), ("met", '"2024-01-01T00:00:00 Asia/Kathmandu"'),
        ("seen", '"2024-01-01T00:00:00Z"'), ("born", '"2024-01-01"'), ("size", '"1.5"'),
        ("flag", "true"), ("extra", "{}"), ("cost", "1"),
    ],
)  # fmt: skip
def test_every_type_travels_by_the_archive(name: str, otherwise: str) -> None:
    proof = after_types(
        f"drop_field: {{table: all, field: {name},"
        f" restore: {{archive: true, otherwise: {{value: {otherwise}}}}}}}"
    )
    assert (proof.failures, exact(proof)) == ((), [name])


def test_members_of_declared_types_are_all_tried() -> None:
    rename = "alter_type: {type: state, rename: {paused: halted}}"
    proof = after_types(rename)
    assert (proof.failures, exact(proof)) == ((), ["state"])
    remove = "alter_type: {type: state, remove: {lost: {to: done}}}"
    proof = after_types(remove)
    assert (proof.failures, lossy(proof)) == ((), ["state"])
    (loss,) = proof.tables[0].lossy
    assert loss.example is not None
    assert loss.example.record == {"state": "'lost'"}
    add = "alter_type: {type: place, add: [{name: zip, type: string, fill: x}]}"
    assert after_types(add).failures == ()


EVERY: list[ValueType] = [
    *(kind() for name, kind in VALUE_TYPES.items()
      if name not in ("decimal", "list", "reference", "enum", "struct")),
    Decimal(0), Decimal(2), Decimal(64), List(String()), List(List(Integer())),
    Enum("state", 1, ((1, "a"), (2, "b"))), Reference("x", 1, (Integer(),)),
    Reference("x", 1, (String(), Integer())),
    Struct("s", 2, (Member(1, "a", String()), Member(2, "b", Json(), True))),
]  # fmt: skip


@pytest.mark.parametrize("kind", EVERY, ids=str)
def test_values_are_of_their_type_and_always_the_same(kind: ValueType) -> None:
    values = values_of(kind, ExpressionLiterals(("2024-01-01", ", "), (5,)))
    assert 2 <= len(values) <= 200
    for value in values:
        assert kind.is_same(kind.check(value, "x"), value)
    shown = [repr(value) for value in values]
    assert len(set(shown)) == len(shown)
    again = values_of(kind, ExpressionLiterals(("2024-01-01", ", "), (5,)))
    assert [repr(value) for value in again] == shown
    made = neutral(Field(1, "x", kind))
    assert kind.is_same(kind.check(made, "x"), made)
    assert neutral(Field(1, "x", kind, optional=True)) is None


def test_fields_add_null_and_the_default() -> None:
    assert None in field_values(Field(1, "x", Integer(), optional=True))
    assert field_values(Field(1, "x", Integer(), default=12_345))[-1] == 12_345
    assert neutral(Field(1, "x", Integer(), default=12_345)) == 12_345
    assert field_values(Field(1, "x", Boolean())) == [True, False]


def test_records_are_bounded_encoded_and_cover_pairs() -> None:
    migration = resolve_after_people(SPLIT_WELL)
    (number,) = converted_tables(migration)
    before, after = (s.table_numbered(number) for s in (migration.before, migration.after))
    assert before is not None
    assert after is not None
    up, down = migration.conversion_up(number), migration.conversion_down(number)
    codec = codec_for(after)
    records = list(generate_records(after, down, up, BACK_RECORDS_MAX))
    assert 200 < len(records) <= BACK_RECORDS_MAX
    for values in records:
        attachments = Attachments(lambda blob: b"", lambda: bytes(16))
        assert codec.encode(encode_prefix(1), values, attachments)
    pairs = {(values["first"], values["last"]) for values in records}
    assert ("", " ") in pairs
    assert ("Ada", "Ada Lovelace") in pairs


def test_archived_values_are_tried_where_they_are_taken_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    archived: list[dict[int, bytes]] = []
    try_values = RoundTrip.try_values

    def note(self: RoundTrip, values: dict[str, Any], archive: dict[int, bytes]) -> None:
        archived.append(archive)
        try_values(self, values, archive)

    monkeypatch.setattr(RoundTrip, "try_values", note)
    chain = resolve_documents(
        document(PEOPLE),
        document("drop_field: {table: people, field: age, restore: {archive: true}}"),
        document("restore_field: {table: people, field: age, archived_by: 2}"),
    )
    proof = prove(chain.migrations[-1])
    assert proof.failures == ()
    found = [archive[3] for archive in archived if archive]
    assert {b"", Integer().encode(64), Integer().encode(-1)} <= set(found)
    assert ARCHIVED_MAX <= len(found) <= ARCHIVED_MAX + 1


def test_a_migration_of_many_fields_is_tried_within_bounds() -> None:
    names = [f"f{at}" for at in range(40)]
    fields = ", ".join(f"{{name: {name}, type: string}}" for name in names)
    table = (
        f"create_table: {{table: wide, key: [id], fields: [{{name: id, type: integer}}, {fields}]}}"
    )
    source = ", ".join(f"{name}: string" for name in names)
    down = ", ".join(f"{name}: \"part(all, '|', {at + 1})\"" for at, name in enumerate(names))
    merge = (
        f"transform: {{table: wide, from: {{{source}}}, into: {{all: string}},"
        f" up: {{all: \"join('|', {', '.join(names)})\"}}, down: {{{down}}},"
        " reversibility: lossy, because: a bar in a text}"
    )
    proof = prove(resolve_documents(document(table), document(merge)).migrations[-1])
    assert [table.tried for table in proof.tables] == [RECORDS_MAX]


# Examples


def with_examples(operation: str, *examples: str) -> Migration:
    text = document(operation) + "examples:\n" + "".join(f"  - {e}\n" for e in examples)
    return resolve_documents(document(PEOPLE), text).migrations[-1]


def test_examples_that_hold() -> None:
    proof = prove(
        with_examples(
            SPLIT_WELL,
            "{table: people, before: {name: Ada Lovelace}, after: {first: Ada, last: Lovelace}}",
            "{table: people, before: {name: Ada}, after: {first: Ada, spaced: false}}",
            '{table: people, before: {}, after: {first: "", balance: "0.00", age: null}}',
        )
    )
    assert (proof.examples, proof.failures) == (3, ())


def test_an_example_that_comes_out_otherwise() -> None:
    example = "{table: people, before: {name: Ada B}, after: {first: Ada, last: C}}"
    (failure,) = prove(with_examples(SPLIT_WELL, example)).failures
    assert (failure.kind, failure.field) == ("example", "last")
    assert str(failure.place) == "0002_test.yaml:10:70"
    error = failure.to_error()
    assert isinstance(error, ExampleNotProven)
    assert error.context["cause"] == "last is 'B', not 'C'"
    assert error.context["record"] == "name='Ada B'"


def test_an_example_that_does_not_come_back() -> None:
    example = "{table: people, before: {name: Ada}, after: {first: Ada}}"
    proof = prove(with_examples(SPLIT, example))
    assert [f.kind for f in proof.failures] == ["rollback", "example"]
    assert proof.failures[1].cause == "name is 'Ada ', not 'Ada'"
    assert prove(with_examples(LOSSY_SPLIT, example)).failures == ()


def test_an_example_in_any_zone() -> None:
    text = document("add_field: {table: all, field: {name: more, type: integer, default: 1}}")
    text += (
        'examples: [{table: all, before: {met: "2024-01-01T00:00:00 Asia/Kathmandu"},'
        ' after: {more: 1, met: "2024-01-01T00:00:00 Asia/Kathmandu"}}]\n'
    )
    assert prove(resolve_documents(TYPES, text).migrations[-1]).failures == ()


# All in all


def test_nothing_is_tried_where_no_record_changes() -> None:
    for operation in (
        "rename_field: {table: people, field: name, to: title}",
        "rename_table: {table: people, to: persons}",
        "create_index: {table: people, index: by_name, fields: [{field: name}]}",
        "drop_table: {table: people, records: discard}",
        "drop_table: {table: people, records: archive}",
    ):
        assert prove_after_people(operation).tables == ()


def test_the_kept_chain_is_tried_from_end_to_end() -> None:
    proofs = [prove(migration) for migration in load_directory(write.KEPT).migrations]
    assert sum(len(proof.tables) for proof in proofs) > 10
    for proof in proofs:
        assert {finding.kind for finding in proof.failures} <= {"rollback"}


def test_the_first_failure_is_raised() -> None:
    chain = resolve_documents(document(PEOPLE), document(SPLIT))
    with pytest.raises(RollbackNotProven) as caught:
        require_proven(chain.migrations)
    assert "failures" not in caught.value.context
    assert len(require_proven(chain.migrations[:1])) == 1


def test_a_migration_is_proven_in_a_moment() -> None:
    migration = resolve_after_people(SPLIT_WELL)
    prove(migration)
    seconds = []
    for _ in range(3):
        started = time.process_time()  # of this process: others may be at work
        prove(migration)
        seconds.append(time.process_time() - started)
    assert min(seconds) < 0.5  # some 0.05 on an idle machine


# --- what was tried already ----------------------------------------------------------------------


def prove_text(text: str, first: str = PEOPLE) -> tuple[Proof, bool]:
    """A proof, and whether it was remembered."""
    migration = resolve_documents(document(first), text).migrations[-1]
    count = len(_remembered)
    proof = prove(migration)
    return proof, len(_remembered) == count


RAISE = document(
    "transform: {table: people, from: {name: string}, into: {remembered: string}, "
    "up: {remembered: upper(name)}, down: {name: lower(remembered)}}"
)


def test_a_proof_is_remembered_with_its_failures() -> None:
    first, known = prove_text(RAISE)
    assert first.failures
    assert not known
    again, known = prove_text(RAISE)
    assert known
    assert again is first


def test_a_proof_of_something_else_is_another_one() -> None:
    prove_text(RAISE)
    lossy = RAISE.replace("remembered)}}", "remembered)}, reversibility: lossy, because: x}")
    example = RAISE + "examples: [{table: people, before: {name: a}, after: {remembered: A}}]\n"
    for text in (
        RAISE.replace("upper", "lower"),
        lossy,
        lossy.replace("because: x", "because: z"),
        example,
        example.replace("remembered: A", "remembered: B"),
        "# moves it\n" + RAISE,
    ):
        assert not prove_text(text)[1], text
    optional = PEOPLE.replace(
        "{name: age, type: integer, optional: true}", "{name: age, type: date, optional: true}"
    )
    assert not prove_text(RAISE, optional)[1]
    proof, _ = prove_text("# moves it\n" + RAISE)
    assert proof.failures[0].place.line == 6


def test_a_proof_that_names_no_place_is_that_of_the_same_changes_elsewhere() -> None:
    plain = document(
        "add_field: {table: people, field: {name: elsewhere, type: string, default: x}}"
    )
    first, known = prove_text(plain)
    assert not known
    again, known = prove_text("# moves it\n" + plain)
    assert known
    assert again is first
    # A field that is lost is listed with its place.
    lossy = RAISE.replace("remembered)}}", "remembered)}, reversibility: lossy, because: x}")
    assert prove_text(lossy)[0].tables[0].lossy[0].place.line == 5
    assert prove_text("# moves it\n" + lossy)[0].tables[0].lossy[0].place.line == 6


def test_the_proofs_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _remembered.most == PROOFS_REMEMBERED_MAX
    few = Memo[bytes, Proof](2)
    monkeypatch.setattr("zapdb.migrations.prove._remembered", few)
    for name in ("one", "two", "three"):
        prove_text(RAISE.replace("remembered", name))
    assert len(few) == 2


# --- wide tables ---------------------------------------------------------------------------------

WIDTH = 300
KINDS = ("string", "integer, optional: true", "boolean", "timestamp", "string, optional: true")
WIDE = f"""\
create_table: {{table: wide, key: [id], fields: [{{name: id, type: integer}}, {
    ", ".join(f"{{name: f{at}, type: {KINDS[at % len(KINDS)]}}}" for at in range(WIDTH))
}]}}"""
CHANGES = {
    "add": "add_field: {table: wide, field: {name: more, type: string, default: x}}",
    "drop": "drop_field: {table: wide, field: f7, restore: {value: false}}",
    "archive": """\
drop_field: {table: wide, field: f5, restore: {archive: true, otherwise: {value: x}}}""",
    "convert": """\
change_type: {table: wide, field: f7, type: string, up: "'yes' if f7 else 'no'",
      down: "f7 == 'yes'"}""",
    "lose": """\
transform: {table: wide, from: {f10: string, f20: string}, into: {both: string},
      up: {both: "join(' ', f10, f20)"},
      down: {f10: "before(both, ' ')", f20: "after(both, ' ')"}}""",
    "compute": """\
add_field: {table: wide, field: {name: more, type: string},
      fill: {expression: "upper(f290)"}}""",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_of_a_wide_table_few_fields_are_tried_and_the_same_is_found(change: str) -> None:
    """The work does not depend on how many fields a migration leaves alone."""
    migration = resolve_documents(document(WIDE), document(change)).migrations[-1]
    (number,) = converted_tables(migration)
    tried = RoundTrip(migration, number, _ZONES, is_made_up=True)
    found = tried.run()
    for side in ("up", "down"):
        assert len(tried.tables[side].fields) < 20
        assert len(tried.codecs[side].layout.slots) < 20
    whole = RoundTrip(migration, number, _ZONES)
    assert whole.run() == found
    assert whole.failures == tried.failures
    assert whole.remarks == tried.remarks
    assert len(whole.tables["up"].fields) == WIDTH + 1


def test_what_an_example_names_is_tried() -> None:
    """Also a field that its migration does not change, of which there are many."""
    examples = """
examples:
  - table: wide
    before: {f7: true, f240: a, f250: a}
    after: {f7: "yes", f240: a, f250: b}
"""
    text = document(CHANGES["convert"]) + examples
    migration = resolve_documents(document(WIDE), text).migrations[-1]
    (failure,) = _try(migration).failures
    assert (failure.kind, failure.field) == ("example", "f250")
    assert failure.record["f240"] == "'a'"
