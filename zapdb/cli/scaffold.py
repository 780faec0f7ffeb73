"""New migration files: the next number, a name made of the summary, and an example of each change.

The file is refused by `zapdb migrate check` until its changes are written.
"""

from __future__ import annotations

import json
import re
import unicodedata
from pathlib import Path
from typing import Final

from zapdb.errors import InvalidMigration, UsageError
from zapdb.migrations import label, list_files
from zapdb.migrations.document import Mapping, Scalar, Source, read_document

SLUG_LENGTH_MAX: Final = 40
NAMELESS: Final = "migration"

FIRST_EXAMPLE: Final = """\
- create_table:
    table: people
    key: [id]
    fields:
      - {name: id, type: uuid, generated: true}
      - {name: name, type: string}
      - {name: joined, type: date, optional: true}"""

EXAMPLES: Final = (
    FIRST_EXAMPLE,
    "- create_type: {type: membership, enum: [guest, member, honorary]}",
    """\
- add_field:
    table: people
    field: {name: balance, type: decimal, scale: 2}
    fill: {value: "0.00"}""",
    "- rename_field: {table: people, field: joined, to: member_since}",
    """\
- change_type:
    table: people
    field: balance
    type: string
    up: "text(balance)"
    down: "decimal(balance, 2, else=0)\"""",
    """\
- transform:
    table: people
    from: {name: string}
    into: {first: string, last: string}
    up: {first: "before(name, ' ')", last: "after(name, ' ')"}
    down: {name: "join(' ', first, last)"}""",
    """\
- create_index:
    table: people
    index: by_last
    fields: [{field: last, collation: {locale: und}}]""",
    "- drop_index: {table: people, index: by_last}",
    """\
- drop_field:
    table: people
    field: balance
    restore: {value: "0.00"}""",
    "- rename_table: {table: people, to: members}",
    "- drop_type: {type: membership}",
)
"""Each operation once, so that they may follow each other in one migration."""


def create_migration(directory: Path, summary: str) -> Path:
    """Write the scaffold of the next migration; creates the directory, never overwrites a file."""
    shown = " ".join(summary.split())
    if not shown or not shown.isprintable():
        raise UsageError(
            "a summary is a line of text", hint='for example: zapdb migrate new "Split the name"'
        )
    number = _next_number(directory)
    text = render(shown, first=number == 1)
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{label(number, make_slug(shown))}.yaml"
    with path.open("x", encoding="utf-8", newline="\n") as file:
        file.write(text)
    return path


def _next_number(directory: Path) -> int:
    try:
        return list_files(directory)[-1].number + 1
    except UsageError:  # no directory, or nothing in it
        return 1


def make_slug(summary: str) -> str:
    """A file's name for a summary: words of a to z and 0 to 9, cut between words."""
    plain = unicodedata.normalize("NFKD", summary).encode("ascii", "ignore").decode().lower()
    slug = ""
    for word in re.findall(r"[a-z0-9]+", plain.replace("'", "")):
        longer = f"{slug}_{word}" if slug else word[:SLUG_LENGTH_MAX]
        if len(longer) > SLUG_LENGTH_MAX:
            break
        slug = longer
    return slug or NAMELESS


def render(summary: str, *, first: bool) -> str:
    """The text of a new migration."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        autoescape=False,  # noqa: S701 - YAML, not HTML; the summary is quoted below
        loader=PackageLoader("zapdb.cli"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
    )
    template = environment.get_template("migration.yaml.jinja")
    examples = EXAMPLES[:1] if first else EXAMPLES[1:]
    return template.render(summary=_quote(summary), examples=examples)


def _quote(summary: str) -> str:
    """The summary as YAML reads it back: plain where that means the same text, else quoted."""
    try:
        read = read_document(Source("summary", f"summary: {summary}\n".encode()))
    except InvalidMigration:
        return json.dumps(summary, ensure_ascii=False)
    assert isinstance(read, Mapping)
    if read.entries.get("summary") == Scalar(summary, read.entries["summary"].location):
        return summary
    return json.dumps(summary, ensure_ascii=False)
