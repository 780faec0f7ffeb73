"""Fuzz one target with atheris: `python -m tests.fuzz.target record DIRECTORY [-option …]`.

The options are libFuzzer's. Inputs that reach new code are added to the directory.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["zapdb"]):
    from tests.fuzz.targets import TARGETS

# A hang is an input that takes 5 s; what a decoder allocates is bounded by the input's own size.
LIMITS = ["-timeout=5", "-rss_limit_mb=1024", "-max_len=512"]


def main(name: str, *options: str) -> None:
    target = TARGETS[name]

    def run(data: bytes) -> None:
        if data:
            target(data)

    atheris.Setup([sys.argv[0], *LIMITS, *options], run)
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
