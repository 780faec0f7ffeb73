"""A migration as the database stored it: read from its canonical structure.

Its rollback is read when it is first needed, which for most migrations is never.
"""

from __future__ import annotations

import cbor2

from zapdb.formats import require_known
from zapdb.migrations.activation_policy import ACTIVATION_POLICIES
from zapdb.migrations.canonical_migration import decode_operations, reading_stored
from zapdb.migrations.migration import Migration
from zapdb.migrations.number_allocators import ReplayAllocator
from zapdb.migrations.steps import schemas_along
from zapdb.schema import Schema


def read_stored(
    structure: bytes,
    name: str,
    summary: str,
    drawn: dict[str, list[int]],
    before: Schema,
) -> Migration:
    """The migration that the database stored; raises `CorruptCatalog` if it can't be one."""
    with reading_stored(name):
        content = cbor2.loads(structure)
        require_known("document", content["zapdb"], migration=name)
        number, replaces = content["number"], tuple(content.get("replaces", ()))
        changes = decode_operations(content["changes"], name)
        activation = content.get("activation")
        assert activation in ACTIVATION_POLICIES
        assert type(content["rollback"]) is list
        after = schemas_along(before, changes, ReplayAllocator(drawn, number))[-1]
    migration = Migration(
        number,
        name,
        summary,
        changes,
        (),
        before,
        after,
        drawn,
        replaces=replaces,
        activation=activation,
        version=content["zapdb"],
    )
    # As it is stored, not made anew: a later release may fill in more.
    vars(migration).update(structure=structure, is_stored=True)
    del vars(migration)["rollback"]  # read when it is needed, which is rare
    return migration
