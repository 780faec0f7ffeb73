"""The certificates of a service, checked before it listens, and read again when they change."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from zapdb.errors import UsageError
from zapdb.service.keys import require_private

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes

logger = logging.getLogger("zapdb.service")


@dataclass(frozen=True, slots=True)
class Certificates:
    """The files of the service's certificate chain and its key, and of the authorities of clients,
    if each client has to show a certificate."""

    certificate: Path
    key: Path
    client_authorities: Path | None = None

    def credentials(self) -> grpc.ServerCredentials:
        """Raises `UsageError` for files that can't be used: expired, damaged, of others, or that
        others can read; and `OSError`."""
        first = self._configuration()
        seen = [self._versions()]

        def fetch() -> Any:
            versions = self._versions()
            if versions == seen[0]:
                return None
            seen[0] = versions
            try:
                return self._configuration()
            except (UsageError, OSError) as error:
                logger.error("the certificates stay as they were: %s", error)
                return None

        return grpc.dynamic_ssl_server_credentials(
            first, fetch, require_client_authentication=self.client_authorities is not None
        )

    def _configuration(self) -> Any:
        require_private(self.key, "key of the certificate")
        chain, key = self.certificate.read_bytes(), self.key.read_bytes()
        certificate = _load(self.certificate, chain)[0]
        if _bytes_of(certificate.public_key()) != _bytes_of(_load_key(self.key, key)):
            raise UsageError(
                "the key is not that of the certificate",
                certificate=str(self.certificate),
                key=str(self.key),
                hint="give --tls-key the key that --tls-cert was made with",
            )
        authorities = None
        if self.client_authorities is not None:
            authorities = self.client_authorities.read_bytes()
            _load(self.client_authorities, authorities)
        return grpc.ssl_server_certificate_configuration([(key, chain)], authorities)

    def _versions(self) -> list[int]:
        paths = (self.certificate, self.key, self.client_authorities)
        found = []
        for path in paths:
            try:
                found.append(0 if path is None else path.stat().st_mtime_ns)
            except OSError:
                found.append(0)
        return found


def _load(path: Path, pem: bytes) -> list[x509.Certificate]:
    try:
        found = x509.load_pem_x509_certificates(pem)
    except ValueError as error:
        raise UsageError(
            "this is no certificate",
            file=str(path),
            cause=str(error).partition(" See ")[0],
            hint="give a file in PEM, which has -----BEGIN CERTIFICATE-----",
        ) from None
    now = datetime.now(UTC)
    for certificate in found:
        begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        if not begins <= now < ends:
            raise UsageError(
                "the certificate is over" if now >= ends else "the certificate is not valid yet",
                file=str(path),
                subject=certificate.subject.rfc4514_string(),
                valid=f"{begins.isoformat()} to {ends.isoformat()}",
            )
    return found


def _load_key(path: Path, pem: bytes) -> PublicKeyTypes:
    try:
        return serialization.load_pem_private_key(pem, password=None).public_key()
    except (ValueError, TypeError) as error:  # TypeError: it is encrypted
        raise UsageError(
            "this is no key in clear",
            file=str(path),
            cause=str(error).partition(" See ")[0],
            hint="give the key that belongs to the certificate in PEM, without a passphrase",
        ) from None


def _bytes_of(key: PublicKeyTypes) -> bytes:
    return key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
