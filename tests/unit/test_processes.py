"""A process from the nursery is what a new interpreter would be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import forms, processes

LOOK = """
import atexit, json, os, sys, tempfile, threading, time
atexit.register(print, "at exit")
threading.Timer(0.05, print, ["a thread"]).start()
print(sys.argv, sys.path[0], sys.path[1:3], os.getcwd(), os.environ.get("ZAPDB_TENANT"), __name__)
print(tempfile.gettempdir(), time.strftime("%Z", time.localtime(0)))
print(sys.stdin.read(), sys.stdout.isatty(), os.getsid(0) == os.getpid())
print(globals().get("__file__"))
print("wrong", file=sys.stderr)
sys.exit(int(sys.argv[1]) if len(sys.argv) > 1 else None)
"""
ENDINGS = {
    "nothing": "pass",
    "a text": "raise SystemExit('no way')",
    "an error": "1 / 0",
    "Ctrl-C": "raise KeyboardInterrupt",
    "a signal": "import os, signal; os.kill(os.getpid(), signal.SIGTERM)",
    "a negative number": "import sys; sys.exit(-1)",
}
forked = pytest.mark.skipif(sys.platform != "linux", reason="forks of one process are for Linux")


def both(arguments: list[str], **named: Any) -> list[subprocess.CompletedProcess[str]]:
    """What a new interpreter does, and what a fork of the nursery does."""
    command = [sys.executable, *arguments]
    ways = [subprocess.run, processes.run]
    return [run(command, capture_output=True, text=True, **named) for run in ways]


@forked
@pytest.mark.parametrize("how", ["-c", "-m", "a file"])
def test_it_has_arguments_paths_streams_and_an_end(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forms, "is_long", False)
    (tmp_path / "looking.py").write_text(LOOK)
    what = {"-c": ["-c", LOOK], "-m": ["-m", "looking"], "a file": ["looking.py"]}[how]
    environment = os.environ | {"ZAPDB_TENANT": "acme", "PYTHONPATH": "/a:/b"}
    environment |= {"TMPDIR": str(tmp_path), "TZ": "Asia/Tokyo"}
    named: dict[str, Any] = {"input": "asked", "cwd": tmp_path, "env": environment}
    real, ours = both([*what, "7"], start_new_session=True, **named)
    assert processes.can_be_forked([sys.executable, *what], environment)
    assert (ours.returncode, ours.stderr) == (real.returncode, real.stderr) == (7, "wrong\n")
    assert ours.stdout == real.stdout
    assert "a thread\nat exit\n" in ours.stdout


@forked
@pytest.mark.parametrize("ending", ENDINGS)
def test_it_ends_as_a_new_one_does(ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "is_long", False)
    real, ours = both(["-c", ENDINGS[ending]])
    assert ours.returncode == real.returncode
    assert ours.stderr.splitlines()[-1:] == real.stderr.splitlines()[-1:]


@forked
def test_it_is_killed_and_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forms, "is_long", False)
    command = [sys.executable, "-c", "import time; print('on', flush=True); time.sleep(300)"]
    with processes.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "on\n"
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.kill()
        assert process.wait() == -signal.SIGKILL
    assert process.poll() == -signal.SIGKILL
    assert not Path(f"/proc/{process.pid}").exists()


def test_what_only_a_new_one_shows_is_given_one() -> None:
    python = sys.executable
    assert not processes.can_be_forked("zapdb --help", None)
    assert not processes.can_be_forked(["psql", "-c", "SELECT 1"], None)
    assert not processes.can_be_forked([python, "-X", "dev", "-m", "zapdb"], None)
    assert not processes.can_be_forked([python, "-m", "zapdb"], os.environ | {"LC_ALL": "C"})
    assert not processes.can_be_forked([python, "-m", "zapdb"], os.environ | {"ZAPDB_NATIVE": "no"})
