import copy
import datetime
import decimal
import keyword
import math
import pickle
import subprocess
import sys
import uuid
import zoneinfo

import pytest

import zapdb
from tests.blobs import NO_BLOBS
from zapdb.errors import ImmutableRecord, UnknownField, UsageError
from zapdb.records import Record, asdict, codec_for, decoder_of, etag, record_class, replace
from zapdb.schema import Field, TableSchema
from zapdb.values import Date, Integer, List, Member, String, Struct

Person = record_class("people", ("id", "name"))
ADA = Person(1, "Ada")


def test_records_have_their_fields_as_attributes() -> None:
    assert (ADA.id, ADA.name) == (1, "Ada")
    assert repr(ADA) == "people(id=1, name='Ada')"
    assert asdict(ADA) == asdict(ADA) == {"id": 1, "name": "Ada"}
    assert list(asdict(record_class("t", ("b", "a"))(1, 2))) == ["b", "a"]
    with pytest.raises(TypeError):
        Person(1)


ZOE = Person(2, Person(1, "Zoe"))  # a struct in a field is such an object, too


@pytest.mark.parametrize("record", [ADA, copy.copy(ADA), pickle.loads(pickle.dumps(ADA)), ZOE.name])
@pytest.mark.parametrize("name", ["id", "name", "age", "_fields", "_deferred", "__class__"])
def test_records_are_immutable(record: Record, name: str) -> None:
    before = asdict(record)
    for change in (lambda: setattr(record, name, 5), lambda: delattr(record, name)):
        with pytest.raises(UsageError) as caught:
            change()
        assert isinstance(caught.value, AttributeError)
        assert type(caught.value) is ImmutableRecord
        assert "zapdb.replace(record, " in caught.value.hint
        assert type(pickle.loads(pickle.dumps(caught.value))) is ImmutableRecord
    assert type(record) is Person
    assert asdict(record) == before


def test_the_way_to_a_changed_record_can_be_copied() -> None:
    record = record_class("t", ("id", "class"))(1, 2)
    for name, changes in (("id", "id=…"), ("class", "**{'class': …}")):
        copy = f"zapdb.replace(record, {changes})"
        with pytest.raises(ImmutableRecord) as caught:
            setattr(record, name, 3)
        assert caught.value.hint == f"update(key, {changes}) stores a change; {copy} makes a copy"
        exec(copy.replace("…", "3"))


def test_a_decoded_record_is_of_the_class_that_is_immutable() -> None:
    struct = Struct(
        "place", 1, (Member(1, "city", String()), Member(2, "since", Date(), optional=True))
    )
    table = TableSchema(
        1,
        "t",
        (1,),
        (
            Field(1, "id", Integer()),
            Field(2, "place", struct),
            Field(3, "places", List(struct)),
            Field(4, "class", String()),
        ),
    )
    codec = codec_for(table)
    place = {"city": "Oslo", "since": None}
    values = {"id": 1, "place": place, "places": [place], "class": "a"}
    key, stored = codec.encode_key(values), codec.encode(b"", values, NO_BLOBS)
    record = codec.decode(key, stored, 0, NO_BLOBS)
    some = decoder_of(table, frozenset((1, 2)))(key, stored, 0, NO_BLOBS)
    for found in (record, record.place, record.places[0], some, some.place):
        with pytest.raises(ImmutableRecord):
            setattr(found, found._fields[0], 2)
        with pytest.raises(ImmutableRecord):
            delattr(found, found._fields[0])
    assert type(record) is codec.record
    assert asdict(record) == values


def test_records_are_equal_by_table_and_fields() -> None:
    assert Person(1, "Ada") == ADA
    assert Person(2, "Ada") != ADA
    assert record_class("persons", ("id", "name"))(1, "Ada") != ADA
    assert record_class("people", ("id", "title"))(1, "Ada") != ADA
    assert ADA != {"id": 1, "name": "Ada"}
    with pytest.raises(TypeError, match="unhashable"):
        hash(ADA)


def test_records_pickle_and_copy() -> None:
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        loaded = pickle.loads(pickle.dumps(ADA, protocol))
        assert loaded == ADA
        assert type(loaded) is Person
    with_list = Person(1, ["Ada"])
    copied = copy.deepcopy(with_list)
    assert copied == with_list
    assert copied.name is not with_list.name


def test_a_record_with_other_values_is_a_new_one() -> None:
    other = replace(ADA, name="Eve")
    assert (other, ADA) == (Person(1, "Eve"), Person(1, "Ada"))
    assert type(other) is Person
    with pytest.raises(UnknownField, match="nam") as caught:
        replace(ADA, nam="Eve")
    assert "'name'" in caught.value.hint
    assert zapdb.replace is replace


