"""The sessions of a PostgreSQL server: how they begin, and how it is found that they have ended."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import psycopg
from sqlalchemy.engine import URL

from zapdb.errors import UsageError
from zapdb.limits import CONNECT_SECONDS
from zapdb.storage.addresses import hide_secrets
from zapdb.storage.gate import SESSION_PREFIX

PREPARED: Final = "prepared_statements"
"""An option of zapdb's in an address, `on` or `off`; libpq does not know it."""


def split_prepared(url: URL) -> tuple[URL, bool]:
    """Return the address for libpq, and whether statements may be prepared. They may not behind a
    pooler that gives each transaction another session. Raises `UsageError`."""
    said = url.query.get(PREPARED, "on")
    if said not in ("on", "off"):
        raise UsageError(
            "an option of the database address is neither on nor off",
            option=PREPARED,
            hint=f"write {PREPARED}=off for a pooler that shares sessions between transactions",
        )
    return url.difference_update_query([PREPARED]), said == "on"


def connecting(node_id: str, url: URL, secrets: Mapping[str, Any]) -> Callable[..., Any]:
    """Return what connects for an engine: names the session after its owner, so that the holder of
    the gate can be found in the server, and raises errors that show no secrets.

    It does not know the storage: SQLAlchemy's caches of queries keep dialects, which keep this.
    """

    def connect(dialect: Any, _record: object, given: Sequence[Any], options: Any) -> Any:
        options["application_name"] = f"{SESSION_PREFIX}{node_id}"
        # zapdb sends texts in UTF-8, whatever a database, a role or an environment says.
        options["client_encoding"] = "utf8"
        options.setdefault("connect_timeout", CONNECT_SECONDS)
        try:
            return dialect.connect(*given, **options)
        except (psycopg.Error, ValueError, TypeError, OverflowError) as error:
            kind = type(error) if isinstance(error, psycopg.Error) else psycopg.OperationalError
            refused = kind(hide_secrets(str(error), url, secrets))
        raise refused  # not chained: the first one's text and attributes may hold the password

    return connect


def end_session(driver: Any) -> None:
    """End a session from here: whichever thread waits for its server is woken."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(driver.fileno())) as found:
        found.shutdown(socket.SHUT_RDWR)


def read_farewell(driver: Any) -> str | None:
    """Return the message of a server that ended the session; None if the session continues.

    A server sends nothing else to an idle client.
    """
    if driver.closed:
        return "the connection is closed"
    waiting = select.poll()
    waiting.register(driver.pgconn.socket, select.POLLIN)
    if not waiting.poll(0):
        return None
    farewell: list[str] = []

    def note(said: psycopg.errors.Diagnostic) -> None:  # it can be asked during the call only
        if said.severity_nonlocalized == "FATAL":
            farewell.append(said.message_primary or "")

    driver.add_notice_handler(note)
    try:
        driver.pgconn.consume_input()
        driver.pgconn.is_busy()  # a FATAL error that answers nothing is read as a notice
        driver.pgconn.consume_input()
    except psycopg.OperationalError as error:  # the end of the stream
        return str(error)
    finally:
        driver.remove_notice_handler(note)
    return farewell[0] if farewell else None
