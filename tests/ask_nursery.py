"""A command of a shell that a fork of the nursery runs: `python -IS ask_nursery.py ARGUMENTS…`.

It imports little, and is what the shell waits for; the fork has its streams, directory and
environment. tests/processes.py makes the commands.
"""

import json
import os
import socket
import struct
import sys

NURSERY = "ZAPDB_TESTS_NURSERY"
"""The variable with the path of the nursery's socket, which commands inherit."""

APART = ("pytest",)
"""Modules that look at what was imported before them: for a new interpreter."""


def ask(door: "str | os.PathLike[str]", request: dict[str, object], descriptors: list[int]) -> None:
    """Have a process begin: with three streams, and a pipe for its number and its status."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
        asking.connect(os.fspath(door))
        socket.send_fds(asking, [json.dumps(request).encode()], descriptors)


def main() -> None:
    if sys.argv[1:2] == ["-m"] and sys.argv[2] in APART:
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    environment = dict(os.environ)
    door = environment.pop(NURSERY)
    request = {
        "arguments": sys.argv[1:],
        "directory": os.getcwd(),  # noqa: PTH109  # pathlib is half of what would be imported
        "environment": environment,
        "own_session": False,
    }
    ended, told = os.pipe()
    ask(door, request, [0, 1, 2, told])
    os.close(told)
    number = struct.Struct("i")
    os.read(ended, number.size)  # of the process
    status = os.waitstatus_to_exitcode(number.unpack(os.read(ended, number.size))[0])
    sys.exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    main()
