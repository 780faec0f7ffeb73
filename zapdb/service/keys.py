"""The key file of a service: whose tokens it takes, and what the holders of certificates may do.

It is a JSON Web Key Set (RFC 7517): each key has an identity (`kid`) and one algorithm, so nothing
in a token chooses how it is verified. `audience` is what the `aud` of a token has to be, and
`principals` has the grants of client certificates by their names. A token names its principal
(`sub`), its end (`exp`) and its grants (`grants`).

The file is read again when it changes, so a key is taken in or out while the service runs. If what
is there then has errors, the keys stay as they were, and the log says so.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from jwt.algorithms import OKPAlgorithm

from zapdb.errors import Location, NotAuthenticated, UsageError
from zapdb.files import writing_file
from zapdb.limits import PRINCIPAL_LENGTH_MAX, SERVICE_TOKENS_REMEMBERED_MAX
from zapdb.service.principals import Grant, Principal, read_grants, require_scopes

logger = logging.getLogger("zapdb.service")

AUDIENCE: Final = "zapdb"
ALGORITHMS: Final[Mapping[str, frozenset[str]]] = {
    "OKP": frozenset({"EdDSA"}),
    "EC": frozenset({"ES256", "ES384", "ES512"}),
    "RSA": frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}),
    "oct": frozenset({"HS256", "HS384", "HS512"}),
}
"""Which algorithms a key may be for, by its type: one that verifies is never used as a secret."""
SECRETS: Final = frozenset({"d", "k", "p", "q", "dp", "dq", "qi", "oth"})
"""The members of a key that others must not see."""
SHARED_SECRET_SIZE_BYTES_MIN: Final = 32
MAKE_HINT: Final = "`zapdb token keys FILE --add` makes a key file"
NEW_KEY_MODE: Final = 0o600
OTHERS_READ, OTHERS_WRITE, GROUP_WRITES, GROUP_READS = 0o004, 0o002, 0o020, 0o040


@dataclass(frozen=True, slots=True)
class Keys:
    """What a key file says."""

    path: Path
    audience: str
    keys: Mapping[str, jwt.PyJWK]
    plain: tuple[Mapping[str, Any], ...]
    principals: Mapping[str, tuple[Grant, ...]]

    def verify(self, token: str) -> Principal:
        """Return who calls with a token; raises `NotAuthenticated`."""
        try:
            kid = jwt.get_unverified_header(token).get("kid")
            key = self.keys.get(kid) if isinstance(kid, str) else None
            if key is None:
                raise NotAuthenticated("the token is signed by a key that the service lacks")
            said = jwt.decode(
                token,
                key,
                algorithms=[key.algorithm_name],
                audience=self.audience,
                options={"require": ["exp", "aud", "sub"], "verify_iat": False},
            )
        except jwt.ExpiredSignatureError:
            raise NotAuthenticated(
                "the token is over", hint="`zapdb token issue` makes another one"
            ) from None
        except jwt.InvalidTokenError as error:
            raise NotAuthenticated("the token is not valid", cause=str(error)) from None
        name = said["sub"]
        if not is_principal_name(name):
            raise NotAuthenticated("the subject of the token is no name of a principal")
        try:
            grants = read_grants(said.get("grants", ()))
        except ValueError as error:
            raise NotAuthenticated("the token is not valid", cause=str(error)) from None
        return Principal(name, grants, float(said["exp"]))


def read_keys(path: Path) -> Keys:
    """Read a key file; raises `UsageError`, and `OSError` if there is none."""
    require_private(path, "key file")
    place = Location(str(path))
    try:
        plain = json.loads(path.read_text("utf-8"))
    except (ValueError, RecursionError) as error:
        raise UsageError(
            "the key file is not JSON", location=place, cause=str(error), hint=MAKE_HINT
        ) from None
    try:
        return _checked(path, plain)
    except ValueError as error:
        raise UsageError(
            "the key file has errors",
            location=place,
            cause=str(error),
            hint=MAKE_HINT,
        ) from None


def _checked(path: Path, plain: Any) -> Keys:
    if not isinstance(plain, dict) or not isinstance(plain.get("keys"), list):
        raise ValueError("a key file is an object with a list of `keys`")
    keys: dict[str, jwt.PyJWK] = {}
    if not all(isinstance(key, dict) for key in plain["keys"]):
        raise ValueError("a key is an object")
    used = tuple(_check_key(key) for key in plain["keys"] if key.get("use", "sig") == "sig")
    for key in used:
        if key["kid"] in keys:
            raise ValueError(f"two keys have the kid {key['kid']!r}")
        keys[key["kid"]] = _load_key(_public(key))
    audience, principals = plain.get("audience", AUDIENCE), plain.get("principals", {})
    if not isinstance(audience, str) or not isinstance(principals, dict):
        raise ValueError("`audience` is a text, and `principals` is an object")
    granted = {name: read_grants(grants) for name, grants in principals.items()}
    for grants in granted.values():
        for grant in grants:
            require_scopes(grant.scopes)
    return Keys(path, audience, keys, used, granted)


def _check_key(key: Mapping[str, Any]) -> Mapping[str, Any]:
    kid, kind, algorithm = (key.get(name) for name in ("kid", "kty", "alg"))
    if not isinstance(kid, str) or not kid:
        raise ValueError("a key has no `kid`")
    if not isinstance(kind, str) or not isinstance(algorithm, str):
        raise ValueError(f"the key {kid!r} has no type `kty` and algorithm `alg`")
    if algorithm not in ALGORITHMS.get(kind, ()):
        known = ", ".join(sorted(one for some in ALGORITHMS.values() for one in some))
        raise ValueError(
            f"the key {kid!r} of type {kind!r} can't be for the algorithm {algorithm!r}; "
            f"known: {known}"
        )
    if kind == "oct":
        secret: bytes = _load_key(key).key
        if len(secret) < SHARED_SECRET_SIZE_BYTES_MIN:
            raise ValueError(
                f"the secret of {kid!r} is shorter than {SHARED_SECRET_SIZE_BYTES_MIN} bytes"
            )
    return dict(key)


def _load_key(key: Mapping[str, Any]) -> jwt.PyJWK:
    """Raises `ValueError` for one that is damaged, of which the libraries raise anything."""
    try:
        return jwt.PyJWK(dict(key), key["alg"])
    except Exception as error:
        raise ValueError(f"the key {key['kid']!r} can't be used: {error!r}") from None


def _public(key: Mapping[str, Any]) -> dict[str, Any]:
    """What verifies: of a key of two halves, the public one."""
    if key["kty"] == "oct":
        return dict(key)
    return {name: value for name, value in key.items() if name not in SECRETS}


def require_private(path: Path, what: str) -> None:
    """Raise `UsageError` if others could read or change a file with secrets.

    A file of root may be read by its group, as mounted secrets are. Windows has no such modes.
    """
    if not hasattr(os, "getuid"):
        return
    found = path.stat()
    refused = OTHERS_READ | OTHERS_WRITE | GROUP_WRITES
    if found.st_uid != 0 or os.getuid() == 0:
        refused |= GROUP_READS
    if found.st_mode & refused:
        raise UsageError(
            f"others can read or change the {what}",
            file=str(path),
            mode=f"{found.st_mode & 0o777:04o}",
            hint=f"chmod 600 {path}",
        )


class KeyFile:
    """The keys of a file as it is now. Tokens that were verified are remembered until they end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known = OrderedDict[str, Principal]()
        self._version = self._look()
        self.keys = read_keys(path)

    def verify(self, token: str) -> Principal:
        """Return who calls with a token; raises `NotAuthenticated`."""
        caller = self._known.get(token)
        if caller is None:
            caller = self.keys.verify(token)
            self._known[token] = caller
            if len(self._known) > SERVICE_TOKENS_REMEMBERED_MAX:
                self._known.popitem(last=False)
        elif caller.expires_at <= time.time():
            del self._known[token]
            return self.keys.verify(token)  # raises
        return caller

    def name_holder(self, names: Sequence[str], expires_at: float) -> Principal:
        """Return who calls with a certificate of these names; raises `NotAuthenticated`."""
        if expires_at <= time.time():
            raise NotAuthenticated("the client's certificate is over", names=", ".join(names))
        for name in names:
            grants = self.keys.principals.get(name)
            if grants is not None:
                return Principal(name, grants, expires_at)
        raise NotAuthenticated(
            "the client's certificate names no principal of the service",
            names=", ".join(names),
            hint="`principals` of the key file has the grants of each name",
        )

    def look_again(self) -> bool:
        """Read the file again if it has changed; return whether it was."""
        version = self._look()
        if version in (None, self._version):
            return False
        self._version = version
        try:
            self.keys = read_keys(self._path)
        except (UsageError, OSError) as error:
            logger.error("the key file was changed, and the keys stay as they were: %s", error)
            return False
        self._known.clear()
        return True

    def _look(self) -> tuple[int, ...] | None:
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


