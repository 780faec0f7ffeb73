"""The tasks of the Makefile that pick tests."""

from __future__ import annotations

import shlex
import subprocess
import sys

from tests.support import ROOT


def test_the_soak_is_on_each_engine() -> None:
    shown = subprocess.run(
        ["make", "-n", "soak"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    _, _, arguments = shown.stdout.replace("\\\n", " ").partition(" -m pytest ")
    collect = [*("-m", "pytest", "--collect-only", "-q"), *shlex.split(arguments)]
    found = subprocess.run([sys.executable, *collect], cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
    assert "test_rolling.py" in found.stdout
    assert "deselected" not in found.stdout
