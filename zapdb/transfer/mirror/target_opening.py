"""Addresses of mirrors' targets."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from zapdb.errors import UsageError
from zapdb.limits import NAME_LENGTH_MAX
from zapdb.storage import Storage
from zapdb.storage.addresses import read_address, show_address
from zapdb.transfer.mirror.sqlite_target import SqliteTarget
from zapdb.transfer.mirror.target import MirrorTarget

HINT: Final = (
    "give schema:NAME for a schema of the same PostgreSQL database, "
    "postgresql://user@host/database?schema=NAME, sqlite:///path/to/mirror.db, "
    "or duckdb:path/to/mirror.duckdb"
)


def open_target(address: str, source: Storage) -> MirrorTarget:
    """The target with this address; nothing is connected yet. Raises `UsageError`."""
    kind, _, rest = address.partition(":")
    if kind == "schema":
        if source.dialect.name != "postgresql":
            raise UsageError(
                "schema:NAME is for databases in PostgreSQL",
                database=source.shown_url,
                hint=HINT,
            )
        return _open_schema(source.engine.full_address(), rest)
    if kind == "duckdb":
        path = Path(rest.removeprefix("///") or ".").absolute()
        _require_file(path, address)
        from zapdb.transfer.mirror.duckdb_target import DuckdbTarget

        return DuckdbTarget(path, f"duckdb:{path}", source.engine.file_mode)
    url = read_address(address)
    if url.drivername.startswith("sqlite"):
        path = Path(url.database or ".").absolute()
        _require_file(path, address)
        return SqliteTarget(path, f"sqlite:///{path}", source.engine.file_mode)
    if url.drivername.startswith("postgres"):
        schema = url.query.get("schema")
        if not isinstance(schema, str):
            raise UsageError(
                "the mirror's target has no schema", target=show_address(url), hint=HINT
            )
        kept = url.difference_update_query(["schema"])
        return _open_schema(kept.render_as_string(hide_password=False), schema)
    raise UsageError("no mirror can be kept there", target=show_address(url), hint=HINT)


def _require_file(path: Path, address: str) -> None:
    if path.is_dir() or str(path) == ":memory:":
        raise UsageError("the mirror's target is no file", target=address, hint=HINT)
    if not path.parent.is_dir():
        raise UsageError(
            "the directory of the mirror's target does not exist",
            directory=path.parent,
            hint="make it, or correct the address",
        )


def _open_schema(address: str, schema: str) -> MirrorTarget:
    if not schema or len(schema) > NAME_LENGTH_MAX or not schema.isprintable():
        raise UsageError("this is not the name of a schema", schema=schema, hint=HINT)
    from zapdb.transfer.mirror.postgresql_target import PostgresqlTarget

    url = read_address(address)
    shown = f"{show_address(url)}, schema {schema}"
    url = url.difference_update_query(["prepared_statements", "schema"])  # zapdb's own
    dsn = url.set(drivername="postgresql").render_as_string(hide_password=False)
    return PostgresqlTarget(dsn, schema, shown)
