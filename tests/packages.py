"""Packages from PyPI that single tests of the long form need: installed when the first one asks,
into the environment, beside its packages, as `tools/setup.sh` does with time zone data."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

CACHE = Path(sys.prefix) / "long"
"""What tests of the long form fetch is kept here."""


def installed(requirement: str, *options: str) -> Path:
    """The directory of a package, such as `pymysql==1.2.4`, without what it depends on; the test is
    skipped if it can't be had."""
    target = CACHE / requirement
    if target.is_dir():
        return target
    made = begin(target)
    command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "-q"]
    command += ["--no-deps", "--no-compile", *options, "--target", str(made), requirement]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        shutil.rmtree(made)
        why = done.stderr.strip().splitlines()
        pytest.skip(f"pip can't install {requirement}: {why[-1] if why else done.returncode}")
    return finish(made, target)


def unpacked_source(requirement: str) -> Path:
    """The directory of a package's source, with the files that it does not install; the test is
    skipped if it can't be had."""
    target = CACHE / f"{requirement} source"
    if target.is_dir():
        return target
    made = begin(target)
    command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "-q"]
    command += ["--no-deps", "--no-build-isolation", "--no-binary", ":all:", "-d", str(made)]
    done = subprocess.run([*command, requirement], capture_output=True, text=True)
    if done.returncode:
        shutil.rmtree(made)
        pytest.skip(f"pip can't download {requirement}: {done.stderr.strip()[-200:]}")
    (archive,) = made.iterdir()
    subprocess.run(["tar", "-xf", str(archive), "-C", str(made)], check=True)
    archive.unlink()
    return finish(made, target)


def begin(target: Path) -> Path:
    """An empty directory for what is to be at `target`, of this process alone."""
    target.parent.mkdir(exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=target.parent))
    made.chmod(0o755)
    return made


def finish(made: Path, target: Path) -> Path:
    """Put it in its place at once, so that what is there is whole."""
    try:
        made.rename(target)
    except OSError:  # another process was faster
        shutil.rmtree(made)
    return target
