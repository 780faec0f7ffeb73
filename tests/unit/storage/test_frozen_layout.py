"""The storage layout is frozen: statements kept from each revision, for both engines.

What has to change is a new Alembic revision with a level of its own, never this file: see
docs/format/storage.md.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from zapdb.storage import connect
from zapdb.storage.layout import LAYOUT_REVISION
from zapdb.storage.tables import METADATA

KEPT = Path(__file__).parent / "kept"
LATER = {
    "0002": ("zapdb_transactions", "zapdb_changes", "zapdb_stamps", "zapdb_followers"),
}
"""The fixed tables that later revisions added."""
DIALECTS: dict[str, sa.Dialect] = {"sqlite": sqlite.dialect(), "postgresql": postgresql.dialect()}


def create_fixed(engine: str, names: Collection[str]) -> list[str]:
    dialect, made = DIALECTS[engine], []
    for table in METADATA.sorted_tables:
        if table.name not in names:
            continue
        made.append(str(CreateTable(table).compile(dialect=dialect)))
        made += [str(CreateIndex(i).compile(dialect=dialect)) for i in table.indexes]
    return made


def first_statements(engine: str) -> list[str]:
    """What creates the layout of revision 0001, one statement after the other."""
    later = {name for names in LATER.values() for name in names}
    made = create_fixed(engine, METADATA.tables.keys() - later)
    url = "sqlite:///unused.db" if engine == "sqlite" else "postgresql://unused"
    storage = connect(url)  # nothing connects before the first statement
    made.append(storage.create_record_table_sql("zapdb_r1"))
    made += [storage.create_index_table_sql("zapdb_x1", unique=unique) for unique in (False, True)]
    return made


def join(statements: list[str]) -> str:
    return "\n".join(" ".join(statement.split()) for statement in statements) + "\n"


@pytest.mark.parametrize("engine", DIALECTS)
def test_rule_34_the_layout_is_what_it_was_when_it_was_frozen(engine: str) -> None:
    assert max(LATER) == LAYOUT_REVISION
    assert join(first_statements(engine)) == (KEPT / f"{engine}.sql").read_text()


@pytest.mark.parametrize("revision", LATER)
@pytest.mark.parametrize("engine", DIALECTS)
def test_rule_34_so_is_what_later_revisions_added(engine: str, revision: str) -> None:
    kept = (KEPT / f"{engine}-{revision}.sql").read_text()
    assert join(create_fixed(engine, LATER[revision])) == kept