def test_etags_differ_as_values_do() -> None:
    Many = record_class("t", ("a", "b"))
    utc, new_york = datetime.UTC, zoneinfo.ZoneInfo("America/New_York")
    fold = datetime.datetime(2024, 11, 3, 1, 30, tzinfo=new_york)
    values = [
        *[None, 0, 1, True, False, 1.0, "", "1", b"", b"1", "None", [], [1], [[1]], {}, {"a": 1}],
        *[decimal.Decimal(1), decimal.Decimal("1.0"), 10**5_000, -(10**5_000), float("nan")],
        *[uuid.UUID(int=1), str(uuid.UUID(int=1)), datetime.date(2024, 1, 1), "2024-01-01"],
        *[fold, fold.replace(fold=1), fold.astimezone(utc), fold.replace(tzinfo=utc)],
        *["x" * 10**6, "x" * (10**6 + 1), Person(1, "Ada"), Person(1, "Eve")],
    ]
    assert len({etag(Many(value, 0)) for value in values}) == len(values)
    assert etag(Many("ab", "c")) != etag(Many("a", "bc"))
    assert etag(Many({"a": 1, "b": 2}, 0)) == etag(Many({"b": 2, "a": 1}, 0))
    assert etag(ADA) == etag(Person(1, "Ada"))
    assert etag(ADA) != etag(record_class("persons", ("id", "name"))(1, "Ada"))


def test_an_etag_is_the_same_in_another_process() -> None:
    record = record_class("t", ("a", "b"))({"x": [1, "ä"], "y": None}, datetime.date(2024, 1, 1))
    code = "import pickle, sys, zapdb; print(zapdb.etag(pickle.load(sys.stdin.buffer)))"
    other = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps(record), capture_output=True, check=True
    )
    assert other.stdout.decode().strip() == etag(record)
    assert etag(record) == "AtJGO3sr-d-A0pWpKI0TkQ"  # what is in forms meanwhile stays good


def test_records_of_one_shape_share_their_class() -> None:
    assert record_class("people", ("id", "name")) is Person
    assert record_class("people", ("name", "id")) is not Person


@pytest.mark.parametrize(
    "name",
    [
        *(word for word in keyword.kwlist if word.islower()),
        "self",
        "f0",
        "asdict",
        "mro",
        "etag",
        "product",
    ],
)
def test_any_name_is_good_for_a_field(name: str) -> None:
    """Words of Python's own are names that a schema may use."""
    record = record_class("t", ("id", name, "f1"))(1, 2, 3)
    assert getattr(record, name) == 2
    assert asdict(record) == {"id": 1, name: 2, "f1": 3}
    assert asdict(replace(record, **{name: 4})) == {"id": 1, name: 4, "f1": 3}
    assert len(etag(record)) == 22
    assert pickle.loads(pickle.dumps(record)) == record
    assert record == record_class("t", ("id", name, "f1"))(1, 2, 3)
    assert f"{name}=2" in repr(record)


def test_a_table_may_be_called_as_a_word_of_python() -> None:
    assert repr(record_class("class", ("from",))(1)) == "class(from=1)"


def test_the_widest_table_has_a_record_class() -> None:
    fields = tuple(f"f{n}" for n in range(1_000))
    record = record_class("wide", fields)(*range(1_000))
    assert list(asdict(record).values()) == list(range(1_000))
    assert isinstance(record, Record)


def test_a_record_has_its_fields_and_nothing_else() -> None:
    assert Person.__dictoffset__ == 0
    assert vars(ADA) == {"id": 1, "name": "Ada"}  # as JSON has it: frameworks ask for this
    assert {"id", "name"} <= set(dir(ADA))
    with pytest.raises(AttributeError):
        ADA.__dict__ = {}
    assert not hasattr(ADA, "__weakref__")
    for name in ("_name", "_fields", "__match_args__"):
        assert name in vars(Person)
    with pytest.raises(AttributeError):
        ADA._note = 1


def test_records_are_matched_by_place_and_by_name() -> None:
    assert Person.__match_args__ == ("id", "name")
    match ADA:
        case Person(1, name):
            assert name == "Ada"
    match ADA:
        case Person(name="Bob"):
            raise AssertionError
        case Person(name="Ada", id=number):
            assert number == 1


def test_records_are_made_by_place_and_by_name() -> None:
    assert Person(name="Ada", id=1) == Person(1, name="Ada") == ADA
    for wrong in ({"id": 1}, {"id": 1, "name": "Ada", "age": 36}):
        with pytest.raises(TypeError):
            Person(**wrong)
    assert getattr(record_class("t", ("class", "self"))(1, self=2), "class") == 1


def test_a_copy_is_another_record() -> None:
    record = Person(1, ["Ada"])
    shallow = copy.copy(record)
    assert shallow == record
    assert type(shallow) is Person
    assert shallow.name is record.name
    assert shallow is not record
    shared = [record, record]
    first, second = copy.deepcopy(shared)
    assert first is second


def test_what_asdict_gives_belongs_to_its_caller() -> None:
    record = Person(1, {"names": [{"first": "Ada"}]})
    plain = asdict(record)
    plain["name"]["names"][0]["first"] = "Eve"
    plain["name"]["more"] = 1
    assert record.name == {"names": [{"first": "Ada"}]}


def test_a_nan_does_not_make_a_record_differ_from_itself() -> None:
    record = Person(1, math.nan)
    assert copy.copy(record) == record
    assert Person(1, float("nan")) != Person(1, float("nan"))


def test_a_long_value_is_shown_by_its_beginning() -> None:
    for value, end in (
        ("x" * 300, "(300 characters)"),
        (b"x" * 5_000, "(5,000 bytes)"),
        (list(range(1_000)), "…"),
    ):
        shown = repr(Person(1, value))
        assert len(shown) < 300
        assert shown.endswith(f"{end})")
