"""The process that reads migration files which were sent to a service.

It has the files and what the database stores, and no database. What it answers is checked by who
asked, as it ran what others wrote.
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NoReturn

import msgspec

from zapdb.activation.file_comparison import (
    compare_files,
    find_chain_before,
    require_followed,
    resolve_stored,
)
from zapdb.activation.inspection import (
    MigrationPhase,
    MigrationState,
    list_migration_states,
)
from zapdb.catalog.stored_migrations import (
    StoredMigration,
    read_chain,
    source_hash,
)
from zapdb.errors import ZapdbError
from zapdb.errors.plain import error_to_plain
from zapdb.limits import MIGRATION_CHECK_MEMORY_SIZE_BYTES, MIGRATION_CHECK_SECONDS
from zapdb.migrations import (
    Chain,
    Migration,
    MigrationFile,
    NumberAllocator,
    SentDirectory,
    find_file,
    list_files,
    resolve_files,
)
from zapdb.migrations.check import check_files
from zapdb.migrations.prove import require_proven
from zapdb.migrations.undo import to_yaml
from zapdb.sandbox.inside.bounds import end_after, give_up
from zapdb.sandbox.inside.wire import ANSWER, DONE, FAILED, Channel

OPEN_FILES_MAX = 64
"""Time zones are read from files when a proof needs them."""


@dataclass(frozen=True)
class StoredPart:
    """What the database stores, as far as files are compared with it."""

    stored: tuple[StoredMigration, ...]
    position: int

    @cached_property
    def stored_chain(self) -> Chain:
        return read_chain(self.stored)


Asked = Literal["check", "compare", "read", "read and prove"]


@dataclass(frozen=True)
class Request:
    """What is asked of the files; `stored` is None for a database that is empty or missing."""

    asked: Asked
    directory: SentDirectory
    stored: StoredPart | None = None
    to: int | None = None
    with_lock: bool = True


class ToldCheck(msgspec.Struct, forbid_unknown_fields=True):
    """A file that is valid, exhaustive and proven."""

    number: int
    name: str
    summary: str
    digest: str
    replaced: str


class ToldState(msgspec.Struct, forbid_unknown_fields=True):
    """A migration in its file and in the database; `conflict` is an error as plain data."""

    number: int
    name: str
    phase: MigrationPhase
    conflict: dict[str, Any] | None


class ToldFile(msgspec.Struct, forbid_unknown_fields=True):
    """A file; `structure` is that of its migration, if anything needs it. `changes` and `rollback`
    are the same as YAML, with the reasons, which no structure has. `before` has the lines of the
    lock file for the stored migrations that the files begin after, if they do."""

    file: str
    number: int
    name: str
    before: tuple[tuple[str, str, str], ...] = ()
    summary: str = ""
    structure: bytes | None = None
    changes: str = ""
    rollback: str = ""


Told = ToldCheck | ToldState | ToldFile


def prepare() -> None:
    """What is imported is all that the processes find ready."""


def run(ready: None, connection: socket.socket, spill: str | None) -> NoReturn:
    """Answer the one request of the connection; then end the process."""
    try:
        channel = Channel(connection)
        _, data = channel.receive()
        request: Request = pickle.loads(data)  # noqa: S301  # of the process that asks, never from the other
        end_after(MIGRATION_CHECK_SECONDS)
        give_up(
            MIGRATION_CHECK_MEMORY_SIZE_BYTES,
            MIGRATION_CHECK_SECONDS,
            files=OPEN_FILES_MAX,
            written_bytes=0,
        )
        try:
            for told in answer(request):
                channel.send(ANSWER, msgspec.json.encode(told))
            channel.send(DONE)
        except ZapdbError as error:
            channel.send_json(FAILED, error_to_plain(error))
    except MemoryError:  # there may be none left to say so
        os.kill(os.getpid(), signal.SIGKILL)
    except BaseException:
        traceback.print_exc()  # for the log of the service
        raise
    finally:
        os._exit(0)


def answer(request: Request) -> Iterator[Told]:
    """Raises the errors that the same files have on this machine."""
    if request.asked == "check":
        found = check_files(
            request.directory,
            with_lock=request.with_lock,
            before=find_chain_before(list_files(request.directory)[0], request.stored),
            numbers=NumberAllocator.provisional(),
        )
        return (
            ToldCheck(m.number, m.name, m.summary, m.digest, m.replaced) for m in found.migrations
        )
    files = list_files(request.directory)
    if request.asked == "compare":
        states = list_migration_states(files, request.stored)
        return map(_tell_state, states)
    return _read(files, request)


def _tell_state(state: MigrationState) -> ToldState:
    conflict = None if state.conflict is None else error_to_plain(state.conflict)
    return ToldState(state.number, state.name, state.phase, conflict)


def _read(files: list[MigrationFile], request: Request) -> Iterator[ToldFile]:
    """All files, with the migrations of those that a database may parse when it applies them."""
    if request.to is not None:
        find_file(files, request.to)
    stored = request.stored or StoredPart((), 0)
    require_followed(files[0], stored.stored)
    pending = compare_files(files, list(stored.stored), stored.stored_chain).pending
    wanted = [file for file in pending if request.to is None or file.number <= request.to]
    added = resolve_files(wanted, stored.stored_chain, NumberAllocator.provisional()).after(
        stored.stored_chain.end
    )
    if request.asked == "read and prove":
        require_proven(added)
    read = _read_stored(files, stored) | {migration.number: migration for migration in added}
    for file in files:
        told = ToldFile(file.path.name, file.number, file.name)
        told.before = tuple((line.label, line.digest, line.replaced) for line in file.before)
        migration = read.get(file.number)
        if migration is not None:
            told.summary, told.structure = migration.summary, migration.structure
            told.changes, told.rollback = to_yaml(migration.changes), to_yaml(migration.rollback)
        yield told


def _read_stored(files: list[MigrationFile], stored: StoredPart) -> dict[int, Migration]:
    """The migrations of files that are stored, and whose bytes are not known to be the same."""
    if not stored.stored:
        return {}
    is_whole = files[0].follows is None
    if is_whole and files[0].number != stored.stored[0].number:  # one of both begins with a squash
        return {m.number: m for m in resolve_files(files).migrations}
    rows = {row.number: row for row in stored.stored}
    return {
        file.number: resolve_stored(file, rows[file.number], stored.stored_chain)
        for file in files
        if file.number in rows and source_hash(file.read().raw) != rows[file.number].source_hash
    }
