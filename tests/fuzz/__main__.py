"""Fuzz all targets: `python -m tests.fuzz --seconds 60`, or those that are named.

Each starts from its corpus, `corpus/TARGET.txt`: one input a line, in hex. What reaches new code is
added. An input that crashes is printed; its line belongs into `corpus/TARGET.txt`, where the tests
try it for ever.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.fuzz.corpus import read_corpus, write_corpus
from tests.fuzz.targets import TARGETS


class Fuzzer:
    """A process that fuzzes one target after another (see `tests.fuzz.target`)."""

    def __enter__(self) -> Fuzzer:
        command = [sys.executable, "-m", "tests.fuzz.target"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        with self._process:
            self._process.communicate()

    def fuzz(self, name: str, seconds: int, runs: int = -1) -> bool:
        """Fuzz one target, for no more than so many runs; returns whether it held."""
        with tempfile.TemporaryDirectory() as made:
            found, crashes, log = Path(made, "found"), Path(made, "crashes"), Path(made, "log")
            found.mkdir()
            crashes.mkdir()
            known = read_corpus(name)
            fill(found, known)
            print(f"{name}: {len(known)} inputs, {seconds} s", flush=True)
            options = (
                f"-max_total_time={seconds}",
                f"-runs={runs}",
                f"-artifact_prefix={crashes}/",
            )
            status = self._run(name, log, found, *options)
            for crash in crashes.iterdir():
                print(f"{name}: this input fails: {crash.read_bytes().hex()}")
            if status:
                print(log.read_text(errors="replace")[-4_000:])
                return False
            write_corpus(name, [path.read_bytes() for path in found.iterdir()])
            print(f"{name}: held; {len(read_corpus(name))} inputs kept")
            return True

    def _run(self, *job: object) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([str(part) for part in job]) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


def fill(directory: Path, inputs: Iterable[bytes]) -> None:
    for number, data in enumerate(inputs):
        (directory / str(number)).write_bytes(data)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("names", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    given = parser.parse_args()
    with Fuzzer() as fuzzer:
        held = [fuzzer.fuzz(name, given.seconds) for name in given.names or TARGETS]
    sys.exit(not all(held))


if __name__ == "__main__":
    main()
