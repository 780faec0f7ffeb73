"""Addresses of databases: read strictly, and shown without anything that may be secret.

The law: only the parts of an address that are known to be harmless are shown, and no part of an
address that is refused, because the place of its password is unknown. A password with an unquoted
`@` or `/` ends up in the host or the database; in a DSN it can be anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Literal, TypeVar
from urllib.parse import parse_qsl

import sqlalchemy
from sqlalchemy.engine import URL

from zapdb.errors import UsageError

SCHEMES: Final = "sqlite:///path/to/file.db or postgresql+psycopg://user@host/database"
Engine = Literal["sqlite", "postgresql"]
ENGINES: Final[Mapping[str, Engine]] = {
    "sqlite": "sqlite",
    "sqlite+pysqlite": "sqlite",
    "postgres": "postgresql",
    "postgresql": "postgresql",
    "postgresql+psycopg": "postgresql",
}
"""The storage engine for the first part of an address."""
HIDDEN: Final = "***"
SHOWN_OPTIONS: Final = frozenset(
    {
        *("host", "hostaddr", "port", "dbname", "user", "options", "service", "sslmode", "schema"),
        *("application_name", "target_session_attrs", "connect_timeout"),
        *("uri", "mode", "cache", "immutable", "nolock"),
    }
)
"""The options whose values are shown, unless a value looks like more than that."""

# As SQLAlchemy reads it, but for a user's name, which has no @ here.
_PARTS: Final = re.compile(
    r"[\w+]+://(?:[^:/@]*(?::[^@]*)?@)?(?P<place>[^?]*)(?:\?(?P<query>.*))?", re.DOTALL
)
_HARMLESS: Final = re.compile(r"[^\s@'\"]*")
_HARMLESS_NAME: Final = re.compile(r"[\w.+-]*")
_HARMLESS_HOST: Final = re.compile(r"[\w.,-]*|\[?[0-9A-Fa-f:.]*(?:%\w+)?\]?")
_HARMLESS_HOSTS: Final = re.compile(r"/[^\s@'\"]*|[\w.,-]*(?::[0-9]+)?|\[?[0-9A-Fa-f:.]*\]?")
_SUSPECT: Final = re.compile(r"pass|secret|token|pwd|credential|://", re.IGNORECASE)
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_SHORT: Final = 6
"""A secret that is shorter is replaced only where it is a word of its own."""

T = TypeVar("T")


def read_address(address: str | URL) -> URL:
    """The parts of a SQLAlchemy address; raises `UsageError`, which shows nothing of it."""
    text = address.render_as_string(hide_password=False) if isinstance(address, URL) else address
    known = None if not isinstance(text, str) or _UNPRINTABLE.search(text) else _parse(text)
    if known is None:
        raise UsageError("this is not a database address", hint=f"give {SCHEMES}")
    _require_read_as_written(*known)
    return known[0]


def find_engine(url: URL) -> Engine:
    """Return the storage engine of an address; raises `UsageError` if zapdb has none for it."""
    engine = ENGINES.get(url.drivername)
    if engine is None:
        is_service = url.drivername in ("grpc", "grpcs")
        raise UsageError(
            "zapdb does not support this kind of database",
            kind=url.drivername,
            hint="zapdb.connect(address) asks a service" if is_service else f"give {SCHEMES}",
        )
    return engine


def name_schema(address: str | URL, schema: str) -> URL:
    """Return an address that names a schema; raises `UsageError` if it names another one, and for
    what has no schemas."""
    url = read_address(address)
    if find_engine(url) == "sqlite":
        raise UsageError(
            "a SQLite file has no schemas",
            database=show_address(url),
            hint="leave out schema=; give each application a file of its own",
        )
    if url.query.get("schema", schema) != schema:
        raise UsageError(
            "the address names another schema",
            database=show_address(url),
            schema=schema,
            hint="leave out one of them",
        )
    return url.update_query_dict({"schema": schema})


def check_options(url: URL, known: Collection[str]) -> None:
    """Refuse options that the driver does not know: it would take them for something else."""
    for number, name in enumerate(url.query, 1):
        if name not in known:  # its name may be a part of a password with an unquoted `&`
            raise UsageError(
                "the database address has an unknown option",
                option=f"number {number}",
                hint="write & in a password as %26; known are: " + ", ".join(sorted(known)),
            )


def attempt(url: URL, make: Callable[[], T]) -> T:
    """What `make` makes of an address; raises `UsageError` instead of errors that may quote it."""
    try:
        return make()
    except (sqlalchemy.exc.SQLAlchemyError, ValueError, TypeError, AttributeError):
        pass  # not chained: its text may hold the password
    raise UsageError(
        "this is not a database address",
        kind=url.drivername,
        hint=f"the driver refuses a part of it; give {SCHEMES}",
    )


def has_password(url: URL) -> bool:
    """Whether the address has something that must not be shown, such as a password."""
    return url.password is not None or any(is_secret_option(*item) for item in url.query.items())


def split_secrets(url: URL) -> tuple[URL, dict[str, str]]:
    """The address without what is hidden of it but for the password, which SQLAlchemy hides by
    itself, and the rest as libpq's options."""
    hidden = {
        name: value if isinstance(value, str) else ",".join(value)
        for name, value in url.query.items()
        if is_secret_option(name, value)
    }
    query = {name: value for name, value in url.query.items() if name not in hidden}
    password = hidden.pop("password", None)  # as the driver has it, it precedes the other one
    kept = {"user": url.username, "host": url.host, "dbname": url.database}
    for option, visible in zip(kept, _visible_parts(url), strict=True):
        value = kept[option]
        if value is not None and value != visible:
            hidden.setdefault(option, value)
            kept[option] = None
    return (
        URL.create(
            url.drivername,
            kept["user"],
            url.password if password is None else password,
            kept["host"],
            url.port,
            kept["dbname"],
            query,
        ),
        hidden,
    )


