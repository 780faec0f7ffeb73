"""The fixed tables change on purpose only: their statements are kept, for both engines.

Until the first release a change is made in place, takes the next number, and is kept here anew;
from then on it is a new Alembic revision with a level of its own: see docs/format/storage.md.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from zapdb.storage import connect
from zapdb.storage.fixed_tables import METADATA
from zapdb.storage.storage_version import STORAGE_VERSION

KEPT = Path(__file__).parent / "kept"
DIALECTS: dict[str, sa.Dialect] = {"sqlite": sqlite.dialect(), "postgresql": postgresql.dialect()}


def statements(engine: str) -> list[str]:
    """What creates the fixed tables, one statement after the other."""
    url = "sqlite:///unused.db" if engine == "sqlite" else "postgresql://unused"
    storage = connect(url)  # nothing connects before the first statement
    dialect, made = DIALECTS[engine], [f"-- layout {STORAGE_VERSION}"]
    for table in METADATA.sorted_tables:
        made.append(str(CreateTable(table).compile(dialect=dialect)))
        indexes = sorted(table.indexes, key=lambda index: str(index.name))
        made += [str(CreateIndex(index).compile(dialect=dialect)) for index in indexes]
    made.append(storage.dialect.create_record_table_sql("zapdb_records_1"))
    made += [
        storage.dialect.create_index_table_sql("zapdb_entries_1", unique=unique)
        for unique in (False, True)
    ]
    return made


def join(statements: list[str]) -> str:
    return "\n".join(" ".join(statement.split()) for statement in statements) + "\n"


@pytest.mark.parametrize("engine", DIALECTS)
def test_rule_34_the_storage_is_the_one_that_was_kept(engine: str) -> None:
    assert join(statements(engine)) == (KEPT / f"{engine}.sql").read_text()
