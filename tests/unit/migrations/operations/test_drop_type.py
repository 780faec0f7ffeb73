from tests.documents import document, marked_place, resolve_documents, violations_of
from zapdb.migrations.operations.declared_type import CreateType

PLACE = """create_type: {type: place, struct: [
      {name: street, type: string, optional: true}, {name: floor, type: decimal, scale: 1}]}"""
MOOD = "create_type: {type: mood, enum: [fine, so_so]}"
USED = """create_table: {table: members, key: [id], fields: [
      {name: id, type: integer}, {name: homes, type: list, of: place}]}"""
HOME = "create_type: {type: home, struct: [{name: place, type: place}]}"


def test_the_inferred_rollback_declares_the_type_again() -> None:
    chain = resolve_documents(
        document(PLACE, MOOD), document("drop_type: {type: place}", "drop_type: {type: mood}")
    )
    mood, place = chain.migrations[1].rollback
    assert isinstance(mood, CreateType)
    assert isinstance(place, CreateType)
    assert mood.enum == ("fine", "so_so")
    assert [(m.name, m.type, m.optional) for m in place.struct] == [
        ("street", "string", True),
        ("floor", "decimal", False),
    ]
    assert chain.schema_at(2).types == ()


def test_a_type_in_use_stays() -> None:
    operations = (PLACE, USED, HOME, "§drop_type: {type: place}")
    place = marked_place(*operations)
    assert violations_of(*operations) == [
        f"{place}: members.homes is of the type 'place'",
        f"{place}: home.place is of the type 'place'",
    ]


def test_an_unknown_type() -> None:
    operations = (MOOD, "§drop_type: {type: moods}")
    assert violations_of(*operations) == [
        f"{marked_place(*operations)}: there is no type 'moods' here"
    ]
