"""A MariaDB server for tests of the long form: Debian's packages, unpacked beside the environment,
in a process of its own on a unix socket; or a server of MySQL that runs already, whose socket
`ZAPDB_MYSQL_SOCKET` names, and where root needs no password."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.packages import CACHE, begin, finish
from tests.support import GUARD_SECONDS, find_memory, wait_until

PACKAGES = ("mariadb-server-core", "libaio1", "liburing2")
"""The server, and what it needs and a small system lacks."""


class MariaServer:
    def __init__(self, program: Path, directory: Path) -> None:
        self.socket = directory / "socket"
        self._log = directory / "log"
        self._numbers = itertools.count(1)
        data = directory / "data"
        data.mkdir()
        share = program.parents[1] / "share" / "mysql"
        libraries = [str(path) for path in program.parents[2].glob("**/x86_64-linux-gnu")]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    str(program),
                    "--no-defaults",
                    "--user=root",
                    f"--datadir={data}",
                    f"--socket={self.socket}",
                    f"--lc-messages-dir={share}",
                    f"--character-sets-dir={share / 'charsets'}",
                    "--skip-networking",
                    "--skip-grant-tables",
                    "--sql-mode=",  # as many servers have it: dates of zeros are let in
                    "--character-set-server=utf8mb4",
                    "--innodb-flush-log-at-trx-commit=0",
                    "--innodb-buffer-pool-size=16M",
                ],
                env={**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(libraries)},
                stdout=log,
                stderr=log,
            )

    @classmethod
    @contextmanager
    def start(cls) -> Iterator[MariaServer]:
        if socket := os.environ.get("ZAPDB_MYSQL_SOCKET"):
            server = cls.__new__(cls)
            server.socket, server._numbers = Path(socket), itertools.count(1)
            yield server
            return
        directory = Path(tempfile.mkdtemp(prefix="zapdb-maria-", dir=find_memory()))
        server = cls(find_program(), directory)
        try:
            server.wait()
            yield server
        finally:
            server.process.terminate()
            server.process.wait(GUARD_SECONDS)
            shutil.rmtree(directory)

    def wait(self) -> None:
        wait_until(lambda: self.socket.exists() or self.process.poll() is not None, "it listens")
        assert self.process.poll() is None, self._log.read_text()

    @property
    def is_mysql(self) -> bool:
        """Whether it is no MariaDB, which has types of its own."""
        return "MariaDB" not in self.execute("SELECT version()")[0][0]

    @contextmanager
    def fresh_database(self) -> Iterator[str]:
        name = f"test_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name}")
        try:
            yield f"mysql+pymysql://root@localhost/{name}?unix_socket={self.socket}"
        finally:
            self.execute(f"DROP DATABASE {name}")

    def execute(self, sql: str) -> list[Any]:
        import pymysql

        connection = pymysql.connect(unix_socket=str(self.socket), user="root")
        with connection, connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())


def find_program() -> Path:
    """The server's program; the test is skipped if there is none and it can't be had."""
    for name in ("mariadbd", "mysqld"):
        if found := shutil.which(name):
            return Path(found).resolve()
    target = CACHE / "mariadb"
    program = target / "usr" / "sbin" / "mariadbd"
    if program.exists():
        return program
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        pytest.skip("there is no MariaDB server, and no apt-get to have one of Debian")
    made = begin(target)
    done = _download(made)
    if done.returncode and os.geteuid() == 0:  # the lists of packages may be missing or old
        subprocess.run(["apt-get", "update", "-qq"], capture_output=True)
        done = _download(made)
    if done.returncode:
        shutil.rmtree(made)
        pytest.skip(f"apt-get can't download a MariaDB server: {done.stderr.strip()}")
    for package in made.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(made)], check=True)
        package.unlink()
    return finish(made, target) / "usr" / "sbin" / "mariadbd"


def _download(directory: Path) -> subprocess.CompletedProcess[str]:
    command = ["apt-get", "download", "-qq", *PACKAGES]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True)
