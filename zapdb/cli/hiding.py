"""Errors do not repeat a misplaced argument of a command if it may be an address.

`zapdb verify postgresql://ada:secret@host/db` is wrong usage, and the parser of arguments quotes
what it can't use. The same holds for an address that is given as a directory or as a tenant.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from zapdb.cli.sensitive_arguments import SUSPECT
from zapdb.errors import UsageError
from zapdb.storage.addresses import HIDDEN, read_address, show_address


def hide_suspects(suspects: Collection[str]) -> Callable[[str], str]:
    """What hides, in a text, those of the arguments that may hold a password."""
    given = {text for text in suspects if not _is_harmless(text)}
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


def _spellings(given: set[str]) -> Iterator[str]:
    """As errors quote them: as they are, as Python writes them, as paths, and a word of a DSN."""
    for text in given:
        yield from (text, repr(text)[1:-1], str(Path(text)), repr(str(Path(text)))[1:-1])
        yield from (word for word in text.split() if SUSPECT.search(word))
