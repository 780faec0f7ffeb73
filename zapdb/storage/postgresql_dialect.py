"""SQLAlchemy's dialect, which asks a server nothing when it connects.

SQLAlchemy asks the first connection of an engine five questions, one by one, with a transaction
around the last: about as long as zapdb takes to open a database. The server has answered two of
them when the session began, and zapdb needs no answer to the others.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy


def ask_nothing(engine: sqlalchemy.Engine) -> None:
    """Let an engine that has not connected yet use what the server says by itself."""
    dialect: Any = engine.dialect
    dialect._get_server_version_info = _find_version
    dialect._get_default_schema_name = _find_nothing
    dialect.get_default_isolation_level = _find_nothing  # zapdb begins transactions by itself
    dialect._set_backslash_escapes = _find_escapes


def _find_version(core: sqlalchemy.Connection) -> tuple[int, ...]:
    version = _driver(core).info.server_version
    return (version // 10_000, version % 10_000)


def _find_nothing(_connection: object) -> None:
    """In the way in which a dialect of SQLAlchemy says that it does not know."""
    raise NotImplementedError


def _find_escapes(core: sqlalchemy.Connection) -> None:
    found = _driver(core).info.parameter_status("standard_conforming_strings")
    dialect: Any = core.dialect
    dialect._backslash_escapes = found == "off"


def _driver(core: sqlalchemy.Connection) -> Any:
    return core.connection.dbapi_connection
