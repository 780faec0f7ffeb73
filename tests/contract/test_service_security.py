"""Who may call a service, and what: nothing but what a grant says."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.contract.tables import ITEMS
from tests.services import ALL, Authority, Served, bearer, make_keys, served, token_for
from tests.support import Workspace, wait_until
from zapdb.errors import NotAllowed, NotAuthenticated, UsageError
from zapdb.service import keys
from zapdb.service.certificates import Certificates
from zapdb.service.guard import OPEN, IncomingCall, _current
from zapdb.service.keys import KeyFile
from zapdb.service.methods import BY_PATH, METHODS, Method
from zapdb.service.principals import EVERY_TENANT, SCOPES, Grant, Principal
from zapdb.service.server import Listening
from zapdb.service.status import DETAILS, from_call

LIST = "/zapdb.v1.Catalog/ListTables"


@pytest.fixture
def service(workspace: Workspace, key_file: Path) -> Iterator[Served]:
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.admin.create_tenant("acme")
    with served(workspace.address, key_file) as one:
        yield one


def call(
    address: str | grpc.Channel,
    path: str = LIST,
    metadata: Sequence[tuple[str, str]] = (),
    request: bytes = b"",
) -> bytes:
    channel = grpc.insecure_channel(address) if isinstance(address, str) else address
    with channel:
        found: bytes = channel.unary_unary(path)(request, metadata=metadata, timeout=60)
        return found


def status_of(*args: Any, **named: Any) -> str:
    try:
        call(*args, **named)
    except grpc.RpcError as error:
        return str(error.code().name)
    return "OK"


def request_for(method: Method, **fields: Any) -> bytes:
    return method.request_class(**fields).SerializeToString()


def sign(path: Path, header: dict[str, Any] | None = None, **claims: Any) -> str:
    """A token with claims that take the place of proper ones; None leaves one out."""
    (key,) = keys.read_keys(path).plain
    proper = {
        "sub": "ci",
        "aud": "zapdb",
        "exp": int(time.time()) + 60,
        "grants": [{"tenant": "*", "scopes": sorted(ALL)}],
    }
    said = {name: value for name, value in {**proper, **claims}.items() if value is not None}
    signer: Any = jwt.PyJWK(dict(key)).key
    return jwt.encode(said, signer, "EdDSA", headers=header or {"kid": key["kid"]})


def unsigned(path: Path) -> str:
    (key,) = keys.read_keys(path).plain
    said = jwt.decode(sign(path), options={"verify_signature": False})
    head = {"alg": "none", "typ": "JWT", "kid": key["kid"]}
    parts = [
        base64.urlsafe_b64encode(json.dumps(one).encode()).rstrip(b"=") for one in (head, said)
    ]
    return b".".join([*parts, b""]).decode()


def by_public_key(path: Path) -> str:
    """Signed with the public half as if it were a shared secret."""
    (key,) = keys.read_keys(path).plain
    secret = base64.urlsafe_b64decode(key["x"] + "=")
    return jwt.encode(
        {"sub": "ci", "aud": "zapdb", "exp": int(time.time()) + 60},
        secret,
        "HS256",
        headers={"kid": key["kid"]},
    )


def of_another_key(path: Path) -> str:
    (key,) = keys.read_keys(path).plain
    said = jwt.decode(sign(path), options={"verify_signature": False})
    return jwt.encode(said, Ed25519PrivateKey.generate(), "EdDSA", headers={"kid": key["kid"]})


def changed(token: str) -> str:
    """The token with another character in the middle of its signature: at its end, some bits
    stand for nothing, and some are mostly 0."""
    at = len(token) - 40
    return f"{token[:at]}{'A' if token[at] != 'A' else 'B'}{token[at + 1 :]}"


NOT_TAKEN = {
    "expired": lambda path: sign(path, exp=int(time.time()) - 1),
    "not yet valid": lambda path: sign(path, nbf=int(time.time()) + 60),
    "another audience": lambda path: sign(path, aud="other"),
    "no audience": lambda path: sign(path, aud=None),
    "no end": lambda path: sign(path, exp=None),
    "no subject": lambda path: sign(path, sub=None),
    "a subject of control characters": lambda path: sign(path, sub="a\nb"),
    "grants that are none": lambda path: sign(path, grants={"tenant": "*"}),
    "another kid": lambda path: sign(path, {"kid": "another"}),
    "no kid": lambda path: sign(path, {"typ": "JWT"}),
    "alg none": unsigned,
    "the public key as a secret": by_public_key,
    "the same kid of another key": of_another_key,
    "no token at all": lambda path: "x",
    "empty": lambda path: "",
    "half a token": lambda path: sign(path)[:-20],
    "a changed byte": lambda path: changed(sign(path)),
}


@pytest.mark.parametrize("name", NOT_TAKEN)
def test_no_token_but_a_proper_one_is_taken(name: str, key_file: Path) -> None:
    with pytest.raises(NotAuthenticated):
        KeyFile(key_file).verify(NOT_TAKEN[name](key_file))


def test_a_proper_token_is_taken_until_it_is_over(key_file: Path) -> None:
    taken, token = KeyFile(key_file), sign(key_file, exp=int(time.time()) + 2)
    assert taken.verify(token) == Principal(
        "ci", (Grant("*", ALL),), taken.verify(token).expires_at
    )
    time.sleep(max(0, taken.verify(token).expires_at - time.time()))
    with pytest.raises(NotAuthenticated, match="over"):
        taken.verify(token)


@pytest.mark.parametrize(
    ("metadata", "status"),
    [
        ([], "UNAUTHENTICATED"),
        ([("authorization", "Basic eDp5")], "UNAUTHENTICATED"),
        ([("authorization", "Bearer x")], "UNAUTHENTICATED"),
    ],
)
def test_a_call_without_a_token_is_refused(
    service: Served, metadata: list[tuple[str, str]], status: str
) -> None:
    assert status_of(service.address, LIST, metadata) == status


def test_the_client_is_told_why(service: Served) -> None:
    with grpc.insecure_channel(service.address) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(LIST)(b"")
    assert DETAILS in dict(caught.value.trailing_metadata())
    error = from_call(caught.value, service.address)
    assert type(error) is NotAuthenticated
    assert "ZAPDB_TOKEN" in error.hint


def some_request(method: Method, tenant: str) -> bytes:
    return request_for(method, tenant=tenant)


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.path)
def test_every_method_needs_its_scope_for_its_tenant(
    service: Served, key_file: Path, method: Method
) -> None:
    """Whatever it would answer: it is refused for want of a scope, or it is not."""
    others = ALL - {method.scope}
    request = some_request(method, "acme")
    concerns_all = method.tenant_of(method.request_class.FromString(request)) is not None
    of_all = concerns_all or method.scope.startswith("cluster:")

    def is_refused(*grants: Grant) -> bool:
        token = sign(key_file, grants=[grant.to_json() for grant in grants])
        with grpc.insecure_channel(service.address) as channel:
            if method.is_stream:
                begun = channel.unary_stream(method.path)(request, metadata=bearer(token))
                act = lambda: next(begun, None)  # refused before the first; a watch has no end
            else:
                unary = channel.unary_unary(method.path)
                act = lambda: unary(request, metadata=bearer(token))
            try:
                act()
            except grpc.RpcError as error:
                said = from_call(error, service.address)
                return type(said) is NotAllowed
        return False

    assert is_refused(Grant("acme", others))
    assert is_refused(Grant(EVERY_TENANT, others))
    assert is_refused(Grant("default", ALL))
    assert is_refused(Grant("acme", frozenset({"catalog:*", "*"})))
    assert is_refused(Grant("acme", frozenset({method.scope}))) == of_all
    assert not is_refused(Grant(EVERY_TENANT, frozenset({method.scope})))


def test_nothing_but_the_methods_of_the_registry_is_served(service: Served, key_file: Path) -> None:
    """Whatever handlers the server has: others are refused, even to those who may do everything."""
    metadata = bearer(token_for(key_file))
    added = grpc.unary_unary_rpc_method_handler(lambda request, context: b"let in")
    service.server.grpc.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("added.Later", {"Call": added})]
    )
    for path in ("/added.Later/Call", "/zapdb.v1.Catalog/DropEverything", "/x", "//", "/a/b/c"):
        assert status_of(service.address, path, metadata) == "PERMISSION_DENIED", path


def test_health_is_for_everybody_and_reflection_for_principals(
    service: Served, key_file: Path
) -> None:
    from grpc_reflection.v1alpha.reflection_pb2 import ServerReflectionRequest

    path = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
    asked = ServerReflectionRequest(list_services="").SerializeToString()
    assert call(service.address, "/grpc.health.v1.Health/Check") == b"\x08\x01"
    assert set(OPEN) == {"/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch",
                         "/grpc.health.v1.Health/List"}  # fmt: skip
    with grpc.insecure_channel(service.address) as channel:
        ask = channel.stream_stream(path)
        with pytest.raises(grpc.RpcError) as caught:
            list(ask(iter([asked])))
        assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert b"zapdb.v1.Catalog" in next(ask(iter([asked]), metadata=bearer(token_for(key_file))))


def test_tables_narrow_what_shows_records_alone() -> None:
    narrow = Principal(
        "ci", (Grant("acme", frozenset({"data:read", "jobs:read"}), frozenset({"a"})),)
    )
    narrow.require("jobs:read", "acme", None)
    narrow.require("data:read", "acme", ("a",))
    for tables in (None, ("b",), ("a", "b")):
        with pytest.raises(NotAllowed):
            narrow.require("data:read", "acme", tables)
    wide = Principal("ci", (*narrow.grants, Grant("*", frozenset({"data:read"}))))
    wide.require("data:read", "acme", None)


def test_methods_that_show_records_need_the_scope_for_it() -> None:
    assert {one.scope for one in METHODS if one.shows_data} <= {"data:read"}


# The key file


def test_a_stream_shows_what_its_principal_may_see_by_now(service: Served) -> None:
    """What was allowed when it began was asked again; what it shows goes by the same answer."""
    guard, path = service.server._guard, "/zapdb.v1.Jobs/WatchJob"
    call = IncomingCall(path, {}, caller=Principal("ci", (Grant(EVERY_TENANT, frozenset(SCOPES)),)))
    method: Any = SimpleNamespace(
        path=path,
        function=lambda target: target,
        request=SimpleNamespace(read=lambda request: {}),
    )
    _current.set(call)
    target = service.server._start(method, BY_PATH[path].request_class(), call)
    assert target.shows_values("items")
    kept, guard._keys = guard._keys, None
    guard._anybody = Principal("ci", (Grant(EVERY_TENANT, frozenset({"jobs:read"})),))
    guard.check_again(call, None)
    assert not target.shows_values("items")
    guard._keys, guard._anybody = kept, None


def test_keys_change_while_the_service_runs(service: Served, key_file: Path) -> None:
    (before,) = keys.read_keys(key_file).keys
    old = bearer(token_for(key_file))
    assert status_of(service.address, LIST, old) == "OK"
    keys.add_key(key_file)
    new = bearer(token_for(key_file))
    wait_until(lambda: status_of(service.address, LIST, new) == "OK")
    assert status_of(service.address, LIST, old) == "OK"
    keys.remove_key(key_file, before)
    wait_until(lambda: status_of(service.address, LIST, old) == "UNAUTHENTICATED")
    key_file.write_text("{")  # half written: the keys stay
    time.sleep(1.5)
    assert status_of(service.address, LIST, new) == "OK"


def test_public_halves_verify_and_sign_nothing(key_file: Path, tmp_path: Path) -> None:
    public = tmp_path / "public.json"
    keys.write_public(key_file, public)
    assert '"d"' not in public.read_text()
    assert KeyFile(public).verify(token_for(key_file)).name == "ci"
    with pytest.raises(UsageError, match="no key that signs"):
        token_for(public)


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o644, 0o622, 0o660, 0o602])
def test_files_that_others_can_read_are_refused(key_file: Path, mode: int) -> None:
    key_file.chmod(mode)
    with pytest.raises(UsageError, match="others can read or change the key file"):
        KeyFile(key_file)


GOOD = {"kty": "oct", "kid": "a", "alg": "HS256", "k": "A" * 48}
BAD_FILES = [
    ("[]", "a list of `keys`"),
    ("{", "not JSON"),
    ('{"keys": [{"kty": "oct", "alg": "HS256", "k": "AA"}]}', "no `kid`"),
    (json.dumps({"keys": [{**GOOD, "alg": "RS256"}]}), "can't be for the algorithm"),
    (json.dumps({"keys": [{**GOOD, "alg": "none"}]}), "can't be for the algorithm"),
    (json.dumps({"keys": [{**GOOD, "k": "AAAA"}]}), "shorter than 32 bytes"),
    (json.dumps({"keys": [GOOD, GOOD]}), "two keys have the kid"),
    (json.dumps({"keys": [{"kty": "RSA", "kid": "a", "alg": "HS256", "n": "AA", "e": "AQAB"}]}),
     "can't be for the algorithm"),
    (json.dumps({"keys": [GOOD], "principals": {"x": [{"tenant": "a"}]}}), "an object with a"),
    (json.dumps({"keys": [GOOD], "principals": {"x": [{"tenant": "a", "scopes": ["b"]}]}}),
     "no such scope"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), BAD_FILES, ids=[said for _, said in BAD_FILES])
def test_a_key_file_with_errors_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "keys.json"
    path.touch(0o600)
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        KeyFile(path)
    assert said in str(caught.value)


# Where a service listens


@pytest.mark.parametrize(
    ("address", "has_tls", "has_tokens", "insecure", "is_safe"),
    [
        ("127.0.0.1:0", False, False, True, True),
        ("[::1]:0", False, False, True, True),
        ("localhost:0", False, True, False, True),
        ("127.9.9.9:0", True, True, False, True),
        ("127.0.0.1:0", False, False, False, False),
        ("127.0.0.1:0", True, False, False, False),
        ("127.0.0.1:0", False, True, True, False),
        ("0.0.0.0:0", False, False, True, False),
        ("0.0.0.0:0", False, True, False, False),
        ("0.0.0.0:0", True, False, False, False),
        ("0.0.0.0:0", True, False, True, False),
        ("0.0.0.0:0", True, True, False, True),
        ("[::]:0", False, True, False, False),
        ("example.com:0", False, True, False, False),
        ("127.0.0.1", False, False, True, False),
        ("127.0.0.1:x", False, False, True, False),
        ("unix:/tmp/socket", False, False, True, False),
    ],
)
def test_other_machines_call_by_tls_and_with_tokens_alone(
    address: str, has_tls: bool, has_tokens: bool, insecure: bool, is_safe: bool
) -> None:
    certificates = Certificates(Path("c"), Path("k")) if has_tls else None
    listening = Listening(address, certificates, Path("t") if has_tokens else None, insecure)
    if is_safe:
        listening.require_safe()
        return
    with pytest.raises(UsageError):
        listening.require_safe()


def test_a_port_in_use_is_refused(service: Served, workspace: Workspace, key_file: Path) -> None:
    import asyncio

    from zapdb import aio
    from zapdb.service.server import Server

    async def listen() -> None:
        async with aio.open(workspace.address) as db:
            await Server(db, Listening(service.address, None, key_file)).start()

    with pytest.raises(UsageError, match="can't listen") as caught:
        asyncio.run(listen())
    assert caught.value.context["address"] == service.address


@pytest.mark.parametrize("days", [-1, 365])
def test_a_certificate_that_is_over_is_refused(tmp_path: Path, days: int) -> None:
    certificate, key = Authority.make(tmp_path).sign("service", days)
    if days > 0:
        Certificates(certificate, key).credentials()
        return
    with pytest.raises(UsageError, match="the certificate is over"):
        Certificates(certificate, key).credentials()


def test_a_certificate_with_another_key_is_refused(tmp_path: Path) -> None:
    authority = Authority.make(tmp_path)
    certificate, key = authority.sign("service")
    _, other = authority.sign("other")
    with pytest.raises(UsageError, match="not that of the certificate"):
        Certificates(certificate, other).credentials()
    key.write_text("nonsense")
    with pytest.raises(UsageError, match="no key in clear"):
        Certificates(certificate, key).credentials()
    certificate.write_text("nonsense")
    with pytest.raises(UsageError, match="no certificate"):
        Certificates(certificate, other).credentials()
    other.chmod(0o644)
    with pytest.raises(UsageError, match="others can read"):
        Certificates(certificate, other).credentials()


def test_clients_show_certificates_or_tokens(workspace: Workspace, tmp_path: Path) -> None:
    workspace.write(1, ITEMS)
    workspace.open()
    authority = Authority.make(tmp_path)
    path = make_keys(tmp_path)
    plain = json.loads(path.read_text())
    plain["principals"] = {"deploy": [{"tenant": "default", "scopes": ["catalog:read"]}]}
    path.write_text(json.dumps(plain))
    certificates = Certificates(*authority.sign("service"), authority.path)
    known, unknown = authority.sign("deploy"), authority.sign("stranger")
    directory = tmp_path / "other"
    directory.mkdir()
    foreign = Authority.make(directory).sign("deploy")
    over = authority.sign("late", -1)
    with served(workspace.address, path, certificates) as one:

        def status(client: tuple[Path, Path] | None, token: str | None = None) -> str:
            metadata = () if token is None else bearer(token)
            return status_of(authority.channel(one.address, client), LIST, metadata)

        assert status(known) == "OK"
        assert status(unknown) == "UNAUTHENTICATED"
        assert status(unknown, token_for(path)) == "OK"
        assert status(known, "x") == "UNAUTHENTICATED"
        assert status(None) == status(foreign) == status(over) == "UNAVAILABLE"
        assert status(None, token_for(path)) == "UNAVAILABLE"
        assert status_of(one.address) == "UNAVAILABLE"  # without TLS


def test_scopes_are_those_that_methods_ask_for_or_are_to_come() -> None:
    assert {method.scope for method in METHODS} <= set(SCOPES)


def test_secrets_of_a_new_key_file_are_its_owners(key_file: Path) -> None:
    assert key_file.stat().st_mode & 0o777 == 0o600
    assert os.access(key_file, os.R_OK)
