"""Compare both codecs under AddressSanitizer and UndefinedBehaviorSanitizer (`make sanitized`).

Leaks are not looked for here, since the interpreter itself keeps what it has at its end.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.native.mutants import SOURCES
from tools.native_build import build

FLAGS = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
OPTIONS = "detect_leaks=0:allocator_may_return_null=1"


def run_sanitized(seconds: int) -> subprocess.CompletedProcess[str]:
    """Compare the codecs in a process with the sanitizers; its status is 0 if nothing was found."""
    runtime = subprocess.run(
        ["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    )
    environment = os.environ | {
        "LD_PRELOAD": runtime.stdout.strip(),
        "ASAN_OPTIONS": OPTIONS,
        "PYTHONMALLOC": "malloc",
    }
    with tempfile.TemporaryDirectory() as directory:
        module = build(SOURCES, Path(directory), must=True, flags=FLAGS)
        command = [sys.executable, "-m", "tests.native", "--module", str(module)]
        command += ["--seconds", str(seconds)]
        return subprocess.run(command, env=environment, capture_output=True, text=True)


if __name__ == "__main__":
    done = run_sanitized(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
    print(done.stdout[-4_000:], done.stderr[-4_000:], sep="\n")
    sys.exit(done.returncode)
