"""Rule 5: however a document is written, its digest is the same.

Documents of `chains` are written anew by a YAML writer that draws everything that has no meaning:
block and flow style, quotes, the order of keys, indentation, comments, blank lines, line ends,
markers, a byte order mark.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from typing import Any

import cbor2
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.forms import cases
from tests.strategies import chains, quote
from zapdb.migrations import Chain, Migration, NumberAllocator, read_stored, resolve
from zapdb.migrations.document import DocumentText, as_plain_data, read_document
from zapdb.migrations.parsed_migration import parse_document

PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*( [a-z]+)*", re.ASCII)
WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
"""Plain scalars that are no text, or refused."""

FREE = dict.fromkeys(("table", "field", "index", "type"), 1_000)
"""Numbers that no chain has drawn."""

SOLID = True
"""Of a line: nothing may be put behind it or below it, since it would be text."""

Line = tuple[str, bool]


class Speller:
    """Writes plain data as YAML in a way of its own at every turn."""

    def __init__(self, seed: int) -> None:
        self.drawn = random.Random(seed)
        self.comments = self.often(0.5)

    def often(self, chance: float) -> bool:
        return self.drawn.random() < chance

    def document(self, data: Any) -> bytes:
        lines = [*self.head()]
        is_block = isinstance(data, dict | list) and data and self.often(0.8)
        lines += self.block(data, 0) if is_block else [(self.flow(data, 1), SOLID)]
        if self.often(0.2):
            lines.append(("...", SOLID))
        text = "".join(self.decorate(lines))
        text = text.replace("\n", self.drawn.choice(["\n", "\n", "\r\n", "\r"]))
        return ("\ufeff" * self.often(0.2) + text).encode()

    def head(self) -> Iterator[Line]:
        if self.often(0.1):
            yield "%YAML 1.1", SOLID
            yield "---", not SOLID
        elif self.often(0.2):
            yield "---", not SOLID

    def decorate(self, lines: list[Line]) -> Iterator[str]:
        for line, is_solid in lines:
            behind = " # ä: [{" if self.comments and not is_solid and self.often(0.3) else ""
            yield f"{line}{behind}\n"
            if self.comments and not is_solid and self.often(0.2):
                yield " " * self.drawn.randint(0, 6) + "# - why: 'not\n"
            if not is_solid and self.often(0.1):
                yield "\n"

    # Block style: lines

    def block(self, data: Any, indent: int) -> list[Line]:
        """A mapping or list that is not empty."""
        return list(
            self.block_list(data, indent)
            if isinstance(data, list)
            else self.block_mapping(data, indent)
        )

    def block_mapping(self, data: dict[str, Any], indent: int) -> Iterator[Line]:
        pad = " " * indent
        for key in self.shuffled(data):
            head = f"{pad}{self.text(key)}:"
            if self.often(0.05):
                yield f"{pad}? {self.text(key)}", not SOLID
                head = f"{pad}:"
            yield from self.block_value(head, data[key], indent, in_list=False)

    def block_list(self, data: list[Any], indent: int) -> Iterator[Line]:
        pad = " " * indent
        for item in data:
            if isinstance(item, dict | list) and item and self.often(0.5):
                width = self.drawn.randint(2, 4)
                (first, is_solid), *rest = self.block(item, indent + width)
                yield f"{pad}-{first[indent + 1 :]}", is_solid
                yield from rest
            else:
                yield from self.block_value(f"{pad}-", item, indent, in_list=True)

    def block_value(self, head: str, value: Any, indent: int, *, in_list: bool) -> Iterator[Line]:
        deeper = indent + self.drawn.randint(1, 4)
        if isinstance(value, dict | list) and value and self.often(0.7):
            if isinstance(value, list) and not in_list and self.often(0.4):
                deeper = indent  # "- " may stand below its key
            yield head, not SOLID
            yield from self.block(value, deeper)
        elif value is None and self.often(0.3):
            yield head, not SOLID
        elif isinstance(value, str) and self.is_literal(value) and self.often(0.3):
            style = self.drawn.choice("|>")
            yield f"{head} {style}-", SOLID
            yield f"{' ' * deeper}{value}", SOLID
        else:
            between = " " * self.drawn.randint(1, 3)
            yield f"{head}{between}{self.flow(value, deeper)}", not SOLID

    @staticmethod
    def is_literal(text: str) -> bool:
        """Whether a block holds it on one line."""
        return text.isascii() and text.isprintable() and text == text.strip() != ""

    # Flow style: text

    def flow(self, data: Any, indent: int) -> str:
        if isinstance(data, str):
            return self.text(data)
        if not isinstance(data, dict | list):
            return json.dumps(data)
        if isinstance(data, dict):
            parts = [
                f"{self.text(key)}: {self.flow(data[key], indent)}" for key in self.shuffled(data)
            ]
        else:
            parts = [self.flow(item, indent) for item in data]
        gap = " " * self.drawn.randint(0, 2)
        comma = f", {gap}"
        if self.often(0.2):
            comment = "  # }]" if self.comments else ""
            comma = f",{comment}\n{' ' * indent}"
        last = "," if parts and self.often(0.1) else ""
        inner = gap + comma.join(parts) + last + gap
        return f"{{{inner}}}" if isinstance(data, dict) else f"[{inner}]"

    def text(self, text: str) -> str:
        ways = [quote(text)]
        if text.isascii() and text.isprintable():
            ways.append("'" + text.replace("'", "''") + "'")
        if PLAIN.fullmatch(text) and text.lower() not in WORDS:
            ways += [text, text]
        return self.drawn.choice(ways)

    def shuffled(self, data: dict[str, Any]) -> list[str]:
        keys = list(data)
        self.drawn.shuffle(keys)
        return keys


seeds = st.integers(0, 2**32)
plains = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=4).filter(lambda key: key != "<<"), inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(deadline=None, max_examples=cases(1_500))
@given(plains.filter(lambda value: value not in (None, "")), seeds)
def test_the_writer_writes_what_it_is_given(value: Any, seed: int) -> None:
    raw = Speller(seed).document(value)
    assert as_plain_data(read_document(DocumentText("a.yaml", raw))) == value, raw.decode()


@settings(deadline=None, max_examples=cases(300))
@given(chains(), seeds)
def test_rule_05_a_digest_does_not_depend_on_spelling(chain: Chain, seed: int) -> None:
    """A structure is a document, too, whose rollback is written out: its normal form is itself."""
    for migration in chain.migrations:
        assert _read_again(migration) == migration
        content = cbor2.loads(migration.structure)
        for at in range(3):
            speller = Speller(seed + at)
            document = {
                "zapdb": 1,
                "summary": f"Spelled {at}",
                "changes": content["changes"],
                "rollback": content["rollback"],
            }
            raw = speller.document(document)
            source = DocumentText("0001_a.yaml", raw)
            parsed = parse_document(read_document(source), source, migration.number, "other")
            spelled = resolve(parsed, migration.before, NumberAllocator(FREE))
            assert spelled.digest == migration.digest, raw.decode()
            assert spelled.structure == migration.structure


def _read_again(migration: Migration) -> Migration:
    """As the database stored it: built of the structure, without the parser of documents."""
    return read_stored(
        migration.structure, migration.name, migration.summary, migration.drawn, migration.before
    )
