"""Queries against a filter and a sort in plain Python, with and without indexes."""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from typing import Any

import icu
import pytest

from tests.support import Workspace
from zapdb.database import Database
from zapdb.errors import (
    InvalidCursor,
    InvalidValue,
    RecordNotFound,
    SeveralRecords,
    UnknownField,
    UnknownName,
    UsageError,
)

ITEMS = """\
create_table: {table: items, key: [id], fields: [
      {name: id, type: integer},
      {name: title, type: string, optional: true},
      {name: done, type: boolean},
      {name: due, type: integer, optional: true},
      {name: weight, type: float, default: "0.0"},
      {name: count, type: integer, default: 0},
      {name: notes, type: json, optional: true}]}"""
INDEXES = (
    "create_index: {table: items, index: by_due, fields: [{field: due}]}",
    "create_index: {table: items, index: by_done_due, fields: [{field: done}, {field: due, "
    "descending: true}]}",
    "create_index: {table: items, index: by_title, fields: [{field: title, collation: {locale: sv, "
    "strength: primary}}, {field: due}]}",
    "create_index: {table: items, index: by_code, fields: [{field: title, descending: true}]}",
    "create_index: {table: items, index: by_weight, fields: [{field: weight}, {field: count}]}",
)
LONG = "long " * 300
TITLES = [None, "", "a", "A", "á", "ab", "Ab", "b", "z", "ö", "resume", "Résumé", "\x00", "漢"]
TITLES += [LONG, LONG + "a", LONG + "A", LONG + "b"]
NAN = float("nan")


