"""Searches of unique indexes: bounds of entries and their order, against full keys in a list."""

from __future__ import annotations

import random

import pytest

from zapdb.records import PagedRow
from zapdb.tables.indexes.keys import NULL, PRESENT, prefix_end, truncate_unique_key
from zapdb.tables.indexes.spans import Span, Ties
from zapdb.values import String
from zapdb.values.length_prefixed import ESCAPED_END


def make_entries(seed: int) -> list[tuple[bytes, PagedRow, bool]]:
    """(entry key, (full key, record key, no bytes), has null) of two strings, by entry key."""
    generator, made = random.Random(seed), list[tuple[bytes, PagedRow, bool]]()
    encode = String().encode_key
    seen: set[bytes] = set()
    for number in range(400):
        parts, has_null = b"", False
        for _ in range(2):
            if generator.random() < 0.3:
                parts, has_null = parts + NULL, True
                continue
            size = generator.choice([0, 1, 2, 488, 494, 495, 496, 980, 989, 990, 991, 1_020, 1_500])
            text = "x" * size + generator.choice(["", "a", "b", "\x00"])
            parts += PRESENT + String().encode_index_key(text)
        # Long ones, too: with a null, even a short index key is truncated behind them.
        key = encode("k" * generator.choice([0, 1, 10, 600, 1_000]) + str(number * 7_919))
        if not has_null and parts in seen:
            continue
        seen.add(parts)
        entry: PagedRow = (parts, key, b"")
        made.append((truncate_unique_key(parts, key, has_null=has_null), entry, has_null))
    made.sort(key=lambda found: found[0])
    assert len({found[0] for found in made}) == len(made)
    return made


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("descending", [False, True])
def test_rule_24_a_search_of_a_unique_index_finds_what_the_full_keys_say(
    seed: int, descending: bool
) -> None:
    entries = make_entries(seed)
    generator = random.Random(seed)
    bounds: list[bytes | None] = [None]
    for _, (full, _, _), _ in generator.sample(entries, 40):
        bounds += [full, prefix_end(full), full[: full.find(ESCAPED_END) + 2]]
    for _ in range(200):
        low, high = generator.choice(bounds), generator.choice(bounds)
        span = Span(low, high)
        lower, upper = span.entry_bounds(unique=True)
        read = [
            entry
            for key, entry, _ in entries
            if (lower is None or key >= lower) and (upper is None or key < upper)
        ]
        if descending:
            read.reverse()
        ties, found = Ties(span, unique=True, descending=descending), list[PagedRow]()
        for at in range(0, len(read) + 1, 50):
            found += ties.sort(read[at : at + 50], is_last=at + 50 > len(read))
        wanted = sorted(
            (entry for _, entry, _ in entries if span.holds(entry[0])),
            key=lambda entry: entry[:2],
            reverse=descending,
        )
        assert found == wanted
