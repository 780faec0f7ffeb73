"""Time zones: pinned data, real changes between releases, and fingerprints that tell them apart."""

from __future__ import annotations

import copy
import datetime
import importlib.metadata
import os
import pickle
import subprocess
import sys
import zoneinfo
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from tests.timezones import release, write_tzif
from zapdb.datasets import (
    Dataset,
    TimeZones,
    Zone,
    dataset_of,
    fingerprint_zones,
    zone,
    zone_names,
    zone_version,
)
from zapdb.datasets.time_zone_data import ZoneData
from zapdb.errors import UnknownZone, UsageError

# zone and local time, then the releases and the offset in hours under each
CHANGES = [
    ("Asia/Beirut", "2023-03-26T12:00", {"2023.1": 3, "2023.2": 2, "2023.3": 3}),
    ("Asia/Amman", "2022-12-01T12:00", {"2022.4": 2, "2022.5": 3}),
    ("America/Mexico_City", "2023-07-01T12:00", {"2022.5": -5, "2022.6": -6}),
    ("Africa/Cairo", "2023-07-01T12:00", {"2022.7": 2, "2023.1": 3}),
    ("Antarctica/Vostok", "2000-01-01T12:00", {"2023.3": 6, "2023.4": 7}),
    ("Asia/Almaty", "2024-03-01T12:00", {"2023.4": 6, "2024.1": 5}),
    ("America/Asuncion", "2025-07-01T12:00", {"2024.2": -4, "2025.1": -3}),
]


@cache
def data_of(version: str) -> ZoneData:
    """Reading all zones of a release takes longer than a test of them."""
    return ZoneData(release(version))


def offset_hours(data: ZoneData, name: str, local: str) -> float:
    offset = datetime.datetime.fromisoformat(local).replace(tzinfo=data.zone(name)).utcoffset()
    assert offset is not None
    return offset.total_seconds() / 3_600


@pytest.mark.parametrize(("name", "local", "offsets"), CHANGES, ids=[c[0] for c in CHANGES])
def test_real_changes_of_offsets_change_the_fingerprint(
    name: str, local: str, offsets: dict[str, float]
) -> None:
    data = {version: data_of(version) for version in offsets}
    assert {v: offset_hours(d, name, local) for v, d in data.items()} == offsets
    versions = list(offsets)
    for before, after in pairwise(versions):
        assert data[before].fingerprint != data[after].fingerprint


@pytest.mark.parametrize(("left", "right"), [("2022.2", "2022.3"), ("2023.1", "2023.3")])
def test_another_release_with_the_same_offsets_has_the_same_fingerprint(
    left: str, right: str
) -> None:
    """The first pair changed no offset; the second took back what the one between had changed."""
    before, after = data_of(left), data_of(right)
    assert before.version != after.version
    assert before.fingerprint == after.fingerprint


def test_what_fingerprints_cover_stays_as_it_is() -> None:
    """Or every index on local times would be rebuilt, for nothing."""
    assert data_of("2022.2").fingerprint == (
        "e2341d1a5ac09abf557b1f126e8fdf20d3fe849c3484d374e025aa3cb4d88d2f"
    )


def test_the_data_are_the_packages_and_not_the_systems() -> None:
    assert zone_version() == f"tzdata {importlib.metadata.version('tzdata')}"
    assert {"UTC", "Europe/Kyiv", "America/Coyhaique", "America/Argentina/Ushuaia"} <= zone_names()
    assert not any("." in n or n.startswith(("posix", "right")) for n in zone_names())
    assert zone("Europe/Kyiv") is zone("Europe/Kyiv") is Zone("Europe/Kyiv")
    assert zone("Europe/Kyiv") is not zoneinfo.ZoneInfo("Europe/Kyiv")
    assert dataset_of(TimeZones()) == Dataset("time zones", zone_version(), fingerprint_zones())
    assert len(bytes.fromhex(fingerprint_zones())) == 32


def test_a_zone_is_pickled_and_copied_by_name_and_says_what_it_is() -> None:
    paris = zone("Europe/Paris")
    assert (paris.key, str(paris)) == ("Europe/Paris", "Europe/Paris")
    assert repr(paris) == "zapdb.datasets.zone('Europe/Paris')"
    moment = datetime.datetime(2025, 10, 26, 2, 30, tzinfo=paris, fold=1)
    for same in (pickle.loads(pickle.dumps(moment)), copy.deepcopy(moment), copy.copy(moment)):
        assert (same.tzinfo, same.fold, same) == (paris, 1, moment)
        assert same.tzinfo is paris
    assert copy.copy(paris) is copy.deepcopy(paris) is pickle.loads(pickle.dumps(paris)) is paris


