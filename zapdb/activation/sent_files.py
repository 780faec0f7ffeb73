"""Migration files, read in this process if they are on this machine, else in one of its own.

YAML and expressions that somebody sent are parsed, resolved and proven in a process that has
nothing but them (`sent_file_check`), within bounds. What comes back are the structures that
databases store, so what is applied is what was checked.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from zapdb.activation.file_comparison import (
    StoredPosition,
    compare_files,
    find_chain_before,
    require_followed,
    resolve_pending,
)
from zapdb.activation.inspection import (
    MigrationState,
    list_migration_states,
)
from zapdb.activation.sent_file_check import (
    Asked,
    Request,
    StoredPart,
    ToldCheck,
    ToldFile,
    ToldState,
)
from zapdb.activation.tenant_catalog import TenantCatalog
from zapdb.errors import (
    ConcurrencyError,
    CorruptCatalog,
    MigrationError,
    MigrationLimitExceeded,
    ZapdbError,
)
from zapdb.errors.plain import error_from_plain
from zapdb.limits import MIGRATION_CHECK_MEMORY_SIZE_BYTES, MIGRATION_CHECK_SECONDS
from zapdb.migrations import (
    Chain,
    Migration,
    MigrationFile,
    NumberAllocator,
    ParsedMigration,
    SentDirectory,
    SentFile,
    find_file,
    list_files,
    parse_resolved,
    resolve_files,
)
from zapdb.migrations.check import CheckedMigration, CheckedMigrations, check_files
from zapdb.migrations.directory import GivenDirectory, LockLine, as_directory
from zapdb.migrations.document import DocumentText
from zapdb.migrations.prove import require_proven
from zapdb.migrations.undo import to_yaml
from zapdb.sandbox.inside import wire
from zapdb.sandbox.processes import SandboxProcess

WORK: Final = "zapdb.activation.sent_file_check"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CheckedFile(MigrationFile):
    """A file that a process of its own has read; `parsed` is what it says, unless what it says was
    stored already. `changes` and `rollback` are its operations as YAML."""

    parsed: ParsedMigration | None = None
    changes: str = ""
    rollback: str = ""

    def parse(self, source: DocumentText) -> ParsedMigration:
        if self.parsed is None:
            raise ConcurrencyError(
                "the stored migrations have changed while the files were checked",
                file=self.path,
                hint="try again",
            )
        return self.parsed


@dataclass(frozen=True, slots=True)
class GivenFiles:
    """All files, those of them that are to be applied, and the chain to which these are added, with
    them."""

    files: list[MigrationFile]
    wanted: list[MigrationFile]
    chain: Chain

    def describe(self, migration: Migration) -> tuple[str, str]:
        """The changes of a migration and their rollback, as YAML with their reasons."""
        for file in self.wanted:
            if isinstance(file, CheckedFile) and file.number == migration.number:
                return file.changes, file.rollback
        return to_yaml(migration.changes), to_yaml(migration.rollback)


def check_all_files(
    directory: GivenDirectory, catalog: StoredPosition | None, *, with_lock: bool = True
) -> CheckedMigrations:
    """Check all files, as `zapdb.migrations.check.check_files` does; a directory may begin after
    what the catalog stores."""
    directory = as_directory(directory)
    if isinstance(directory, Path):
        before = find_chain_before(list_files(directory)[0], catalog)
        numbers = NumberAllocator.provisional()
        return check_files(directory, with_lock=with_lock, before=before, numbers=numbers)
    request = Request("check", directory, _stored_part(catalog), with_lock=with_lock)
    return CheckedMigrations(
        tuple(
            CheckedMigration(one.number, one.name, one.summary, one.digest, one.replaced)
            for one in _ask(request, ToldCheck)
        )
    )


def list_states(directory: GivenDirectory, catalog: StoredPosition | None) -> list[MigrationState]:
    """The state of every migration, as `list_migration_states` has it."""
    directory = as_directory(directory)
    if isinstance(directory, Path):
        return list_migration_states(list_files(directory), catalog)
    return [
        MigrationState(one.number, one.name, one.phase, _conflict_of(one))
        for one in _ask(Request("compare", directory, _stored_part(catalog)), ToldState)
    ]


def _conflict_of(told: ToldState) -> MigrationError | None:
    if told.conflict is None:
        return None
    found = error_from_plain(told.conflict, MigrationError)
    return found if isinstance(found, MigrationError) else None


def read_given(
    directory: GivenDirectory,
    catalog: StoredPosition | None,
    *,
    to: int | None = None,
    prove: bool = False,
) -> GivenFiles:
    """Read the files, and resolve those that are pending, up to number `to`; maybe prove them.

    Raises `UsageError`, `InvalidMigration`, `UnknownName`, `MigrationConflict` and `NotProven`.
    """
    directory = as_directory(directory)
    if isinstance(directory, Path):
        files = list_files(directory)
    else:
        files = _read_sent(directory, catalog, to, prove=prove)
    if to is not None:
        find_file(files, to)
    chain, pending = Chain(), tuple(files)
    if catalog is None:
        require_followed(files[0], ())
    else:
        chain = catalog.stored_chain
        pending = compare_files(files, list(catalog.stored), chain).pending
    wanted = [file for file in pending if to is None or file.number <= to]
    if isinstance(catalog, TenantCatalog):
        added = resolve_pending(wanted, catalog)
    else:
        added = resolve_files(wanted, chain, NumberAllocator.provisional())
    if prove:
        require_proven([one for one in added.after(chain.end) if not one.is_stored])
    return GivenFiles(files, wanted, added)


def _read_sent(
    directory: SentDirectory, catalog: StoredPosition | None, to: int | None, *, prove: bool
) -> list[MigrationFile]:
    asked: Asked = "read and prove" if prove else "read"
    told = _ask(Request(asked, directory, _stored_part(catalog), to), ToldFile)
    sent = {file.name: file for file in directory.files}
    if not {one.file for one in told} <= sent.keys():
        raise _no_answer()
    return [
        _read_file(Path(directory.path) / one.file, sent[one.file], one, is_proven=prove)
        for one in told
    ]


def _read_file(path: Path, sent: SentFile, told: ToldFile, *, is_proven: bool) -> CheckedFile:
    parsed = None
    if told.structure is not None:
        source = DocumentText(str(path), sent.content)
        try:
            parsed = parse_resolved(told.structure, told.name, told.summary, source)
        except CorruptCatalog:
            raise _no_answer() from None
        parsed = replace(parsed, is_proven=is_proven)
    before = tuple(LockLine(*line) for line in told.before)
    return CheckedFile(
        told.number,
        told.name,
        path,
        sent.content,
        before,
        sent.unreadable,
        parsed=parsed,
        changes=told.changes,
        rollback=told.rollback,
    )


def _stored_part(catalog: StoredPosition | None) -> StoredPart | None:
    return None if catalog is None else StoredPart(tuple(catalog.stored), catalog.position)


def _ask(request: Request, kind: type[T]) -> Sequence[T]:
    """Ask a process of its own; raises what it raised, and `MigrationLimitExceeded`."""
    told: list[T] = []
    with SandboxProcess(WORK, MIGRATION_CHECK_SECONDS) as process:
        try:
            process.channel.send(wire.REQUEST, pickle.dumps(request))
            size_bytes_max = MIGRATION_CHECK_MEMORY_SIZE_BYTES
            while True:
                sent, data = process.channel.receive(wire.TEXT_SIZE_BYTES_MAX)
                if sent == wire.DONE:
                    return told
                if sent == wire.FAILED:
                    raise _read_error(data)
                size_bytes_max -= len(data)
                if sent != wire.ANSWER or size_bytes_max < 0:
                    raise _no_answer()
                told.append(_decode(data, kind))
        except wire.TooLate:
            raise _too_much() from None
        except wire.MessageTooLarge:
            raise _no_answer() from None
        except wire.Ended:
            ended = process.end()
            if process.is_interrupted:
                raise ConcurrencyError("the check of the files was interrupted") from None
            raise (_too_much() if ended.get("signal") else _no_answer()) from None


def _decode(data: bytearray, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        raise _no_answer() from None


def _read_error(data: bytearray) -> ZapdbError:
    try:
        return error_from_plain(msgspec.json.decode(data), MigrationError)
    except Exception:
        return _no_answer()


def _too_much() -> MigrationLimitExceeded:
    return MigrationLimitExceeded(
        "checking the migration files exceeds what a service allows",
        max_memory=MIGRATION_CHECK_MEMORY_SIZE_BYTES,
        seconds=MIGRATION_CHECK_SECONDS,
        hint="run the command against the database itself, or squash old migrations",
    )


def _no_answer() -> MigrationError:
    return MigrationError(
        "the process that checks migration files gave no answer",
        hint="check them with `zapdb migrate check`; if that finds nothing, this is a bug",
    )
