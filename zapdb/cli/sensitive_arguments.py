"""Arguments and variables that may hold a password: see `hiding`, which reads them as addresses.

That takes SQLAlchemy, so it is only loaded if there are any.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import Final

VARIABLES: Final = ("ZAPDB_DATABASE", "ZAPDB_MIGRATIONS", "ZAPDB_TENANT")
SUSPECT: Final = re.compile(r"://|[:/][^@]*@|pass\w*\s*=|secret\s*=", re.IGNORECASE | re.DOTALL)


def find_suspects(arguments: Sequence[str]) -> set[str]:
    """Return what was given and may hold a password."""
    return {text for text in _given(arguments) if SUSPECT.search(text)}


def _given(arguments: Sequence[str]) -> Iterator[str]:
    for argument in arguments:
        yield argument
        yield argument.partition("=")[2]
        yield argument[2:]  # of `-dURL`
    yield from (os.environ.get(name, "") for name in VARIABLES)
