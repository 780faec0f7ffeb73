"""The kept inputs of a target: `corpus/TARGET.txt`, one a line, in hex."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

DIRECTORY = Path(__file__).parent / "corpus"


def read_corpus(name: str) -> list[bytes]:
    path = DIRECTORY / f"{name}.txt"
    return [bytes.fromhex(line) for line in path.read_text().split()] if path.exists() else []


def write_corpus(name: str, inputs: Iterable[bytes]) -> None:
    """In order of size, so that what is added is seen in a difference."""
    DIRECTORY.mkdir(exist_ok=True)
    lines = sorted({data.hex() for data in inputs if data}, key=lambda line: (len(line), line))
    (DIRECTORY / f"{name}.txt").write_text("".join(f"{line}\n" for line in lines))
