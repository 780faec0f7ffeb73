"""The process that tests/processes.py has forked: `python -m tests.nursery DESCRIPTOR`.

It imports, then waits for connections to the socket of this descriptor. Each brings a request in
JSON, with four descriptors: the streams of the new process, and a pipe for its number and its
status. The nursery ends when its standard input does, which who began it holds open.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.processes import NUMBER

WITH_IT = ("tests.support", "pyarrow.parquet", "duckdb")
"""What is imported besides the modules of zapdb."""
WITHOUT = ("zapdb.__main__", "zapdb.spark", "zapdb.testing")
"""What programs run, starts Java, or has to be new for pytest."""
REQUEST_BYTES_MAX = 1 << 20
DESCRIPTORS_MAX = 4096


def main() -> None:
    door = socket.socket(fileno=int(sys.argv[1]))
    paths = sys.path[1:]
    gc.disable()
    import_all()
    gc.collect()
    gc.freeze()
    request = serve(door)
    if request is None:
        os._exit(0)  # what was imported need not be taken apart
    become(request, paths)


def import_all() -> None:
    zapdb = importlib.import_module("zapdb")
    for found in pkgutil.walk_packages(zapdb.__path__, "zapdb."):
        if not found.name.startswith(WITHOUT):
            importlib.import_module(found.name)
    for name in WITH_IT:
        importlib.import_module(name)
    assert threading.active_count() == 1, "a fork has no threads but the one that called it"


def serve(door: socket.socket) -> dict[str, Any] | None:
    """Fork for each request until there are no more. Returns it in the new process."""
    ends: dict[int, int] = {}
    woken, wake = socket.socketpair()
    for end in (woken, wake):
        end.setblocking(False)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who asks
    with selectors.DefaultSelector() as selector:
        for waited in (sys.stdin, door, woken):
            selector.register(waited, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select()}
            if woken in ready:
                woken.recv(4096)
                tell_ends(ends)
            if sys.stdin in ready:
                return None
            if door not in ready:
                continue
            with door.accept()[0] as asking:
                text, descriptors, _, _ = socket.recv_fds(asking, REQUEST_BYTES_MAX, 4)
            if not text:
                continue  # it was killed before it asked
            *streams, told = descriptors
            number = os.fork()
            if not number:
                set_apart(streams)
                return dict(json.loads(text))
            for stream in streams:
                os.close(stream)
            os.write(told, NUMBER.pack(number))
            ends[number] = told


def tell_ends(ends: dict[int, int]) -> None:
    while ends:
        number, status = os.waitpid(-1, os.WNOHANG)
        if not number:
            return
        told = ends.pop(number)
        with contextlib.suppress(BrokenPipeError):  # nobody waits for it
            os.write(told, NUMBER.pack(status))
        os.close(told)


def set_apart(streams: list[int]) -> None:
    """Nothing of the nursery's is left to the new process."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for at, stream in enumerate(streams):
        os.dup2(stream, at)
    os.closerange(3, DESCRIPTORS_MAX)


def become(request: dict[str, Any], paths: list[str]) -> None:
    """Run what was asked for, and end as an interpreter does."""
    if request["own_session"]:
        os.setsid()
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    tempfile.tempdir = None  # what the nursery found was by its own environment
    time.tzset()
    open_streams()
    gc.enable()
    status = end_of(request["arguments"], [*path_of_environment(), *paths])
    if status == -signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(status)


def open_streams() -> None:
    is_unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    reading = io.TextIOWrapper(io.BufferedReader(io.FileIO(0, closefd=False)), encoding="utf-8")
    sys.stdin = sys.__stdin__ = reading
    for at, name, errors in ((1, "stdout", "strict"), (2, "stderr", "backslashreplace")):
        file = io.BufferedWriter(io.FileIO(at, "w", closefd=False))
        stream = io.TextIOWrapper(
            file,
            encoding="utf-8",
            errors=errors,
            line_buffering=at == 2 or file.isatty(),
            write_through=is_unbuffered,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def path_of_environment() -> list[str]:
    return [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]


def end_of(arguments: list[str], paths: list[str]) -> int:
    """The status of the process."""
    status = 0
    try:
        run(arguments, paths)
    except SystemExit as ended:
        status = status_of(ended)
    except KeyboardInterrupt:
        traceback.print_exc()
        status = -signal.SIGINT
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    threading._shutdown()  # waits for threads, as an interpreter does before it runs `atexit`
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            status = status or 120
    return status


def status_of(ended: SystemExit) -> int:
    if ended.code is None or isinstance(ended.code, int):
        return (ended.code or 0) & 0xFF
    print(ended.code, file=sys.stderr)
    return 1


def run(arguments: list[str], paths: list[str]) -> None:
    how, *rest = arguments
    if how == "-m":
        name, *given = rest
        sys.argv = [name, *given]
        sys.path[:] = [str(Path.cwd()), *paths]
        sys.modules.pop(name, None)
        runpy.run_module(name, run_name="__main__", alter_sys=True)
        return
    sys.modules["__main__"] = module = ModuleType("__main__")
    if how == "-c":
        text, *given = rest
        sys.argv = ["-c", *given]
        sys.path[:] = ["", *paths]
        code = compile(text, "<string>", "exec")
    else:
        file = Path(how).resolve()
        sys.argv = arguments
        sys.path[:] = [str(file.parent), *paths]
        module.__file__ = str(file)
        code = compile(file.read_bytes(), file, "exec")
    exec(code, module.__dict__)


if __name__ == "__main__":
    main()
