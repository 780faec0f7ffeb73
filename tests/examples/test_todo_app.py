"""examples/todo_app: its migrations, its answers on both engines, and a life in a real browser."""

from __future__ import annotations

import datetime
import http.client
import re
import shutil
import signal
import subprocess
import sys
import time
import zoneinfo
from collections.abc import Callable, Iterator
from html import unescape
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from flask.testing import FlaskClient
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect, sync_playwright
from werkzeug.test import TestResponse

import zapdb
from examples.todo_app.days import now_in, show_day
from examples.todo_app.todo import (
    LANGUAGES,
    MIGRATIONS,
    PAGE_ITEMS,
    PRIORITIES,
    Todo,
    open_database,
)
from examples.todo_app.web import create_app
from tests import processes
from tests.support import GUARD_SECONDS, ROOT, Workspace, wait_until
from zapdb.cli.program import run_program
from zapdb.errors import UsageError

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
HOSTILE = (
    """<script>document.title='hit'</script> "><img src=x onerror=alert(1)> {{ 7*7 }} '%s&amp;"""
)


# Migrations


def test_the_migrations_are_as_locked_and_lint_finds_nothing_to_mend(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_program(["migrate", "check", "-m", str(MIGRATIONS)]) == 0
    assert "and as in zapdb.lock" in capsys.readouterr().out
    assert run_program(["migrate", "lint", "-m", str(MIGRATIONS)]) == 0
    found = capsys.readouterr().out
    assert " error " not in found
    assert " warning " not in found
    assert len(list(MIGRATIONS.glob("*.yaml"))) >= 5


def test_the_models_are_those_of_the_migrations() -> None:
    module = MIGRATIONS.parent / "models.py"
    assert (
        run_program(["codegen", "models", "--check", "-m", str(MIGRATIONS), "-o", str(module)]) == 0
    )


def test_what_the_code_offers_is_what_the_schema_has(place: Place) -> None:
    tables = {name: place.db._catalog.table(name).schema for name in ("users", "items")}
    language = tables["users"].field_named("language")
    priority = tables["items"].field_named("priority")
    assert {name for _, name in language.type.members} == set(LANGUAGES)
    assert [name for _, name in priority.type.members] == list(reversed(PRIORITIES))
    indexes = {index.name for index in tables["items"].indexes}
    assert {f"by_title_{code}" for code in LANGUAGES} <= indexes


def test_records_of_the_first_migration_are_served_by_the_application_of_today(
    workspace: Workspace,
) -> None:
    shutil.copy(MIGRATIONS / "0001_lists.yaml", workspace.directory)
    with zapdb.open(workspace.address, migrations=workspace.directory, apply="auto") as old:
        ada = old.table("users").insert(name="Ada", zone="Europe/London")
        chores = old.table("lists").insert(owner=ada.id, title="Chores")
        day = today_in("Europe/London")
        old.table("items").insert_many(
            {"list": chores.id, "title": title, "importance": n, "estimate": n * 10, "due": day}
            for n, title in enumerate(["zero", "one", "Two", "three", "four", "Éclair"])
        )

    with open_database(workspace.address) as db:
        assert db.position == len(list(MIGRATIONS.glob("*.yaml")))
        place = Place(db)
        place.sign_in(ada.id)
        shown = place.get(f"/lists/{chores.id}?sort=title")
        assert titles(shown) == ["Éclair", "four", "one", "three", "Two", "zero"]
        by_priority = place.get(f"/lists/{chores.id}?sort=priority")
        assert set(titles(by_priority)[:2]) == {"four", "Éclair"}
        assert set(titles(by_priority)[-3:]) == {"zero", "one", "Two"}
        assert titles(place.get("/due/today"))[0] in ("four", "Éclair")

        assert 1 in db.admin.count_by_revision("items")
        db.admin.set_setting("convert_after_seconds", "0")
        wait_until(lambda: 1 not in db.admin.count_by_revision("items"), "all were converted")
        wait_until(lambda: not any(r.building for r in db.admin.verify()), "all indexes were built")
        assert [report.problem_count for report in db.admin.verify()] == [0] * 6
        place.get(f"/lists/{chores.id}?sort=title")
        assert "reads the index by_title_en" in place.text()
        older = db.table("items").first()
        assert ", added " not in place.get(f"/items/{older.id}").text
        new = place.todo.add_item(db.table("users").get(ada.id), chores.id, "Mow the lawn")
        assert "Item 1, added " in place.get(f"/items/{new.id}").text


# Without a browser


class Place:
    """The application on a database, and one visitor."""

    def __init__(self, db: zapdb.Database) -> None:
        self.db = db
        self.todo = Todo(db)
        self.app = create_app(self.todo)
        self.client: FlaskClient = self.app.test_client()
        self.answer: TestResponse | None = None

    def get(self, path: str, status: int = 200) -> TestResponse:
        self.answer = self.client.get(path)
        assert self.answer.status_code == status, self.text()
        return self.answer

    def post(self, path: str, status: int = 302, **form: Any) -> TestResponse:
        token = re.search(
            r'csrf_token" value="(\w+)"', self.client.get("/settings", follow_redirects=True).text
        )
        assert token is not None
        self.answer = self.client.post(path, data={"csrf_token": token[1], **form})
        assert self.answer.status_code == status, self.text()
        return self.answer

    def text(self) -> str:
        assert self.answer is not None
        return unescape(self.answer.text)

    def sign_in(self, user: UUID) -> None:
        self.post("/sign-in", user=str(user))

    def add_user(self, name: str, zone: str = "Europe/Stockholm", language: str = "sv") -> Any:
        user = self.todo.users.insert(name=name, zone=zone, language=language)
        self.sign_in(user.id)
        return user

    def add_list(self, title: str = "Things") -> str:
        return self.post("/lists", title=title).location.rpartition("/")[2]


def today_in(zone: str) -> datetime.date:
    """The day there, and surely for the rest of the test."""
    now = now_in(zone)
    midnight = datetime.datetime.combine(now.date(), datetime.time.max, now.tzinfo)
    if (left := midnight - now) < datetime.timedelta(minutes=1):
        time.sleep(left.total_seconds() + 1)
    return now_in(zone).date()


def titles(answer: TestResponse) -> list[str]:
    return [unescape(t) for t in re.findall(r'class="title"[^>]*><bdi>(.*?)</bdi>', answer.text)]


@pytest.fixture
def place(workspace: Workspace) -> Iterator[Place]:
    with open_database(workspace.address) as db:
        yield Place(db)


def test_forms_of_other_sites_are_refused_and_pages_run_no_scripts(place: Place) -> None:
    user = place.todo.users.insert(name="Ada", zone="Europe/London")
    for token in ({}, {"csrf_token": "0" * 32}, {"csrf_token": ""}):
        answer = place.client.post("/sign-in", data={"user": str(user.id), **token})
        assert answer.status_code == 400
        assert "earlier session" in answer.text
    assert place.client.get("/settings").location == "/"
    page = place.get("/")
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    place.sign_in(user.id)
    cookie = place.post("/settings", name="Ada", zone="Asia/Tokyo", language="de").headers[
        "Set-Cookie"
    ]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie


ELSEWHERE = [
    "//evil.example/",
    "///evil.example/",
    "https://evil.example/",
    "https:evil.example",
    "javascript:alert(1)",
    "/\\evil.example",
    "\\/evil.example",
    "/\t/evil.example",
    "\t//evil.example",
    " //evil.example",
    "/\n/evil.example",
    "/\r\n/evil.example",
    "/\x00/evil.example",
    "/\u2028/evil.example",
    "/\u00ad/evil.example",
    "/lists\r\nSet-Cookie: a=b",
    "/lists/\\..\\\\evil.example",
    "evil.example",
    "@evil.example",
    "?next=//evil.example",
    "",
]


def test_a_form_leads_to_pages_of_this_site_only(place: Place) -> None:
    place.add_user("Ada")
    made = place.add_list()
    for target in ELSEWHERE:
        answer = place.post(f"/lists/{made}/items", title="x", next=target)
        assert answer.location == f"/lists/{made}", repr(target)
    for target in ("/", f"/lists/{made}?sort=title&after=abc", "/due/today?tag=%2F%2Fevil"):
        assert place.post(f"/lists/{made}/items", title="x", next=target).location == target


def test_every_form_wants_its_token(place: Place) -> None:
    place.add_user("Ada")
    made = place.add_list()
    place.post(f"/lists/{made}/items", title="milk")
    item = place.todo.items.order_by("id").one()
    before = place.todo.items.get(item.id), place.todo.users.count()
    posts = [rule for rule in place.app.url_map.iter_rules() if "POST" in (rule.methods or ())]
    assert len(posts) >= 12
    for rule in posts:
        key = item.id if "/items/" in rule.rule else made
        with place.app.test_request_context():
            url = rule.build(dict.fromkeys(rule.arguments, key))
        assert url is not None
        for form in ({}, {"csrf_token": "x"}, {"csrf_token": ["", ""]}):
            assert place.client.post(url[1], data=form).status_code == 400, url
    assert (place.todo.items.get(item.id), place.todo.users.count()) == before


def cookie_of(answer: TestResponse) -> str:
    (cookie,) = (c for c in answer.headers.getlist("Set-Cookie") if c.startswith("session="))
    return cookie.partition(";")[0]


def token_in(page: str) -> str:
    found = re.search(r'csrf_token" value="(\w+)"', page)
    assert found is not None
    return found[1]


def test_a_cookie_is_good_until_its_owner_signs_out(place: Place) -> None:
    ada = place.todo.users.insert(name="Ada", zone="Europe/London")
    bob = place.todo.users.insert(name="Bob", zone="Europe/London")
    planted = cookie_of(place.client.get("/"))  # that somebody else may know
    token = token_in(place.client.get("/").text)
    signed_in = place.client.post("/sign-in", data={"csrf_token": token, "user": str(ada.id)})
    first = cookie_of(signed_in)
    elsewhere = place.app.test_client(use_cookies=False)

    def name_of(cookie: str) -> str:
        answer = elsewhere.get("/settings", headers={"Cookie": cookie})
        found = re.search(r'id="name" name="name" value="(\w*)"', answer.text)
        return found[1] if found else "nobody"

    assert (name_of(first), name_of(planted)) == ("Ada", "nobody")
    renewed = token_in(place.client.get("/settings").text)
    assert renewed != token
    # The token of before signing in is good for nothing.
    form = {"csrf_token": token, "title": "x"}
    assert place.client.post("/lists", data=form).status_code == 400
    copied = cookie_of(place.client.post("/settings", data={
        "csrf_token": renewed, "name": "Ada", "zone": "Asia/Tokyo", "language": "de"}))  # fmt: skip
    assert name_of(copied) == "Ada"
    # Somebody else on the same device: the one before is signed out.
    place.sign_in(bob.id)
    assert (name_of(first), name_of(copied)) == ("nobody", "nobody")
    second = cookie_of(place.post("/settings", name="Bob", zone="Asia/Tokyo", language="de"))
    assert name_of(second) == "Bob"
    place.post("/sign-out")
    assert name_of(second) == "nobody"
    assert place.db.table("sessions").count() == 0
    # A user that is deleted, and a session that is over.
    place.sign_in(bob.id)
    third = cookie_of(place.post("/settings", name="Bob", zone="Asia/Tokyo", language="de"))
    (session,) = place.db.table("sessions").scan()
    assert session.digest not in third.encode()
    past = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=1)
    place.db.table("sessions").update(session.digest, until=past)
    assert name_of(third) == "nobody"
    place.sign_in(bob.id)  # takes what is over with it
    assert place.db.table("sessions").count() == 1
    place.post("/settings/delete")
    assert place.db.table("sessions").count() == 0


