"""Whether a migration takes force at once, or waits until the files of every live node hold it
(rule 12)."""

from __future__ import annotations

import typing
from typing import Final, Literal

from zapdb.migrations.operations import Operation
from zapdb.migrations.operations.table import DropTable

Activation = Literal["known"]
"""Said of a migration that waits until the files of every live node hold it (rule 12)."""
ACTIVATIONS: Final = (None, *typing.get_args(Activation))


def implies_waiting(changes: tuple[Operation, ...]) -> bool:
    """Whether the changes wait unasked: a node without them would go on using what they drop."""
    return any(isinstance(operation, DropTable) for operation in changes)
