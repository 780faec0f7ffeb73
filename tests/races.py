"""Threads that are scheduled with malice: `pytest --racy=SEED`, and `make races`.

On an idle machine, a thread that another one has woken runs at once, and a pause between two lines
takes nanoseconds; on a loaded one, neither holds. With `--racy`, Python switches threads far more
often, and threads rest for up to a fifth of a second where they call a function of zapdb, of its
tests or of the modules for threads. How often and for how long is drawn for each test from the seed
and its name; what the threads then do is not, so a seed that found something may have to be tried a
few times.

`python -m tests.races` runs test files in random order, each with a seed of its own, until its time
is over, and stops each process now and then for a moment, as a machine does that has no time.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from itertools import count
from pathlib import Path
from types import FrameType

import pytest

SWITCH_SECONDS = (1e-6, 1e-4)
CALLS_A_REST = (30, 30_000)
"""On average, of each thread, and of all functions: rests that come often are short."""
REST_SECONDS = (1e-5, 0.2)
RESTS_SECONDS_MAX = 3.0
"""Of one test, all its rests together: a bound on what its form with malice takes."""

ROOT = Path(__file__).parents[1]
MODULES = (threading.__file__, queue.__file__, str(Path(concurrent.futures.__file__).parent))
RESTING = (str(ROOT / "zapdb"), str(ROOT / "tests"), *MODULES)
"""Beginnings of the files whose functions rest when they are called."""

sleep = time.sleep
"""Tests may replace it in its module."""


class Malice:
    """What one test has to bear: a profile function of all its threads."""

    def __init__(self, seed: str) -> None:
        drawn = random.Random(seed)
        self.switch_seconds = draw(drawn, SWITCH_SECONDS)
        self.calls_a_rest = draw(drawn, CALLS_A_REST)
        self.rests_main = drawn.random() < 0.5
        """Else only the others rest, and the main thread is ahead of them."""
        self._drawn = drawn
        self._left = RESTS_SECONDS_MAX

    def __str__(self) -> str:
        who = "threads" if self.rests_main else "all threads but the main one"
        return (
            f"switches after {self.switch_seconds:.1e} s; {who} rest once in"
            f" {self.calls_a_rest:.0f} calls"
        )

    def __enter__(self) -> None:
        self._before = sys.getswitchinterval()
        sys.setswitchinterval(self.switch_seconds)
        threading.setprofile(self.rest)
        if self.rests_main:
            sys.setprofile(self.rest)

    def __exit__(self, *_: object) -> None:
        self._left = 0.0  # of threads that go on
        sys.setprofile(None)
        threading.setprofile(None)
        sys.setswitchinterval(self._before)

    def rest(self, frame: FrameType, event: str, argument: object) -> None:
        if event != "call" or self._drawn.random() * self.calls_a_rest >= 1:
            return
        if self._left > 0 and frame.f_code.co_filename.startswith(RESTING):
            seconds = draw(self._drawn, REST_SECONDS)
            self._left -= seconds
            sleep(seconds)


def draw(drawn: random.Random, bounds: tuple[float, float]) -> float:
    """Return a number between the bounds, each power of ten as often as another."""
    low, high = bounds
    return float(low * (high / low) ** drawn.random())


class RacyTests:
    """A plugin of pytest: each test runs with a malice of its own."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def pytest_report_header(self) -> str:
        return f"threads are scheduled with malice: --racy={self.seed}"

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        if item.get_closest_marker("timed") is not None:
            return (yield)
        malice = Malice(f"{self.seed} {item.nodeid}")
        item.add_report_section("call", "malice", f"--racy={self.seed}: {malice}")
        with malice:
            return (yield)


# The runner


STOPPED_SECONDS = (0.05, 0.3)
RUNNING_SECONDS = (0.05, 2.0)
NOT_FAILED = (0, pytest.ExitCode.INTERRUPTED, pytest.ExitCode.NO_TESTS_COLLECTED)


def run_file(file: Path, seed: int, deadline: float) -> bool:
    """Run a file until its first failure, its end or the deadline; returns whether none failed."""
    command = [sys.executable, "-m", "pytest", "-qx", "-n0", f"--racy={seed}", str(file)]
    print(" ".join(command), flush=True)
    drawn = random.Random(seed)
    with subprocess.Popen(command, cwd=ROOT) as process:
        while time.monotonic() < deadline:
            try:
                process.wait(draw(drawn, RUNNING_SECONDS))
                break
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGSTOP)
                sleep(draw(drawn, STOPPED_SECONDS))
                process.send_signal(signal.SIGCONT)
        else:
            process.send_signal(signal.SIGINT)
    return process.returncode in NOT_FAILED


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("paths", type=Path, nargs="*", default=[ROOT / "tests/contract"])
    options = parser.parse_args()
    files = sorted(
        file
        for path in options.paths
        for file in (path.rglob("test_*.py") if path.is_dir() else [path])
    )
    deadline = time.monotonic() + options.seconds
    failed = []
    for seed in count(options.seed):
        random.Random(seed).shuffle(files)
        for file in files:
            if time.monotonic() > deadline:
                sys.exit("\n".join(failed) or None)
            if not run_file(file, seed, deadline):
                failed.append(f"failed: --racy={seed} {file}")


if __name__ == "__main__":
    main()
