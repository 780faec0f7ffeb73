"""Who calls the service, and what they may do: nothing but what a grant says.

A grant has scopes for one tenant, or for all of them. What concerns the whole database, such as its
processes, needs a grant for all tenants.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Final, Literal, get_args

from zapdb.catalog.tenants import require_tenant_name
from zapdb.errors import NotAllowed, UsageError
from zapdb.limits import NAME_LENGTH_MAX
from zapdb.migrations.did_you_mean_key import fix_name
from zapdb.migrations.document_structure import NAME

Scope = Literal[
    "catalog:read",
    "catalog:admin",
    "cluster:read",
    "cluster:join",
    "cluster:admin",
    "migrate:plan",
    "migrate:apply",
    "jobs:read",
    "jobs:control",
    "history:read",
    "data:read",
]
"""What a principal may do with a tenant."""

SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
SHOWS_DATA: Final[Scope] = "data:read"
EVERY_TENANT: Final = "*"
OF_THE_DATABASE: Final = "cluster:"
"""How the scopes begin that concern the whole database."""
OF_THE_CHAIN: Final[Scope] = "migrate:apply"
"""All tenants have one chain of migrations."""
KEYS_OF_A_GRANT: Final = frozenset({"tenant", "scopes", "tables"})


@dataclass(frozen=True, slots=True)
class Grant:
    """Scopes for a tenant, or for all (`*`). `tables` narrows `data:read` to those tables."""

    tenant: str
    scopes: frozenset[str]
    tables: frozenset[str] | None = None

    def has(self, scope: Scope, tenant: str) -> bool:
        """Whether it allows the scope for the tenant, be it for some tables alone."""
        if scope not in self.scopes:
            return False
        is_for_all = self.tenant == EVERY_TENANT
        return is_for_all or (self.tenant == tenant and not scope.startswith(OF_THE_DATABASE))

    def to_json(self) -> dict[str, Any]:
        plain: dict[str, Any] = {"tenant": self.tenant, "scopes": sorted(self.scopes)}
        return plain if self.tables is None else {**plain, "tables": sorted(self.tables)}

    @classmethod
    def read(cls, plain: object) -> Grant:
        """Return what `to_json` wrote; raises `ValueError`. A scope of a later release stays a
        scope that no method of this one asks for."""
        if not isinstance(plain, Mapping) or not {"tenant", "scopes"} <= set(plain):
            raise ValueError("a grant is an object with a tenant and its scopes")
        if unknown := set(plain) - KEYS_OF_A_GRANT:
            raise ValueError(f"a grant has no {', '.join(sorted(map(repr, unknown)))}")
        tenant, tables = plain["tenant"], plain.get("tables")
        if not isinstance(tenant, str) or not tenant:
            raise ValueError("the tenant of a grant is a name, or * for all")
        return cls(tenant, _texts(plain["scopes"]), None if tables is None else _texts(tables))


def _texts(plain: object) -> frozenset[str]:
    if not isinstance(plain, Sequence) or isinstance(plain, str):
        raise ValueError("scopes and tables are lists")
    if not all(isinstance(one, str) for one in plain):
        raise ValueError("scopes and tables are texts")
    return frozenset(plain)


def read_grants(plain: object) -> tuple[Grant, ...]:
    """Return the grants of a token, or of a principal in a key file; raises `ValueError`."""
    if not isinstance(plain, Sequence) or isinstance(plain, str):
        raise ValueError("grants are a list of objects with a tenant and its scopes")
    return tuple(map(Grant.read, plain))


def require_scopes(scopes: Collection[str]) -> None:
    """Raises `UsageError` for a scope that there is not."""
    if unknown := sorted(set(scopes) - set(SCOPES)):
        raise UsageError(
            "there is no such scope",
            scope=", ".join(unknown),
            scopes=", ".join(SCOPES),
            hint="give one of these scopes",
        )


def make_grant(tenant: str, scopes: Collection[str], tables: Collection[str]) -> Grant:
    """A grant, as a person asks for it; no tables are all. Raises `UsageError` for one that would
    allow nothing, or not what is meant. Which tables there are is not known here."""
    require_scopes(scopes)
    if tenant != EVERY_TENANT:
        require_tenant_name(tenant)
        if of_all := sorted(filter(_is_of_all, scopes)):
            raise UsageError(
                "these scopes are about all tenants",
                scopes=", ".join(of_all),
                tenant=tenant,
                hint="give --tenant '*'",
            )
    if tables and SHOWS_DATA not in scopes:
        raise UsageError(
            f"tables narrow {SHOWS_DATA}, and the grant does not have it",
            tables=", ".join(sorted(tables)),
            hint=f"add --scope {SHOWS_DATA}, or leave out --table",
        )
    for table in sorted(tables):
        if not NAME.fullmatch(table) or len(table) > NAME_LENGTH_MAX:
            raise UsageError("this is no name of a table", table=table, hint=fix_name(table))
    return Grant(tenant, frozenset(scopes), frozenset(tables) if tables else None)


def _is_of_all(scope: str) -> bool:
    return scope.startswith(OF_THE_DATABASE) or scope == OF_THE_CHAIN


@dataclass(frozen=True, slots=True)
class Principal:
    """The principal of a call. `expires_at` is in seconds since 1970 UTC."""

    name: str
    grants: tuple[Grant, ...]
    expires_at: float = inf

    def holds(self, scope: Scope) -> bool:
        """Whether a grant has the scope, for whatever it may be."""
        return any(scope in grant.scopes for grant in self.grants)

    def require(self, scope: Scope, tenant: str, tables: Collection[str] | None) -> None:
        """Raise `NotAllowed` unless a grant has the scope for the tenant, and for the tables that
        a request names; None if it names none, and so concerns all of them."""
        held = [grant for grant in self.grants if grant.has(scope, tenant)]
        if not held:
            raise NotAllowed(
                "the principal lacks the scope that the call needs",
                principal=self.name,
                scope=scope,
                tenant=EVERY_TENANT if scope.startswith(OF_THE_DATABASE) else tenant,
                hint="`zapdb token issue` makes a token with it, if that is meant to be allowed",
            )
        if scope != SHOWS_DATA or None in [grant.tables for grant in held]:
            return
        allowed = frozenset().union(*(grant.tables or () for grant in held))
        if tables is None or not set(tables) <= allowed:
            raise NotAllowed(
                "the principal may see the records of some tables alone",
                principal=self.name,
                scope=scope,
                tenant=tenant,
                tables=", ".join(sorted(allowed)),
                hint="name one of these tables",
            )

    def may_see(self, tenant: str, table: str) -> bool:
        """Whether a grant shows values of a table's records; of an empty name, of those of all."""
        try:
            self.require(SHOWS_DATA, tenant, (table,) if table else None)
        except NotAllowed:
            return False
        return True
