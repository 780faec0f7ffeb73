"""The tasks of the Makefile that pick tests."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys

import yaml

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


def test_hooks_before_a_commit_are_the_checks_of_lint_and_fetch_nothing() -> None:
    found = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert {repository["repo"] for repository in found["repos"]} == {"local"}
    hooks = [hook for repository in found["repos"] for hook in repository["hooks"]]
    entries = {re.sub(r" --force-exclude$", "", hook["entry"]) for hook in hooks}
    recipe = (ROOT / "Makefile").read_text().partition("\nlint:")[2].partition("\n\n")[0]
    checks = re.findall(r"^\t\$\(python\) (-m .*)$", recipe, re.MULTILINE)
    assert len(checks) == 3
    assert entries == {f".venv/bin/python {check}" for check in checks}
    assert {hook["language"] for hook in hooks} == {"system"}


def test_the_workflow_runs_what_continuous_integration_runs() -> None:
    found = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())
    (job,) = found["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    assert os.access(ROOT / ".ci/run", os.X_OK)