def show_address(url: URL) -> str:
    """An address as people may see it: in errors, logs, outputs and `repr`."""
    query = {
        name: HIDDEN if is_secret_option(name, value) else value
        for name, value in url.query.items()
    }
    user, host, database = _visible_parts(url)
    shown = URL.create(
        url.drivername, user, url.password, host, url.port, database, query
    ).render_as_string(hide_password=True)
    return shown.replace("%2A%2A%2A", HIDDEN)


def is_secret_option(name: str, value: str | tuple[str, ...]) -> bool:
    """Whether the value of an option is not to be shown."""
    values = (value,) if isinstance(value, str) else value
    harmless = _HARMLESS_HOSTS if name == "host" else _HARMLESS
    return name not in SHOWN_OPTIONS or any(
        harmless.fullmatch(one) is None or _SUSPECT.search(one) is not None for one in values
    )


def hide_secrets(text: str, url: URL, options: Mapping[str, Any] | None = None) -> str:
    """Return a driver's text without the parts that `show_address` hides; `options` are secrets
    that are not in the URL."""
    for secret in sorted(_secrets_of(url, options or {}), key=len, reverse=True):
        if len(secret) < _SHORT:
            text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", HIDDEN, text)
        else:
            text = text.replace(secret, HIDDEN)
    return text


def _secrets_of(url: URL, options: Mapping[str, Any]) -> set[str]:
    parts = zip((url.username, url.host, url.database), _visible_parts(url), strict=True)
    found = {part for part, visible in parts if part and part != visible}
    found |= {str(url.password or "")}
    for name, value in (*url.query.items(), *options.items()):
        if name in options or is_secret_option(name, value):
            found |= {value} if isinstance(value, str) else set(value)
    return found - {""}


def _visible_parts(url: URL) -> tuple[str | None, str | None, str | None]:
    """User, host and database, as they are or hidden."""
    database = url.database
    return (
        _hide_unless(_HARMLESS_NAME, url.username),
        _hide_unless(_HARMLESS_HOST, url.host),
        HIDDEN if database is not None and _SUSPECT.search(database) else database,
    )


def _hide_unless(harmless: re.Pattern[str], text: str | None) -> str | None:
    return text if text is None or harmless.fullmatch(text) else HIDDEN


def _parse(text: str) -> tuple[URL, re.Match[str]] | None:
    """Return None for a text that is no address: SQLAlchemy's error would quote it."""
    parts = _PARTS.fullmatch(text)
    if parts is None:
        return None
    try:
        url = sqlalchemy.make_url(text)
        if parts["query"]:
            parse_qsl(parts["query"], keep_blank_values=True, strict_parsing=True, errors="strict")
    except (sqlalchemy.exc.ArgumentError, ValueError):
        return None
    return url, parts


def _require_read_as_written(url: URL, parts: re.Match[str]) -> None:
    """Refuse an address with a part at the wrong place."""
    if url.drivername.startswith("sqlite"):
        if any((url.username, url.password, url.host, url.port)):
            raise UsageError(
                "the address of a file contains a server or a user",
                kind=url.drivername,
                hint="write three slashes before a relative path, and four before an absolute one",
            )
    elif re.search(r"[@=]", parts["place"]) or re.search(r"\s", parts.string):
        raise UsageError(
            "this is not a database address",
            kind=url.drivername,
            hint="in names and passwords write @ as %40, : as %3A, / as %2F, = as %3D, and a blank "
            f"as %20; give {SCHEMES}",
        )
