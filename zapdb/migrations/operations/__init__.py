"""The operations, each with its inverses in one file, registered here and nowhere else."""

from __future__ import annotations

from typing import Final

from zapdb.migrations.operations.alter_type import AlterType
from zapdb.migrations.operations.change_type import ChangeType
from zapdb.migrations.operations.check_and_reference import (
    AddCheck,
    AddReference,
    DropCheck,
    DropReference,
)
from zapdb.migrations.operations.declared_type import CreateType, DropType
from zapdb.migrations.operations.field import AddField, DropField, RestoreField
from zapdb.migrations.operations.field_change import ChangeDefault, MakeOptional, MakeRequired
from zapdb.migrations.operations.index import CreateIndex, DropIndex
from zapdb.migrations.operations.operation import NumberAllocator, Operation
from zapdb.migrations.operations.rename import RenameField, RenameIndex, RenameTable, ReorderField
from zapdb.migrations.operations.table import CreateTable, DropTable, RestoreTable
from zapdb.migrations.operations.transform import Transform

__all__ = ["OPERATIONS", "NumberAllocator", "Operation"]

OPERATIONS: Final[dict[str, type[Operation]]] = {
    kind.keyword: kind
    for kind in (
        CreateType,
        AlterType,
        DropType,
        CreateTable,
        DropTable,
        RestoreTable,
        RenameTable,
        AddField,
        DropField,
        RestoreField,
        RenameField,
        ReorderField,
        ChangeType,
        ChangeDefault,
        MakeRequired,
        MakeOptional,
        Transform,
        CreateIndex,
        DropIndex,
        RenameIndex,
        AddCheck,
        DropCheck,
        AddReference,
        DropReference,
    )
}
