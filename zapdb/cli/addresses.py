"""The options that say which database a command is about, without what opens it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from zapdb.cli.configuration import find_database, read_pyproject

SERVICES: Final = ("grpc://", "grpcs://")


def is_service(address: str) -> bool:
    """Whether an address is that of a service, not of a database."""
    return address.startswith(SERVICES)


@dataclass(frozen=True)
class DatabaseAddress:
    """Where the database is."""

    database: Annotated[
        str | None,
        typer.Option(
            "--database",
            "-d",
            metavar="URL",
            envvar="ZAPDB_DATABASE",
            help="The database, such as sqlite:///todo.db; else `database` under `[tool.zapdb]` "
            "in ./pyproject.toml.",
        ),
    ] = None

    @property
    def is_given(self) -> bool:
        """Whether a database is named, here or in pyproject.toml."""
        return self.database is not None or "database" in read_pyproject()


@dataclass(frozen=True)
class ServedDatabaseAddress(DatabaseAddress):
    """The same, or the address of a service, and what that is shown of the caller."""

    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file",
            metavar="FILE",
            help="The token for a service (grpcs://…); else what ZAPDB_TOKEN holds.",
        ),
    ] = None
    tls_ca: Annotated[
        Path | None,
        typer.Option(
            "--tls-ca",
            metavar="FILE",
            help="Authorities of the service's certificate (PEM); else those of the system.",
        ),
    ] = None
    tls_cert: Annotated[
        Path | None,
        typer.Option("--tls-cert", metavar="FILE", help="A certificate for the service (PEM)."),
    ] = None
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="The certificate's key (PEM).")
    ] = None

    @property
    def is_served(self) -> bool:
        """Whether a service is asked."""
        return is_service(find_database(self.database))
