"""The pages. Reading ones run in one snapshot; forms are posted, and answered by a redirect."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import wraps
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from flask import (
    Blueprint,
    abort,
    current_app,
    flash,
    g,
    redirect,
    render_template,
    request,
    session,
    url_for,
)
from werkzeug.wrappers import Response

from examples.todo_app import forms
from examples.todo_app.days import now_in, zone_names
from examples.todo_app.forms import read_day, read_labels, read_line, read_priority, read_uuid
from examples.todo_app.past import ListPast
from examples.todo_app.sessions import Sessions
from examples.todo_app.todo import LANGUAGES, Choice, Todo
from zapdb.catalog.principal import acting_as
from zapdb.errors import UpdateConflict

blueprint = Blueprint("pages", __name__)
Page = str | tuple[str, int] | Response

VIEWS = {
    "overdue": ("Overdue", Choice(due="overdue", sort="due")),
    "today": ("Today", Choice(due="today", sort="priority")),
    "week": ("Next seven days", Choice(due="week", sort="due")),
    "reminders": ("Reminders", Choice(sort="reminder")),
}
"""What is due in all lists of the user."""


def todo() -> Todo:
    found: Todo = current_app.extensions["todo"]
    return found


def sessions() -> Sessions:
    found: Sessions = current_app.extensions["sessions"]
    return found


def signed_in(view: Callable[..., Page]) -> Callable[..., Page]:
    """A page of somebody: the user is in `g.user`, and the author of what is changed."""

    @wraps(view)
    def see(**arguments: Any) -> Page:
        if g.user is None:
            return redirect(url_for("pages.start"))
        with acting_as(str(g.user.id)):
            return view(**arguments)

    return see


OUR_PATH = re.compile(r"/(?!/)[!-\[\]-~]*")
"""A path of this site. Browsers take `//` for the beginning of another one, and `\\` for `/`; they
leave out tabs and line breaks before they look. So there is nothing but visible ASCII, no
backslash, and no second slash at the beginning."""


def come_back(otherwise: str) -> Response:
    """To the page of this site that the form was on."""
    target = request.form.get("next", "")
    return redirect(target if OUR_PATH.fullmatch(target) else otherwise)


def begin_session(user: UUID) -> None:
    """Sign somebody in, with nothing of the session before: neither whose it was, nor the token of
    its forms, which somebody else may know."""
    end_session()
    session["token"] = sessions().begin(user)


def end_session() -> None:
    """Forget who is signed in, here and in the database: copies of the cookie are good no more."""
    if token := session.get("token"):
        sessions().end(token)
    session.clear()


# Signing in


@blueprint.get("/")
def start() -> Page:
    if g.user is None:
        users = todo().users
        return render_template(
            "start.html",
            users=users.order_by(users.f.name.collated("en")),
            zones=zone_names(),
        )
    if g.user.home is not None:
        return redirect(url_for("pages.show_list", key=g.user.home))
    return redirect(url_for("pages.show_view", name="today"))


@blueprint.post("/sign-in")
def sign_in() -> Page:
    """A demonstration: no password is asked for."""
    begin_session(todo().users.get(read_uuid(request.form, "user")).id)
    return redirect(url_for("pages.start"))


@blueprint.post("/sign-out")
def sign_out() -> Page:
    end_session()
    return redirect(url_for("pages.start"))


@blueprint.post("/users")
def add_user() -> Page:
    begin_session(todo().users.insert(**_profile()).id)
    return redirect(url_for("pages.start"))


# Settings


@blueprint.get("/settings")
@signed_in
def settings() -> Page:
    return _render("settings.html", zones=zone_names())


@blueprint.post("/settings")
@signed_in
def change_settings() -> Page:
    todo().users.update(g.user.id, **_profile())
    flash("Your settings are saved.")
    return redirect(url_for("pages.settings"))


@blueprint.post("/settings/delete")
@signed_in
def delete_user() -> Page:
    """With all lists, items and tags: the references say so."""
    todo().users.delete(g.user.id)
    session.clear()  # those in the database went with the user
    return redirect(url_for("pages.start"))


def _profile() -> dict[str, Any]:
    zone, language = request.form.get("zone", ""), request.form.get("language", "")
    if zone not in zone_names() or language not in LANGUAGES:
        abort(400, "Choose a time zone and a language of those that are offered.")
    return {
        "name": read_line(request.form, "name") or "Somebody",
        "zone": zone,
        "language": language,
    }


# Lists


@blueprint.get("/lists/<uuid:key>")
@signed_in
def show_list(key: UUID) -> Page:
    with todo().db.snapshot():
        shown = todo().list_of(g.user, key)
        return _show_items(shown.title, [key], Choice.of(request.args), list=shown)


@blueprint.get("/lists/<uuid:key>/past")
@signed_in
def show_past(key: UUID) -> Page:
    """What the list looked like, at a place of the slider: from 1, the oldest moment."""
    shown, past = todo().list_of(g.user, key), ListPast(todo().db)
    until = request.args.get("until", type=int)
    moments = past.moments_of(key, None if until is None else max(0, until))
    if not moments:
        return _render("past.html", title=shown.title, list=shown, moments=[])
    place = min(max(request.args.get("at", len(moments), type=int), 1), len(moments))
    moment = moments[place - 1]
    return _render(
        "past.html",
        title=shown.title,
        list=shown,
        moments=moments,
        place=place,
        moment=moment,
        told={change.item: change for change in moment.changes},
        past=past.read(key, moment),
        until=moments[-1].number,
    )


@blueprint.get("/due/<name>")
@signed_in
def show_view(name: str) -> Page:
    if name not in VIEWS:
        abort(404)
    title, choice = VIEWS[name]
    with todo().db.snapshot():
        keys = [found.id for found in todo().lists_of(g.user)]
        return _show_items(title, keys, choice, view=name)


def _show_items(title: str, lists: list[UUID], choice: Choice, **more: Any) -> Page:
    query = todo().items_in(g.user, lists, choice)
    cursor = request.args.get("after")
    page, is_meant = todo().page_of(query, cursor)
    if not is_meant:
        flash("The list has changed since then. This is its beginning.")
    return _render(
        "items.html",
        title=title,
        choice=choice,
        page=page,
        is_first=cursor is None or not is_meant,
        tags_on=todo().tags_on(page),
        tags=todo().tags_of(g.user),
        explanation=query.explain(),
        **more,
    )


@blueprint.post("/lists")
@signed_in
def add_list() -> Page:
    made = todo().lists.insert(owner=g.user.id, title=read_line(request.form, "title"))
    return redirect(url_for("pages.show_list", key=made.id))


@blueprint.post("/lists/<uuid:key>/rename")
@signed_in
def rename_list(key: UUID) -> Page:
    todo().lists.update(todo().list_of(g.user, key).id, title=read_line(request.form, "title"))
    return redirect(url_for("pages.show_list", key=key))


@blueprint.post("/lists/<uuid:key>/home")
@signed_in
def choose_home(key: UUID) -> Page:
    is_home = g.user.home == todo().list_of(g.user, key).id
    todo().users.update(g.user.id, home=None if is_home else key)
    return redirect(url_for("pages.show_list", key=key))


@blueprint.post("/lists/<uuid:key>/delete")
@signed_in
def delete_list(key: UUID) -> Page:
    deleted = todo().list_of(g.user, key)
    todo().lists.delete(key)
    flash(f"“{deleted.title}” and all that was in it is gone.")
    return redirect(url_for("pages.start"))


# Items


@blueprint.post("/lists/<uuid:key>/items")
@signed_in
def add_item(key: UUID) -> Page:
    form = request.form
    due = read_day(form, "due")
    forms.check_years({"due": due, "reminder": None})
    todo().add_item(
        g.user,
        key,
        read_line(form, "title"),
        due=due,
        priority=read_priority(form),
        labels=read_labels(form),
    )
    return come_back(url_for("pages.show_list", key=key))


@blueprint.post("/items/<uuid:key>/done")
@signed_in
def finish_item(key: UUID) -> Page:
    todo().items.update(todo().item_of(g.user, key).id, done=request.form.get("done") == "yes")
    return come_back(url_for("pages.start"))


@blueprint.post("/items/<uuid:key>/delete")
@signed_in
def delete_item(key: UUID) -> Page:
    item = todo().item_of(g.user, key)
    todo().items.delete(key)
    flash(f"“{item.title}” is gone.")
    return redirect(url_for("pages.show_list", key=item.list))


@blueprint.get("/items/<uuid:key>")
@signed_in
def show_item(key: UUID) -> Page:
    with todo().db.snapshot():
        item = todo().item_of(g.user, key)
        shown = forms.show_item(item, todo().labels_on(item))
        return _render("item.html", item=item, values=shown, seen=shown)


@blueprint.post("/items/<uuid:key>")
@signed_in
def edit_item(key: UUID) -> Page:
    form = request.form
    seen, changes = forms.read_item(form, "seen."), forms.read_item(form)
    forms.check_years(changes)
    labels_seen, labels = read_labels(form, "seen.tags"), read_labels(form)
    try:
        item = todo().edit_item(
            g.user,
            key,
            etag=form.get("etag", ""),
            changes=changes,
            labels_seen=labels_seen,
            labels=labels,
        )
    except UpdateConflict:
        return _show_conflict(key, seen, changes, labels), 409
    flash("Saved.")
    return redirect(url_for("pages.show_list", key=item.list))


def _show_conflict(key: UUID, seen: dict[str, Any], mine: dict[str, Any], labels: list[str]) -> str:
    """Both versions beside each other, and a form with what can be had of both."""
    with todo().db.snapshot():
        item = todo().item_of(g.user, key)
        now = {name: getattr(item, name) for name in forms.FIELDS}
        rows = [
            (name, seen[name], now[name], mine[name])
            for name in forms.FIELDS
            if now[name] != seen[name] or mine[name] != seen[name]
        ]
        merged = {n: now[n] if mine[n] == seen[n] else mine[n] for n in forms.FIELDS}
        return _render(
            "conflict.html",
            item=item,
            rows=rows,
            values=forms.show_values(merged, labels),
            seen=forms.show_item(item, todo().labels_on(item)),
        )


# What they share


def _here(**changes: str) -> str:
    """The address of this page with other choices, from the first item on."""
    chosen = {name: text for name, text in request.args.items() if name != "after"} | changes
    return f"{request.path}?{urlencode({name: text for name, text in chosen.items() if text})}"


def _render(template: str, **more: Any) -> str:
    """With what stands beside every page: the lists, and how much is to be done."""
    items, lists = todo().items, todo().lists_of(g.user)
    keys = [found.id for found in lists]
    open_in = {key: items.where(items.f.list == key, items.f.done == False).count() for key in keys}  # noqa: E712 - a condition
    views = [
        (name, title, todo().items_in(g.user, keys, choice).count())
        for name, (title, choice) in VIEWS.items()
    ]
    return render_template(
        template,
        lists=lists,
        open_in=open_in,
        views=views,
        list_titles={found.id: found.title for found in lists},
        now=now_in(g.user.zone),
        today=now_in(g.user.zone).date(),
        here=_here,
        **more,
    )
