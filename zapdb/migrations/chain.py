"""The chain: the ordered migrations of a directory, and plans of conversion along it.

The schema at *n* is the sum of the operations of migrations 1 to n: a pure function, without any
database. The plans that lead records from one position to another go along the chain, forwards by
the changes, backwards by the resolved rollbacks, composed into one set of derivations and compiled
once.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from zapdb.errors import InvalidMigration, Location, UnknownName, UsageError, Violation
from zapdb.limits import COMPILED_MAX, MIGRATIONS_MAX
from zapdb.memo import MadeWhenRead, Memo
from zapdb.migrations.directory import (
    FILE,
    LockLine,
    MigrationDirectory,
    SentDirectory,
    SentFile,
    read_lines_before,
)
from zapdb.migrations.document import DocumentText, read_document, unreadable
from zapdb.migrations.migration import Migration, label
from zapdb.migrations.operations import NumberAllocator
from zapdb.migrations.parsed_migration import ParsedMigration, parse_document
from zapdb.migrations.resolution import resolve
from zapdb.records import (
    Conversion,
    ConversionPlan,
    Layout,
    SourceField,
    compile_conversion,
    inputs_made_of,
)
from zapdb.schema import Field, Schema, TableSchema
from zapdb.values import Zones

FILE_NAME: Final = re.compile(r"(?P<number>[0-9]{4,})_(?P<name>[a-z0-9_]+)\.yaml", re.ASCII)


@dataclass(frozen=True, slots=True)
class MigrationFile:
    """A file of the directory, not read yet unless it has its `content`."""

    number: int
    name: str
    path: Path
    content: bytes | None = None
    before: tuple[LockLine, ...] = ()
    """Of the first file: the lines of the lock file for the migrations before it, which only
    databases have; none if the directory has all files."""
    unreadable: str = ""
    """Why one that was sent could not be read."""

    @property
    def label(self) -> str:
        return label(self.number, self.name)

    @property
    def follows(self) -> LockLine | None:
        """Of the first file: the stored migration that the directory begins after; None if the
        directory has all files."""
        return self.before[-1] if self.before else None

    def read(self) -> DocumentText:
        if self.unreadable:
            raise unreadable(str(self.path), self.unreadable)
        if self.content is not None:
            return DocumentText(str(self.path), self.content)
        return DocumentText.read(self.path)

    def is_squash(self) -> bool:
        """Whether it stands for all migrations up to its number; what can't be read is none."""
        try:
            return bool(self.parse(self.read()).replaces)
        except InvalidMigration:
            return False

    def parse(self, source: DocumentText) -> ParsedMigration:
        return parse_document(read_document(source), source, self.number, self.name)


