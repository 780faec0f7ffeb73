"""Damage that is met while a table is read: the error says which table it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from zapdb.errors import CorruptionError


@contextmanager
def naming_table(name: str) -> Iterator[None]:
    """Add the table to errors about stored bytes."""
    try:
        yield
    except CorruptionError as error:
        error.context.setdefault("table", name)
        raise
