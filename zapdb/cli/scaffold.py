"""New migration files: the next number, a name made of the summary, and an example of each change.

`zapdb migrate check` refuses the file until its changes are written. Their JSON Schema is in the
same directory; editors find it by the comment in the first line.
"""

from __future__ import annotations

import json
import re
import unicodedata
from pathlib import Path
from typing import Final

from zapdb.errors import InvalidMigration, UsageError
from zapdb.files import create_text_file, replace_text_file, require_path
from zapdb.limits import SUMMARY_LENGTH_CHARS_MAX
from zapdb.migrations import label, list_files
from zapdb.migrations.document import DocumentText, Mapping, Scalar, read_document
from zapdb.migrations.json_schema import json_schema
from zapdb.migrations.operations.operation_examples import EXAMPLES

SLUG_LENGTH_MAX: Final = 40
_NAMELESS: Final = "migration"
SCHEMA_FILE: Final = "zapdb.schema.json"


def create_migration(directory: Path, summary: str, changes: str = "") -> Path:
    """Write the scaffold of the next migration; creates the directory, never overwrites a file.

    `changes` is the YAML of its operations, if they are given.
    """
    shown = " ".join(summary.split())
    if not shown or not shown.isprintable():
        raise UsageError(
            "a summary must be one line of text",
            hint='for example: zapdb migrate new "Split the name"',
        )
    if len(shown) > SUMMARY_LENGTH_CHARS_MAX:
        raise UsageError(
            f"a summary has at most {SUMMARY_LENGTH_CHARS_MAX} characters",
            hint="write the rest into the file, as comments",
        )
    number = _next_number(directory)
    text = render_migration(shown, first=number == 1, changes=changes)
    require_path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{label(number, make_slug(shown))}.yaml"
    create_text_file(path, text)
    write_schema(directory / SCHEMA_FILE)
    return path


def write_schema(path: Path) -> None:
    """Write this release's JSON Schema of migration files."""
    text = json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        replace_text_file(path, text)


def has_files(directory: Path) -> bool:
    """Whether a directory is there and has migrations; raises `InvalidMigration`."""
    try:
        return bool(list_files(directory))
    except UsageError:  # no directory, or nothing in it
        return False


def _next_number(directory: Path) -> int:
    return list_files(directory)[-1].number + 1 if has_files(directory) else 1


def make_slug(summary: str) -> str:
    """Return a file's name for a summary: words of a to z and 0 to 9, cut between words."""
    plain = unicodedata.normalize("NFKD", summary).encode("ascii", "ignore").decode().lower()
    slug = ""
    for word in re.findall(r"[a-z0-9]+", plain.replace("'", "")):
        longer = f"{slug}_{word}" if slug else word[:SLUG_LENGTH_MAX]
        if len(longer) > SLUG_LENGTH_MAX:
            break
        slug = longer
    return slug or _NAMELESS


def render_migration(summary: str, *, first: bool, changes: str = "") -> str:
    """Return the text of a new migration; without changes, with examples of all operations."""
    lines = changes.splitlines()
    if not changes:
        lines = [
            "# The changes, in order. Examples of all operations; remove what you don't need:",
            "#",
        ]
        for keyword in ["create_table"] if first else EXAMPLES:
            lines += (f"# {line}" for line in EXAMPLES[keyword].text.splitlines())
    return "\n".join(
        (
            f"# yaml-language-server: $schema={SCHEMA_FILE}",
            "zapdb: 1",
            f"summary: {_quote(summary)}",
            "changes:",
            *(f"  {line}" for line in lines),
            "rollback: inferred",
            "",
        )
    )


def _quote(summary: str) -> str:
    """Return the summary as YAML: plain if that reads as the same text, else quoted."""
    try:
        read = read_document(DocumentText("summary", f"summary: {summary}\n".encode()))
    except InvalidMigration:
        return json.dumps(summary, ensure_ascii=False)
    assert isinstance(read, Mapping)
    if read.entries.get("summary") == Scalar(summary, read.entries["summary"].location):
        return summary
    return json.dumps(summary, ensure_ascii=False)
