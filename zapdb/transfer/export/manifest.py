"""The manifest of an exported directory: what is in it, and how to tell that nothing is missing.

DIRECTORY/manifest.json         written last: a directory without it is no whole export
DIRECTORY/migrations/           one file for each migration, with zapdb.lock
DIRECTORY/tables/NAME.parquet   the records of a table in the order of their keys
DIRECTORY/archives/NAME.ndjson  archived values of its dropped fields, if there are any
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Final, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct

from zapdb.errors import CorruptExport, IncompatibleVersion, UsageError
from zapdb.files import replace_text_file
from zapdb.limits import EXPORT_MANIFEST_SIZE_BYTES_MAX
from zapdb.past.files.history_manifest import Doubt
from zapdb.release import __version__

FORMAT: Final = 1
FILE: Final = "manifest.json"
MIGRATIONS: Final = "migrations"
TABLES: Final = "tables"
ARCHIVES: Final = "archives"

T = TypeVar("T")
Form = Literal["parquet", "csv", "ndjson"]


class ExportedArchive(Struct, frozen=True, forbid_unknown_fields=True):
    """The archived values of a table's dropped fields: their file, how many, and their digest."""

    file: str
    values: Annotated[int, Meta(ge=0)]
    digest: str


class ExportedTable(Struct, frozen=True, forbid_unknown_fields=True):
    """A table: its file, relative to the directory, how many records it has, and their digest.

    `as_text` names the fields whose numbers are text, since some exceed 64 bits or 38 digits.
    """

    name: str
    file: str
    records: Annotated[int, Meta(ge=0)]
    digest: str
    as_text: tuple[str, ...] = ()
    sequences: dict[str, int] = {}
    """The last number that was drawn, by the field."""
    archive: ExportedArchive | None = None
    """Archived values of dropped fields, if there are any."""


class ExportedSetting(Struct, frozen=True, forbid_unknown_fields=True):
    """A setting of the tenant, or of the whole database, by the names of what it is for."""

    name: str
    value: str
    scope: Literal["database", "tenant"]
    table: str | None = None
    field: str | None = None
    index: str | None = None


class ExportedMoment(Struct, frozen=True, forbid_unknown_fields=True):
    """The past moment that was exported: its number, and since when readers could see it.

    `doubts` says of which tables values may differ from those of then, and why.
    """

    number: Annotated[int, Meta(ge=0)]
    visible_at: str | None
    doubts: dict[str, Doubt]


class Manifest(Struct, frozen=True, forbid_unknown_fields=True):
    """What an export consists of; `position` is the number of the newest active migration, and
    `moment` is None for the present. `left_out` are migrations that were rolled back and are kept
    for processes: an export has the chain alone."""

    format: int
    release: str
    made_at: str
    form: Form
    position: int
    chain: str
    tables: tuple[ExportedTable, ...]
    settings: tuple[ExportedSetting, ...] = ()
    moment: ExportedMoment | None = None
    left_out: tuple[str, ...] = ()

    def list_files(self) -> list[str]:
        """The files of the tables, relative to the directory."""
        archives = [table.archive.file for table in self.tables if table.archive is not None]
        return [*(table.file for table in self.tables), *archives]

    def write(self, directory: Path) -> None:
        """Write it; the file gets its name when it is whole."""
        text = msgspec.json.format(msgspec.json.encode(self), indent=2)
        replace_text_file(directory / FILE, f"{text.decode()}\n")


def read_manifest(directory: Path) -> Manifest:
    """Raises `UsageError` for what is no whole export, `CorruptExport` for a damaged manifest,
    and `IncompatibleVersion` for one of a later release."""
    manifest = read_contents(directory, FILE, Manifest, "manifest", "zapdb export DIRECTORY")
    path = directory / FILE
    for file in manifest.list_files():
        require_inside(directory, file, path)
    if (directory / MIGRATIONS).is_dir():
        require_inside(directory, MIGRATIONS, directory)
        for name in sorted(os.listdir(directory / MIGRATIONS)):  # noqa: PTH208 - names
            require_inside(directory, f"{MIGRATIONS}/{name}", directory)
    return manifest


def require_inside(directory: Path, file: str, path: Path) -> None:
    """Raise `CorruptExport` for a file outside of the directory, also behind a link: an untrusted
    export would have this process read all that it may, and errors quote what is read. `path` is
    what names the file, or has it.
    """
    try:
        is_inside = (directory / file).resolve().is_relative_to(directory.resolve())
    except (OSError, RuntimeError, ValueError):  # a link to itself, or a byte 00
        is_inside = False
    if not is_inside:
        is_named = path.suffix == ".json"
        raise CorruptExport(
            "the manifest of an export names a file outside of its directory"
            if is_named
            else "an export has a link out of its directory",
            file=path,
            names=file,
            hint="it is none that zapdb wrote: load only the copy of a whole directory",
        )


def read_contents(directory: Path, file: str, kind: type[T], what: str, command: str) -> T:
    """Return the JSON of a file that an export ends with; raises as `read_manifest` does. Errors
    say `what` the file is, and the command that writes it."""
    path = directory / file
    require_inside(directory, file, path)
    try:
        raw = _read_bounded(path)
        _require_known_format(raw, path)
        return msgspec.json.decode(raw, type=kind)
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(
            f"the directory has no {what}, so it is not a whole export",
            file=path,
            hint=f"export again: `{command}` writes the {what} last",
        ) from None
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise CorruptExport(
            f"the {what} of an export can't be read",
            file=path,
            problem=str(error),
            hint="export again",
        ) from None


def _read_bounded(path: Path) -> bytes:
    """Return the bytes of a manifest; raises `CorruptExport` for one that is too large, and
    `OSError`."""
    with path.open("rb") as file:
        raw = file.read(EXPORT_MANIFEST_SIZE_BYTES_MAX + 1)
    if len(raw) > EXPORT_MANIFEST_SIZE_BYTES_MAX:
        raise CorruptExport(
            "the manifest of an export is too large",
            file=path,
            limit=f"{EXPORT_MANIFEST_SIZE_BYTES_MAX:,} bytes",
            hint="it is none that zapdb wrote: copy the export again, or export again",
        )
    return raw


def _require_known_format(raw: bytes, path: Path) -> None:
    """Raise `IncompatibleVersion` for a file of a later release."""
    head = msgspec.json.decode(raw, type=dict)
    if isinstance(head.get("format"), int) and head["format"] > FORMAT:
        raise IncompatibleVersion(
            "a later release wrote this export",
            file=path,
            format=head["format"],
            known=FORMAT,
            release=__version__,
            hint="use a newer release of zapdb",
        )
