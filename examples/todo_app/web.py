"""The web around the pages: sessions, forms that only our own pages can send, errors as pages."""

from __future__ import annotations

import hmac
import logging
import secrets
from typing import Any, Final

from flask import Flask, Response, abort, g, render_template, request, session
from markupsafe import Markup
from werkzeug.exceptions import HTTPException

from examples.todo_app import days, pages
from examples.todo_app.forms import Unreadable
from examples.todo_app.sessions import Sessions
from examples.todo_app.todo import LANGUAGES, PRIORITIES, Todo
from zapdb import etag
from zapdb.errors import (
    CheckViolation,
    ConcurrencyError,
    HistoryUnavailable,
    MomentInFuture,
    RecordNotFound,
    ReferenceViolation,
    StorageError,
    UsageError,
    ZapdbError,
)

FORM_BYTES_MAX: Final = 64 * 1024

HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
"""Of all answers, static files and errors included."""

STATUS: Final = {
    "NOT_FOUND": 404,
    "INVALID_ARGUMENT": 400,
    "ALREADY_EXISTS": 409,
    "FAILED_PRECONDITION": 409,
    "OUT_OF_RANGE": 409,
    "ABORTED": 503,
    "UNAVAILABLE": 503,
}
"""Every error of zapdb names a gRPC status, which is nearly one of HTTP."""

WORDS: Final[tuple[tuple[type[ZapdbError], str, str], ...]] = (
    (RecordNotFound, "There is nothing here", "It may have been deleted, or the address is wrong."),
    (CheckViolation, "A title is missing", "Write a title that is not only spaces."),
    (ReferenceViolation, "It can't be saved", "What it belongs to was deleted in the meantime."),
    (ConcurrencyError, "Too much is going on", "Nothing was changed. Please try it once more."),
    (MomentInFuture, "That is still to come", "Choose a moment that has passed."),
    (HistoryUnavailable, "That is too long ago", "Lists have been stored in another form since."),
    (UsageError, "Something is wrong here", "The error is in the log."),
    (StorageError, "The database can't be reached", "Nothing was changed. Try it again later."),
)
"""The first that fits is shown."""

logger = logging.getLogger("todo_app")


def create_app(todo: Todo, secret: str | None = None, *, https: bool = False) -> Flask:
    """The application; without a `secret`, everybody signs in again after a restart.

    `https` says that browsers reach it by HTTPS, through a proxy: cookies are then sent by nothing
    else.
    """
    app = Flask(__name__)
    app.config.update(
        SECRET_KEY=secret or secrets.token_hex(32),
        SESSION_COOKIE_SAMESITE="Lax",
        SESSION_COOKIE_SECURE=https,
        MAX_CONTENT_LENGTH=FORM_BYTES_MAX,
    )
    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
    app.jinja_env.globals.update(
        csrf=csrf_field,
        etag=etag,
        languages=LANGUAGES,
        priorities=PRIORITIES,
        show_day=days.show_day,
        show_moment=days.show_moment,
        show_time=days.show_time,
    )
    app.extensions["todo"] = todo
    app.extensions["sessions"] = Sessions(todo.db)
    app.register_blueprint(pages.blueprint)
    app.before_request(check_csrf)
    app.before_request(load_user)
    app.after_request(add_headers)
    app.register_error_handler(ZapdbError, show_refusal)
    app.register_error_handler(HTTPException, show_problem)
    app.register_error_handler(Unreadable, show_unreadable)
    return app


def csrf_token() -> str:
    """What every form sends back, and no other site knows."""
    return str(session.setdefault("csrf_token", secrets.token_hex(16)))


def csrf_field() -> Markup:
    return Markup('<input type="hidden" name="csrf_token" value="{}">').format(csrf_token())


def check_csrf() -> None:
    if request.method == "POST":
        sent, wanted = request.form.get("csrf_token", ""), session.get("csrf_token", "")
        if not wanted or not hmac.compare_digest(sent.encode(), wanted.encode()):
            abort(400, "This form is from an earlier session. Go back, reload the page, try again.")


def load_user() -> None:
    token = session.get("token")
    g.user = pages.sessions().find_user(token) if token else None


def add_headers(response: Response) -> Response:
    response.headers.update(HEADERS)
    if request.endpoint != "static":
        response.headers["Cache-Control"] = "no-store"  # somebody's own, or a form of a session
    return response


def show_refusal(error: ZapdbError) -> tuple[str, int]:
    """What zapdb refused: in words where there are some, else as it says itself."""
    status = 500 if isinstance(error, UsageError) else STATUS.get(error.rpc_status, 500)
    if status >= 500:
        # The path as it came, and quoted: a line break in it would forge a line of the log.
        logger.error("%s %r: %s", request.method, request.path, error)
    found = (words for kind, *words in WORDS if isinstance(error, kind))
    title, text = next(found, ("That can't be done", error.message.capitalize() + "."))
    return _message(status, title, text, error.code)


def show_unreadable(error: Unreadable) -> tuple[str, int]:
    return _message(400, "That can't be read", str(error))


def show_problem(problem: HTTPException) -> Any:
    if problem.code is None or problem.code < 400:
        return problem
    if problem.code == 404:
        return _message(404, *WORDS[0][1:])
    return _message(problem.code, problem.name, problem.description or "")


def _message(status: int, title: str, text: str, code: str = "") -> tuple[str, int]:
    return render_template("message.html", title=title, text=text, code=code), status
