"""The keepers of this process, and the process of one piece of work as its asker holds it.

The modules of `inside` say what happens on the other side. A keeper is begun with the first piece
of its kind of work, and ends with this process.
"""

from __future__ import annotations

import atexit
import errno
import json
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from multiprocessing import spawn
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from zapdb.errors import StorageError
from zapdb.limits import SANDBOX_END_SECONDS, SANDBOX_START_SECONDS
from zapdb.sandbox.inside.wire import Channel
from zapdb.storage.interruption import current_call

_BEGIN: Final = """\
import importlib.util, sys
sys.path[:] = sys.argv[2:-2]
found = importlib.util.spec_from_file_location(
    "zapdb_sandbox", sys.argv[1] + "/__init__.py", submodule_search_locations=[sys.argv[1]])
sys.modules["zapdb_sandbox"] = importlib.util.module_from_spec(found)
from zapdb_sandbox.keeper import main
main()
"""
INSIDE: Final = Path(__file__).parent / "inside"
STATEMENT: Final = "zapdb_sandbox.statement"
"""The kind of work that is a statement of `db.sql`."""
ENVIRONMENT: Final = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",  # no arenas, which a limit of memory would count whole
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "LC_ALL": "C.UTF-8",
}
"""All that these processes have of an environment."""
KEPT: Final = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")
"""Variables without which libraries may not be found."""


class SandboxProcess:
    """The process of one piece of work; leaving the block ends the process in any state.

    `work` is the name of the module of its kind. Raises `StorageError` if none can be started.
    """

    def __init__(self, work: str, seconds: float, spill_to: str | None = None) -> None:
        self.is_interrupted = False
        self._spills = spill_to is not None
        self._interruptible = ExitStack()
        self._connection, self._leash = _begin(work, spill_to)
        self.channel = Channel(self._connection, time.monotonic() + seconds)

    def __enter__(self) -> SandboxProcess:
        call = current_call()
        if call is not None:
            self._interruptible.enter_context(call.ending_by(self.interrupt))
        return self

    def interrupt(self) -> None:
        """End it from another thread; the one that waits for it is woken."""
        self.is_interrupted = True
        with suppress(OSError):  # it has ended
            self._connection.shutdown(socket.SHUT_RDWR)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end(is_awaited=kind is not None or self._spills)

    def end(self, *, is_awaited: bool = True) -> dict[str, Any]:
        """Kill the process if it runs, and return how it ended: `signal`, or `error` if it never
        ran.

        A process that has answered ends itself and need not be awaited.
        """
        self._interruptible.close()
        self._connection.close()
        _leashes.discard(self._leash)
        said = b""
        try:
            with suppress(OSError):
                self._leash.shutdown(socket.SHUT_WR)
                self._leash.settimeout(SANDBOX_END_SECONDS)
                while is_awaited and (part := self._leash.recv(4_096)):
                    said += part
        finally:
            self._leash.close()
        found: dict[str, Any] = json.loads(said) if said else {}
        return found


class _Keeper:
    """A process that forks others, until the control connection is closed."""

    def __init__(self, work: str) -> None:
        self._control, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = _start_keeper(theirs, work)
        except BaseException:
            self._control.close()
            raise
        try:
            self._await_start()
        except BaseException:
            self._process.kill()
            self.end()
            raise

    def _await_start(self) -> None:
        self._control.settimeout(SANDBOX_START_SECONDS)
        if not self._control.recv(1):
            raise OSError(errno.ECHILD, "the process ended while it was started")
        self._control.settimeout(None)

    def send(self, descriptors: list[int]) -> None:
        """Send descriptors to the keeper; raise `OSError` if it has ended."""
        socket.send_fds(self._control, [b"+"], descriptors)

    def forget(self) -> None:
        """Drop the keeper in a process that was forked: it belongs to the parent."""
        self._control.close()
        self._process.returncode = 0  # this process does not wait for it

    def end(self) -> None:
        self._control.close()
        try:
            self._process.wait(SANDBOX_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _start_keeper(control: socket.socket, work: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            spawn.get_executable() or sys.executable,
            *("-I", "-c", _BEGIN, str(INSIDE)),
            *(str(Path(entry).absolute()) for entry in sys.path if entry),
            *(work, str(control.fileno())),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[control.fileno()],
        cwd="/",
        env=ENVIRONMENT | {name: os.environ[name] for name in KEPT if name in os.environ},
        start_new_session=True,  # Ctrl-C is for the process that asks
    )


_lock = threading.Lock()
_keepers: dict[str, _Keeper] = {}
"""Those of this process, by their kinds of work, once there was a piece of it."""
_leashes: set[socket.socket] = set()


def _begin(work: str, spill_to: str | None) -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    leash, their_leash = socket.socketpair()
    try:
        with theirs, their_leash:
            leash.sendall(json.dumps({"spill_to": spill_to}).encode() + b"\n")
            with _lock:
                _send(work, [theirs.fileno(), their_leash.fileno()])
            _leashes.add(leash)
    except BaseException as error:
        ours.close()
        leash.close()
        if isinstance(error, OSError):
            raise StorageError(
                "no process could be started that runs what others wrote",
                problem=error.strerror or str(error),
                hint="check the limits of processes, memory and open files",
            ) from None
        raise
    return ours, leash


def _send(work: str, descriptors: list[int]) -> None:
    keeper = _keepers.pop(work, None)
    if keeper is not None:
        with suppress(OSError):  # it was ended from outside
            keeper.send(descriptors)
            _keepers[work] = keeper
            return
        keeper.end()
    _keepers[work] = _Keeper(work)
    _keepers[work].send(descriptors)


def _end() -> None:
    with _lock:
        for keeper in _keepers.values():
            keeper.end()
        _keepers.clear()


def _forget() -> None:
    """After a fork: what ends with the process that asked may not be held open by another."""
    global _lock
    _lock = threading.Lock()
    for keeper in _keepers.values():
        keeper.forget()
    _keepers.clear()
    for leash in _leashes:
        leash.close()
    _leashes.clear()


atexit.register(_end)
os.register_at_fork(after_in_child=_forget)
