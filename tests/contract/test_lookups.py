"""Lookups by an index against an oracle that knows nothing of keys: comparison, value by value."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any

import icu
import pytest

from tests import forms
from tests.forms import cases
from tests.lookups import between, find, starts_with
from tests.support import Workspace
from zapdb import asdict
from zapdb.database import Database, Table
from zapdb.errors import InvalidCursor, InvalidValue, UnknownName, UsageError
from zapdb.limits import INDEX_KEY_SIZE_BYTES_MAX, PAGE_RECORDS_MAX

WORDS = """\
create_table: {table: words, key: [id], fields: [
      {name: id, type: integer},
      {name: word, type: string, optional: true},
      {name: rank, type: integer, optional: true},
      {name: code, type: string, default: ""}]}"""

INDEXES: dict[str, list[tuple[str, str | None, bool]]] = {
    # index: field, ICU locale and strength or None for code points, descending
    "by_word": [("word", "und/tertiary", False)],
    "by_word_down": [("word", "und/tertiary", True)],
    "by_sound": [("word", "sv/primary", False)],
    "by_rank": [("rank", None, False)],
    "by_rank_down": [("rank", None, True)],
    "by_code": [("code", None, False)],
    "by_both": [("word", "und/secondary", False), ("rank", None, True)],
    "by_rank_and_word": [("rank", None, True), ("word", "und/tertiary", False)],
}


def create_index(name: str) -> str:
    components = []
    for field, collation, descending in INDEXES[name]:
        text = f"field: {field}, descending: {str(descending).lower()}"
        if collation:
            locale, strength = collation.split("/")
            text += f", collation: {{locale: {locale}, strength: {strength}}}"
        components.append(f"{{{text}}}")
    return f"create_index: {{table: words, index: {name}, fields: [{', '.join(components)}]}}"


SEEDS = [
    *("", "a", "A", "á", "Á", "a\u0301", "ä", "ae", "æ", "z", "Z", "ö", "o", "zebra", "Zebra"),
    *("résumé", "resume", "Resume", "côte", "coté", "cote", "côté", "ch", "cz", "ß", "ss", "SS"),
    *(
        "東京",
        "東",
        "とうきょう",
        "トウキョウ",
        "한국",
        "москва",
        "Москва",
        "Ω",
        "ω",
        "שלום",
        "مرحبا",
    ),
    *("ไทย", "ก", "नमस्ते", "ab", "abc", "a b", "a-b", "co-op", "coop", "10", "2", "½", "①", "1"),
    *("\u20a8", "500", "₨500", "\x00", "a\x00b", "\uffff", "\U0001f600", "\U0010ffff", "ﬁ", "fi"),
]
RANKS = [None, 0, 1, -1, 63, 64, -64, -65, 255, 256, 10**9, -(10**9), 2**70, -(2**70), 300]


def make_records(count: int, seed: int) -> list[dict[str, Any]]:
    generator = random.Random(seed)

    def word() -> str | None:
        if generator.random() < 0.15:
            return None
        return "".join(generator.choice(SEEDS) for _ in range(generator.randint(1, 3)))

    return [
        {
            "id": number - count // 2,
            "word": word(),
            "rank": generator.choice(RANKS),
            "code": generator.choice(SEEDS),
        }
        for number in range(count)
    ]


# The oracle


def compare(left: Any, right: Any) -> int:
    return (left > right) - (left < right)


@functools.cache
def compare_strings(collation: str | None) -> Callable[[Any, Any], int]:
    if collation is None:
        # Code points and UTF-8 have one order; Python compares code points.
        return compare
    locale, strength = collation.split("/")
    collator = icu.Collator.createInstance(icu.Locale(locale))
    collator.setStrength(getattr(icu.Collator, strength.upper()))
    return collator.compare


def compare_component(component: tuple[str, str | None, bool], left: Any, right: Any) -> int:
    if left is None or right is None:
        found = compare(left is not None, right is not None)
    else:
        found = compare_strings(component[1])(left, right)
    return -found if component[2] else found


def compare_bounds(index: str, left: tuple[Any, ...], right: tuple[Any, ...]) -> int:
    """By the leading components that both have."""
    for component, one, other in zip(INDEXES[index], left, right, strict=False):
        found = compare_component(component, one, other)
        if found:
            return found
    return 0


def values_of(index: str, record: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(record[field] for field, _, _ in INDEXES[index])


def in_order(index: str, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    def order(left: dict[str, Any], right: dict[str, Any]) -> int:
        found = compare_bounds(index, values_of(index, left), values_of(index, right))
        return found or compare(left["id"], right["id"])

    return sorted(records, key=functools.cmp_to_key(order))


def ids(records: list[dict[str, Any]]) -> list[int]:
    return [record["id"] for record in records]


def found(words: Table, index: str, *values: Any, **bounds: Any) -> list[int]:
    records = between(words, index, **bounds) if bounds else find(words, index, *values)
    return [record.id for record in records]


def check_index(words: Table, index: str, records: list[dict[str, Any]], seed: int) -> None:
    """Order both ways, ranges and exact lookups, with bounds from the records and others."""
    ordered = in_order(index, records)
    assert found(words, index, descending=False) == ids(ordered)
    assert found(words, index, descending=True) == ids(ordered[::-1])
    generator = random.Random(seed)
    others = [values_of(index, record) for record in make_records(cases(80), seed + 1)]
    bounds = [values_of(index, generator.choice(records)) for _ in range(cases(100))] + others
    for at, bound in enumerate(bounds):
        lower, upper = bound, bounds[-at - 1]
        if at % 3 == 0:  # a prefix of the components
            lower, upper = lower[:1], upper[:1]
        for inclusive in (False, True):
            expected = [
                record
                for record in ordered
                if compare_bounds(index, values_of(index, record), lower) >= 0
                and compare_bounds(index, values_of(index, record), upper) < inclusive
            ]
            limit = generator.choice([None, None, 0, 1, 7])
            assert (
                found(words, index, lower=lower, upper=upper, include_upper=inclusive, limit=limit)
                == (ids(expected)[:limit])
            )
            assert found(
                words, index, lower=lower, upper=upper, include_upper=inclusive, descending=True
            ) == (ids(expected[::-1]))
        equal = [record for record in ordered if values_of(index, record)[: len(lower)] == lower]
        assert found(words, index, *lower) == ids(equal)


@pytest.mark.parametrize("index", INDEXES)
def test_rule_23_an_index_answers_as_comparison_does_built_or_not(
    workspace: Workspace, index: str
) -> None:
    records = make_records(400 if forms.is_long else 150, seed=5)
    workspace.write(1, WORDS)
    with workspace.open() as db:
        db.table("words").insert_many(records)
    workspace.write(2, create_index(index))
    db = workspace.open()
    words = db.table("words")
    assert index not in words.readable_indexes()
    check_index(words, index, records, seed=7)
    db.admin.run_jobs()
    check_index(words, index, records, seed=7)
    assert index in words.readable_indexes()


def test_rule_24_nulls_come_first_or_last_when_descending(workspace: Workspace) -> None:
    workspace.write(1, WORDS, create_index("by_rank"), create_index("by_rank_down"))
    words = workspace.open().table("words")
    words.insert_many({"id": n, "rank": rank} for n, rank in enumerate([3, None, -5, None, 0]))
    assert found(words, "by_rank", descending=False) == [1, 3, 2, 4, 0]
    assert found(words, "by_rank_down", descending=False) == [0, 4, 2, 1, 3]
    assert found(words, "by_rank", None) == [1, 3]
    assert found(words, "by_rank_down", None) == [1, 3]
    assert found(words, "by_rank", lower=(None,), upper=(0,)) == [1, 3, 2]
    assert found(words, "by_rank_down", lower=(0,), upper=(None,)) == [4, 2]
    assert found(words, "by_rank_down", lower=(0,), upper=(None,), include_upper=True) == (
        [4, 2, 1, 3]
    )


def test_rule_24_equal_under_the_collation_is_not_equal(workspace: Workspace) -> None:
    """`find` compares by ==; the range of a value is what is equal under the collation."""
    workspace.write(1, WORDS, create_index("by_sound"))
    words = workspace.open().table("words")
    variants = ["resume", "Résumé", "RESUME", "résumé", "re\u0301sume\u0301"]
    words.insert_many({"id": n, "word": word} for n, word in enumerate([*variants, "resumf"]))
    for number, word in enumerate(variants):
        assert found(words, "by_sound", word) == [number]
        assert found(words, "by_sound", lower=word, upper=word, include_upper=True) == [
            0,
            1,
            2,
            3,
            4,
        ]
    assert found(words, "by_sound", "reSume") == []


# Keys that are cut

LONG = "long " * 100  # its sort key passes 1,024 bytes


def long_records() -> list[dict[str, Any]]:
    texts = [
        *(LONG + ending for ending in ("b", "a", "a", "c", "a\u0301", "", "A")),
        *(LONG * 3, LONG[:-2], "lonf", "long", "lonh", "漢" * 700, "漢" * 701, "漢" * 700 + "a"),
    ]
    return [
        {"id": n, "word": text, "rank": n % 3, "code": text.replace(" ", "\u00ff") * 3}
        for n, text in enumerate([*texts, *texts])
    ]


@pytest.mark.parametrize("index", INDEXES)
def test_rule_24_keys_that_are_cut_are_put_in_order_by_the_whole_value(
    workspace: Workspace, index: str
) -> None:
    records = long_records()
    workspace.write(1, WORDS, create_index(index))
    db = workspace.open()
    db.table("words").insert_many(records)
    words = db.table("words")
    assert index in words.readable_indexes()
    check_index(words, index, records, seed=11)
    for record in records:
        equal = [r for r in records if values_of(index, r) == values_of(index, record)]
        assert found(words, index, *values_of(index, record)) == ids(in_order(index, equal))
    (state,) = db._catalog.table("words").indexes
    sizes = workspace.execute(f"SELECT length(key) FROM zapdb_entries_{state.entry_table}")
    assert max(size for (size,) in sizes) <= INDEX_KEY_SIZE_BYTES_MAX
    if index != "by_rank" and index != "by_rank_down":
        assert max(size for (size,) in sizes) == INDEX_KEY_SIZE_BYTES_MAX
    assert [report.problems for report in db.admin.verify()] == [()]


def test_rule_24_a_run_of_cut_keys_may_be_longer_than_a_page(workspace: Workspace) -> None:
    count = PAGE_RECORDS_MAX + 200
    workspace.write(1, WORDS, create_index("by_word"))
    db = workspace.open()
    endings = [f"{number:04d}" for number in range(count)]
    random.Random(3).shuffle(endings)
    db.table("words").insert_many(
        {"id": n, "word": LONG + ending} for n, ending in enumerate(endings)
    )
    words = db.table("words")
    assert [record.word[-4:] for record in words.using("by_word")] == sorted(endings)
    assert [record.word[-4:] for record in words.using("by_word").reverse()] == sorted(endings)[
        ::-1
    ]
    some = between(words, "by_word", LONG + "0500", LONG + "0503")
    assert [record.word[-4:] for record in some] == ["0500", "0501", "0502"]


# Prefixes

PREFIXED: dict[str, list[tuple[str, str | None, bool]]] = {
    "by_code": [("code", None, False)],
    "by_code_down": [("code", None, True)],
    "by_czech": [("word", "cs/tertiary", False)],
    "by_swedish_down": [("word", "sv/primary", True)],
    "by_rank_and_code": [("rank", None, True), ("code", None, True)],
    "by_code_and_word": [("code", None, False), ("word", "cs/secondary", False)],
    "by_word_and_code": [("word", "und/primary", False), ("code", None, False)],
}


@pytest.mark.parametrize("index", PREFIXED)
@pytest.mark.parametrize(
    "long",
    [False, pytest.param(True, marks=pytest.mark.long_on("postgresql"))],
    ids=["short", "long"],
)
def test_rule_24_strings_that_begin_with_a_prefix_are_found_in_order(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, index: str, long: bool
) -> None:
    monkeypatch.setitem(INDEXES, index, PREFIXED[index])
    more = [
        "c",
        "ch",
        "cha",
        "cz",
        "h",
        "a",
        "a\u030a",
        "a\u030ab",
        "å",
        "ab",
        "A",
        "Ab",
        "",
        "\x00",
    ]
    before = LONG * 12 if long else ""  # more than a record holds itself
    generator = random.Random(17)
    # The last field is any string; those before it are from few, so that several records share one.
    texts = [before + text for text in [*more, *SEEDS]]
    records = [
        {
            "id": number,
            "word": generator.choice([None, "a", "A"]) if "word_and" in index else text,
            "rank": generator.choice([None, 1, 2]),
            "code": generator.choice(["", "a", before]) if "code_and" in index else text,
        }
        for number, text in enumerate([*texts, *texts])
    ]
    workspace.write(1, WORDS)
    with workspace.open() as db:
        db.table("words").insert_many(records)
    workspace.write(2, create_index(index))
    db = workspace.open()
    words = db.table("words")
    ordered = in_order(index, records)

    def check() -> None:
        leading = {values_of(index, record)[:-1] for record in records}
        prefixes = [*more, before, *(before + text for text in more), before[:300]]
        for values in leading:
            for prefix in prefixes if forms.is_long else generator.sample(prefixes, 8):
                wanted = [
                    record["id"]
                    for record in ordered
                    if values_of(index, record)[:-1] == values
                    and values_of(index, record)[-1] is not None
                    and values_of(index, record)[-1].startswith(prefix)
                ]
                assert [r.id for r in starts_with(words, index, *values, prefix)] == wanted

    check()
    db.admin.run_jobs()
    assert index in words.readable_indexes()
    check()


def test_a_lookup_by_prefix_reads_no_more_than_begins_alike(workspace: Workspace) -> None:
    workspace.write(1, WORDS, create_index("by_word"), create_index("by_code"))
    words = workspace.open().table("words")
    letters = "abcdefghij"
    words.insert_many(
        {"id": number, "word": word, "code": word}
        for number, word in enumerate(a + b + "x" * 10 for a in letters for b in letters)
    )
    for name in ("by_word", "by_code"):
        query = starts_with(words, name, "cd")
        bound, asked = query._bound, query._selection
        keys = next(index.keys for index in bound.adapter.indexes if index.name == name)
        plan = asked.plan(bound, asked.ordering(bound))
        built = [keys.build(record) for record in words.scan()]
        read = [key for key in built if any(span.holds(key) for span in plan.spans)]
        assert read == [keys.encode(["cd" + "x" * 10])]
        assert [record.word for record in query] == ["cd" + "x" * 10]
        assert bool(plan.rechecked) == (name == "by_word")


def test_what_is_not_ambiguous_is_not_compared(workspace: Workspace) -> None:
    """NaN equals nothing, not even itself: it is found by its key, and compared by its bytes."""
    table = "create_table: {table: points, key: [id], fields: [{name: id, type: integer},"
    table += " {name: x, type: float}, {name: word, type: string}]}"
    workspace.write(
        1,
        table,
        "create_index: {table: points, index: by_x, fields: [{field: x}]}",
        "create_index: {table: points, index: by_both, fields: [{field: x},"
        " {field: word, collation: {locale: und}}]}",
    )
    points = workspace.open().table("points")
    points.insert_many(
        {"id": number, "x": x, "word": "a"} for number, x in enumerate([1.0, float("nan"), -0.0])
    )
    assert found(points, "by_x", float("nan")) == [1]
    assert found(points, "by_both", float("nan"), "a") == [1]
    assert found(points, "by_both", 0.0, "a") == [2]
    assert found(points, "by_both", 0.0, "A") == []


# Entries equal records


def entries_of(workspace: Workspace, db: Database, index: str) -> list[tuple[bytes, bytes]]:
    state = next(i for i in db._catalog.table("words").indexes if i.index.name == index)
    rows = workspace.execute(f"SELECT key, record FROM zapdb_entries_{state.entry_table}")
    return sorted((bytes(key), bytes(record)) for key, record in rows)


@pytest.mark.parametrize("built", [True, False], ids=["readable", "building"])
def test_rule_23_entries_equal_records_after_random_changes(
    workspace: Workspace, built: bool
) -> None:
    workspace.write(1, WORDS)
    if not built:
        with workspace.open() as db:
            db.table("words").insert_many(make_records(100, seed=1))
    workspace.write(2, *map(create_index, INDEXES))
    db = workspace.open()
    words = db.table("words")
    if built:
        words.insert_many(make_records(100, seed=1))
        db.admin.run_jobs()
    generator, there = random.Random(2), {record.id for record in words.scan()}
    fresh = iter(make_records(200, seed=3))
    for turn in range(300 if forms.is_long else 90):
        values = next(fresh) if turn % 3 == 0 else make_records(3, seed=turn)[2]
        if turn % 3 == 0:
            number = 1000 + turn
            words.insert(**(values | {"id": number}))
            there.add(number)
        elif turn % 3 == 1 or not there:
            changes = {name: values[name] for name in ("word", "rank") if generator.random() < 0.6}
            words.update(generator.choice(sorted(there)), **changes)
        else:
            number = generator.choice(sorted(there))
            words.delete(number)
            there.remove(number)
    if not built:
        db.admin.run_jobs()
    (report,) = db.admin.verify()
    assert report.problems == ()
    assert report.entries == dict.fromkeys(INDEXES, len(there))
    # And what another database makes of the same records at once.
    with db.snapshot():
        rows = [asdict(record) for record in words.scan()]
    workspace.write(3, *(f"drop_index: {{table: words, index: {name}}}" for name in INDEXES))
    entries = {name: entries_of(workspace, db, name) for name in INDEXES}
    with workspace.open() as other:
        other.admin.run_jobs()
    workspace.write(4, *map(create_index, INDEXES))
    with workspace.open() as other:
        other.admin.run_jobs()
        assert {name: entries_of(workspace, other, name) for name in INDEXES} == entries
        for name in ("by_word", "by_both"):
            check_index(other.table("words"), name, rows, seed=13)


# What is refused


def test_conditions_with_values_that_do_not_fit(workspace: Workspace) -> None:
    workspace.write(1, WORDS, create_index("by_both"))
    words = workspace.open().table("words")
    with pytest.raises(InvalidValue):
        find(words, "by_both", 5)
    with pytest.raises(InvalidValue):
        between(words, "by_both", lower=("a", "b"))
    with pytest.raises(UsageError, match="only strings compared by code points have prefixes"):
        starts_with(words, "by_both", "a", "b")
    for wrong in (None, 5, "\ud800"):
        with pytest.raises(InvalidValue):
            starts_with(words, "by_both", wrong)
    assert list(find(words, "by_both")) == []


# Pinned to an index


def test_a_query_is_read_by_the_index_that_it_names(workspace: Workspace) -> None:
    workspace.write(1, WORDS, create_index("by_rank"), create_index("by_code"))
    words = workspace.open().table("words")
    words.insert_many({"id": n, "code": "ab"[n % 2], "rank": -n} for n in range(6))
    both = words.where(words.f.code == "a", words.f.rank > -5)
    assert both.explain().index == "by_code"
    pinned = both.using("by_rank")
    assert pinned.explain().index == "by_rank"
    assert [record.id for record in pinned] == [4, 2, 0]
    assert [record.id for record in pinned.reverse()] == [0, 2, 4]
    assert [record.id for record in pinned.reverse().reverse()] == [4, 2, 0]
    assert [record.id for record in pinned.order_by("id")] == [0, 2, 4]
    assert [record.id for record in pinned.order_by("-rank", "id").reverse()] == [4, 2, 0]
    assert (pinned.count(), pinned.min("id"), pinned.sum("rank")) == (3, 0, -6)
    assert pinned.first().id == 4
    assert pinned.delete() == 3
    assert [record.id for record in words.using("by_rank")] == [5, 3, 1]


def test_pages_of_a_pinned_query_keep_its_order(workspace: Workspace) -> None:
    workspace.write(1, WORDS, create_index("by_both"))
    words = workspace.open().table("words")
    records = make_records(60, seed=23)
    words.insert_many(records)
    for query, wanted in (
        (words.using("by_both"), in_order("by_both", records)),
        (words.using("by_both").reverse(), in_order("by_both", records)[::-1]),
    ):
        seen, cursor = list[int](), None
        while True:
            page = query.page(7, cursor)
            seen += [record.id for record in page]
            cursor = page.cursor
            if cursor is None:
                break
        assert seen == ids(wanted)
    with pytest.raises(InvalidCursor):
        words.using("by_both").page(7, words.using("by_both").reverse().page(7).cursor)


def test_what_can_be_pinned_and_turned(workspace: Workspace) -> None:
    workspace.write(1, WORDS, create_index("by_rank"))
    words = workspace.open().table("words")
    with pytest.raises(UnknownName, match="did you mean 'by_rank'"):
        words.using("by_rang")
    with pytest.raises(UsageError, match="give an index by its name"):
        words.using(3)
    with pytest.raises(UsageError, match="the query has no order yet"):
        words.where().reverse()
    with pytest.raises(UsageError, match="nulls last cannot be reversed"):
        words.order_by(words.f.rank.nulls_last()).reverse()
