"""The keeper: it has what a kind of work needs ready, forks a process for each piece, and ends it.

A kind of work is a module: `prepare` makes what is ready, and `run` does one piece with it, such as
a statement, in the process that is forked.

For each piece it is sent two connections: one that the new process talks on, and a *leash*, which
the keeper holds. When the other end of the leash is closed, for whatever reason, the work is over:
its process is killed and reaped, its directory removed, and how it ended is written to the leash.
When the asking process has ended, all leashes are closed, and the keeper ends too.
"""

from __future__ import annotations

import gc
import json
import os
import selectors
import signal
import socket
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn, Protocol

from .spill import Spill


class KindOfWork(Protocol):
    """A module of a kind of work."""

    def prepare(self) -> Any:
        """What the processes find ready when they are forked; it has no threads."""

    def run(self, ready: Any, connection: socket.socket, spill: str | None) -> NoReturn:
        """Do one piece, and end the process."""


class Held:
    """A piece of work that runs: its process, its leash and where it may spill."""

    def __init__(self, process: int, leash: socket.socket, spill: Spill | None) -> None:
        self.process = process
        self.leash = leash
        self.spill = spill

    def end(self) -> None:
        os.kill(self.process, signal.SIGKILL)  # it is not reaped before, so its number is its own
        _, status = os.waitpid(self.process, 0)
        if self.spill is not None:
            self.spill.remove()
        ended_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        _say(self.leash, {"signal": ended_by})


def keep(control: socket.socket, work: KindOfWork) -> NoReturn:
    """Fork for the process that holds the other end, until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ready = work.prepare()
    control.sendall(b"+")
    gc.disable()
    gc.freeze()  # what is not touched is not copied when it is forked
    held: dict[int, Held] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is not control:
                    selector.unregister(key.fileobj)
                    held.pop(key.fd).end()
                    continue
                begun = _begin(control, work, ready, held)
                if begun is None:
                    for each in held.values():
                        each.end()
                    os._exit(0)
                if begun.process:
                    held[begun.leash.fileno()] = begun
                    selector.register(begun.leash, selectors.EVENT_READ)


def _begin(
    control: socket.socket, work: KindOfWork, ready: Any, held: dict[int, Held]
) -> Held | None:
    """Start a new piece; return None if the asking process has closed the connection."""
    try:
        data, descriptors, _, _ = socket.recv_fds(control, 1, 2)
    except ConnectionError:
        data, descriptors = b"", []
    if not data:
        return None
    connection, leash = (socket.socket(fileno=descriptor) for descriptor in descriptors)
    spill = None
    try:
        parent = json.loads(leash.makefile("rb").readline())["spill_to"]
        spill = Spill(parent) if parent is not None else None
        process = os.fork()
    except OSError as error:
        if spill is not None:
            spill.remove()
        connection.close()
        _say(leash, {"error": error.strerror or str(error)})
        return Held(0, leash, None)
    if process == 0:
        control.close()
        leash.close()
        for other in held.values():
            other.leash.close()
        work.run(ready, connection, None if spill is None else spill.path)
    connection.close()
    return Held(process, leash, spill)


def _say(leash: socket.socket, what: dict[str, object]) -> None:
    with suppress(OSError):  # no process waits for it
        leash.sendall(json.dumps(what).encode())
    leash.close()


def main() -> NoReturn:
    """Started with the name of the work's module and the number of the control connection as the
    last arguments."""
    name, control = sys.argv[-2:]
    keep(socket.socket(fileno=int(control)), import_module(name))
