"""Which tests run in the short form."""

from __future__ import annotations

import re
import sys
from collections import Counter

import pytest

from tests import forms, processes
from tests.support import ROOT

FILE = "tests/contract/test_include.py"
TEST = re.compile(r"::(?P<function>\w+)\[(?P<engine>sqlite|postgresql)(?!-postgresql)")
"""A test on an engine, not the one in ten that runs on an older server besides."""


def collect(*arguments: str) -> list[tuple[str, str]]:
    """Return function and engine of each test."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *arguments]
    done = processes.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return [(match["function"], match["engine"]) for match in TEST.finditer(done.stdout)]


def test_of_two_that_differ_by_their_engine_one_runs() -> None:
    functions = re.findall(r"^def (test_\w+)", (ROOT / FILE).read_text(), re.MULTILINE)
    found = collect(FILE)
    assert Counter(function for function, _ in found) == Counter(functions)
    assert {engine for _, engine in found} == {*forms.ENGINES}


@pytest.mark.long
def test_both_run_in_the_long_form_and_one_that_is_asked_for_always() -> None:
    short, long = collect(FILE), {*collect("--long", FILE)}
    assert len(long) == 2 * len(short)
    function, engine = (long - {*short}).pop()
    assert collect(f"{FILE}::{function}[{engine}]") == [(function, engine)]
