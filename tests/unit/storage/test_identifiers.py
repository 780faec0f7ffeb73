"""Generated identifiers rise strictly within a process."""

from __future__ import annotations

import os
import signal
import threading
import time
from uuid import RFC_4122, UUID

import pytest

from tests.support import GUARD_SECONDS
from zapdb.storage import identifiers
from zapdb.storage.identifiers import first_id_at_ms, make_many_uuid7, make_uuid7


def made_at_ms(made: bytes) -> int:
    return int.from_bytes(made[:6], "big")


def test_identifiers_are_uuids_of_version_7_and_of_now() -> None:
    before = time.time_ns() // 1_000_000
    made = make_uuid7()
    found = UUID(bytes=made)
    assert (found.version, found.variant) == (7, RFC_4122)
    assert before <= made_at_ms(made) <= time.time_ns() // 1_000_000 + 1
    assert made >= first_id_at_ms(before)


def test_identifiers_rise_strictly_and_are_random_behind_the_time() -> None:
    made = [make_uuid7() for _ in range(20_000)]
    assert made == sorted(made)
    assert len({one[8:] for one in made}) == len(made)
    assert len({one[8] for one in made}) == 64  # the variant, and six random bits


def test_identifiers_rise_when_the_clock_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time_ns()
    clock = iter([now, now, now - 10**12, now - 1, now, now + 10**9])
    monkeypatch.setattr(identifiers, "TICKS", identifiers.MonotonicTicks())
    monkeypatch.setattr(identifiers.time, "time_ns", lambda: next(clock))
    made = [make_uuid7() for _ in range(6)]
    assert made == sorted(made)
    assert len({one[:8] for one in made}) == 6  # by the time alone
    assert made_at_ms(made[-1]) == (now + 10**9) // 1_000_000


def test_threads_draw_each_tick_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identifiers.time, "time_ns", lambda: 10**18)  # it stands still
    ticks, drawn = identifiers.MonotonicTicks(), list[list[int]]()

    def draw() -> None:
        drawn.append([ticks.draw() for _ in range(5_000)])

    threads = [threading.Thread(target=draw) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(mine == sorted(mine) for mine in drawn)
    assert len({one for mine in drawn for one in mine}) == 20_000


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forking with threads, which is meant
def test_a_forked_process_makes_others_even_if_a_thread_was_making_one() -> None:
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with identifiers.TICKS._lock:
            held.set()
            done.wait(GUARD_SECONDS)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(GUARD_SECONDS)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(10)  # ends it, if it hangs
        os.write(writer, make_uuid7())
        os._exit(0)
    os.close(writer)
    done.set()
    thread.join()
    with os.fdopen(reader, "rb") as pipe:
        made = pipe.read()
    os.waitpid(child, 0)
    assert len(made) == 16
    assert made != make_uuid7()


def test_many_identifiers_rise_as_single_ones_do() -> None:
    first, many, last = make_uuid7(), make_many_uuid7(1_000), make_uuid7()
    assert [first, *many, last] == sorted({first, *many, last})
    assert {UUID(bytes=one).version for one in many} == {7}
    assert len({one[8:] for one in many}) == len(many)
    assert make_many_uuid7(0) == []