class Chain:
    """Migrations in order, each resolved on the schema that those before it make; immutable.

    The first has the number 1, or is a squash that stands for all migrations up to its own number.
    """

    def __init__(self, migrations: tuple[Migration, ...] = ()) -> None:
        self._migrations = migrations
        self._conversion_plans = Memo[tuple[int, int, int], ConversionPlan](COMPILED_MAX)
        self._archived = Memo[int, Mapping[int, Field]](COMPILED_MAX)
        self._programs = Memo[tuple[int, int, int, Zones], Conversion](COMPILED_MAX)

    def __repr__(self) -> str:
        return f"<chain of migrations up to {self.end}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Chain) and self.migrations == other.migrations

    def __hash__(self) -> int:
        return hash(self.end)

    @property
    def migrations(self) -> tuple[Migration, ...]:
        return self._migrations

    @property
    def start(self) -> int:
        """The number before the first migration's: 0, or that before a squash's."""
        return self.migrations[0].number - 1 if self.migrations else 0

    @property
    def end(self) -> int:
        return self.migrations[-1].number if self.migrations else 0

    def at(self, number: int) -> Migration:
        """The migration with this number."""
        return self.migrations[number - self.start - 1]

    def after(self, position: int) -> tuple[Migration, ...]:
        """The migrations with higher numbers."""
        if position >= self.end:
            return ()
        return self.migrations[max(position - self.start, 0) :]

    def schema_at(self, position: int) -> Schema:
        return self.at(position).after if position > self.start else Schema()

    def with_migration(self, migration: Migration) -> Chain:
        return Chain((*self.migrations, migration))

    def up_to(self, position: int) -> Chain:
        if position == self.end:
            return self
        return Chain(self.migrations[: max(position - self.start, 0)])

    def conversion_plan(self, table: int, source: int, target: int) -> ConversionPlan:
        """How a table's fields at position `target` come from those at position `source`."""
        key = (table, source, target)
        return self._conversion_plans.get(key, lambda: self._compose(table, source, target))

    def program(self, table: int, source: int, target: int, zones: Zones) -> Conversion:
        """The compiled conversion of a table's records from one position to another."""

        def compile_program() -> Conversion:
            plan = self.conversion_plan(table, source, target)
            return compile_conversion(
                Layout.of(self.table_at(source, table), zones),
                Layout.of(self.table_at(target, table), zones),
                plan,
                zones=zones,
            )

        return self._programs.get((table, source, target, zones), compile_program)

    def table_at(self, position: int, number: int) -> TableSchema:
        """Return a table that is active or archived at this position."""
        table = self.schema_at(position).table_active_or_archived(number)
        assert table is not None
        return table

    def archived_fields(self, table: int) -> Mapping[int, Field]:
        """Every field of the table whose values any migration archives, by cell."""
        find = partial(self._find_archived, table)
        return self._archived.get(table, lambda: MadeWhenRead(find))

    def _find_archived(self, table: int) -> dict[int, Field]:
        found: dict[int, Field] = {}
        for m in self._touching(table, self.start, self.end):
            kept = m.after.table_active_or_archived(table)
            if kept is not None:
                found |= {archived.field.cell: archived.field for archived in kept.archived}
            if m.keeps_values:
                found |= m.list_made(table)
        return found

    def _compose(
        self, table: int, source: int, target: int, *, keeps: bool = False
    ) -> ConversionPlan:
        start = self.table_at(source, table)
        plan = ConversionPlan({f.number: SourceField(f.number) for f in start.fields})
        if source <= target:
            steps = [m.conversion_up for m in self._touching(table, source, target)]
        else:
            steps = [m.conversion_down for m in reversed(self._touching(table, target, source))]
        for step in steps:
            plan = plan.then(step(table, keeps=keeps))
        return plan

    def _touching(self, table: int, low: int, high: int) -> list[Migration]:
        """The migrations after `low` up to `high` that change the table at all."""
        between = slice(max(low - self.start, 0), max(high - self.start, 0))
        return [
            m
            for m in self.migrations[between]
            if m.before.table_active_or_archived(table) != m.after.table_active_or_archived(table)
        ]


def plan_between(source: Chain, target: Chain, table: int) -> ConversionPlan:
    """How a table's fields at the end of one chain come from those at the end of another: back to
    where they part, and from there on. A cell that both have is the same value, although there is
    none where they part: of a migration that was amended."""
    same = find_parting(source, target)
    back = source.conversion_plan(table, source.end, same)
    plan = back.then(target.conversion_plan(table, same, target.end))
    if same in (source.end, target.end):
        return plan
    here = target.table_at(target.end, table)
    there = {f.cell: f.number for f in source.table_at(source.end, table).fields}
    copied = {f.number: SourceField(there[f.cell]) for f in here.fields if f.cell in there}
    archives, otherwise = (
        {slot: made for slot, made in some.items() if slot.number not in here.cells}
        for some in (plan.archives, plan.otherwise)
    )
    return ConversionPlan({**plan.derivations, **copied}, archives, otherwise)


