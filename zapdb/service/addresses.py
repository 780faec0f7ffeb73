"""The address of a service, and what a client shows there: `grpcs://host:port`."""

from __future__ import annotations

import ipaddress
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import grpc

from zapdb.errors import UsageError
from zapdb.limits import (
    SERVICE_ANSWER_SIZE_BYTES_MAX,
    SERVICE_KEEPALIVE_SECONDS,
    SERVICE_KEEPALIVE_WAIT_SECONDS,
    SERVICE_REQUEST_SIZE_BYTES_MAX,
)
from zapdb.service.keys import require_private

PORT: Final = 7427
PORT_MAX: Final = 65_535
TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*", re.ASCII)
"""What a bearer token consists of (RFC 6750)."""
ERROR_SIZE_BYTES_MAX: Final = 1024 * 1024
"""What may be told of an error: up to 50 violations of a migration file, with their lines."""
OPTIONS: Final = (
    ("grpc.max_send_message_length", SERVICE_REQUEST_SIZE_BYTES_MAX),
    ("grpc.max_receive_message_length", SERVICE_ANSWER_SIZE_BYTES_MAX),
    ("grpc.max_metadata_size", ERROR_SIZE_BYTES_MAX),
    ("grpc.absolute_max_metadata_size", ERROR_SIZE_BYTES_MAX),
    # While a call waits: a service that vanished without a word would be waited for for ever.
    ("grpc.keepalive_time_ms", int(SERVICE_KEEPALIVE_SECONDS * 1000)),
    ("grpc.keepalive_timeout_ms", int(SERVICE_KEEPALIVE_WAIT_SECONDS * 1000)),
    ("grpc.http2.max_pings_without_data", 0),  # any number of them
)
NO_PROXY: Final = ("grpc.enable_http_proxy", 0)
"""Of a connection in clear: a proxy that the environment names would get the token, and connect to
a loopback of its own."""


def is_loopback(host: str) -> bool:
    """Whether a name or an address is this machine's own, and nothing leaves the machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def split_address(address: str, purpose: str) -> tuple[str, int]:
    """The host and the port of an address to listen on; raises `UsageError`."""
    host, _, port = address.rpartition(":")
    is_number = port.isascii() and port.isdecimal() and len(port) <= len(str(PORT_MAX))
    if not host or not host.isprintable() or not is_number or int(port) > PORT_MAX:
        raise UsageError(
            f"this is no address to {purpose} on",
            address=address,
            hint=f"give HOST:PORT, with a port of 0 to {PORT_MAX}; 0 is one that is free",
        )
    return host, int(port)


@dataclass(frozen=True, slots=True)
class ServiceAccess:
    """What a client shows a service: a token, or a certificate and its key; and the authorities of
    the service's own certificate, if they are not those of the system."""

    token: str | None = None
    token_file: Path | None = None
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None

    @classmethod
    def given(cls, token: str | None, *files: str | Path | None) -> ServiceAccess:
        return cls(token, *(None if one is None else Path(one) for one in files))

    def find_token(self) -> str | None:
        """The token that is given, or in the file, or in ZAPDB_TOKEN; raises `UsageError` for a
        file that others can read, and for what is no token."""
        if self.token is not None:
            return _checked_token(self.token, "the argument `token`")
        if self.token_file is not None:
            require_private(self.token_file, "token file")
            text = self.token_file.read_bytes().decode("utf-8", "replace").strip()
            return _checked_token(text, str(self.token_file))
        text = os.environ.get("ZAPDB_TOKEN", "").strip()
        return _checked_token(text, "ZAPDB_TOKEN") if text else None

    @property
    def has_files(self) -> bool:
        return (self.tls_ca, self.tls_cert, self.tls_key) != (None, None, None)

    def credentials(self) -> grpc.ChannelCredentials:
        """Raises `UsageError`, and `OSError` for files that can't be read."""
        if (self.tls_cert is None) != (self.tls_key is None):
            raise UsageError(
                "a client's certificate goes with its key", hint="give --tls-cert and --tls-key"
            )
        if self.tls_key is not None:
            require_private(self.tls_key, "key of the certificate")
        ca, key, certificate = (
            None if path is None else path.read_bytes()
            for path in (self.tls_ca, self.tls_key, self.tls_cert)
        )
        return grpc.ssl_channel_credentials(ca, key, certificate)


def _checked_token(text: str, place: str) -> str:
    if not TOKEN.fullmatch(text):  # it is not shown
        raise UsageError(
            "this is no token", place=place, hint="`zapdb token issue` prints one, on one line"
        )
    return text


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    """`is_safe` is whether calls travel by TLS."""

    place: str
    is_safe: bool
    access: ServiceAccess

    @classmethod
    def read(cls, address: str, access: ServiceAccess) -> ServiceAddress:
        """Raises `UsageError` for what is no address, and for another machine's without TLS."""
        try:
            parts = urlsplit(address)
            host, port = parts.hostname, PORT if parts.port is None else parts.port
        except ValueError:
            host, port, parts = None, 0, urlsplit("")
        further = (parts.path.strip("/"), parts.query, parts.fragment, parts.username)
        is_whole = host and port and not any((*further, parts.password))
        if parts.scheme not in ("grpc", "grpcs") or not host or not is_whole:
            hint = "grpcs://host:port"
            if parts.scheme.startswith(("sqlite", "postgres")):
                hint = "zapdb.open(url) opens a database itself"
            shown = "(not shown)" if "@" in address else address  # it may have a password
            raise UsageError("this is no address of a service", address=shown, hint=hint)
        is_safe = parts.scheme == "grpcs"
        if not is_safe and not is_loopback(host):
            raise UsageError(
                "a token would travel in clear",
                address=address,
                hint=f"grpcs://{host}:{port}; grpc:// is for services on this machine",
            )
        if not is_safe and access.has_files:
            raise UsageError(
                "certificates are for TLS", address=address, hint=f"grpcs://{host}:{port}"
            )
        return cls(f"[{host}]:{port}" if ":" in host else f"{host}:{port}", is_safe, access)

    def __str__(self) -> str:
        return f"{'grpcs' if self.is_safe else 'grpc'}://{self.place}"

    def connect(self, library: Any = grpc) -> Any:
        """A channel of grpc, or of `grpc.aio`; nothing is sent before the first call."""
        if self.is_safe:
            return library.secure_channel(self.place, self.access.credentials(), OPTIONS)
        return library.insecure_channel(self.place, (*OPTIONS, NO_PROXY))

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """What each call shows, beside a certificate."""
        token = self.access.find_token()
        return () if token is None else (("authorization", f"Bearer {token}"),)
