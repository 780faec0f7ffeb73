"""Errors do not repeat a misplaced argument of a command if it may be an address.

`zapdb verify postgresql://ada:secret@host/db` is wrong usage, and the parser of arguments quotes
what it can't use. The same holds for an address that is given as a directory or as a tenant.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from zapdb.errors import UsageError
from zapdb.storage.addresses import HIDDEN, read_address, show_address

VARIABLES: Final = ("ZAPDB_DATABASE", "ZAPDB_MIGRATIONS", "ZAPDB_TENANT")

_SUSPECT: Final = re.compile(r"://|[:/][^@]*@|pass\w*\s*=|secret\s*=", re.IGNORECASE | re.DOTALL)


def hide_given(arguments: Sequence[str]) -> Callable[[str], str]:
    """What hides, in a text, every argument and variable that may hold a password."""
    given = {text for text in _given(arguments) if _SUSPECT.search(text) and not _is_harmless(text)}
    spellings = sorted(set(_spellings(given)), key=len, reverse=True)

    def hide(text: str) -> str:
        for spelling in spellings:
            text = text.replace(spelling, HIDDEN)
        return text

    return hide


def _is_harmless(text: str) -> bool:
    """Whether it is an address of which all is shown anyway."""
    try:
        return show_address(read_address(text)) == text
    except UsageError:
        return False


def _given(arguments: Sequence[str]) -> Iterator[str]:
    for argument in arguments:
        yield argument
        yield argument.partition("=")[2]
        yield argument[2:]  # of `-dURL`
    yield from (os.environ.get(name, "") for name in VARIABLES)


def _spellings(given: set[str]) -> Iterator[str]:
    """As errors quote them: as they are, as Python writes them, as paths, and a word of a DSN."""
    for text in given:
        yield from (text, repr(text)[1:-1], str(Path(text)), repr(str(Path(text)))[1:-1])
        yield from (word for word in text.split() if _SUSPECT.search(word))
