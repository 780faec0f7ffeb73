"""Who is signed in. The cookie holds a random token, and the database its hash: a cookie that was
copied is worth nothing once its owner has signed out, and a copy of the database opens no session.
"""

from __future__ import annotations

import datetime
import hashlib
import secrets
from typing import Final
from uuid import UUID

import zapdb
from examples.todo_app.models import Session, User

LASTS: Final = datetime.timedelta(days=30)


class Sessions:
    """Sessions of users, each of which any thread may begin, look up and end."""

    def __init__(self, db: zapdb.Database) -> None:
        self.db = db
        self.sessions = db.table(Session)

    def begin(self, user: UUID) -> str:
        """The token of a new session; those of the user that are over are deleted."""
        token, now = secrets.token_urlsafe(32), datetime.datetime.now(datetime.UTC)
        mine = self.sessions.where(self.sessions.f.user == user)
        mine.where(self.sessions.f.until < now).delete()
        self.sessions.insert(digest=_digest(token), user=user, until=now + LASTS)
        return token

    def find_user(self, token: str) -> User | None:
        """Whose session it is, as long as it lasts."""
        live = self.sessions.f.until > datetime.datetime.now(datetime.UTC)
        query = self.sessions.where(self.sessions.f.digest == _digest(token), live)
        found = query.include("user").first()
        return None if found is None else found.follow("user")

    def end(self, token: str) -> None:
        self.sessions.delete_many([_digest(token)])


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
