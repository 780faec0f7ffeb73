"""Which tests run in the short form."""

from __future__ import annotations

import re
import subprocess
import sys

from tests.forms import ENGINES
from tests.support import ROOT

FILE = "tests/contract/test_include.py"


def collect(*arguments: str) -> set[str]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return {line for line in done.stdout.splitlines() if "::" in line}


def test_of_two_that_differ_by_their_engine_one_runs_and_the_long_form_has_both() -> None:
    short = collect(FILE)
    long = {re.sub("-(?:native|pure)", "", name) for name in collect("--long", FILE)}
    engine = re.compile("|".join(ENGINES))
    assert short < long
    assert {engine.sub("", name) for name in short} == {engine.sub("", name) for name in long}
    assert len(long) == 2 * len(short)
    assert {engine.search(name)[0] for name in short} == {*ENGINES}  # type: ignore[index]  # each has
    (left_out, *_) = long - short
    assert collect(left_out) == {left_out}
