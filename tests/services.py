"""Services for tests: a server over a real database, in a thread of this process or in a process of
its own, with keys, tokens and certificates."""

from __future__ import annotations

import asyncio
import datetime
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests import processes
from zapdb import aio
from zapdb.service import keys
from zapdb.service.certificates import Certificates
from zapdb.service.principals import EVERY_TENANT, SCOPES, Grant
from zapdb.service.server import Listening, Server

ALL = frozenset(SCOPES)


@dataclass
class Served:
    """A server in a thread of this process."""

    server: Server
    address: str
    loop: asyncio.AbstractEventLoop
    stopped: asyncio.Event

    def stop(self) -> None:
        with suppress(RuntimeError):  # it has ended
            self.loop.call_soon_threadsafe(self.stopped.set)


@contextmanager
def served(
    url: str,
    tokens: Path | None = None,
    certificates: Certificates | None = None,
    listen: str = "127.0.0.1:0",
) -> Iterator[Served]:
    """Serve a database until the end of the block, on a port of this machine that is free."""
    found = Future[Served]()
    ended = Future[None]()

    async def run() -> None:
        listening = Listening(listen, certificates, tokens, tokens is None)
        async with aio.open(url) as db:
            server, stopped = Server(db, listening), asyncio.Event()
            address = await server.start()
            found.set_result(Served(server, address, asyncio.get_running_loop(), stopped))
            await server.serve_until(stopped)

    def work() -> None:
        try:
            asyncio.run(run())
            ended.set_result(None)
        except BaseException as error:
            (ended if found.done() else found).set_exception(error)

    thread = threading.Thread(target=work, name="service-of-test")
    thread.start()
    try:
        one = found.result()
        yield one
        one.stop()
    finally:
        if found.done() and found.exception() is None:
            found.result().stop()
        thread.join()
    if ended.done():
        ended.result()


@contextmanager
def serving_process(url: str, *options: str, **environment: str) -> Iterator[tuple[str, Any]]:
    """`zapdb serve` in a process of its own: its address, and the process."""
    process = processes.Popen(
        [
            *(sys.executable, "-m", "zapdb", "serve", "-d", url),
            *("--listen", "127.0.0.1:0", "--json"),
            *(options or ("--insecure-loopback",)),
        ],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )
    try:
        lines = ""
        while not lines.rstrip().endswith("}"):
            line = process.stdout.readline()
            assert line, "the service ended"
            lines += line
        yield json.loads(lines)["address"], process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait()
        process.stdout.close()


def make_keys(directory: Path) -> Path:
    path = directory / "keys.json"
    keys.add_key(path)
    return path


def token_for(path: Path, name: str = "ci", *grants: Grant, seconds: int = 600) -> str:
    """A token of a principal, which may do everything if no grants are given."""
    return keys.issue_token(path, name, grants or (Grant(EVERY_TENANT, ALL),), seconds)


def bearer(token: str) -> Sequence[tuple[str, str]]:
    return (("authorization", f"Bearer {token}"),)


@dataclass(frozen=True)
class Authority:
    """An authority that signs certificates of services and clients, in files of a directory."""

    directory: Path
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def make(cls, directory: Path) -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "authority")])
        made = (
            _builder(name, key, 1)
            .issuer_name(name)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(key, hashes.SHA256())
        )
        (directory / "ca.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
        return cls(directory, made, key)

    @property
    def path(self) -> Path:
        return self.directory / "ca.pem"

    def sign(self, name: str, days: float = 1) -> tuple[Path, Path]:
        """A certificate and its key, for clients of this name and services on this machine."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        made = (
            _builder(subject, key, days)
            .issuer_name(self.certificate.subject)
            .add_extension(
                x509.SubjectAlternativeName(
                    [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
                ),
                critical=False,
            )
            .sign(self.key, hashes.SHA256())
        )
        paths = self.directory / f"{name}.pem", self.directory / f"{name}.key"
        paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
        paths[1].touch(0o600)
        paths[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return paths

    def channel(self, address: str, client: tuple[Path, Path] | None = None) -> grpc.Channel:
        shown: Mapping[str, bytes] = {}
        if client is not None:
            shown = {
                "certificate_chain": client[0].read_bytes(),
                "private_key": client[1].read_bytes(),
            }
        return grpc.secure_channel(
            address, grpc.ssl_channel_credentials(self.path.read_bytes(), **shown)
        )


def _builder(
    name: x509.Name, key: ec.EllipticCurvePrivateKey, days: float
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=2))
        .not_valid_after(now + datetime.timedelta(days=days))
    )
