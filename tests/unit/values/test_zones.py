"""Numbers of zones, while other threads learn more of them."""

from __future__ import annotations

import threading

import pytest

from zapdb.values import Zones


def test_numbers_and_names() -> None:
    zones = Zones({1: "UTC", 2: "Asia/Beirut"})
    assert (zones.number_of("Asia/Beirut"), zones.name_of(1)) == (2, "UTC")
    for unknown in (lambda: zones.number_of("Mars/Base"), lambda: zones.name_of(3)):
        with pytest.raises(KeyError):
            unknown()


def test_what_is_unknown_is_looked_for_once_more() -> None:
    stored = {1: "UTC"}
    zones = Zones({}, lambda: stored)
    assert zones.name_of(1) == "UTC"
    stored[2] = "Asia/Beirut"
    assert zones.number_of("Asia/Beirut") == 2
    with pytest.raises(KeyError):
        zones.name_of(3)


def test_readers_never_miss_what_is_known_while_others_learn() -> None:
    stored = {number: f"Zone/{number}" for number in range(1, 50)}
    zones, stop, missed = Zones(stored, lambda: dict(stored)), threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            try:
                assert zones.number_of(zones.name_of(7)) == 7
            except (KeyError, AssertionError) as error:
                missed.append(error)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(50, 400):
        stored[number] = f"Zone/{number}"
        assert zones.name_of(number) == f"Zone/{number}"
    stop.set()
    for thread in threads:
        thread.join()
    assert missed == []
