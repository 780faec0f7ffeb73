"""Metrics of a service for an agent on its machine: `GET /metrics`, in Prometheus's text format."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Final

from zapdb.errors import UsageError, ZapdbError
from zapdb.service.addresses import is_loopback, split_address

TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
CLIENT_SECONDS: Final = 5.0
"""How long a client may take to ask: the next one waits for it."""


def split_metrics_address(address: str) -> tuple[str, int]:
    """The host and the port where metrics may be served; raises `UsageError`."""
    host, port = split_address(address, "serve metrics")
    if not is_loopback(host):
        raise UsageError(
            "metrics are for an agent on this machine", address=address, hint="127.0.0.1:PORT"
        )
    return host, port


@contextmanager
def serving_metrics(
    address: str, read: Callable[[], str], at_end: Callable[[], object]
) -> Iterator[str]:
    """Serve what `read` returns in a thread, which calls `at_end` as its last; yields the address
    with its port. Raises `UsageError` for an address that other machines can reach, since metrics
    name tenants, and for a port in use."""
    host, port = split_metrics_address(address)

    class Handler(BaseHTTPRequestHandler):
        timeout = CLIENT_SECONDS

        def do_GET(self) -> None:
            if self.path != "/metrics":
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            try:
                text = read().encode()
            except ZapdbError as error:
                self.send_error(HTTPStatus.SERVICE_UNAVAILABLE, error.message)
                return
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", TYPE)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: an agent asks every few seconds."""

    class Server(HTTPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

    try:
        server = Server((host.strip("[]"), port), Handler)
    except OSError as error:
        raise UsageError(
            "metrics can't be served there", address=address, cause=error.strerror or str(error)
        ) from None

    def serve() -> None:
        try:
            server.serve_forever(poll_interval=0.2)
        finally:
            at_end()

    thread = threading.Thread(target=serve, name="zapdb-metrics", daemon=True)
    thread.start()
    try:
        yield f"{host}:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
