"""Local times for property tests, drawn where clocks change, and their instants, found apart.

The oracle goes one way only: from UTC to local time. The instant of a local time is the one at
which the zone's clock shows it; of two, the fold chooses; in a gap, where there is none, it is
counted by the offset before the gap or after it (PEP 495).
"""

from __future__ import annotations

import datetime
import io
import zoneinfo
from functools import cache
from itertools import pairwise

from hypothesis import strategies as st

from zapdb.datasets import zone
from zapdb.datasets.time_zone_data import data_in_use
from zapdb.datasets.tzif import describe_zone
from zapdb.values import Zones

CHOSEN = """
UTC Etc/GMT+12 Etc/GMT-14 GMT0 EST5EDT Factory
Africa/Abidjan Africa/Cairo Africa/Casablanca Africa/El_Aaiun Africa/Monrovia Africa/Windhoek
America/Asuncion America/Caracas America/Coyhaique America/Mexico_City America/New_York
America/Nuuk America/Santiago America/Scoresbysund America/St_Johns
Antarctica/Casey Antarctica/Troll Antarctica/Vostok
Asia/Almaty Asia/Amman Asia/Beirut Asia/Gaza Asia/Kathmandu Asia/Manila Asia/Pyongyang
Asia/Tehran Australia/Lord_Howe Europe/Berlin Europe/Dublin Europe/Istanbul Europe/Kyiv
Pacific/Apia Pacific/Chatham Pacific/Kwajalein
"""
NAMES = CHOSEN.split()

ZONES = Zones({3 * at - 2: name for at, name in enumerate(NAMES, 1)})
"""Numbers of one byte and of two."""

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
HOUR = datetime.timedelta(hours=1)


@cache
def read(name: str) -> tuple[zoneinfo.ZoneInfo, list[datetime.datetime]]:
    """The zone, read apart from the code under test, and the local times of its changes."""
    raw = (data_in_use()._directory / name).read_bytes()
    changes = []
    transitions = describe_zone(raw).transitions
    for (_, before), (at, after) in pairwise(transitions):
        assert at is not None
        for offset in (before, after):
            since = datetime.timedelta(seconds=at + offset)
            if abs(since) < datetime.timedelta(days=300 * 365):
                changes.append(EPOCH.replace(tzinfo=None) + since)
    return zoneinfo.ZoneInfo.from_file(io.BytesIO(raw), name), changes


@st.composite
def local_times(draw: st.DrawFn) -> datetime.datetime:
    """Any local time in one of the zones, most of them near a change of its clock."""
    name = draw(st.sampled_from(NAMES))
    _, changes = read(name)
    if changes and draw(st.integers(0, 3)):
        near = st.timedeltas(-3 * HOUR, 3 * HOUR) | st.sampled_from(
            [datetime.timedelta(microseconds=n) for n in (-1, 0, 1)]
        )
        local = draw(st.sampled_from(changes)) + draw(near)
    else:
        local = draw(st.datetimes())
    return local.replace(tzinfo=zone(name), fold=draw(st.integers(0, 1)))


def instant_of(value: datetime.datetime) -> datetime.timedelta:
    """Its time since 1970-01-01 UTC; a length of time, since it may lie beyond any datetime."""
    known, _ = read(str(value.tzinfo))
    wall = value.replace(tzinfo=datetime.UTC, fold=0)
    edge = datetime.timedelta(days=3)
    if not datetime.datetime.min + edge < wall.replace(tzinfo=None) < datetime.datetime.max - edge:
        offset = value.replace(tzinfo=known).utcoffset()  # no change of a clock lies out there
        assert offset is not None
        return wall - EPOCH - offset

    def offset_at(instant: datetime.datetime) -> datetime.timedelta:
        offset = instant.astimezone(known).utcoffset()
        assert offset is not None
        return offset

    offsets = {offset_at(wall + step * HOUR) for step in range(-36, 37)}
    shown = sorted(wall - offset for offset in offsets if offset_at(wall - offset) == offset)
    if shown:
        return shown[-1 if value.fold else 0] - EPOCH
    ((before, after),) = (
        (before, after)
        for before in offsets
        for after in offsets
        if before < after
        and offset_at(wall - before) == after
        and offset_at(wall - after) == before
    )
    return wall - (after if value.fold else before) - EPOCH