@pytest.mark.parametrize("name", ["Mars/Base", "", "europe/paris", "../zoneinfo/UTC", "/etc/utc"])
def test_an_unknown_zone_is_refused_with_the_version_of_the_data(name: str) -> None:
    with pytest.raises(UnknownZone) as caught:
        zone(name)
    assert str(caught.value) == (
        "the time zone data in use lack a zone\n"
        f"  zone: {name}\n"
        f"  data: {zone_version()}\n"
        "  hint: install a newer tzdata package (or what ZAPDB_TZDATA names), or correct the "
        "name"
    )


def test_older_data_lack_newer_zones() -> None:
    older = data_of("2025.1")
    assert zone_names() - older.names == {"America/Coyhaique"}
    assert older.version == "tz database 2025a"
    with pytest.raises(UnknownZone) as caught:
        older.zone("America/Coyhaique")
    assert caught.value.context == {"zone": "America/Coyhaique", "data": "tz database 2025a"}


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_environment_may_name_other_data() -> None:
    directory = release("2023.2")
    shown = run(
        "import datetime, zapdb.datasets as d; print(d.zone_version(), d.fingerprint_zones(),"
        " datetime.datetime(2023, 3, 26, 12, tzinfo=d.zone('Asia/Beirut')).utcoffset())",
        ZAPDB_TZDATA=str(directory),
        PYTHONTZPATH=str(release("2023.1")),  # where `zoneinfo` would look: of no concern here
    )
    assert shown.stdout == f"tz database 2023b {ZoneData(directory).fingerprint} 2:00:00\n"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("missing", "there is no such directory of time zone data"),
        ("empty", "the directory holds no time zone data"),
    ],
)
def test_a_directory_without_data_is_refused(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "README").write_text("none here")
    code = (
        "import zapdb.datasets.time_zone_data as d\n"
        "try: d.zone('UTC')\nexcept d.UsageError as e: print(e)"
    )
    shown = run(code, ZAPDB_TZDATA=str(tmp_path / name)).stdout
    assert shown.startswith(f"{message}\n  directory: {tmp_path / name}\n  hint: ")


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    whole = write_tzif([], [(0, False, "UTC")], "UTC0")
    (tmp_path / "Good").write_bytes(whole)
    (tmp_path / "Bad").write_bytes(whole[:60])
    data = ZoneData(tmp_path)
    assert data.zone("Good").utcoffset(datetime.datetime(2000, 1, 1)) == datetime.timedelta(0)
    for broken in (lambda: data.zone("Bad"), lambda: data.fingerprint):
        with pytest.raises(
            UsageError, match="a file of the time zone data can't be read"
        ) as caught:
            broken()
        assert caught.value.context["file"] == tmp_path / "Bad"


def test_a_systems_directory_is_read_without_its_other_copies(tmp_path: Path) -> None:
    utc = write_tzif([], [(0, False, "UTC")], "UTC0")
    for name in ("UTC", "Etc/GMT+5", "posix/UTC", "right/UTC", "localtime", "posixrules", "a.tab"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(utc)
    (tmp_path / "leapseconds").write_text("# text")
    (tmp_path / "+VERSION").write_text("2024a\n")
    data = ZoneData(tmp_path)
    assert data.names == {"UTC", "Etc/GMT+5"}
    assert data.version == "tz database 2024a"


def test_a_fingerprint_covers_names_and_offsets_and_not_abbreviations(tmp_path: Path) -> None:
    def fingerprint(name: str, **files: bytes) -> str:
        directory = tmp_path / name
        directory.mkdir()
        for file, data in files.items():
            (directory / file).write_bytes(data)
        return ZoneData(directory).fingerprint

    plus_3 = write_tzif([], [(10_800, False, "+03")], "<+03>-3")
    named = write_tzif([], [(10_800, False, "EAT")], "EAT-3")
    plus_4 = write_tzif([], [(14_400, False, "+04")], "<+04>-4")
    assert fingerprint("a", A=plus_3, B=plus_3) == fingerprint("b", A=named, B=plus_3)
    assert fingerprint("c", A=plus_3) != fingerprint("d", A=plus_4)
    assert fingerprint("e", A=plus_3) != fingerprint("f", B=plus_3)
    assert fingerprint("g", A=plus_3, B=plus_4) != fingerprint("h", A=plus_4, B=plus_3)
