"""A file that can't be written whole stays as it was."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from zapdb.files import create_text_file, replace_text_file

LONG = "x" * 100_000


@contextmanager
def no_room() -> Iterator[None]:
    """Files end at a thousand bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_without_room_stays_as_it_was(tmp_path: Path) -> None:
    old, new = tmp_path / "zapdb.lock", tmp_path / "0001_new.yaml"
    replace_text_file(old, "as it was\n")
    old.chmod(0o640)
    for write, path in ((replace_text_file, old), (create_text_file, new)):
        with no_room(), pytest.raises(OSError, match="File too large") as caught:
            write(path, LONG)
        assert caught.value.filename == str(path)
    assert [path.name for path in tmp_path.iterdir()] == ["zapdb.lock"]
    assert old.read_text() == "as it was\n"
    replace_text_file(old, LONG)
    assert (old.read_text(), old.stat().st_mode & 0o777) == (LONG, 0o640)
    create_text_file(new, "")
    with pytest.raises(FileExistsError):
        create_text_file(new, "again")


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.toml").write_text("1")
    link = tmp_path / "pyproject.toml"
    link.symlink_to("real.toml")
    replace_text_file(link, "2")
    assert link.is_symlink()
    assert (tmp_path / "real.toml").read_text() == "2"
