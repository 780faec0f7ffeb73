"""Wrong values of the options of `serve`, `token issue` and `token keys`: refused with a way out,
before anything is opened, and never with a traceback."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.program import run_here
from tests.services import Authority
from zapdb.service import keys

LONG = "x" * 300


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Good files of each kind, and others."""
    root = tmp_path_factory.mktemp("files")
    keys.add_key(root / "keys.json")
    keys.write_public(root / "keys.json", root / "public.json")
    authority = Authority.make(root)
    for name in ("service", "other"):
        authority.sign(name)
    wrong = {
        "latin1": b"\xe9\xff\xfe",
        "empty": b"",
        "deep": b"[" * 100_000,
        "no-object": b'{"keys": [1]}',
        "no-keys": b'{"keys": 7}',
        "half.pem": (root / "service.pem").read_bytes()[:200],
        "two-lines": b"abc\ndef",
        "torn.key": (root / "service.key").read_bytes()[:80],
    }
    for name, content in wrong.items():
        (root / name).touch(0o600)
        (root / name).write_bytes(content)
    (root / "seen").write_bytes(b"{}")
    (root / "seen").chmod(0o644)
    (root / "directory").mkdir()
    return root


def refused(command: Sequence[str], root: Path) -> None:
    given = [one.replace("ROOT", str(root)) for one in command]
    result = run_here(given)
    assert result.status != 0, result
    assert "Traceback" not in result.err + result.out
    assert result.err.startswith(("error: ", "Usage", "usage")), result
    told = run_here([*given, "--json"])
    assert told.status == result.status
    if result.err.startswith("error: "):
        assert told.error["hint"] or "the operating system reported" in result.err, result


SERVE = ("serve", "-d", "sqlite:////nowhere/at/all.db")
LISTENING = (*SERVE, "--insecure-loopback")
TLS = (*SERVE, "--tokens", "ROOT/keys.json")
ADDRESSES = (
    *("", ":", "x", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:99999999999999999999"),
    *("127.0.0.1:-1", "127.0.0.1:1e3", "127.0.0.1:\u0663", ":7427", "a\nb:1", "é:x"),
)
FILES = ("latin1", "empty", "deep", "no-object", "no-keys", "seen", "directory", "missing")


@pytest.mark.parametrize("address", [*ADDRESSES, "0.0.0.0:0", "example.com:1"])
@pytest.mark.parametrize("option", ["--listen", "--metrics"])
def test_wrong_addresses(option: str, address: str, root: Path) -> None:
    refused((*LISTENING, option, address), root)


@pytest.mark.parametrize("file", FILES)
def test_wrong_key_files(file: str, root: Path) -> None:
    refused((*SERVE, "--tokens", f"ROOT/{file}"), root)
    refused(("token", "keys", f"ROOT/{file}"), root)
    issue = ("token", "issue", "ci", "--scope", "catalog:read")
    refused((*issue, "--tokens", f"ROOT/{file}"), root)
    if file not in ("missing",):
        refused(("token", "keys", f"ROOT/{file}", "--add"), root)


@pytest.mark.parametrize(
    "options",
    [
        ("--tls-cert", "ROOT/service.pem"),
        ("--tls-key", "ROOT/service.key"),
        ("--client-ca", "ROOT/ca.pem"),
        ("--tls-cert", "ROOT/service.pem", "--tls-key", "ROOT/other.key"),
        ("--tls-cert", "ROOT/service.key", "--tls-key", "ROOT/service.key"),
        ("--tls-cert", "ROOT/service.pem", "--tls-key", "ROOT/service.pem"),
        ("--tls-cert", "ROOT/service.pem", "--tls-key", "ROOT/torn.key"),
        *(("--tls-cert", f"ROOT/{one}", "--tls-key", "ROOT/service.key") for one in FILES),
        *(("--tls-cert", "ROOT/service.pem", "--tls-key", f"ROOT/{one}") for one in FILES),
        ("--tls-cert", "ROOT/half.pem", "--tls-key", "ROOT/service.key"),
        *(
            ("--tls-cert", "ROOT/service.pem", "--tls-key", "ROOT/service.key", "--client-ca", one)
            for one in ("ROOT/latin1", "ROOT/empty", "ROOT/missing", "ROOT/service.key")
        ),
    ],
    ids=" ".join,
)
def test_wrong_certificates(options: tuple[str, ...], root: Path) -> None:
    refused((*TLS, *options), root)


ISSUE = ("token", "issue", "--tokens", "ROOT/keys.json")
READ = ("--scope", "catalog:read")


@pytest.mark.parametrize(
    ("said", "command"),
    [
        ("no name of a principal", ("", *READ)),
        ("no name of a principal", ("  ", *READ)),
        ("no name of a principal", ("a\nb", *READ)),
        ("no name of a principal", ("a\x1b[31m", *READ)),
        ("no name of a principal", (LONG, *READ)),
        ("no such scope", ("ci", "--scope", "")),
        ("no such scope", ("ci", "--scope", "catalog:write")),
        ("name of a tenant", ("ci", *READ, "--tenant", "")),
        ("name of a tenant", ("ci", *READ, "--tenant", "a b")),
        ("name of a tenant", ("ci", *READ, "--tenant", LONG)),
        ("tables narrow data:read", ("ci", *READ, "--table", "items")),
        ("no name of a table", ("ci", "--scope", "data:read", "--table", "")),
        ("no name of a table", ("ci", "--scope", "data:read", "--table", "Items!")),
        ("no name of a table", ("ci", "--scope", "data:read", "--table", LONG)),
        ("about all tenants", ("ci", "--scope", "cluster:read")),
        ("about all tenants", ("ci", "--scope", "migrate:apply", "--tenant", "acme")),
        ("is over", ("ci", *READ, "--expires", "0s")),
        ("not a duration", ("ci", *READ, "--expires", "")),
        ("not a duration", ("ci", *READ, "--expires", "-1h")),
        ("too long", ("ci", *READ, "--expires", "999999999w")),
    ],
)
def test_tokens_that_would_be_of_no_use(said: str, command: tuple[str, ...], root: Path) -> None:
    given = [one.replace("ROOT", str(root)) for one in (*ISSUE, *command)]
    result = run_here([*given, "--json"])
    assert result.status == 2, result
    assert said in result.error["message"]
    assert result.error["hint"]
    refused((*ISSUE, *command), root)


@pytest.mark.parametrize(
    "command",
    [
        ("ROOT/keys.json", "--remove", ""),
        ("ROOT/keys.json", "--remove", "nothing"),
        ("ROOT/keys.json", "--audience", "x"),
        ("ROOT/keys.json", "--add", "--audience", ""),
        ("ROOT/keys.json", "--public", "ROOT/directory"),
        ("ROOT/missing/keys.json", "--add"),
    ],
    ids=" ".join,
)
def test_wrong_options_of_token_keys(command: tuple[str, ...], root: Path) -> None:
    before = (root / "keys.json").read_bytes()
    refused(("token", "keys", *command), root)
    assert (root / "keys.json").read_bytes() == before


@pytest.mark.parametrize("file", ["latin1", "empty", "two-lines", "seen", "directory", "missing"])
def test_wrong_token_files(file: str, root: Path) -> None:
    command = ("catalog", "list", "-d", "grpc://127.0.0.1:1", "--token-file", f"ROOT/{file}")
    refused(command, root)


@pytest.mark.parametrize("token", ["a b", "a\nb", "é", "\x1b"])
def test_wrong_tokens_of_the_environment(
    token: str, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZAPDB_TOKEN", token)
    refused(("catalog", "list", "-d", "grpc://127.0.0.1:1"), root)
