"""The archive of zapdb's own code for the executors of a cluster, and its entry module."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Final

from zapdb.files import replace_text_file, writing_file
from zapdb.storage.storage_version import upgrades_directory

PACKAGE: Final = Path(__file__).parents[1]
_LEFT_OUT: Final = ("__pycache__",)
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""The time of all files, so that the same code makes the same archive."""
_ENTRY_SUFFIX: Final = "_main.py"
ENTRY: Final = '''\
"""zapdb's command line for spark-submit: the arguments are those of `zapdb`."""

import sys

sys.path.insert(0, __file__.removesuffix("{suffix}") + ".zip")

from zapdb.cli.program import main

if __name__ == "__main__":
    main()
'''


def write_package(archive: Path) -> Path:
    """Write zapdb's code to a zip file for `--py-files`, and an entry module beside it.

    Returns the path of the entry module: the archive's, with `_main.py`. It must not have the
    package's name, which it would take for every program beside it.
    """
    upgrades = upgrades_directory()
    with (
        writing_file(archive) as stream,
        zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as file,
    ):
        for path in sorted(PACKAGE.parent.glob("pyspark_zapdb*.py")):
            _add(file, path, path.name)
        for root, folder in ((PACKAGE, "zapdb"), (upgrades, "zapdb/storage/storage_upgrades")):
            for path in sorted(root.rglob("*")):
                inside = path.relative_to(root)
                if path.is_file() and not set(inside.parts) & set(_LEFT_OUT):
                    _add(file, path, f"{folder}/{inside.as_posix()}")
    entry = archive.with_name(archive.stem + _ENTRY_SUFFIX)
    replace_text_file(entry, ENTRY.format(suffix=_ENTRY_SUFFIX))
    return entry


def _add(file: zipfile.ZipFile, path: Path, name: str) -> None:
    if name in file.namelist():
        return
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    file.writestr(entry, path.read_bytes())
