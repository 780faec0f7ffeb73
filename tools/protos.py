"""`python -m tools.protos`: generate the modules of `zapdb/service/proto/*.proto`.

With `--check`, change nothing, and exit with 1 if a generated module differs.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

ROOT: Final = Path(__file__).parent.parent
PROTOS: Final = ROOT / "zapdb/service/proto"


def generate() -> Mapping[Path, str]:
    """What each generated module is to be, by its path."""
    import grpc_tools.protoc

    with TemporaryDirectory() as directory:
        arguments = [f"-I{ROOT}", f"--python_out={directory}", f"--pyi_out={directory}"]
        names = [str(path.relative_to(ROOT)) for path in sorted(PROTOS.glob("*.proto"))]
        if grpc_tools.protoc.main(["protoc", *arguments, *names]) != 0:
            raise SystemExit("the protos have errors")
        made = Path(directory)
        return {
            ROOT / path.relative_to(made): path.read_text()
            for path in sorted(made.rglob("*_pb2.py*"))
        }


def list_differences() -> list[Path]:
    """The generated modules that are not what the protos say, and those of no proto."""
    wanted = generate()
    there = set(PROTOS.glob("*_pb2.py*"))
    return [
        path
        for path in sorted({*wanted, *there})
        if not path.exists() or path.read_text() != wanted.get(path)
    ]


def main() -> int:
    if "--check" in sys.argv[1:]:
        different = list_differences()
        for path in different:
            print(f"{path.relative_to(ROOT)} differs from its proto: run python -m tools.protos")
        return 1 if different else 0
    for path in list_differences():
        path.unlink(missing_ok=True)
    for path, text in generate().items():
        path.write_text(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
