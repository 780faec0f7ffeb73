import copy
import keyword
import math
import pickle

import pytest

from zapdb.records import Record, asdict, record_class

Person = record_class("people", ("id", "name"))
ADA = Person(1, "Ada")


def test_records_have_their_fields_as_attributes() -> None:
    assert (ADA.id, ADA.name) == (1, "Ada")
    assert repr(ADA) == "people(id=1, name='Ada')"
    assert ADA.asdict() == asdict(ADA) == {"id": 1, "name": "Ada"}
    assert list(asdict(record_class("t", ("b", "a"))(1, 2))) == ["b", "a"]
    with pytest.raises(AttributeError):
        ADA.age = 36
    with pytest.raises(TypeError):
        Person(1)


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


def test_records_of_one_shape_share_their_class() -> None:
    assert record_class("people", ("id", "name")) is Person
    assert record_class("people", ("name", "id")) is not Person


@pytest.mark.parametrize(
    "name", [*(word for word in keyword.kwlist if word.islower()), "self", "f0", "asdict", "mro"]
)
def test_any_name_is_good_for_a_field(name: str) -> None:
    """Words of Python's own are names that a schema may use."""
    record = record_class("t", ("id", name, "f1"))(1, 2, 3)
    assert getattr(record, name) == 2
    assert asdict(record) == {"id": 1, name: 2, "f1": 3}
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
    assert not hasattr(ADA, "__dict__")
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
    shallow.id = 2
    assert record.id == 1
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
