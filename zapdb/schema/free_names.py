"""A name that nothing else has yet, no longer than names may be."""

from __future__ import annotations

from collections.abc import Iterable

from zapdb.limits import NAME_LENGTH_MAX


def free_name(name: str, taken: Iterable[str]) -> str:
    """The name, or with a number behind it the first one that is not taken."""
    known, number, made = {*taken}, 1, name[:NAME_LENGTH_MAX]
    while made in known:
        number += 1
        suffix = f"_{number}"
        made = name[: NAME_LENGTH_MAX - len(suffix)] + suffix
    return made