def compile_spreading(source: Chain, target: Chain, table: int, zones: Zones) -> Conversion:
    """The program between the ends of two chains for a write that changes a few fields: all values
    that a migration on the way makes come from the archive, if that has them. So they stay, but for
    those that are made of the changed fields."""
    same = find_parting(source, target)
    back = source._compose(table, source.end, same, keeps=True)
    plan = back.then(target._compose(table, same, target.end, keeps=True))
    return _compile(source, target, table, zones, plan)


def find_made_between(source: Chain, target: Chain, table: int) -> dict[str, frozenset[int]]:
    """The cells that migrations on the way from the end of one chain to that of another make, by
    the names of the fields at its beginning of which they are made again; empty if each of them is
    one of a field at the end."""
    same, left = find_parting(source, target), target.table_at(target.end, table).cells
    back = source._compose(table, source.end, same, keeps=True)
    made = {m.number: m.list_made(table) for m in target.after(same)}
    cells = {cell for fields in made.values() for cell in fields}
    if cells <= left:
        return {}
    names = {f.number: f.name for f in source.table_at(source.end, table).fields}
    found: dict[str, set[int]] = {name: set() for name in names.values()}
    for number, fields in made.items():
        if fields:
            plan = back.then(target._compose(table, same, number, keeps=True))
            for f in fields.values():
                for read in inputs_made_of(plan.derivations[f.number], cells):
                    found[names[read]].add(f.cell)
    return {name: frozenset(made_of) for name, made_of in found.items()}


def _compile(
    source: Chain, target: Chain, table: int, zones: Zones, plan: ConversionPlan
) -> Conversion:
    before, after = source.table_at(source.end, table), target.table_at(target.end, table)
    layouts = Layout.of(before, zones), Layout.of(after, zones)
    return compile_conversion(*layouts, plan, zones=zones)


def find_parting(one: Chain, other: Chain) -> int:
    """The last position up to which two chains of stored migrations are the same, 0 if they begin
    otherwise."""
    if one.start != other.start:
        return 0
    at = one.start
    for ours, theirs in zip(one.migrations, other.migrations, strict=False):
        if ours.id != theirs.id:
            break
        at = ours.number
    return at


def program_between(
    source: Chain, target: Chain, table: int, zones: Zones
) -> tuple[Conversion, ConversionPlan]:
    """The compiled conversion of a table's records from the end of one chain to that of another,
    and its plan."""
    plan = plan_between(source, target, table)
    return _compile(source, target, table, zones, plan), plan


def digest_chain(chain: Chain, position: int) -> str:
    """One digest over the migrations up to a position: equal chains, equal meaning of records."""
    digests = "\n".join(m.digest for m in chain.up_to(position).migrations)
    return hashlib.sha256(digests.encode()).hexdigest()


def is_document(name: str) -> bool:
    """Whether a file of this name is taken for a migration, rightly named or not."""
    return name.lower().endswith((".yaml", ".yml")) and not name.startswith(".")


def list_documents(directory: Path) -> list[str]:
    """The names of the files of a directory that are taken for migrations; raises `UsageError` if
    there is no such directory."""
    if not directory.is_dir():
        raise UsageError(
            "the migration directory does not exist",
            directory=directory,
            hint='create it and its first file with `zapdb migrate new "…" --migrations DIRECTORY`',
        )
    # paths compare slowly
    return sorted(name for path in directory.iterdir() if is_document(name := path.name))


