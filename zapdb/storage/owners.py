"""The owner of a lease: a process, and the data by which others can find it dead.

A host name and a process id are not enough: two containers may share both, and so may two machines
that are called `localhost`. Linux adds the id of the boot, the namespace of process ids, and the
start time of a process. One process can look for another only if boot and namespace are the same.
The other one is then dead if no process has its id, or if that process started at another time. In
all other cases, and without /proc, no process is known to be dead: the lease alone decides (rule 9;
decisions/0020).
"""

from __future__ import annotations

import json
import os
import socket
import uuid
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from zapdb.errors import CorruptCatalog
from zapdb.printing import one_line

PROC: Final = Path("/proc")
UNKNOWN: Final = ""
"""An unknown value, which equals nothing, not even itself."""


class Owner(Struct, frozen=True, forbid_unknown_fields=True):
    """A process, as leases and errors name it.

    `boot` is the id of the machine's boot, `namespace` names that of process numbers (and that of
    clocks, which `started` is counted by), and `started` is when the process began, in ticks.
    """

    id: str
    host: str
    pid: Annotated[int, Meta(ge=0)]
    boot: str = UNKNOWN
    namespace: str = UNKNOWN
    started: str = UNKNOWN

    @classmethod
    def here(cls, id: str | None = None) -> Owner:
        """Return this process."""
        return cls(
            id or uuid.uuid4().hex[:12],
            socket.gethostname(),
            os.getpid(),
            _read("sys/kernel/random/boot_id"),
            _read_namespaces(),
            _read_start("self"),
        )

    @classmethod
    def parse(cls, text: str) -> Owner:
        """Read the result of `to_text`; raises `CorruptCatalog`."""
        try:
            return msgspec.convert(json.loads(text), cls)
        except (ValueError, RecursionError):
            raise CorruptCatalog(
                "the owner of a lease is not valid",
                owner=text[:100],
                hint="zapdb_leases or zapdb_ranges was tampered with: restore it from a backup",
            ) from None

    def to_text(self) -> str:
        return json.dumps(msgspec.to_builtins(self), separators=(",", ":"))

    def __str__(self) -> str:
        # The text is from a row of the database, which may have been tampered with.
        return one_line(f"{self.id} (host {self.host}, process {self.pid})")

    def is_visible(self) -> bool:
        """Return whether its process id means the same for this process."""
        here = (socket.gethostname(), _read("sys/kernel/random/boot_id"), _read_namespaces())
        return UNKNOWN not in here and (self.host, self.boot, self.namespace) == here

    def is_dead(self) -> bool:
        """Return whether it is known to be dead: visible from here, and ended.

        Another process may have its id by now, with another start time. An ended process that its
        parent has not waited for (a zombie) counts as alive.
        """
        if self.started == UNKNOWN or not self.is_visible():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:  # it belongs to another user
            pass
        if not _shows_this_namespace():
            return False
        started = _read_start(str(self.pid))
        return started not in (UNKNOWN, self.started)


def _read(name: str) -> str:
    try:
        return (PROC / name).read_text().strip()
    except OSError:
        return UNKNOWN


def _read_namespaces() -> str:
    try:
        found = str((PROC / "self/ns/pid").readlink())
    except OSError:
        return UNKNOWN
    try:
        return f"{found} {(PROC / 'self/ns/time').readlink()}"
    except OSError:  # a kernel before 5.6 has one clock for all
        return found


def _read_start(process: str) -> str:
    # 4711 (any name) S …: the 22nd field is when it started, in clock ticks since the boot.
    fields = _read(f"{process}/stat").rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 else UNKNOWN


def _shows_this_namespace() -> bool:
    """Return whether /proc has the ids of this process's namespace, and not of an outer one."""
    for line in _read("self/status").splitlines():
        name, _, numbers = line.partition(":")
        if name == "NSpid":
            return len(numbers.split()) == 1
    return False