def test_every_answer_says_how_it_is_to_be_taken(place: Place) -> None:
    place.add_user("Ada")
    made = place.add_list()
    for path, status in (
        ("/static/style.css", 200),
        ("/static/icon.svg", 200),
        ("/static/none.js", 404),
        ("/static/..%2fweb.py", 404),
        (f"/lists/{made}", 200),
        ("/settings", 200),
        (f"/lists/{uuid4()}", 404),
        ("/none", 404),
        ("/sign-in", 405),
    ):
        with place.get(path, status) as answer:
            headers = answer.headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Content-Security-Policy"].startswith("default-src 'none';")
        assert headers["Referrer-Policy"] == "same-origin"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        is_private = not path.startswith("/static")
        assert (headers.get("Cache-Control") == "no-store") is is_private, path
    secure = create_app(place.todo, https=True).test_client().get("/", base_url="https://localhost")
    assert "Secure" in secure.headers["Set-Cookie"]


@pytest.mark.parametrize(
    "ends",
    [
        datetime.datetime(1, 1, 1),
        datetime.datetime(1, 1, 1, 12),
        datetime.datetime(9999, 12, 31, 23, 59),
        datetime.datetime(9999, 12, 31, 12),
    ],
)
def test_a_reminder_at_the_ends_of_time_breaks_no_page(
    place: Place, ends: datetime.datetime
) -> None:
    user = place.add_user("Ada", "Pacific/Kiritimati")
    made = place.add_list()
    place.post(f"/lists/{made}/items", title="call")
    item = place.todo.items.order_by("id").one()
    # What a form says is refused in words.
    for field, text in (("reminder", ends.isoformat()), ("due", ends.date().isoformat())):
        form = edited(place, item.id, **{field: text}, zone="Pacific/Pago_Pago")
        place.post(f"/items/{item.id}", status=400, **form)
        assert "Years are 1900 to 2199" in place.text()
    place.post(f"/lists/{made}/items", status=400, title="x", due=ends.date().isoformat())
    # What records have all the same, by an import or an older form, is shown, and can be mended.
    for theirs, mine in (("Pacific/Pago_Pago", "Pacific/Kiritimati"), ("Asia/Tokyo", "Etc/UTC")):
        for zone, other in ((theirs, mine), (mine, theirs)):
            stored = ends.replace(tzinfo=zoneinfo.ZoneInfo(zone))
            place.todo.items.update(item.id, reminder=stored, due=ends.date())
            place.todo.users.update(user.id, zone=other)
            pages = [f"/lists/{made}", "/due/today", "/due/week", "/due/overdue", "/due/reminders"]
            pages += [f"/lists/{made}?sort={sort}" for sort in ("reminder", "due", "newest")]
            for path in (*pages, f"/items/{item.id}"):
                place.get(path)
            form = edited(place, item.id, reminder="", due="")
            place.todo.items.update(item.id, notes=f"{zone}")
            place.post(f"/items/{item.id}", status=409, **form)
            place.post(f"/items/{item.id}", **edited(place, item.id, reminder="", due=""))
            assert place.todo.items.get(item.id).reminder is None


