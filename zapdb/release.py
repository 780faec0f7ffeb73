"""What this release is: its version, and the capability level that it supports.

The level counts what a database may hold: record and storage formats, operations, the expression
language. A release raises it when it can write something that earlier ones can't read (rule 10).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

__version__ = "0.1.0"

LEVEL: Final = 1
"""The highest that this release supports. Read it as `release.LEVEL`, where it is used.

    1   the first one
"""

OPERATION_LEVELS: Final[Mapping[str, int]] = {}
"""The level that storing a migration with an operation needs, where it is not 1, by keyword."""
