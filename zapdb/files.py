"""Text files that are written whole: a full disk leaves what was there before."""

from __future__ import annotations

import os
import shutil
from pathlib import Path


def create_text_file(path: Path, text: str) -> None:
    """Write a file that must not exist yet; on an error there is none.

    Raises `FileExistsError`, and any other `OSError` with the file's name.
    """
    with path.open("x", encoding="utf-8", newline="\n") as file:
        try:
            file.write(text)
            file.flush()
        except OSError as error:
            path.unlink()
            raise _named(error, path) from error


def replace_text_file(path: Path, text: str) -> None:
    """Write a file, or another text into it; on an error it stays as it was.

    Raises `OSError` with the file's name.
    """
    target = Path(os.path.realpath(path))
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        create_text_file(partial, text)
        if target.exists():
            shutil.copymode(target, partial)
        partial.replace(target)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise _named(error, path) from error


def _named(error: OSError, path: Path) -> OSError:
    return type(error)(error.errno, error.strerror, str(path))