def test_what_is_logged_is_one_line_without_secrets(
    place: Place, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.add_user("Ada")

    def fail(*arguments: object) -> None:
        raise UsageError("something is wrong")

    monkeypatch.setattr(place.todo, "lists_of", fail)
    place.get("/due/today?after=secret%0aERROR", 500)
    assert "secret" not in caplog.text
    assert "'/due/today'" in caplog.text


def test_nobody_sees_or_changes_what_is_somebody_elses(place: Place) -> None:
    place.add_user("Ada")
    made = place.add_list("Secret")
    place.post(f"/lists/{made}/items", title="nobody's business", tags="mine")
    item = place.todo.items.order_by("id").first()
    assert item is not None

    place.add_user("Bob")
    own = place.add_list("Own")
    place.get(f"/lists/{made}", 404)
    place.get(f"/items/{item.id}", 404)
    place.get(f"/lists/{made}/past", 404)
    for path in (
        f"/lists/{made}/items",
        f"/lists/{made}/rename",
        f"/lists/{made}/home",
        f"/lists/{made}/delete",
        f"/items/{item.id}/done",
        f"/items/{item.id}/delete",
    ):
        place.post(path, 404, title="taken")
    place.post(f"/lists/{own}/items", title="mine")
    mine = place.todo.items.order_by("-id").first()
    assert mine is not None
    # An item can't be put into somebody else's list either.
    place.post(f"/items/{mine.id}", 404, **edited(place, mine.id, list=made))
    assert place.todo.items.get(item.id) == item
    assert "business" not in place.get("/due/week").text
    assert "mine" not in titles(
        place.get(f"/lists/{own}?tag={place.todo.tags.order_by('id').first().id}")
    )


def edited(place: Place, key: UUID, **changes: str) -> dict[str, str]:
    """What the form of an item sends, with these changes."""
    page = place.get(f"/items/{key}").text
    inputs = dict(re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', page))
    seen = {name: unescape(text) for name, text in inputs.items() if name != "csrf_token"}
    shown = {name.removeprefix("seen."): text for name, text in seen.items()}
    return seen | shown | changes


def test_what_cant_be_is_said_in_words(place: Place) -> None:
    place.add_user("Ada")
    made = place.add_list()
    for wrong, words in (
        ({"title": "   "}, "A title is missing"),
        ({"title": "x" * 201}, "at most 200 characters"),
        ({"title": "x\x00y"}, "one line"),
        ({"title": "x", "due": "2026-02-30"}, "a day of the calendar"),
        ({"title": "x", "priority": "urgent"}, "one of those that are offered"),
    ):
        place.post(f"/lists/{made}/items", 400, **wrong)
        assert words in place.text()
    place.post("/settings", 400, name="Ada", zone="Mars/Olympus", language="sv")
    place.post("/settings", 400, name="Ada", zone="Europe/Paris", language="xx")
    place.post("/lists", 400, title="\t")
    place.get(f"/lists/{uuid4()}", 404)
    place.get("/lists/no-uuid", 404)
    place.get("/due/never", 404)
    place.post(f"/items/{uuid4()}/done", 404)
    assert place.todo.items.count() == 0
    # Not printable, says Unicode; but they hold emoji, Persian words and French sentences together.
    for title in ("👨\u200d👩\u200d👧", "نامه\u200cها", "Qui\u00a0?"):
        place.post(f"/lists/{made}/items", title=title)
    assert place.todo.items.count() == 3
    assert (
        "sort="
        not in place.get(f"/lists/{made}?sort=x&due=y&tag=z&priority=w&state=v").request.path
    )
    place.get(f"/lists/{made}?after=nonsense")
    assert "This is its beginning" in place.text()


def test_a_list_of_then_has_what_it_had(place: Place) -> None:
    user = place.add_user("Ada")
    made = place.add_list("Chores")
    other = place.add_list("Other")
    place.post(f"/lists/{made}/items", title="wash")
    place.post(f"/lists/{made}/items", title="iron")
    wash = place.todo.items.where(title="wash").one()
    place.post(f"/items/{wash.id}", **edited(place, wash.id, list=other))
    place.post(f"/lists/{made}/rename", title="Duties")
    place.post(f"/lists/{other}/items", title="elsewhere")

    def told(at: object) -> tuple[list[str], list[str]]:
        page = place.get(f"/lists/{made}/past?at={at}").text
        items = re.findall(r'<span class="title"><bdi>(.*?)</bdi>', page)
        return items, re.findall(r"<li>(\w.*?)</li>", re.sub("</?bdi>", "", page))

    assert told(1) == ([], ["List begun: Chores"])
    assert told(2) == (["wash"], ["Added: wash"])
    assert told(3) == (["iron", "wash"], ["Added: iron"])
    assert told(4) == (["wash", "iron"], ["Moved away: wash"])  # what went stands first
    assert told(5) == (["iron"], ["Renamed to: Duties"])
    assert told(99) == told("") == told("x") == told(5)
    assert told(-1) == told(1)
    assert "It was called <strong><bdi>Chores</bdi>" in place.get(f"/lists/{made}/past?at=3").text
    assert "by you" in place.text()
    assert {one.principal for one in place.db.audit(field="title")} == {str(user.id)}
    assert not any(one.table == "sessions" for one in place.db.audit())
    place.get(f"/lists/{made}/past?until=10000000", 409)
    assert "That is still to come" in place.text()
    for before_all in (0, -1):
        place.get(f"/lists/{made}/past?until={before_all}")
        assert "Nothing has happened" in place.text()


def test_what_zapdb_refuses_is_a_page_too(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    user = place.add_user("Ada")
    made = place.add_list()
    place.db.close()
    place.get(f"/lists/{made}", 500)
    assert "Something is wrong here" in place.text()
    assert str(user.id) not in place.text()
    assert "the database is closed" in caplog.text


def test_a_day_is_today_where_its_reader_is(place: Place) -> None:
    east, west = "Pacific/Kiritimati", "Pacific/Pago_Pago"  # 25 hours apart
    user = place.add_user("Ada", east)
    made = place.add_list()
    today = today_in(east)
    for title, days in (("late", -1), ("now", 0), ("soon", 6), ("later", 7)):
        due = today + datetime.timedelta(days)
        place.post(f"/lists/{made}/items", title=title, due=due.isoformat())
    place.post(f"/lists/{made}/items", title="some day")
    assert titles(place.get("/due/overdue")) == ["late"]
    assert titles(place.get("/due/today")) == ["now"]
    assert titles(place.get("/due/week")) == ["now", "soon"]
    assert titles(place.get(f"/lists/{made}?due=none")) == ["some day"]
    by_due = place.get(f"/lists/{made}?sort=due")
    assert titles(by_due) == ["late", "now", "soon", "later", "some day"]
    assert "nulls last: they come in order" in unescape(by_due.text)

    place.todo.users.update(user.id, zone=west)
    assert titles(place.get("/due/overdue")) == []
    assert "now" not in titles(place.get("/due/today"))
    assert "now" in titles(place.get("/due/week"))


def test_a_reminder_stays_on_the_clock_that_it_was_meant_on(place: Place) -> None:
    user = place.add_user("Ada", "Europe/Stockholm")
    made = place.add_list()
    place.post(f"/lists/{made}/items", title="call")
    item = place.todo.items.order_by("id").one()
    place.post(f"/items/{item.id}", **edited(place, item.id, reminder="2031-07-01T09:00"))
    place.todo.users.update(user.id, zone="America/New_York")
    place.get("/due/reminders")
    assert "Tue 1 Jul, 03:00 (09:00 in Stockholm)" in place.text()
    # Another change elsewhere leaves it alone, and the form does not take it for a change.
    place.post(f"/items/{item.id}", **edited(place, item.id, notes="with a lamp"))
    after = place.todo.items.get(item.id)
    assert (after.reminder.hour, str(after.reminder.tzinfo)) == (9, "Europe/Stockholm")
    assert after.notes == "with a lamp"


def test_days_and_times_in_words() -> None:
    today = datetime.date(2026, 3, 10)  # a Tuesday
    days = (-40, -2, -1, 0, 1, 2, 6, 7, 300)
    assert [show_day(today + datetime.timedelta(n), today) for n in days] == [
        "29 Jan", "8 Mar", "Yesterday", "Today", "Tomorrow", "Thursday", "Monday", "17 Mar",
        "4 Jan 2027",
    ]  # fmt: skip


def test_tags_are_one_however_they_are_written_and_go_with_their_last_item(place: Place) -> None:
    place.add_user("Ada")
    made = place.add_list()
    place.post(f"/lists/{made}/items", title="a", tags="Garden, #garden, Weekly")
    place.post(f"/lists/{made}/items", title="b", tags="GARDEN")
    assert sorted(tag.label for tag in place.todo.tags.order_by("id")) == ["Garden", "Weekly"]
    garden = place.todo.tags.where(place.todo.tags.f.label.matches("garden")).one()
    assert sorted(titles(place.get(f"/lists/{made}?tag={garden.id}"))) == ["a", "b"]
    first = place.todo.items.where(place.todo.items.f.title == "a").one()
    place.post(f"/items/{first.id}", **edited(place, first.id, tags="garden"))
    assert [tag.label for tag in place.todo.tags.order_by("id")] == ["Garden"]
    # What goes with a user: everything.
    place.post("/settings/delete")
    tables = ("users", "lists", "items", "tags", "taggings", "sessions")
    assert [place.db.table(name).count() for name in tables] == [0] * 6


# In a browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    known = Path(sys.prefix, "chromium")
    path = known.read_text().strip() if known.exists() else ""
    assert path, "no Chromium: `make setup` says what to install"
    expect.set_options(timeout=GUARD_SECONDS * 1_000)
    with sync_playwright() as playwright:
        # With a user-data-dir of its own, new and empty: that is what `launch` does.
        launched = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The application as one command starts it, with sample data; its log has no more than where
    it is."""
    directory = tmp_path_factory.mktemp("todo_app")
    database = f"sqlite:///{directory / 'todo.db'}"
    # But for the connections that a browser has open when the server is ended.
    warnings = ["-W", "error", "-W", "ignore::ResourceWarning"]
    command = [sys.executable, *warnings, "-m", "examples.todo_app"]
    with processes.Popen(
        [*command, "--port", "0", "--database", database],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as server:
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            assert line.startswith("http://"), line
            yield line.strip()
            server.send_signal(signal.SIGTERM)
            rest, _ = server.communicate(timeout=GUARD_SECONDS)
            assert (rest, server.returncode) == ("", 0)
        finally:
            server.kill()
    with zapdb.open(database, migrations=MIGRATIONS) as db:
        assert [report.problem_count for report in db.admin.verify()] == [0] * 6


@pytest.fixture
def visit(browser: Browser, address: str) -> Iterator[Callable[..., Page]]:
    """Opens the page where one signs in, each time as somebody with cookies of their own."""
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def open_page(**options: Any) -> Page:
        context = browser.new_context(base_url=address, reduced_motion="reduce", **options)
        context.set_default_timeout(GUARD_SECONDS * 1_000)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        page.on("console", lambda message: complaints.append(message.text))
        page.goto("/")
        return page

    yield open_page
    for context in contexts:
        context.close()
    # Chromium reports answers of 400 and above there, and nothing else is to be said.
    assert [text for text in complaints if "server responded with" not in text] == []


def go(page: Page, target: Locator) -> None:
    """Click, and wait for the page that it leads to, styles and all."""
    with page.expect_navigation():
        target.click()


def press(page: Page, name: str) -> None:
    go(page, page.get_by_role("button", name=name, exact=True))


def follow(page: Page, name: str) -> None:
    go(page, page.get_by_role("link", name=name, exact=True).first)


def begin(page: Page, name: str, language: str = "Svenska") -> None:
    page.get_by_label("Name").fill(name)
    page.get_by_label("Time zone").select_option("Europe/Stockholm")
    page.get_by_label("Language").select_option(label=language)
    press(page, "Begin")
    page.get_by_label("Title of a new list").fill("Shopping")
    press(page, "Add list")
    expect(page.get_by_role("heading", level=1)).to_have_text("Shopping")


def add(page: Page, title: str, **more: str) -> None:
    page.get_by_label("New item").fill(title)
    form = page.locator("form.add")
    for label, value in more.items():
        field = form.get_by_label(label.capitalize())
        if label == "priority":
            field.select_option(label=value)
        else:
            field.fill(value)
    press(page, "Add")


def shown(page: Page) -> list[str]:
    return page.locator(".item .title").all_text_contents()


def test_a_life_of_a_list(visit: Callable[..., Page]) -> None:
    page = visit()
    begin(page, "Åsa <b>")
    today = today_in("Europe/Stockholm")
    for title in ("Zucchini", "Öl", "Ål", "Apelsin", "Äpplen"):
        add(page, title)
    add(page, HOSTILE, tags=HOSTILE.replace(",", ""), priority="Low")
    add(
        page, "Milk", due=(today - datetime.timedelta(1)).isoformat(), tags="dairy", priority="High"
    )
    assert len(shown(page)) == 7

    # What looks like a page is text.
    assert page.title() == "Shopping · todo"
    assert HOSTILE in shown(page)
    assert page.locator("img, script, main b").count() == 0

    # In the order of each language: å ä ö come last in Swedish, beside a and o in German.
    follow(page, "A–Z")
    words = [word for word in shown(page) if word != HOSTILE]
    assert words == ["Apelsin", "Milk", "Zucchini", "Ål", "Äpplen", "Öl"]
    follow(page, "Åsa <b>")
    page.get_by_label("Language").select_option(label="Deutsch")
    press(page, "Save")
    expect(page.get_by_role("status")).to_have_text("Your settings are saved.")
    go(page, page.get_by_role("link", name="Shopping"))
    follow(page, "A–Z")
    words = [word for word in shown(page) if word != HOSTILE]
    assert words == ["Ål", "Apelsin", "Äpplen", "Milk", "Öl", "Zucchini"]
    page.get_by_text("How this was found").click()
    expect(page.locator("pre")).to_contain_text("reads the index by_title_de")
    expect(page.locator("pre")).to_contain_text("they come in order")

    # By tag, by priority, by day; finished.
    go(page, page.get_by_role("link", name="#dairy"))
    assert shown(page) == ["Milk"]
    follow(page, "Show all")
    page.get_by_text("Filter", exact=True).click()
    page.locator("#by-priority").select_option("low")
    press(page, "Show")
    assert shown(page) == [HOSTILE]
    go(page, page.get_by_role("link", name="Overdue 1 open"))
    assert shown(page) == ["Milk"]
    expect(page.locator(".late time, time.late")).to_have_text("Yesterday")
    press(page, "Done: Milk")
    expect(page.get_by_text("Nothing here.")).to_be_visible()
    go(page, page.get_by_role("link", name="Shopping 6 open"))
    follow(page, "Done")
    assert shown(page) == ["Milk"]
    assert page.get_by_role("button", name="Done: Milk").get_attribute("aria-pressed") == "true"

    # The list goes, and its items with it; nobody's first list is it any more.
    press(page, "☆ Open first")
    follow(page, "Done")
    follow(page, "Milk")
    item = page.url
    page.goto("/")
    expect(page.get_by_role("heading", level=1)).to_have_text("Shopping")
    page.get_by_text("This list", exact=True).click()
    press(page, "Delete the list and all its items")
    expect(page.get_by_role("status")).to_contain_text("is gone")
    expect(page.get_by_role("heading", level=1)).to_have_text("Today")
    assert page.goto(item).status == 404
    expect(page.get_by_role("heading", level=1)).to_have_text("There is nothing here")


def test_the_slider_shows_the_past_by_keyboard(visit: Callable[..., Page]) -> None:
    page = visit()
    begin(page, "Ada")
    add(page, "Milk")
    add(page, HOSTILE)
    press(page, "Done: Milk")
    follow(page, "What this list looked like")
    assert shown(page) == [HOSTILE, "Milk"]
    page.get_by_label("Moment", exact=True).focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    # The slider still has the focus, so one can go on.
    expect(page.get_by_label("Moment", exact=True)).to_be_focused()
    expect(page.get_by_label("Moment", exact=True)).to_have_value("2")
    assert shown(page) == ["Milk"]
    expect(page.get_by_label("What happened")).to_have_text("Added: Milk")
    follow(page, "Later →")
    expect(page.get_by_label("What happened")).to_have_text(f"Added: {HOSTILE}")
    follow(page, "Later →")
    expect(page.get_by_role("link", name="Later →")).to_have_count(0)
    expect(page.locator(".touched .change")).to_have_text("Done")
    page.get_by_text("All moments").click()
    go(page, page.locator(".moments a").last)
    expect(page.get_by_text("The list was empty.")).to_be_visible()
    assert page.evaluate(LOOK) == []


def test_no_form_leads_a_browser_away_and_no_old_cookie_lets_it_in(
    visit: Callable[..., Page], address: str
) -> None:
    page = visit()
    begin(page, "Zoë")
    add(page, "Milk")
    for target in ("/\t/evil.example/", "//evil.example/", "/\\evil.example/"):
        page.locator("input[name=next]").last.evaluate("(field, to) => field.value = to", target)
        go(page, page.locator("button.tick").last)
        assert page.url.startswith(address), target
        page.get_by_role("link", name="Shopping").first.click()
        add(page, "Bread")
    kept = page.context.cookies()
    press(page, "Sign out")
    page.context.clear_cookies()
    page.context.add_cookies(kept)
    page.goto("/settings")
    expect(page.get_by_role("heading", level=1)).to_have_text("Who are you?")


def test_the_server_says_of_files_what_they_are_and_takes_no_large_forms(address: str) -> None:
    host = address.removeprefix("http://").rstrip("/")
    for path in ("/static/style.css", "/static/icon.svg", "/", "/none"):
        connection = http.client.HTTPConnection(host, timeout=GUARD_SECONDS)
        connection.request("GET", path)
        assert connection.getresponse().getheader("X-Content-Type-Options") == "nosniff", path
        connection.close()
    connection = http.client.HTTPConnection(host, timeout=GUARD_SECONDS)
    connection.putrequest("POST", "/sign-in")
    connection.putheader("Content-Length", str(10**9))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()


@pytest.mark.long
def test_the_second_of_two_tabs_sees_both_versions(visit: Callable[..., Page]) -> None:
    first = visit()
    begin(first, "Twice")
    add(first, "Paint the shed", tags="garden")
    follow(first, "Paint the shed")
    second = visit()
    press(second, "Twice Svenska · Stockholm")
    second.goto(first.url)

    first.get_by_label("Title", exact=True).fill("Paint the barn")
    first.get_by_label("Notes").fill("Red.\nTwo coats.")
    press(first, "Save")
    second.get_by_label("Title", exact=True).fill("Paint the fence")
    second.get_by_label("Tags").fill("garden, summer")
    second.get_by_label("Priority").select_option(label="High")
    press(second, "Save")

    expect(second.get_by_role("heading", level=1)).to_have_text("Changed twice")
    rows = second.locator("tbody tr").all_inner_texts()
    assert [row.split("\t") for row in rows] == [
        ["Title", "Paint the shed", "Paint the barn", "Paint the fence"],
        ["Priority", "Normal", "Normal", "High"],
        ["Notes", "—", "Red.\nTwo coats.", "—"],
    ]
    # What only one of them changed is there already.
    assert second.get_by_label("Notes").input_value() == "Red.\nTwo coats."
    second.get_by_label("Title", exact=True).fill("Paint barn and fence")
    press(second, "Save this")
    first.reload()
    assert shown(first) == ["Paint barn and fence"]
    expect(first.locator(".about")).to_have_text("High #garden #summer")


@pytest.mark.long
def test_pages_go_on_where_they_were(visit: Callable[..., Page]) -> None:
    page = visit()
    press(page, "Íñigo Español · Mexico City")
    go(page, page.get_by_role("link", name="Books to read"))
    follow(page, "A–Z")
    begun = shown(page)
    assert len(begun) == PAGE_ITEMS
    follow(page, "Next page")
    second = shown(page)
    # What changes before it moves nothing.
    other = page.context.new_page()
    other.goto(page.url.partition("&after")[0])
    press(other, f"Done: {begun[0]}")
    page.reload()
    assert shown(page) == second
    follow(page, "Next page")
    rest = shown(page)
    expect(page.get_by_role("link", name="Next page")).to_have_count(0)
    all_of_them = [*begun, *second, *rest]
    assert len(set(all_of_them)) == len(all_of_them) == 45
    follow(page, "First page")
    assert shown(page) == [*begun[1:], second[0]]


LOOK = """() => {
  const found = [];
  const say = (what, e) => found.push(`${what}: ${e.outerHTML.slice(0, 90)}`);
  const light = (c) => {
    const [r, g, b] = c.map((v) => (v /= 255) <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b;
  };
  const colour = (text) => text.match(/[\\d.]+/g).map(Number);
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const c = colour(getComputedStyle(e).backgroundColor);
      if (c.length < 4 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  if (!document.documentElement.lang) found.push('no language');
  if (document.querySelectorAll('h1').length !== 1) found.push('not one h1');
  if (document.querySelectorAll('main').length !== 1) found.push('not one main');
  if (document.documentElement.scrollWidth > innerWidth) found.push('wider than the window');
  const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
  for (const id of new Set(ids)) if (ids.filter((i) => i === id).length > 1) found.push(`id ${id}`);
  for (const e of document.querySelectorAll('input:not([type=hidden]), select, textarea'))
    if (!e.labels.length) say('no label', e);
  for (const e of document.querySelectorAll('button, a'))
    if (!(e.getAttribute('aria-label') || e.textContent).trim()) say('no name', e);
  for (const e of document.querySelectorAll('button, input:not([type=hidden]), select')) {
    const box = e.getBoundingClientRect();
    if (e.checkVisibility() && e.type !== 'checkbox' && Math.min(box.width, box.height) < 24)
      say('too small', e);
  }
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!own || !e.checkVisibility() || e.closest('.hidden, .skip, option')) continue;
    const [a, b] = [colour(getComputedStyle(e).color), ground(e)].map((c) => light(c.slice(0, 3)));
    if ((Math.max(a, b) + .05) / (Math.min(a, b) + .05) < 4.5) say('hard to read', e);
  }
  return found;
}"""


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(
            {"color_scheme": "light", "viewport": {"width": 1180, "height": 900}},
            id="light",
            marks=pytest.mark.long,
        ),
        pytest.param(
            {"color_scheme": "dark", "viewport": {"width": 360, "height": 740}},
            id="dark and narrow",
        ),
    ],
)
def test_every_page_can_be_read_and_used_by_everybody(
    visit: Callable[..., Page], options: dict[str, Any]
) -> None:
    page = visit(**options)
    assert page.evaluate(LOOK) == []
    press(page, "Božena Čeština · Prague")
    assert page.evaluate(LOOK) == []
    follow(page, "#garden")
    page.get_by_text("How this was found").click()
    page.get_by_text("This list", exact=True).click()
    assert page.evaluate(LOOK) == []
    follow(page, "What this list looked like")
    assert page.evaluate(LOOK) == []
    page.go_back()
    go(page, page.locator(".item .title").first)
    assert page.evaluate(LOOK) == []
    page.goto("/due/overdue")
    assert page.evaluate(LOOK) == []
    page.goto("/settings")
    page.get_by_text("Leave", exact=True).click()
    assert page.evaluate(LOOK) == []
    page.goto("/nothing")
    assert page.evaluate(LOOK) == []

    # By keyboard: the first thing leads past the navigation, and what has the focus shows it.
    page.goto("/due/today")
    page.keyboard.press("Tab")
    expect(page.locator(":focus")).to_have_text("Skip to the content")
    page.keyboard.press("Tab")
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) == "solid"
