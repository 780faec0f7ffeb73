"""Messages between a process that asks and the one that it asks: a kind, a size, bytes.

What comes from the process that is asked is JSON or Arrow, never a pickle: it ran what other people
wrote.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from typing import Any, Final

HEAD: Final = struct.Struct(">cQ")

# To the process that is asked
REQUEST: Final = b"R"
BATCH: Final = b"B"
END: Final = b"E"

# From it
SCAN: Final = b"S"
NEXT: Final = b"N"
CLOSE: Final = b"C"
COLUMNS: Final = b"H"
ANSWER: Final = b"A"
DONE: Final = b"D"
FAILED: Final = b"F"

BIND: Final = "EXPLAIN "
"""Put before a statement that is analyzed and not answered. Places count from here."""
TEXT_SIZE_BYTES_MAX: Final = 16 * 1024 * 1024
"""The largest message that is no Arrow batch."""


class Ended(Exception):
    """The other side closed the connection."""


class MessageTooLarge(Exception):
    """A message is larger than what its receiver takes."""


class TooLate(Exception):
    """The deadline passed."""


class Channel:
    """One end of a connection; `deadline` is a time of `time.monotonic`, or None."""

    def __init__(self, connection: socket.socket, deadline: float | None = None) -> None:
        self._connection = connection
        self._deadline = deadline

    def send(self, kind: bytes, payload: bytes | memoryview = b"") -> None:
        """Raises `Ended`, or `TooLate`."""
        self._send_bytes(HEAD.pack(kind, len(payload)))
        if len(payload):
            self._send_bytes(payload)

    def send_json(self, kind: bytes, value: Any) -> None:
        self.send(kind, json.dumps(value).encode())

    def receive(self, size_bytes_max: int | None = None) -> tuple[bytes, bytearray]:
        """The next message; raises `Ended`, `TooLate`, or `MessageTooLarge` before it is read."""
        kind, size = HEAD.unpack(self._receive_bytes(HEAD.size))
        if size_bytes_max is None:  # of who asks
            is_too_large = kind not in (BATCH, REQUEST) and size > TEXT_SIZE_BYTES_MAX
        else:
            is_too_large = size > (size_bytes_max if kind == ANSWER else TEXT_SIZE_BYTES_MAX)
        if is_too_large:
            raise MessageTooLarge
        return kind, self._receive_bytes(size)

    def _send_bytes(self, data: bytes | memoryview) -> None:
        try:
            self._await_turn()
            self._connection.sendall(data)
        except TimeoutError:
            raise TooLate from None
        except (ConnectionError, BrokenPipeError):
            raise Ended from None

    def _receive_bytes(self, size: int) -> bytearray:
        data = bytearray(size)
        view, at = memoryview(data), 0
        while at < size:
            try:
                self._await_turn()
                count = self._connection.recv_into(view[at:])
            except TimeoutError:
                raise TooLate from None
            except ConnectionError:
                raise Ended from None
            if not count:
                raise Ended
            at += count
        return data

    def _await_turn(self) -> None:
        if self._deadline is None:
            return
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TooLate
        self._connection.settimeout(left)
