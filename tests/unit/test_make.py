"""The tasks of the Makefile that pick tests."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys

from tests import processes
from tests.support import OLDEST_POSTGRESQL, ROOT
from zapdb.limits import POSTGRESQL_RELEASE_MIN


def test_the_soak_is_once_on_each_engine() -> None:
    # By `make test`, this is a make inside of another one, which would tell of its directories.
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    make = ["make", "-n", "soak"]
    shown = subprocess.run(make, cwd=ROOT, capture_output=True, text=True, check=True, env=plain)
    _, _, arguments = shown.stdout.replace("\\\n", " ").partition(" -m pytest ")
    collect = [*("-m", "pytest", "--collect-only", "-q"), *shlex.split(arguments)]
    found = processes.run([sys.executable, *collect], cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
    for engine in ("sqlite", "postgresql"):
        assert re.search(rf"test_history_soak\.py.*{engine}", found.stdout)
        assert re.search(rf"test_rolling\.py.*{engine}", found.stdout)
    assert "pure" not in found.stdout
    assert f"postgresql{POSTGRESQL_RELEASE_MIN}" not in found.stdout


def test_the_oldest_postgresql_is_installed_where_the_tests_look_for_it() -> None:
    script = (ROOT / "tools" / "setup.sh").read_text()
    assert f"\nreadonly postgresql_min={POSTGRESQL_RELEASE_MIN} " in script
    shown = str(OLDEST_POSTGRESQL).replace(str(POSTGRESQL_RELEASE_MIN), "$postgresql_min")
    assert f"\nreadonly postgresql={shown}\n" in script