def list_files(directory: MigrationDirectory) -> list[MigrationFile]:
    """The migration files of a directory by number; raises for gaps, twins and strangers.

    They begin at 1, at a squash, or after a migration that `zapdb.lock` names.
    """
    given = directory
    found: dict[str, SentFile | None]
    if isinstance(directory, SentDirectory):
        found = {file.name: file for file in directory.files if is_document(file.name)}
        directory = Path(directory.path)
    else:
        found = dict.fromkeys(list_documents(directory))
    files: list[MigrationFile] = []
    violations: list[Violation] = []
    for name in sorted(found):
        path, match = directory / name, FILE_NAME.fullmatch(name)
        if match is None:
            violations.append(
                Violation(
                    Location(str(path)),
                    "this is not the name of a migration file",
                    "call it NNNN_name.yaml, with a to z, 0 to 9 and _ in the name",
                )
            )
            continue
        file = MigrationFile(int(match["number"]), match["name"], path)
        if (sent := found[name]) is not None:
            file = replace(file, content=sent.content, unreadable=sent.unreadable)
        files.append(file)
    files.sort(key=lambda file: (file.number, file.name))
    if files and files[0].number > 1 and not files[0].is_squash():
        files[0] = replace(files[0], before=read_lines_before(given, files[0].number))
    violations += _check_numbers(files)
    if violations:
        raise InvalidMigration(violations)
    if not files:
        raise UsageError(
            "the directory contains no migrations",
            directory=directory,
            hint='write the first one with `zapdb migrate new "…"`',
        )
    return files


def _check_numbers(files: list[MigrationFile]) -> list[Violation]:
    violations = []
    if len(files) > MIGRATIONS_MAX:
        violations.append(
            Violation(Location(str(files[-1].path)), f"more than {MIGRATIONS_MAX} migrations")
        )
    expected = _first_number(files)
    for file in files:
        place = Location(str(file.path))
        if file.number < expected:
            twin = next(other for other in files if other.number == file.number)
            violations.append(
                Violation(
                    place,
                    f"two migrations have the number {file.number}; the other is {twin.path.name}"
                    if file.number
                    else "migrations are numbered from 1",
                    f"if both come from branches, rename the later one to the next free number, "
                    f"{files[-1].number + 1:04d}",
                )
            )
            continue
        if file.number > expected:
            violations.append(
                Violation(
                    place,
                    f"migration {expected} is missing before this one",
                    "bring the file back from version control, or renumber this one"
                    + (f"; or let {FILE} name the stored migration before it" * (expected == 1)),
                )
            )
        expected = file.number + 1
    return violations


def _first_number(files: list[MigrationFile]) -> int:
    """1, or the number of a squash that stands first, or of the file after a stored migration."""
    if not files or files[0].number <= 1:
        return 1
    is_first = files[0].follows is not None or files[0].is_squash()
    return files[0].number if is_first else 1


def resolve_files(
    files: Iterable[MigrationFile],
    chain: Chain | None = None,
    numbers: NumberAllocator | None = None,
) -> Chain:
    """The chain, extended by files that follow its end.

    Without `numbers`, numbers are provisional: counted from 1, as for a database of its own. Raises
    `UsageError` if the files begin after a migration that the chain lacks.
    """
    files = list(files)
    if files and files[0].follows is not None and (chain is None or not chain.end):
        raise UsageError(
            "the directory begins after a migration that only databases have",
            file=files[0].path,
            after=files[0].follows.label,
            hint="name a database that stores it (`migrate check -d`, `migrate plan -d`), or bring "
            "the files before it back from version control",
        )
    return resolve_all((file.parse(file.read()) for file in files), chain, numbers)


def resolve_all(
    parsed_migrations: Iterable[ParsedMigration],
    chain: Chain | None = None,
    numbers: NumberAllocator | None = None,
) -> Chain:
    """The same for files that were parsed."""
    chain = chain or Chain()
    numbers = numbers or NumberAllocator()
    migrations = list(chain.migrations)
    for parsed in parsed_migrations:
        before = migrations[-1].after if migrations else Schema()
        if parsed.replaces and migrations:
            raise parsed.source.refuse(
                parsed.place,
                "a squash stands first, and there are migrations before it",
                "remove the files of the migrations that it replaces",
            )
        migrations.append(resolve(parsed, before, numbers))
    return Chain(tuple(migrations))


def load_directory(directory: MigrationDirectory) -> Chain:
    """The chain of a directory, by its files alone."""
    return resolve_files(list_files(directory))


def find_file(files: list[MigrationFile], number: int) -> MigrationFile:
    for file in files:
        if file.number == number:
            return file
    raise UnknownName(
        "there is no migration with this number", number=number, last=files[-1].number
    )
