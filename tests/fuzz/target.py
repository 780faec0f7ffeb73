"""Fuzz targets with atheris, each in a process that is forked from this one.

Importing and instrumenting takes seconds, so it is done once: `python -m tests.fuzz.target` reads
jobs from standard input, one a line, and writes the exit status of each. A job is a JSON array: the
target, the file for what the fuzzer says, and options of libFuzzer. Inputs that reach new code are
added to the directory that is named there.
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import atheris

ROOT = Path(__file__).parents[2]
READERS = re.compile(
    r"zapdb\.(catalog|expressions|indexes|migrations|records|schema|values)\b"
    r"|zapdb\.(database\.cursors|storage\.(cells|entry_statements))$"
)
"""What reads bytes. To instrument the rest, too, takes longer than the short form fuzzes."""


def list_others() -> set[str]:
    files = ROOT.glob("zapdb/**/*.py")
    names = {".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files}
    names = {name.removesuffix(".__init__") for name in names}
    return {name for name in names if not READERS.match(name)}


with atheris.instrument_imports(include=["zapdb"], exclude=list_others()):
    from tests.fuzz.targets import TARGETS

# A hang is an input that takes 5 s; what a decoder allocates is bounded by the input's own size.
LIMITS = ["-timeout=5", "-rss_limit_mb=1024", "-max_len=512"]


def main() -> None:
    for line in sys.stdin:
        name, log, *options = json.loads(line)
        child = os.fork()
        if not child:
            run_target(name, log, options)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def run_target(name: str, log: str, options: list[str]) -> None:
    """Fuzz in a process of its own; ends it."""
    said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(said, 1)
    os.dup2(said, 2)
    target = TARGETS[name]

    def run(data: bytes) -> None:
        if data:
            target(data)

    atheris.Setup([sys.argv[0], *LIMITS, *options], run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
