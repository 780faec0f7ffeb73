"""`zapdb serve`: the methods of the control plane, for other hosts and languages."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from zapdb import aio
from zapdb.cli.connecting import DatabaseOptions
from zapdb.cli.output import Output
from zapdb.errors import UsageError
from zapdb.service.certificates import Certificates
from zapdb.service.keys import read_keys
from zapdb.service.metrics_endpoint import split_metrics_address
from zapdb.service.server import Listening, Server


@dataclass(frozen=True)
class ListeningOptions:
    """Where a service listens, and whom it lets in."""

    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where to listen.")
    ] = "127.0.0.1:7427"
    tls_cert: Annotated[
        Path | None,
        typer.Option("--tls-cert", metavar="FILE", help="The service's certificate chain (PEM)."),
    ] = None
    tls_key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="The certificate's key (PEM).")
    ] = None
    client_ca: Annotated[
        Path | None,
        typer.Option(
            "--client-ca",
            metavar="FILE",
            help="Authorities (PEM): each client has to show a certificate of theirs.",
        ),
    ] = None
    tokens: Annotated[
        Path | None,
        typer.Option(
            "--tokens",
            metavar="FILE",
            help="The key file: whose tokens are taken (`zapdb token keys` makes one).",
        ),
    ] = None
    insecure_loopback: Annotated[
        bool,
        typer.Option(
            "--insecure-loopback", help="Let each user of this machine do everything, for trials."
        ),
    ] = False

    def checked(self) -> Listening:
        """Raises `UsageError` for what would not be safe, or does not fit together, and for files
        that can't be used; and `OSError`."""
        certificates = None
        if self.tls_cert is not None and self.tls_key is not None:
            certificates = Certificates(self.tls_cert, self.tls_key, self.client_ca)
        elif self.tls_cert or self.tls_key or self.client_ca:
            raise UsageError(
                "a service with TLS needs its certificate and the certificate's key",
                hint="give --tls-cert and --tls-key",
            )
        made = Listening(self.listen, certificates, self.tokens, self.insecure_loopback)
        made.require_safe()
        if certificates is not None:
            certificates.credentials()
        if self.tokens is not None:
            read_keys(self.tokens)
        return made


def serve_command(
    options: DatabaseOptions,
    listening: ListeningOptions,
    output: Output,
    metrics: Annotated[
        str | None,
        typer.Option(
            "--metrics",
            metavar="HOST:PORT",
            help="Serve metrics at http://HOST:PORT/metrics, for an agent on this machine.",
        ),
    ] = None,
) -> None:
    """Serve the catalog, the cluster, migrations, jobs and the past of a database over gRPC, until
    interrupted.

    Anything but a loopback address needs TLS and tokens. The key file and the certificates are read
    again when they change. When the service is told to end (SIGTERM, or Ctrl-C), calls under way
    have 10 s; told again, or before it listens, it ends at once.

    With `--json`: `{address, metrics}`, when it listens; `metrics` is null without `--metrics`.
    """
    address, checked = options.address, listening.checked()
    if metrics is not None:
        split_metrics_address(metrics)  # before the database is opened
    try:
        asyncio.run(_serve(address, checked, metrics, output))
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


async def _serve(address: str, listening: Listening, metrics: str | None, output: Output) -> None:
    stopped, listens = asyncio.Event(), False
    loop, serving = asyncio.get_running_loop(), asyncio.current_task()
    assert serving is not None

    def end() -> None:
        if listens and not stopped.is_set():
            stopped.set()
        else:
            serving.cancel()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    async with aio.open(address) as db:
        server = Server(db, listening)
        with server.metrics_at(metrics) as metrics_at:
            at = await server.start()
            listens = True
            output.write(f"serving {db!r} at {at}")
            output.document({"address": at, "metrics": metrics_at})
            await server.serve_until(stopped)
