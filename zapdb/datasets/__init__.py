"""External data that sort keys depend on: which is in use, its versions, its fingerprints.

A dataset is identified by what it does. The version is for people: version strings lie (ICU 73
changed the root order and left the collator's version alone), and a new version often changes
nothing. The content fingerprint decides whether an index has to be rebuilt.

Collation data are ICU's; time zone data are those of the `tzdata` package, or of a directory.
"""

from __future__ import annotations

from dataclasses import dataclass

from zapdb.datasets.collation import (
    STRENGTHS,
    Collation,
    Strength,
    collation_version,
    collator,
    fingerprint_collation,
    is_known_locale,
    sort_keys,
)
from zapdb.datasets.time_zone_data import (
    TimeZones,
    Zone,
    fingerprint_zones,
    zone,
    zone_names,
    zone_version,
)

__all__ = [
    "STRENGTHS",
    "Collation",
    "Dataset",
    "Dependency",
    "Strength",
    "TimeZones",
    "Zone",
    "collation_version",
    "collator",
    "dataset_of",
    "fingerprint_collation",
    "fingerprint_zones",
    "is_known_locale",
    "sort_keys",
    "zone",
    "zone_names",
    "zone_version",
]

Dependency = Collation | TimeZones
"""What a key can depend on; its `dataset` is the name under which the data are recorded."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """A dataset as it is on this machine now."""

    name: str
    version: str
    fingerprint: str
    """Hex; equal fingerprints give equal keys."""


def dataset_of(dependency: Dependency) -> Dataset:
    """The dataset that keys with this dependency are made with, as it is on this machine."""
    if isinstance(dependency, TimeZones):
        return Dataset(dependency.dataset, zone_version(), fingerprint_zones())
    return Dataset(dependency.dataset, collation_version(), fingerprint_collation(dependency))
