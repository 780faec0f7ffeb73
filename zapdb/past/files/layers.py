"""Which files of an era are read for a moment, and which take precedence over which.

    checkpoint   the records that there were at its last moment, each with the moment since which
    ended        rows that ended up to its last moment: it is read for earlier moments only
    segment      changes that are not merged into these two yet

Later segments take precedence over earlier ones, and all of them over checkpoints. So they are
layers, the older first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from zapdb.past.files.history_manifest import HistoryFile

LAYERS_MAX: Final = 6
"""More layers than that are read as one: each is compared with all later ones."""


def is_needed(file: HistoryFile, moment: int) -> bool:
    """Whether a file of an era may have a row that holds at a moment of the era."""
    if file.kind == "ended":
        return moment < file.last_moment
    return file.kind in ("checkpoint", "segment") and file.first_moment <= moment


def list_layers(files: Iterable[HistoryFile]) -> list[list[HistoryFile]]:
    """Return the segments among files as layers. The moments of two layers do not overlap; those of
    the files of one may."""
    layers = list[list[HistoryFile]]()
    ends = -1
    segments = [file for file in files if file.kind == "segment"]
    for file in sorted(segments, key=lambda file: (file.first_moment, file.last_moment)):
        if layers and file.first_moment <= ends:
            layers[-1].append(file)
        else:
            layers.append([file])
        ends = max(ends, file.last_moment)
    surplus = max(0, len(layers) - LAYERS_MAX)
    if surplus:
        layers[: surplus + 1] = [[file for layer in layers[: surplus + 1] for file in layer]]
    return layers
