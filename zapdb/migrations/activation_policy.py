"""Whether a migration becomes active at once, or once the files of every live node contain it
(rule 12)."""

from __future__ import annotations

import typing
from typing import Final, Literal

from zapdb.migrations.operations import Operation
from zapdb.migrations.operations.table import DropTable

ActivationPolicy = Literal["wait_for_nodes"]
"""Such a migration waits until the files of every live node contain it (rule 12)."""
ACTIVATION_POLICIES: Final = (None, *typing.get_args(ActivationPolicy))


def implies_waiting(changes: tuple[Operation, ...]) -> bool:
    """Whether the changes wait by default: a node without them would still use parts that they
    drop."""
    return any(isinstance(operation, DropTable) for operation in changes)