def is_principal_name(name: str) -> bool:
    return 0 < len(name) <= PRINCIPAL_LENGTH_MAX and name.isprintable() and not name.isspace()


# Making keys and tokens


def add_key(path: Path, audience: str | None = None) -> str:
    """Add a new key to a key file, which is made if it is missing; returns the key's `kid`. Raises
    `UsageError` for what is no audience."""
    if audience is not None and not is_principal_name(audience):
        raise UsageError(
            "this is no audience of tokens", hint="give printable characters, such as a host's name"
        )
    keys = read_keys(path) if path.exists() else Keys(path, audience or AUDIENCE, {}, (), {})
    kid = f"{time.strftime('%Y%m%d', time.gmtime())}-{secrets.token_hex(4)}"
    private = Ed25519PrivateKey.generate()
    made = {**OKPAlgorithm.to_jwk(private, as_dict=True), "kid": kid, "alg": "EdDSA", "use": "sig"}
    _write(replace(keys, audience=audience or keys.audience, plain=(*keys.plain, made)))
    return kid


def remove_key(path: Path, kid: str) -> None:
    """Remove a key: its tokens are refused from then on. Raises `UsageError` if it is missing."""
    keys = read_keys(path)
    if kid not in keys.keys:
        raise UsageError(
            "the key file has no such key",
            file=str(path),
            kid=kid,
            keys=", ".join(keys.keys),
            hint="give one of these keys",
        )
    _write(replace(keys, plain=tuple(key for key in keys.plain if key["kid"] != kid)))


