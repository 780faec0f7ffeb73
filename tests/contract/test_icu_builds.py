"""An index under two builds of ICU that sort differently: nobody gets the order of the other.

The other build is that of the environment which `make test-system-icu` makes; without one that
sorts otherwise there is nothing to compare.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import icu
import pytest

from tests import processes
from tests.contract.tables import INDEX_SIZE, INDEX_TITLE, ITEMS
from tests.contract.test_dataset_policies import Elsewhere
from tests.contract.test_dataset_rebuilds import index_row, reindex
from tests.lookups import between, find
from tests.support import GUARD_SECONDS, ROOT, Workspace
from zapdb.database import Database
from zapdb.errors import DatasetMismatch

CHARACTERS = "abzßäÄ059 -₨₧﷼׳״囘钅钉針৴৵αжя한東"
"""Among them what moved between ICU 72 and 77: signs of currencies, numerators, radicals."""

_DRAWN = random.Random(27)
TITLES = ["₨", "500", *("".join(_DRAWN.choices(CHARACTERS, k=1 + at % 4)) for at in range(150))]
TITLES_OF = dict(enumerate(TITLES))

sort_key = icu.Collator.createInstance(icu.Locale("und")).getSortKey


@dataclass(frozen=True)
class Build:
    """Another Python, and in which order its ICU puts the titles."""

    python: Path
    order: tuple[int, ...]


def order_of(titles: list[str]) -> tuple[int, ...]:
    return tuple(sorted(range(len(titles)), key=lambda at: (sort_key(titles[at]), at)))


@cache
def find_build() -> Build:
    for name in (".venv-system-icu", ".venv"):
        python = ROOT / name / "bin" / "python"
        if not python.exists():
            continue
        code = (
            "from tests.contract.test_icu_builds import TITLES, order_of; print(order_of(TITLES))"
        )
        order = tuple(map(int, run(python, "-c", code).strip("()\n").split(",")))
        if order != order_of(TITLES):
            return Build(python, order)
    pytest.skip("there is no environment with another ICU: make test-system-icu makes one")


def run(python: Path, *arguments: str) -> str:
    ran = processes.run(
        [python, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=GUARD_SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def command_of(place: Workspace, *commands: str) -> list[str]:
    return [str(find_build().python), *place.command("collated", *commands)[1:]]


def ask_elsewhere(place: Workspace, *commands: str) -> list[str]:
    python, *rest = command_of(place, *commands)
    return run(Path(python), *rest).splitlines()


@contextmanager
def running_elsewhere(place: Workspace, *commands: str) -> Iterator[Elsewhere]:
    other = Elsewhere(command_of(place, *commands))
    try:
        assert other.read()[-1] == "reopened"
        yield other
    finally:
        other.end()


@pytest.fixture
def place(workspace: Workspace) -> Workspace:
    find_build()
    workspace.write(1, ITEMS, INDEX_TITLE, INDEX_SIZE)
    with workspace.open() as db:
        db.table("items").insert_many(
            {"id": at, "title": title, "size": at} for at, title in enumerate(TITLES)
        )
    return workspace


def check_here(db: Database, titles: dict[int, str]) -> None:
    """Every way to ask gives what this process's ICU says, and nothing is missing."""
    items = db.table("items")
    wanted = sorted(titles, key=lambda at: (sort_key(titles[at]), at))
    ordered = [r.id for r in items.order_by(items.f.title.collated("und"), "id")]
    assert ordered == wanted
    drawn = random.Random(len(titles))
    for _ in range(8):
        lower, upper = sorted(drawn.choices([*titles.values()], k=2), key=sort_key)
        found = sorted(r.id for r in between(items, "by_title", lower, upper))
        assert found == sorted(
            at for at in titles if sort_key(lower) <= sort_key(titles[at]) < sort_key(upper)
        )
        found = sorted(r.id for r in find(items, "by_title", lower))
        assert found == sorted(at for at in titles if titles[at] == lower)


def text_of(ids: tuple[int, ...]) -> str:
    return " ".join(map(str, ids))


def test_rule_26_builds_used_in_turn_do_not_throw_each_others_index_away(place: Workspace) -> None:
    there = text_of(find_build().order)
    shown = ask_elsewhere(place, "readable", "order", "index", "verify")
    assert "by_title" in shown[0]  # a warning: the data changed
    assert shown[1:] == ["reopened", "by_size by_title", there, there, "ok by_size by_title"]
    moved = index_row(place)
    assert moved["state"] == "readable"
    for _ in range(2):
        with place.open() as db:  # with the former data
            assert db.table("items").readable_indexes() == ("by_size",)
            check_here(db, TITLES_OF)
            with pytest.raises(DatasetMismatch, match="other collation") as caught:
                db.table("items").insert(id=1_000, title="₨")
            assert "zapdb reindex run" in caught.value.hint
            assert db.admin.run_jobs() == []
        assert index_row(place) == moved
        shown = ask_elsewhere(place, "readable", "order", "index", "verify")
        assert shown == ["reopened", "by_size by_title", there, there, "ok by_size by_title"]
        assert index_row(place) == moved
    with place.open() as db:  # an operator makes the former data the newest
        reindex(place)
        db.admin.run_jobs()
        assert "by_title" in db.table("items").readable_indexes()
        db.table("items").insert(id=1_000, title="₨ 5")
        db.table("items").delete(0)
        check_here(db, changed())
        (report,) = db.admin.verify()
        assert report.problems == ()
    row = index_row(place)
    shown = ask_elsewhere(place, "readable", "sorted")
    assert "was built with the data of here before: it stays as it is" in shown[0]
    assert shown[1:] == ["reopened", "by_size", "as wanted"]
    assert index_row(place) == row


def changed() -> dict[int, str]:
    return {at: title for at, title in TITLES_OF.items() if at} | {1_000: "₨ 5"}


def test_rule_26_a_build_is_refused_while_a_process_has_another(place: Workspace) -> None:
    with running_elsewhere(place, "wait", "order", "verify") as other:
        row = index_row(place)
        with pytest.raises(DatasetMismatch, match="other running processes use different"):
            place.open()
        assert index_row(place) == row
        assert other.go_on() == [text_of(find_build().order), "ok by_size by_title"]


def test_rule_26_two_builds_at_once_both_give_right_answers(place: Workspace) -> None:
    with place.open() as db:
        db.admin.set_setting("on_dataset_change", "scan")
        asked = ("sorted", "wait", "upsert 1000 ₨ 5", "delete 0", "sorted", "wait")
        with running_elsewhere(place, "wait", *asked) as other:
            check_here(db, TITLES_OF)
            assert other.go_on() == ["as wanted"]
            assert other.go_on() == ["as wanted"]
            check_here(db, changed())


def test_rule_26_background_rewrites_the_keys_that_differ_both_ways(place: Workspace) -> None:
    with place.open() as db:
        db.admin.set_setting("on_dataset_change", "rewrite")
    there = text_of(find_build().order)
    shown = ask_elsewhere(place, "sorted", "run", "readable", "order", "index", "verify")
    assert [line for line in shown if not line.startswith("warned: ")] == [
        *("reopened", "as wanted", "ran index"),
        *("by_size by_title", there, there, "ok by_size by_title"),
    ]
    with place.open() as db:
        check_here(db, TITLES_OF)
        (report,) = db.admin.run_jobs()
        assert report.progress.written > 0
        assert "by_title" in db.table("items").readable_indexes()
        check_here(db, TITLES_OF)
        (verified,) = db.admin.verify()
        assert verified.problems == ()
