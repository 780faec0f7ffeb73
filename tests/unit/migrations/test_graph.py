"""What depends on what, and how it is drawn."""

from __future__ import annotations

import re

from tests.documents import PEOPLE, document, resolve_documents
from tests.unit.migrations.kept import write
from zapdb.migrations import Chain, load_directory
from zapdb.migrations.graph import build_graph, to_mermaid

TOWNS = "create_table: {table: towns, key: [id], fields: [{name: id, type: integer}]}"
CHAIN = resolve_documents(
    document("create_type: {type: state, enum: [open, done]}"),
    document(PEOPLE),
    document(TOWNS),
    document("add_field: {table: people, field: {name: town, type: reference, to: towns,"
             " optional: true}}"),
    document("create_type: {type: place, struct: [{name: state, type: state},"
             " {name: town, type: reference, to: towns}]}"),
    document("add_field: {table: towns, field: {name: parts, type: list, of: place, fill: []}}"
             .replace(", fill: []}", "}, fill: {value: []}")),
    document("drop_table: {table: people, records: archive}"),
    document("restore_table: {table: people, archived_by: 7}",
             "rename_table: {table: people, to: persons}"),
)  # fmt: skip
GRAPH = build_graph(CHAIN)


def test_what_each_migration_does_to_what() -> None:
    assert [[(c.verb, c.object_id[0], c.name) for c in m.changes] for m in GRAPH.migrations] == [
        [("creates", "type", "state")],
        [("creates", "table", "people")],
        [("creates", "table", "towns")],
        [("changes", "table", "people")],
        [("creates", "type", "place")],
        [("changes", "table", "towns")],
        [("drops", "table", "people")],
        [("restores", "table", "persons")],
    ]


def test_what_each_migration_comes_after() -> None:
    assert {m.number: m.after for m in GRAPH.migrations} == {
        1: (), 2: (), 3: (), 4: (2, 3), 5: (1, 3), 6: (5,), 7: (4,), 8: (6, 7)
    }  # fmt: skip


def test_what_the_tables_and_types_refer_to() -> None:
    assert {n.name: (n.object_id[0], n.references, n.types) for n in GRAPH.objects} == {
        "state": ("type", (), ()),
        "place": ("type", (("town", "towns"),), ("state",)),
        "towns": ("table", (("parts", "towns"),), ("place", "state")),
        "persons": ("table", (("town", "towns"),), ()),
    }


def test_an_empty_chain() -> None:
    assert to_mermaid(build_graph(Chain())) == "flowchart LR\n"


def test_the_flowchart() -> None:
    lines = to_mermaid(GRAPH).splitlines()
    assert lines[0] == "flowchart LR"
    assert '    m2["0002_test"]' in lines
    assert '    t1[("persons")]' in lines
    assert '    y2{{"place"}}' in lines
    assert "    m2 --> m4" in lines
    assert "    m7 -. drops .-> t1" in lines
    assert "    t1 == town ==> t2" in lines
    assert "    t2 --- y2" in lines


def test_every_node_of_the_flowchart_is_there_once() -> None:
    for chain in (CHAIN, load_directory(write.KEPT)):
        text = to_mermaid(build_graph(chain))
        nodes = re.findall(r"^    ([mty][0-9]+)[\[{]", text, re.MULTILINE)
        assert len(set(nodes)) == len(nodes)
        edges = re.findall(r"^    ([mty][0-9]+) [-=].* ([mty][0-9]+)$", text, re.MULTILINE)
        assert {end for edge in edges for end in edge} <= set(nodes)
        assert len(nodes) + len(edges) + 1 == len(text.splitlines())
