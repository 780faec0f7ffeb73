"""`zapdb token`: keys and tokens of a service, for development and small installations."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from zapdb.catalog import DEFAULT_TENANT_NAME
from zapdb.cli.output import Output
from zapdb.control.durations import parse_duration
from zapdb.errors import UsageError
from zapdb.service import keys
from zapdb.service.principals import make_grant

KeyFileOption = Annotated[
    Path,
    typer.Option("--tokens", metavar="FILE", help="The key file, which only you can read."),
]


def token_keys_command(
    file: Annotated[Path, typer.Argument(help="The key file.")],
    output: Output,
    add: Annotated[
        bool, typer.Option("--add", help="Add a new key; the file is made if it is missing.")
    ] = False,
    remove: Annotated[
        str | None,
        typer.Option("--remove", metavar="KID", help="Remove a key: its tokens are refused."),
    ] = None,
    public: Annotated[
        Path | None,
        typer.Option(
            "--public",
            metavar="FILE",
            help="Write the public halves, for services that issue no tokens.",
        ),
    ] = None,
    audience: Annotated[
        str | None,
        typer.Option(help="With --add: what tokens are for (`aud`), such as the service's name."),
    ] = None,
) -> None:
    """Show the keys of a key file; add one, or remove one.

    To change keys, add one, issue tokens anew, and remove the old one when its tokens are over:
    services read the file again when it changes.

    With `--json`: `{audience, keys: [{kid, algorithm, signs}], principals}`; `principals` maps the
    names of client certificates to their grants.
    """
    if audience is not None and not add:
        raise UsageError("--audience goes with --add", hint="give both, or leave out --audience")
    if add:
        keys.add_key(file, audience)
    if remove is not None:
        keys.remove_key(file, remove)
    found = keys.read_keys(file)
    if public is not None:
        keys.write_public(file, public)
    output = output.beside(public)
    rows = [(key["kid"], key["alg"], key["kty"] == "oct" or "d" in key) for key in found.plain]
    output.table(
        ("key", "algorithm", "signs"),
        [((kid, "bold"), algorithm, "yes" if signs else "no") for kid, algorithm, signs in rows],
    )
    output.document(
        {
            "audience": found.audience,
            "keys": [
                {"kid": kid, "algorithm": algorithm, "signs": signs}
                for kid, algorithm, signs in rows
            ],
            "principals": {
                name: [grant.to_json() for grant in grants]
                for name, grants in found.principals.items()
            },
        }
    )


def token_issue_command(
    name: Annotated[str, typer.Argument(help="The principal, such as deploy@example.com.")],
    tokens: KeyFileOption,
    output: Output,
    scope: Annotated[
        list[str],
        typer.Option("--scope", help="What it may do, such as catalog:read; may be repeated."),
    ],
    tenant: Annotated[
        list[str] | None,
        typer.Option("--tenant", help="With which tenants; * is all. Default: the default tenant."),
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option("--table", help="Narrow data:read to this table; may be repeated."),
    ] = None,
    expires: Annotated[
        str, typer.Option(metavar="DURATION", help="How long it is valid, such as 8h or 30d.")
    ] = "1h",
) -> None:
    """Issue a token of a principal: who has it may do what its scopes say, until it is over.

    Scopes are catalog:read, catalog:admin, cluster:read, cluster:join, cluster:admin, migrate:plan,
    migrate:apply, jobs:read, jobs:control, history:read and data:read. Those of the cluster need
    `--tenant '*'`, since they are about the whole database.

    With `--json`: `{token, principal, expires_at}`; `expires_at` is in seconds since 1970 UTC.
    """
    seconds = parse_duration(expires) // 1_000_000
    grants = [make_grant(one, scope, table or ()) for one in tenant or [DEFAULT_TENANT_NAME]]
    token = keys.issue_token(tokens, name, grants, seconds)
    output.write(token)
    document: dict[str, Any] = {
        "token": token,
        "principal": name,
        "expires_at": int(time.time()) + seconds,
    }
    output.document(document)
