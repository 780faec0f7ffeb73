"""The JSON Schema of documents: what is in it, and that every document of this repository fits."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import jsonschema
import pytest

from tests.docs.test_documents import DOCUMENTS, blocks
from tests.documents import PEOPLE, document
from zapdb.limits import NAME_LENGTH_MAX
from zapdb.migrations import OPERATIONS
from zapdb.migrations.chain import FILE_NAME
from zapdb.migrations.document import DocumentText, as_plain_data, read_document
from zapdb.migrations.document_structure import ABSENT, Name, located, reason
from zapdb.migrations.json_schema import DIALECT, LINE, SCHEMA_MARK, TOP, _Schemas, json_schema
from zapdb.migrations.parsed_migration import KEYS, OPTIONAL_KEYS

ROOT = Path(__file__).parents[3]
SCHEMA = json_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)

FILES = {
    **{str(path.relative_to(ROOT)): path for path in sorted((ROOT / "examples").rglob("*.yaml"))},
    **{
        f"kept/{path.name}": path
        for path in sorted((Path(__file__).parent / "kept").glob("*.yaml"))
    },
}
BLOCKS = {
    f"{document.relative_to(ROOT)} {options['file']}": body
    for document in DOCUMENTS
    for language, options, body in blocks(document)
    if language == "yaml" and FILE_NAME.fullmatch(options.get("file", "").rpartition("/")[2])
}
"""Migrations; other files of YAML, such as Kubernetes', have other names."""


def read(text: str | bytes) -> Any:
    raw = text if isinstance(text, bytes) else text.encode()
    return as_plain_data(read_document(DocumentText("a.yaml", raw)))


def accepts(*operations: str, rollback: str = "inferred") -> bool:
    return VALIDATOR.is_valid(read(document(*operations, rollback=rollback)))


def test_it_is_a_json_schema_of_its_dialect() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == DIALECT == jsonschema.Draft202012Validator.META_SCHEMA["$id"]
    assert SCHEMA["$comment"] == SCHEMA_MARK
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA == json_schema()


@pytest.mark.parametrize("path", FILES.values(), ids=FILES.keys())
def test_the_documents_of_this_repository_fit(path: Path) -> None:
    VALIDATOR.validate(read(path.read_bytes()))


@pytest.mark.parametrize("text", BLOCKS.values(), ids=BLOCKS.keys())
def test_the_documents_in_the_documentation_fit(text: str) -> None:
    VALIDATOR.validate(read(text))


def test_there_are_documents_to_look_at() -> None:
    assert len(FILES) >= 8
    assert len(BLOCKS) >= 2


def test_every_key_and_operation_is_described() -> None:
    assert {*KEYS, *OPTIONAL_KEYS} <= TOP.keys()
    assert list(SCHEMA["properties"]) == [*KEYS, *OPTIONAL_KEYS]
    assert SCHEMA["required"] == list(KEYS)
    definitions = SCHEMA["$defs"]
    for keyword in OPERATIONS:
        described = definitions[keyword]
        assert described["title"] == keyword
        assert described["description"][0].isupper()
        assert definitions["operation"]["properties"][keyword] == {"$ref": f"#/$defs/{keyword}"}


def test_editors_show_what_docstrings_say() -> None:
    definitions = SCHEMA["$defs"]
    assert definitions["add_field"]["description"] == (
        "A new field, and what records get that were written before it.\n\n"
        "`position` counts from 0 in declared order; without it the field comes last.\n\n"
        "Older records get `fill`, or else the default, or else null where the field is optional."
    )
    assert definitions["FieldType"]["title"] == "field type"
    assert "a bare type name is enough" in definitions["FieldType"]["description"]
    assert definitions["CollationDefinition"].keys().isdisjoint({"description"})  # it has none
    assert "why" in definitions["transform"]["properties"]["because"]["description"]
    assert definitions["transform"]["properties"]["reversibility"]["default"] == "exact"
    assert definitions["FieldType"]["anyOf"][1]["properties"]["optional"]["default"] is False


def test_what_is_wrong_is_found_where_it_is() -> None:
    wrong = read(document(PEOPLE.replace("key:", "keys:").replace("type: uuid", "type: 5")))
    found = {error.json_path: error.message for error in VALIDATOR.iter_errors(wrong)}
    place = "$.changes[0].create_table"
    assert found.keys() == {place, f"{place}.fields[4].type"}
    assert found[f"{place}.fields[4].type"] == "5 is not of type 'string'"


@pytest.mark.parametrize("name", ["a", "a1_", "x" * NAME_LENGTH_MAX, "zapd", "not_zapdb"])
def test_a_name(name: str) -> None:
    assert accepts(f"rename_table: {{table: people, to: {name}}}")


@pytest.mark.parametrize(
    "name",
    [
        "",
        "A",
        "aB",
        "1a",
        "_a",
        "a-b",
        "ä",
        "a\\n",
        "a\\nb",
        "zapdb",
        "zapdb_x",
        "x" * 64,
        "ａ",
        "٠",
    ],
)
def test_no_name(name: str) -> None:
    assert not accepts(f'rename_table: {{table: people, to: "{name}"}}')


def test_a_rollback_is_inferred_or_a_list() -> None:
    drop = "drop_index: {table: a, index: b}"
    assert accepts(drop, rollback="[]")
    assert accepts(drop, rollback=f"[{{{drop}}}, {{{drop}}}]")
    assert not accepts(drop, rollback="never")
    assert not accepts(drop, rollback="{}")


# --- annotations ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Leaf:
    """A leaf.

    It has nothing
    below it.
    """

    name: Name
    location: Any = located()

    @classmethod
    def from_scalar(cls, name: str, node: object) -> Leaf:
        return cls(Name(name))


@dataclass(frozen=True)
class Branch(Leaf):
    maybe: int | None = None
    way: Literal["up", "down"] = "up"
    leaves: tuple[Leaf, ...] = field(default=(), metadata={"key": "on"})
    within: dict[Name, tuple[bool, ...]] = field(default_factory=dict)
    inner: Branch = ABSENT
    because: str = reason()


def test_every_kind_of_annotation_has_a_schema() -> None:
    schemas = _Schemas()
    assert schemas.describe(Branch) == {"$ref": "#/$defs/Branch"}
    assert schemas.definitions["Leaf"] == {
        "title": "leaf",
        "description": "A leaf.\n\nIt has nothing below it.",
        "anyOf": [
            {"$ref": "#/$defs/name"},
            {
                "type": "object",
                "properties": {"name": {"$ref": "#/$defs/name"}},
                "required": ["name"],
                "additionalProperties": False,
            },
        ],
    }
    branch = schemas.definitions["Branch"]
    why = branch["properties"]["because"].pop("description")
    assert why.startswith("An optional key that tells people why")
    assert branch == {
        "title": "branch",
        "type": "object",
        "properties": {
            "name": {"$ref": "#/$defs/name"},
            "maybe": {"type": "integer"},
            "way": {"enum": ["up", "down"], "default": "up"},
            "on": {"type": "array", "items": {"$ref": "#/$defs/Leaf"}, "default": []},
            "within": {
                "type": "object",
                "propertyNames": {"$ref": "#/$defs/name"},
                "additionalProperties": {"type": "array", "items": {"type": "boolean"}},
                "default": {},
            },
            "inner": {"$ref": "#/$defs/Branch"},
            "because": LINE,
        },
        "required": ["name"],
        "additionalProperties": False,
    }


def test_an_annotation_that_is_not_understood_is_refused() -> None:
    with pytest.raises(AssertionError, match="no JSON Schema for <class 'float'>"):
        _Schemas().describe(float)
