"""Processes of Python for tests, forked from one that has imported what they need.

A new interpreter takes most of a second to import zapdb, its libraries and pytest, and the tests
start hundreds. So a test process has a *nursery* (tests/nursery.py): an idle one without threads
that has imported all of it. `Popen` asks it for a fork, which then runs a module (`-m`), a text
(`-c`) or a file as an interpreter would, with arguments, environment, directory and streams of its
own. Servers with workers start theirs in this way, too.

What only a new interpreter shows is given one: other options of Python, an environment that Python
or a library reads when it starts, whatever is no Python. So is everything in the long form of the
tests, and where the system is not Linux. Tests of what is imported use `subprocess` itself.
"""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from tests import forms
from tests.ask_nursery import APART, NURSERY, ask

ROOT = Path(__file__).parents[1]
ASKING = ROOT / "tests" / "ask_nursery.py"

READ_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "ZAPDB_NATIVE", "ICU_", "MALLOC_", "ASAN_")
"""Beginnings of names of variables that a process reads when it starts, or imports a library."""
HONOURED = ("PYTHONPATH", "PYTHONUNBUFFERED")
"""Those that a fork does as they say."""

TEMPORARY = tempfile.gettempdir()
"""Before any test has another one: the nursery outlives the test that first asks for it."""

NUMBER = struct.Struct("i")


class Popen(subprocess.Popen[Any]):
    """`subprocess.Popen`, by a fork of the nursery where that makes no difference."""

    _ended: int | None = None
    """From here the nursery tells the process's number, and its status once it has ended."""

    def _execute_child(self, args, executable, preexec_fn, close_fds, pass_fds, cwd, env,
                       startupinfo, creationflags, shell, p2cread, p2cwrite, c2pread, c2pwrite,
                       errread, errwrite, restore_signals, gid, gids, uid, umask,
                       start_new_session, process_group):  # fmt: skip
        pipes = (p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)
        is_plain = close_fds and not (preexec_fn or pass_fds or shell or executable)
        if not (is_plain and process_group == -1 and can_be_forked(args, env)):
            super()._execute_child(
                args, executable, preexec_fn, close_fds, pass_fds, cwd, env, startupinfo,
                creationflags, shell, *pipes, restore_signals, gid, gids, uid, umask,
                start_new_session, process_group,
            )  # fmt: skip
            return
        request = {
            "arguments": [os.fspath(argument) for argument in args[1:]],
            "directory": os.fspath(cwd or Path.cwd()),
            "environment": dict(os.environ if env is None else env),
            "own_session": bool(start_new_session),
        }
        streams = [p2cread, c2pwrite, errwrite]
        try:
            self._ended = nursery().fork(
                request, [at if stream == -1 else stream for at, stream in enumerate(streams)]
            )
            self.pid = _read_number(self._ended)
            self._child_created = True
        finally:
            self._close_pipe_fds(*pipes)

    def _internal_poll(self, _deadstate=None, **named):
        if self._ended is None:
            return super()._internal_poll(_deadstate, **named)
        # What Python's own takes besides differs between its versions.
        if self.returncode is None and self._waitpid_lock.acquire(False):
            try:
                pid, status = (0, 0) if self.returncode is not None else self._try_wait(os.WNOHANG)
                if pid == self.pid:
                    self._handle_exitstatus(status)
            finally:
                self._waitpid_lock.release()
        return self.returncode

    def _try_wait(self, wait_flags):
        if self._ended is None:
            return super()._try_wait(wait_flags)
        os.set_blocking(self._ended, not wait_flags & os.WNOHANG)
        try:
            status = _read_number(self._ended)
        except BlockingIOError:
            return 0, 0
        os.close(self._ended)
        return self.pid, status


def run(
    arguments: Any,
    *,
    input: str | None = None,
    capture_output: bool = False,
    timeout: float | None = None,
    check: bool = False,
    **named: Any,
) -> subprocess.CompletedProcess[Any]:
    """`subprocess.run` with this module's `Popen`."""
    if input is not None:
        named["stdin"] = subprocess.PIPE
    if capture_output:
        named["stdout"] = named["stderr"] = subprocess.PIPE
    with Popen(arguments, **named) as process:
        try:
            out, err = process.communicate(input, timeout=timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(arguments, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


def run_shell(command: str, **named: Any) -> subprocess.CompletedProcess[Any]:
    """Run it by a shell, whose `python` and `zapdb` are those of this environment."""
    environment = {**os.environ, **(asking() if has_nursery() else {})}
    commands = nursery().commands if has_nursery() else Path(sys.executable).parent
    environment["PATH"] = f"{commands}{os.pathsep}{environment['PATH']}"
    return subprocess.run(command, shell=True, env=environment, check=False, **named)


def environment_of_spark() -> dict[str, str]:
    """With it, the Python processes of a session of Spark are forks: each imports pandas and zapdb,
    and a table that is read has three of them."""
    return (
        asking() | {"PYSPARK_PYTHON": str(nursery().commands / "python")} if has_nursery() else {}
    )


def asking() -> dict[str, str]:
    """What commands of the nursery have to find in their environment."""
    return {NURSERY: str(nursery().door)}


def has_nursery() -> bool:
    return sys.platform == "linux" and not forms.is_long


def can_be_forked(arguments: Any, environment: Mapping[str, str] | None) -> bool:
    """Whether a fork of the nursery does what a new process would."""
    if not has_nursery():
        return False
    if isinstance(arguments, str | bytes | os.PathLike) or len(arguments) < 2:
        return False
    program, first = arguments[0], str(arguments[1])
    if program != sys.executable or (first.startswith("-") and first not in ("-m", "-c")):
        return False
    if first == "-m" and arguments[2] in APART:
        return False
    return _read_at_start(os.environ if environment is None else environment) == nursery().settings


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(READ_AT_START) and name not in HONOURED
    }


class Nursery:
    """The process that is forked, and the socket to ask it by."""

    def __init__(self) -> None:
        environment = dict(os.environ)
        self.settings = _read_at_start(environment)
        self.directory = Path(tempfile.mkdtemp(prefix="zapdb-nursery-", dir=TEMPORARY))
        self.door = self.directory / "door"
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
            door.bind(os.fspath(self.door))
            door.listen()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.nursery", str(door.fileno())],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                pass_fds=[door.fileno()],
            )

    def fork(self, request: dict[str, Any], streams: list[int]) -> int:
        """Have a process begin; returns the descriptor that tells its number and its end."""
        ended, told = os.pipe()
        try:
            ask(self.door, request, [*streams, told])
        except BaseException:
            os.close(ended)
            raise
        finally:
            os.close(told)
        return ended

    @cached_property
    def commands(self) -> Path:
        """A directory with `python` and `zapdb`, which are forks."""
        directory = self.directory / "commands"
        directory.mkdir()
        for name, words in (("python", ""), ("zapdb", " -m zapdb")):
            file = directory / name
            file.write_text(f'#!/bin/sh\nexec {sys.executable} -IS {ASKING}{words} "$@"\n')
            file.chmod(0o755)
        return directory

    def close(self) -> None:
        self._process.communicate()
        shutil.rmtree(self.directory)


@cache
def nursery() -> Nursery:
    """That of this process, begun at its first use."""
    return Nursery()


def close_nursery() -> None:
    if nursery.cache_info().currsize:
        nursery().close()


def _read_number(descriptor: int) -> int:
    data = os.read(descriptor, NUMBER.size)
    if not data:
        raise AssertionError("the nursery of processes has ended")
    number: int = NUMBER.unpack(data)[0]
    return number