def make_records(count: int, seed: int = 1) -> list[dict[str, Any]]:
    choice = random.Random(seed).choice
    return [
        {
            "id": number,
            "title": choice(TITLES),
            "done": choice([True, False]),
            "due": choice([None, -5, 0, 1, 2, 3, 300, 2**70]),
            "weight": choice([-1.5, 0.0, 2.0, float("inf"), NAN]),
            "count": choice([0, 1]),
        }
        for number in range(-count // 2, count // 2)
    ]


def start(workspace: Workspace, count: int = 300, *, indexes: bool = True) -> Database:
    workspace.write(1, ITEMS, *(INDEXES if indexes else ()))
    db = workspace.open()
    db.table("items").insert_many(make_records(count))
    return db


# The oracle


def sound(text: str) -> bytes:
    return swedish().getSortKey(text)


@functools.cache
def swedish() -> Any:
    collator = icu.Collator.createInstance(icu.Locale("sv"))
    collator.setStrength(icu.Collator.PRIMARY)
    return collator


def is_nan(value: Any) -> bool:
    return bool(value != value)


def rank(value: Any) -> tuple[bool, bool, Any]:
    """Nulls first, NaN last."""
    return (value is not None, is_nan(value), 0 if value is None or is_nan(value) else value)


Pair = tuple[Any, Callable[[dict[str, Any]], bool]]
"""A condition, and what it means."""


def draw_comparison(items: Any, random_: random.Random) -> Pair:
    choice = random_.choice
    name = choice(["title", "done", "due", "weight", "count", "id", "due", "title"])
    field = items[name]
    value = choice(make_records(20, random_.randrange(100)))[name]
    other = choice(make_records(20, random_.randrange(100)))[name]
    kind = choice(["==", "!=", "<", "<=", ">", ">=", "between", "in", "null", "text"])
    if kind == "null":
        return field.is_null(), lambda r: r[name] is None
    if kind == "in":
        values = [value, other, choice([value, other])]
        keys = [rank(v) for v in values]
        return field.in_(values), lambda r: rank(r[name]) in keys
    if kind == "text" and name == "title":
        value = value or "a"
        if choice([True, False]):
            return field.startswith(value), lambda r: (r[name] or "\x01").startswith(value)
        return field.matches(
            value
        ), lambda r: r[name] is not None and sound(r[name]) == sound(value)
    if kind == "!=" or value is None or other is None:
        return field != value, lambda r: rank(r[name]) != rank(value)
    low, high = sorted([value, other], key=rank)
    first, last = rank(low), rank(high)
    present: Callable[[dict[str, Any]], bool] = lambda r: r[name] is not None  # noqa: E731
    if kind == "between":
        return field.between(low, high), lambda r: present(r) and first <= rank(r[name]) <= last
    if kind == "<":
        return field < low, lambda r: present(r) and rank(r[name]) < first
    if kind == "<=":
        return field <= low, lambda r: present(r) and rank(r[name]) <= first
    if kind == ">":
        return field > low, lambda r: present(r) and rank(r[name]) > first
    if kind == ">=":
        return field >= low, lambda r: present(r) and rank(r[name]) >= first
    return field == low, lambda r: rank(r[name]) == first


def draw_condition(items: Any, random_: random.Random, depth: int = 2) -> Pair:
    kind = random_.choice(["and", "and", "or", "not", "one"]) if depth else "one"
    if kind == "one":
        return draw_comparison(items, random_)
    left, is_left = draw_condition(items, random_, depth - 1)
    if kind == "not":
        return ~left, lambda r: not is_left(r)
    right, is_right = draw_condition(items, random_, depth - 1)
    if kind == "and":
        return left & right, lambda r: is_left(r) and is_right(r)
    return left | right, lambda r: is_left(r) or is_right(r)


ORDERS: list[tuple[str, ...]] = [
    *[("due",), ("-due",), ("done", "-due"), ("-done", "due"), ("due", "id"), ("-id",), ("count",)],
    *[
        ("title",),
        ("-title",),
        ("weight", "count"),
        ("-weight", "-count"),
        ("weight", "-count"),
        (),
    ],
    *[("~title",), ("-~title", "-due"), ("-~title", "due"), ("-due", "-id"), ("weight",)],
]
"""`~title` is the title under its collation."""


def in_order(records: list[dict[str, Any]], order: tuple[str, ...]) -> list[int]:
    found = sorted(
        records, key=lambda r: r["id"], reverse=order[:1] > ("-",) and order[0][0] == "-"
    )
    for text in reversed(order):
        name = text.lstrip("-~")

        def key(record: dict[str, Any], name: str = name, text: str = text) -> Any:
            value = record[name]
            return rank(sound(value) if "~" in text and value is not None else value)

        # Reversed, a stable sort keeps equal ones as they are.
        found.sort(key=key, reverse=text[0] == "-")
    return [record["id"] for record in found]


def ordered(items: Any, query: Any, order: tuple[str, ...]) -> Any:
    fields = []
    for text in order:
        field = items.title.collated("sv", "primary") if "~" in text else items[text.lstrip("-")]
        fields.append(-field if text[0] == "-" else field)
    return query.order_by(*fields)


def check_queries(items: Any, records: list[dict[str, Any]], seed: int, count: int) -> set[str]:
    """Returns what the plans used."""
    random_, used = random.Random(seed), set()
    for _ in range(count):
        condition, is_meant = draw_condition(items, random_)
        meant = [record for record in records if is_meant(record)]
        query = items.where(condition)
        used.add(query.explain().index or "")
        assert sorted(r.id for r in query) == sorted(r["id"] for r in meant), query
        assert query.count() == len(meant), query
        assert query.exists() is bool(meant), query
        order = random_.choice(ORDERS)
        wanted = in_order(meant, order)
        query = ordered(items, query, order)
        assert [r.id for r in query] == wanted or not order, (query, str(query.explain()))
        limit = random_.choice([0, 1, 5, 40])
        assert [r.id for r in query.limit(limit)] == wanted[:limit], query
        assert query.limit(limit).count() == len(wanted[:limit])
        assert getattr(query.first(), "id", None) == (wanted[0] if wanted else None)
        size, cursor, paged = random_.choice([7, 50]), None, []
        while True:
            page = query.page(size, cursor)
            paged += [record.id for record in page]
            if (cursor := page.cursor) is None:
                break
            assert len(page) == size
        assert paged == wanted, (query, str(query.explain()))
    return used


def test_rule_23_a_query_answers_the_same_without_while_building_and_with_indexes(
    workspace: Workspace,
) -> None:
    records = make_records(300)
    workspace.write(1, ITEMS)
    with workspace.open() as db:
        db.table("items").insert_many(records)
        # What is under a collation needs one that is declared, or named.
        with pytest.raises(UsageError, match="which collation"):
            db.table("items").title.matches("a")
    workspace.write(2, *INDEXES)
    db = workspace.open()
    items = db.table("items")
    assert len(items.where().explain().passed_over) == len(INDEXES)
    assert check_queries(items, records, seed=3, count=4) == {""}
    db.run_jobs()
    assert items.where(items.title.matches("a")).explain().index == "by_title"
    assert {"by_due", "by_done_due", "by_code", "by_weight"} <= check_queries(
        items, records, seed=4, count=30
    )


def test_rule_24_strings_that_are_cut_are_compared_whole(workspace: Workspace) -> None:
    items = start(workspace).table("items")
    records = make_records(300)
    for title in (LONG, LONG + "a", LONG + "A"):
        query = items.where(items.title == title)
        assert query.explain().rechecked
        assert {r.id for r in query} == {r["id"] for r in records if r["title"] == title}
        below = items.where(items.title > title, items.title < LONG + "b")
        meant = [r for r in records if r["title"] and title < r["title"] < LONG + "b"]
        assert [r.id for r in below.order_by("-title")] == in_order(meant, ("-title",))
    assert not items.where(items.title.matches("a")).explain().rechecked


def test_rule_24_pages_go_on_between_keys_that_are_cut(workspace: Workspace) -> None:
    items, records = start(workspace, 150).table("items"), make_records(150)
    for order in (("~title", "due"), ("-~title", "-due")):
        query = ordered(items, items.where(), order)
        assert query.explain().index == "by_title"
        cursor, paged = None, []
        while True:
            page = query.page(4, cursor)
            paged += [record.id for record in page]
            if (cursor := page.cursor) is None:
                break
        assert paged == in_order(records, order)


def test_several_ranges_are_read_in_the_order_of_the_query(workspace: Workspace) -> None:
    items, records = start(workspace).table("items"), make_records(300)
    for order in (("done", "-due"), ("-done", "due")):
        query = ordered(items, items.where(items.done.in_([True, False])), order)
        assert (query.explain().index, query.explain().ranges) == ("by_done_due", 2)
        assert [r.id for r in query] == in_order(records, order)


def test_rule_11_an_older_process_asks_in_its_own_shape(workspace: Workspace) -> None:
    old = start(workspace)
    items, records = old.table("items"), make_records(300)
    workspace.write(
        2,
        "rename_field: {table: items, field: due, to: deadline}",
        "drop_index: {table: items, index: by_due}",
    )
    new = workspace.open().table("items")
    assert [r.id for r in new.order_by("deadline")] == in_order(records, ("due",))
    check_queries(items, records, seed=5, count=5)
    with pytest.raises(UnknownField, match="deadline"):
        _ = new.deadlin


def test_a_cursor_survives_a_restart_and_what_is_written_before_it(workspace: Workspace) -> None:
    workspace.write(1, ITEMS, *INDEXES)
    with workspace.open() as db:
        items = db.table("items")
        items.insert_many({"id": n, "done": False, "due": n // 3} for n in range(100))
        page = items.where(items.done == False).order_by("due").page(40)  # noqa: E712
        assert page.cursor is not None
        items.delete(39)
        items.delete(3)
        items.insert(id=-1, done=False, due=0)
    items = workspace.open().table("items")
    query = items.where(items.done == False).order_by("due")  # noqa: E712
    second = query.page(40, page.cursor)
    assert [record.id for record in second] == list(range(40, 80))
    assert [r.id for r in query.page(40, second.cursor)] == list(range(80, 100))


def test_a_cursor_of_another_query_is_refused(workspace: Workspace) -> None:
    items = start(workspace, 50).table("items")
    query = items.where(items["count"] == 1)
    cursor = query.order_by("due").page(3).cursor
    assert cursor is not None
    for other in (
        query,
        query.order_by("-due"),
        query.order_by("due", "title"),
        items.where(items["count"] == 0).order_by("due"),
        items.order_by("due"),
    ):
        with pytest.raises(InvalidCursor, match="another query"):
            other.page(3, cursor)
    hostile = [
        "",
        "x",
        "'; DROP TABLE zapdb_r1 --",
        cursor[:-9],
        "é",
        cursor + "=",
        "A" * 10**5,
        b"",
        7,
    ]
    for text in hostile:
        if text != cursor + "=":
            with pytest.raises(InvalidCursor):
                query.order_by("due").page(3, text)


def test_values_are_checked_where_a_condition_is_made(workspace: Workspace) -> None:
    items = start(workspace, 10).table("items")
    for make in (
        lambda: items.due == "1",
        lambda: items.due < 1.5,
        lambda: items.due < None,
        lambda: items.done == 1,
        lambda: items.title == 3,
        lambda: items.title.in_("abc"),
        lambda: items.due.in_([1, "2"]),
        lambda: items.title.startswith(None),
        lambda: items.title.collated("xx-none"),
        lambda: items.where().limit(-1),
        lambda: items.where().page(0),
    ):
        with pytest.raises(InvalidValue):
            make()
    for misuse in (
        lambda: bool(items.due == 1),
        lambda: 1 < items.due < 3,
        lambda: bool(items.done),
        lambda: items.where(True),
        lambda: items.notes < 1,
        lambda: items.order_by("notes"),
        lambda: items.order_by(3),
        lambda: items.due == items["count"],
        lambda: items.due.startswith("1"),
        lambda: items.where().limit(1).where(items.due == 1),
        lambda: items.where().limit(1).page(1),
    ):
        with pytest.raises(UsageError):
            misuse()
    with pytest.raises(UnknownName, match="did you mean 'title'"):
        _ = items.titel
    with pytest.raises(UnknownName):
        items.order_by("-nothing")
    assert not hasattr(items, "nothing")
    assert not hasattr(items, "__array__")


def test_injected_strings_are_values(workspace: Workspace) -> None:
    items = start(workspace, 10).table("items")
    text = "' OR 1=1; DROP TABLE zapdb_r1; --"
    items.insert(id=99, title=text, done=False)
    assert items.where(items.title == text).one().id == 99
    assert items.where(items.title.startswith(text[:5])).one().id == 99
    assert items.count() == 11


def test_one_record_or_an_error(workspace: Workspace) -> None:
    items = start(workspace, 10).table("items")
    assert items.where(items.id == 3).one().id == 3
    assert items.where(items.id == 3).explain().records_read == 1
    with pytest.raises(RecordNotFound):
        items.where(items.id == 300).one()
    with pytest.raises(SeveralRecords):
        items.where().one()
    assert items.where(items.id == 300).first() is None
    assert items.where(items.id.in_([])).count() == 0


def test_a_query_goes_on_when_its_table_is_changed_under_way(workspace: Workspace) -> None:
    start(workspace, 0)
    items = workspace.follow().table("items")  # sees whatever is in force
    items.insert_many({"id": n, "done": n % 2 == 0, "due": n} for n in range(200))
    by_index = iter(items.where(items["count"] == 0).order_by("due"))
    by_key = iter(items.where(items["count"] == 0))
    first = [next(by_index).id, next(by_key).id]
    workspace.write(2, "rename_field: {table: items, field: count, to: total}")
    workspace.open()
    assert first + [r.id for r in by_index] == [0, 0, *range(1, 200)]
    assert [r.id for r in by_key] == list(range(1, 200))


def test_explain_says_it_in_words_and_as_data(workspace: Workspace) -> None:
    items = start(workspace, 100).table("items")
    query = items.where(items.due > 0, items.due <= 3, items["count"] == 1).order_by("-due")
    words = str(query.limit(5).explain())
    assert "reads the index by_due, 1 range, backwards" in words
    assert "answered by it: due > 0; due <= 3" in words
    assert "compared record by record: count == 1" in words
    found = query.explain().to_json()
    assert (found["index"], found["ranges"], found["sorting"]) == ("by_due", 1, "none")
    meant = [r for r in make_records(100) if r["due"] in (1, 2, 3)]
    assert found["records_read"] == len(meant)
    scan = items.where(items["count"] == 1).explain()
    assert scan.is_scan
    assert scan.index is None
    assert "all of the table, since no index fits" in str(scan)
