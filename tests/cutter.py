"""A relay before a PostgreSQL server that cuts a connection at one message of the protocol."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Literal

import sqlalchemy as sa

Direction = Literal["request", "reply"]
LENGTH_SIZE_BYTES = 4
BACKEND_KEY_DATA = b"K"


class Cutter:
    """Forwards messages whole, until it is to cut: then neither side hears of the connection again.

    `seen` counts messages of the direction since the last call of `arm`. `cut_sessions` has the
    numbers of the server's processes that lost their clients: one of them does all that it has got
    before it ends, however late it comes to it.
    """

    def __init__(self, address: str) -> None:
        url = sa.make_url(address)
        host = url.query.get("host", url.host)
        assert isinstance(host, str)
        self._upstream = (host, url.port or 5432)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._direction: Direction = "request"
        self._at = 0
        self._sockets: list[socket.socket] = []
        self.seen = 0
        self.has_cut = False
        self.cut_sessions: list[int] = []
        port = self._listener.getsockname()[1]
        plain = url.difference_update_query(["host", "port"]).set(host="127.0.0.1", port=port)
        plain = plain.update_query_dict({"sslmode": "disable", "gssencmode": "disable"})
        self.address = plain.render_as_string(hide_password=False)
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, direction: Direction, at: int) -> None:
        """Cut where message number `at` of this direction would pass, counted from 1; 0: never."""
        with self._lock:
            self._direction, self._at, self.seen, self.has_cut = direction, at, 0, False

    def close(self) -> None:
        for one in (self._listener, *self._sockets):
            _close(one)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                # Each message is sent by itself, and must not wait until another one was confirmed.
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                server = self._connect()
                self._sockets += (client, server)
                session = list[int]()
                for source, target, way in (
                    (client, server, "request"),
                    (server, client, "reply"),
                ):
                    threading.Thread(
                        target=self._forward, args=(source, target, way, session), daemon=True
                    ).start()

    def _connect(self) -> socket.socket:
        host, port = self._upstream
        if not host.startswith("/"):
            made = socket.create_connection((host, port))
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return made
        made = socket.socket(socket.AF_UNIX)
        made.connect(f"{host}/.s.PGSQL.{port}")
        return made

    def _forward(
        self, source: socket.socket, target: socket.socket, way: Direction, session: list[int]
    ) -> None:
        with contextlib.suppress(OSError, EOFError):
            for message in _read_messages(source, is_first_bare=way == "request"):
                if way == "reply" and message.startswith(BACKEND_KEY_DATA):
                    session.append(int.from_bytes(message[5:9]))
                if self._is_cut(way):
                    self.cut_sessions += session
                    break
                target.sendall(message)
        _close(source)
        _close(target)

    def _is_cut(self, way: Direction) -> bool:
        with self._lock:
            self.seen += way == self._direction
            is_struck = way == self._direction and self.seen == self._at
            self.has_cut = self.has_cut or is_struck
            return is_struck


def _read_messages(source: socket.socket, *, is_first_bare: bool) -> Iterator[bytes]:
    """The messages of one side, each with its kind and length in front; those of a client begin
    with some that have no kind."""
    stream = source.makefile("rb")

    def read(size: int) -> bytes:
        data = stream.read(size)
        if len(data) < size:
            raise EOFError
        return data

    yield from _read_startup(read) if is_first_bare else ()
    while True:
        head = read(1 + LENGTH_SIZE_BYTES)
        yield head + read(int.from_bytes(head[1:]) - LENGTH_SIZE_BYTES)


def _read_startup(read: Callable[[int], bytes]) -> Iterator[bytes]:
    """What comes before the first message with a kind. No encryption is offered or taken here."""
    length = read(LENGTH_SIZE_BYTES)
    yield length + read(int.from_bytes(length) - LENGTH_SIZE_BYTES)


def _close(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    with contextlib.suppress(OSError):
        one.close()
