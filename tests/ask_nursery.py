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
"""The variable with the descriptor of the socket to the nursery, which commands inherit."""

APART = ("pytest",)
"""Modules that look at what was imported before them: for a new interpreter."""


def main() -> None:
    if sys.argv[1:2] == ["-m"] and sys.argv[2] in APART:
        os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
    environment = dict(os.environ)
    nursery = socket.socket(fileno=int(environment.pop(NURSERY)))
    request = {
        "arguments": sys.argv[1:],
        "directory": os.getcwd(),  # noqa: PTH109  # pathlib is half of what would be imported
        "environment": environment,
        "own_session": False,
    }
    ended, told = os.pipe()
    socket.send_fds(nursery, [json.dumps(request).encode()], [0, 1, 2, told])
    os.close(told)
    number = struct.Struct("i")
    os.read(ended, number.size)  # of the process
    status = os.waitstatus_to_exitcode(number.unpack(os.read(ended, number.size))[0])
    sys.exit(status if status >= 0 else 128 - status)


if __name__ == "__main__":
    main()
