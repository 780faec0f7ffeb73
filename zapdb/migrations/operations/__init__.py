"""The operations, one file each, registered here and nowhere else."""

from __future__ import annotations

from typing import Final

from zapdb.migrations.operations.add_check import AddCheck
from zapdb.migrations.operations.add_field import AddField
from zapdb.migrations.operations.add_reference import AddReference
from zapdb.migrations.operations.alter_type import AlterType
from zapdb.migrations.operations.base import Numbers, Operation
from zapdb.migrations.operations.change_default import ChangeDefault
from zapdb.migrations.operations.change_type import ChangeType
from zapdb.migrations.operations.create_index import CreateIndex
from zapdb.migrations.operations.create_table import CreateTable
from zapdb.migrations.operations.create_type import CreateType
from zapdb.migrations.operations.drop_check import DropCheck
from zapdb.migrations.operations.drop_field import DropField
from zapdb.migrations.operations.drop_index import DropIndex
from zapdb.migrations.operations.drop_reference import DropReference
from zapdb.migrations.operations.drop_table import DropTable
from zapdb.migrations.operations.drop_type import DropType
from zapdb.migrations.operations.make_optional import MakeOptional
from zapdb.migrations.operations.make_required import MakeRequired
from zapdb.migrations.operations.rename_field import RenameField
from zapdb.migrations.operations.rename_index import RenameIndex
from zapdb.migrations.operations.rename_table import RenameTable
from zapdb.migrations.operations.reorder_field import ReorderField
from zapdb.migrations.operations.restore_field import RestoreField
from zapdb.migrations.operations.restore_table import RestoreTable
from zapdb.migrations.operations.transform import Transform

__all__ = ["OPERATIONS", "Numbers", "Operation"]

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
