"""Compare both codecs: `python -m tests.native`, or one build of the accelerator with `--module`.

Exit status 1 if they differ, or if that build can't be loaded. Random tables are tried for
`--seconds`; the edges are enumerated before, all of them with `--long`.
"""

from __future__ import annotations

import argparse
import importlib.machinery
import importlib.util
import sys
from pathlib import Path

NAME = "zapdb._native"


def load(path: Path) -> None:
    """Take this file for the accelerator."""
    loader = importlib.machinery.ExtensionFileLoader(NAME, str(path))
    spec = importlib.util.spec_from_file_location(NAME, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    sys.modules[NAME] = module


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.native", description=__doc__)
    parser.add_argument("--module", type=Path)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--long", action="store_true")
    given = parser.parse_args()
    if given.module is not None:
        load(given.module)
    from tests.native.edges import compare_all
    from tests.native.finalizers import write_changing
    from tests.native.samples import compare_samples
    from zapdb.records import native

    if native.accelerator is None:
        print("there is no accelerator")
        return 1
    changed = write_changing(given.seed, 1_000_000, given.seconds / 2)
    print(f"{dict(changed)} of records that changed meanwhile")
    tally = compare_all(given.long, to_the_end=False)
    print(f"{tally.tried:,} edges, {len(tally.wrong)} differ", *tally.wrong[:5], sep="\n  ")
    if tally.wrong:
        return 1
    found = compare_samples(given.seed, 1_000_000, given.seconds)
    print(f"{dict(found.counts)}, {len(found.wrong)} differ", *found.wrong[:5], sep="\n  ")
    return bool(found.wrong)


if __name__ == "__main__":
    sys.exit(main())
