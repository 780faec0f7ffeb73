"""The program as tests run it: in this process, in one of its own, or on a terminal."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import pty
import re
import sqlite3
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import zapdb
from tests import processes
from tests.support import GUARD_SECONDS
from zapdb.cli.program import run_program

PEOPLE = """\
zapdb: 1
summary: People
changes:
  - create_table:
      table: people
      key: [id]
      fields:
        - {name: id, type: integer}
        - {name: name, type: string}
        - {name: fax, type: string}
rollback: inferred
"""
ADD_AGE = """\
zapdb: 1
summary: How old they are
changes:
  - add_field:
      table: people
      field: {name: age, type: integer, default: 7}
rollback: inferred
"""
INDEX_AGE = """\
zapdb: 1
summary: Find people by age
changes:
  - create_index: {table: people, index: by_age, fields: [{field: age}]}
rollback: inferred
"""
SPLIT_NAME = """\
zapdb: 1
summary: First and last names
changes:
  - transform:
      table: people
      from: {name: string}
      into: {first: string, last: string}
      up: {first: "before(name, ' ')", last: "after(name, ' ')"}
      down: {name: "join(' ', first, last)"}
      reversibility: lossy
      because: a single-word name gains a blank
rollback: inferred
"""
MIGRATIONS = {
    "0001_people": PEOPLE,
    "0002_add_age": ADD_AGE,
    "0003_index_age": INDEX_AGE,
    "0004_split_name": SPLIT_NAME,
}

ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


@dataclass(frozen=True)
class Result:
    """What a command wrote and how it ended."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> Any:
        return json.loads(self.err)


def run_here(arguments: Sequence[str], stdin: str = "") -> Result:
    """Run a command in this process."""
    out, err = io.StringIO(), io.StringIO()
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        patch("sys.stdin", io.StringIO(stdin)),
    ):
        status = run_program(arguments)
    return Result(status, out.getvalue(), err.getvalue())


class Project:
    """A directory with migrations and a SQLite database; the environment names both."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.database = directory / "test.db"
        self.migrations = directory / "migrations"
        self.migrations.mkdir(exist_ok=True)

    def write(self, *names: str) -> None:
        """Put files of `MIGRATIONS` into the directory."""
        for name in names or MIGRATIONS:
            self.file(name).write_text(MIGRATIONS[name], encoding="utf-8")

    def file(self, name: str) -> Path:
        return self.migrations / f"{name}.yaml"

    def run(self, *arguments: str, stdin: str = "") -> Result:
        """Run a command in this process."""
        return run_here(arguments, stdin)

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """Start a command in a process of its own, with its output piped."""
        return processes.Popen(
            [sys.executable, "-m", "zapdb", *arguments],
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )

    def run_process(self, *arguments: str) -> Result:
        with self.start(*arguments) as process:
            out, err = process.communicate(timeout=GUARD_SECONDS)
        return Result(process.returncode, out, err)

    def run_on_terminal(self, *arguments: str, columns: int = 80, typed: str = "") -> Result:
        """Run a command on a terminal of so many columns; `out` is all that it shows there."""
        controller, terminal = pty.openpty()
        size = struct.pack("HHHH", 40, columns, 0, 0)
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, size)
        ignored = ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "TTY_COMPATIBLE")
        environment = {key: value for key, value in os.environ.items() if key not in ignored}
        process = processes.Popen(
            [sys.executable, "-m", "zapdb", *arguments],
            cwd=self.directory,
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env=environment | {"TERM": "xterm-256color"},
            close_fds=True,
        )
        os.close(terminal)
        if typed:
            os.write(controller, typed.encode())
        shown = b"".join(_read_terminal(controller))
        os.close(controller)
        return Result(process.wait(timeout=GUARD_SECONDS), shown.decode().replace("\r\n", "\n"), "")

    def show(self, *arguments: str, columns: int) -> str:
        """What a command shows on a terminal of so many columns, run in this process."""
        controller, terminal = pty.openpty()
        shown: list[bytes] = []
        reader = threading.Thread(target=lambda: shown.extend(_read_terminal(controller)))
        reader.start()
        environment = {"COLUMNS": str(columns), "LINES": "40", "TERM": "xterm-256color"}
        with (
            patch.dict(os.environ, environment),
            os.fdopen(terminal, "w", encoding="utf-8") as stream,
            contextlib.redirect_stdout(stream),
            contextlib.redirect_stderr(stream),
        ):
            run_program(arguments)
        reader.join()
        os.close(controller)
        return b"".join(shown).decode().replace("\r\n", "\n")

    def fill(self, count: int, **values: Any) -> None:
        """Insert people with the keys 0 to `count` − 1, as an application does."""
        with zapdb.open(f"sqlite:///{self.database}", migrations=self.migrations) as db:
            db.table("people").insert_many(
                {"id": at, "name": f"Ada L{at}", "fax": "1"} | values for at in range(count)
            )

    def sql(self, statement: str, *parameters: Any) -> list[Any]:
        """Run a statement behind zapdb's back."""
        with contextlib.closing(sqlite3.connect(self.database)) as connection, connection:
            return connection.execute(statement, parameters).fetchall()

    def dump(self) -> dict[str, list[Any]]:
        """Every row of every table, and how each table is made."""
        if not self.database.exists():
            return {}
        tables = self.sql("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
        return {
            name: [made, *sorted(self.sql(f"SELECT * FROM {name}"), key=repr)]
            for name, made in tables
        }


def _read_terminal(controller: int) -> Iterator[bytes]:
    while True:
        try:
            data = os.read(controller, 65536)
        except OSError:  # how Linux says that the other end was closed
            return
        if not data:
            return
        yield data


def strip_ansi(text: str) -> str:
    return ANSI.sub("", text)