def write_public(path: Path, target: Path) -> None:
    """Write a key file of the public halves: it verifies tokens, and makes none.

    Raises `UsageError` if a key has no public half.
    """
    keys = read_keys(path)
    for key in keys.plain:
        if key["kty"] == "oct":
            raise UsageError("a shared secret has no public half", file=str(path), kid=key["kid"])
    _write(replace(keys, path=target, plain=tuple(map(_public, keys.plain))))


def _write(keys: Keys) -> None:
    plain: dict[str, Any] = {"audience": keys.audience, "keys": list(keys.plain)}
    if keys.principals:
        plain["principals"] = {
            name: [grant.to_json() for grant in grants] for name, grants in keys.principals.items()
        }
    with writing_file(keys.path, NEW_KEY_MODE) as file:
        file.write(json.dumps(plain, indent=2).encode() + b"\n")


def issue_token(path: Path, name: str, grants: Sequence[Grant], seconds: int) -> str:
    """Return a token of a principal, signed by the newest key of a file that can sign.

    Raises `UsageError` for what is no name of a principal, for a scope that there is not, for a
    time that is none, and without such a key.
    """
    if not is_principal_name(name):
        raise UsageError(
            "this is no name of a principal",
            length=len(name),
            longest=PRINCIPAL_LENGTH_MAX,
            hint="give printable characters, such as deploy@example.com",
        )
    if seconds <= 0:
        raise UsageError(
            "a token that is over is of no use", seconds=seconds, hint="give a longer time"
        )
    for grant in grants:
        require_scopes(grant.scopes)
    keys = read_keys(path)
    signing = [key for key in keys.plain if key["kty"] == "oct" or "d" in key]
    if not signing:
        raise UsageError(
            "the key file has no key that signs",
            file=str(path),
            hint="`zapdb token keys FILE --add` makes one",
        )
    key, now = signing[-1], int(time.time())
    said = {
        "sub": name,
        "aud": keys.audience,
        "iat": now,
        "exp": now + seconds,
        "grants": [grant.to_json() for grant in grants],
    }
    signer: Any = jwt.PyJWK(dict(key), key["alg"])
    return jwt.encode(said, signer.key, algorithm=key["alg"], headers={"kid": key["kid"]})
