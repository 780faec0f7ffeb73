"""Count all references that the accelerator takes and gives back, on a debug build of Python.

`python3.11d -m tests.native.debug_build` builds the accelerator for the Python that runs it, with
the assertions of Python's C API, and runs `tests.native.leaks` and `tests.native` on it. Debian has
such a Python in python3-dbg (with its headers in python3-dev); packages made for the usual build
work on it too. Its options are those of `tests.native`.
"""

from __future__ import annotations

import sys
import sysconfig
import tempfile
from pathlib import Path

from tests.native import __main__ as comparison
from tests.native.mutants import SOURCES
from tools.native_build import build


def main() -> int:
    if not hasattr(sys, "gettotalrefcount"):
        print("this is no debug build of Python: it does not count references")
        return 2
    headers = Path(sysconfig.get_path("include")).parent
    with tempfile.TemporaryDirectory() as directory:
        module = build(SOURCES, Path(directory), must=True, flags=["-UNDEBUG", f"-I{headers}"])
        assert module is not None
        comparison.load(module)
        from tests.native import leaks

        if status := leaks.main():
            return status
        return comparison.main()


if __name__ == "__main__":
    sys.exit(main())
