"""Time zone data: one source in a process, on purpose, and what it does.

Up to four sets of such data live in one process and on one machine, and they differ even where
their versions are equal. zapdb uses the `tzdata` package, or the directory of TZif files that the
environment variable ZAPDB_TZDATA names; it never looks in the system's path. The zones given out
here carry those data, whatever `zoneinfo` would find under their names.

This module knows nothing of databases, nor of the numbers that zones have there.
"""

from __future__ import annotations

import datetime
import functools
import hashlib
import importlib.resources
import io
import os
import threading
import zoneinfo
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

import tzdata

from zapdb.datasets.tzif import Description, describe_zone
from zapdb.errors import UnknownZone, UsageError

VARIABLE: Final = "ZAPDB_TZDATA"
VERSION_FILES: Final = ("tzdata.zi", "+VERSION", "VERSION", "version")
NO_ZONES: Final = frozenset({"posix", "right", "posixrules", "localtime"})
"""In a system's directory: other copies, one of them with leap seconds, and the machine's own."""


@dataclass(frozen=True, slots=True)
class TimeZones:
    """The dependency of keys that are instants of local times."""

    dataset: ClassVar[str] = "time zones"


class Zone(zoneinfo.ZoneInfo):
    """A time zone made of the pinned data; pickled and copied by its name, one object for each."""

    epoch: datetime.datetime
    """1970-01-01T00:00 of its wall clock. Within one zone Python counts by the wall clock, so this
    is the fast way from local times to microseconds and back.
    """

    def __new__(cls, key: str) -> Zone:
        return zone(key)

    def __repr__(self) -> str:
        return f"zapdb.datasets.zone({self.key!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return zone, (self.key,)


class ZoneData:
    """The time zones of one directory; safe to share between threads.

    Raises `UsageError` for a directory that holds none.
    """

    def __init__(self, directory: Path, version: str | None = None) -> None:
        self._directory = directory
        self.version = version or _read_version(directory)
        """For people."""
        self.names = frozenset(_find_names(directory))
        self._zones: dict[str, Zone] = {}
        self._lock = threading.Lock()
        self._fingerprint: str | None = None
        if not self.names:
            raise UsageError(
                "the directory holds no time zone data",
                directory=directory,
                hint=f"set {VARIABLE} to a directory of TZif files, or unset it to use the tzdata "
                "package",
            )

    def zone(self, name: str) -> Zone:
        """The zone of this name; raises `UnknownZone`."""
        return self._zones.get(name) or self._load(name)

    def _load(self, name: str) -> Zone:
        if name not in self.names:
            raise UnknownZone.named(name, self.version)
        with self._lock:
            if name not in self._zones:
                made = Zone.from_file(io.BytesIO(self._read(name)[0]), key=name)
                made.epoch = datetime.datetime(1970, 1, 1, tzinfo=made)
                self._zones[name] = made
        return self._zones[name]

    def _read(self, name: str) -> tuple[bytes, Description]:
        path = self._directory / name
        try:
            data = path.read_bytes()
            return data, describe_zone(data)  # stricter than `zoneinfo`, which fails in many ways
        except (ValueError, OSError) as error:
            raise UsageError(
                "a file of the time zone data can't be read",
                file=path,
                cause=error,
                hint=f"install the tzdata package again, or what {VARIABLE} names",
            ) from error

    @property
    def fingerprint(self) -> str:
        """SHA-256 in hex over what the data do: every name, with its offsets over time."""
        with self._lock:
            if self._fingerprint is None:
                self._fingerprint = self._compute_fingerprint()
        return self._fingerprint

    def _compute_fingerprint(self) -> str:
        digest = hashlib.sha256()
        for name in sorted(self.names):
            _, description = self._read(name)
            digest.update(f"{name}\0{description.to_json()}\0".encode())
        return digest.hexdigest()


def _find_names(directory: Path, prefix: str = "") -> list[str]:
    """The TZif files below a directory, as names of zones."""
    names: list[str] = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if not prefix and entry.name in NO_ZONES:
                continue
            if entry.is_dir():
                names += _find_names(Path(entry.path), f"{prefix}{entry.name}/")
            elif "." not in entry.name:  # no zone has one in its name; much else has
                with Path(entry.path).open("rb") as file:
                    if file.read(4) == b"TZif":
                        names.append(prefix + entry.name)
    return names


def _read_version(directory: Path) -> str:
    for name in VERSION_FILES:
        try:
            with (directory / name).open(encoding="utf-8", errors="replace") as file:
                line = file.readline(100).strip().removeprefix("# version ")
        except OSError:
            continue
        return f"tz database {line}"
    return "tz database of unknown version"


@functools.cache
def data_in_use() -> ZoneData:
    """The data that this process uses, chosen at the first call."""
    directory = os.environ.get(VARIABLE)
    if directory:
        if not Path(directory).is_dir():
            raise UsageError(
                "there is no such directory of time zone data",
                directory=directory,
                hint=f"correct {VARIABLE}, or unset it to use the tzdata package",
            )
        return ZoneData(Path(directory))
    package = Path(str(importlib.resources.files(tzdata)))
    return ZoneData(package / "zoneinfo", f"tzdata {tzdata.__version__}")


def zone(name: str) -> Zone:
    """The zone of this name in the data in use; raises `UnknownZone`."""
    return data_in_use().zone(name)


def zone_names() -> frozenset[str]:
    """Every name, links included."""
    return data_in_use().names


def zone_version() -> str:
    """The version of the data in use, for people."""
    return data_in_use().version


def fingerprint_zones() -> str:
    """What the data in use do; equal where every zone has the same offsets at all times."""
    return data_in_use().fingerprint
