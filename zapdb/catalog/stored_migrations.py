"""The stored migrations: read, verified by their digests, and added.

A stored migration is its canonical structure with its digest, and the numbers that were allocated
to it. The digest is computed again whenever it is read. A mismatch is corruption, never a conflict.

Opening a database does not read them: what the tables are is in rows of its own (`stored_schemas`).
`StoredMigrations` and `StoredChain` read them when something asks, such as a file to compare, a
stale record, or a process that is served an older schema. They are read as they were when the
newest of them was stored, whatever has been stored or rolled back since.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import takewhile
from typing import Any, Final, overload

import cbor2
import sqlalchemy as sa
from msgspec import structs

from zapdb.catalog import principal, rows
from zapdb.catalog.cache import LoadedRows
from zapdb.catalog.row_kinds import ChainState
from zapdb.catalog.stored_schemas import StoredSchema, delete_schema, store_schema
from zapdb.errors import CatalogChanged, CorruptCatalog
from zapdb.limits import COMPILED_MAX
from zapdb.memo import Memo
from zapdb.migrations import Chain, Migration, NumberAllocator, digest_of, label, read_stored
from zapdb.migrations.directory import LockLine
from zapdb.migrations.taken_numbers import TakenNumbers
from zapdb.records import Conversion
from zapdb.schema import Schema
from zapdb.storage import Connection, Storage
from zapdb.storage.cells import as_number, as_text, as_word, checked, reading
from zapdb.storage.fixed_tables import MIGRATIONS, has_word_sql
from zapdb.values.json import dumps

NOTHING_TAKEN: Final[TakenNumbers] = {}
NO_MIGRATIONS: Final = ChainState(stored_end=0, newest_id=0, digest="")

STORED = "stored"
ROLLED_BACK = "rolled_back"


def read_chain_state(connection: Connection) -> ChainState:
    """Return the chain's row; raises `CorruptCatalog` if it is missing."""
    return _require_state(rows.get(connection, ChainState))


def find_chain_state(found: LoadedRows) -> ChainState:
    """Return the chain's row from rows that may have been read before."""
    return _require_state(found.get(ChainState))


def _require_state(state: ChainState | None) -> ChainState:
    if state is None:
        raise CorruptCatalog(
            "the catalog's `chain` row is missing",
            table="zapdb_catalog",
            hint="restore it from a backup",
        )
    return state


_COLUMNS: Final = (
    MIGRATIONS.c.id,
    MIGRATIONS.c.parent,
    MIGRATIONS.c.number,
    MIGRATIONS.c.name,
    MIGRATIONS.c.summary,
    MIGRATIONS.c.state,
    MIGRATIONS.c.digest,
    MIGRATIONS.c.structure,
    MIGRATIONS.c.numbers,
    MIGRATIONS.c.source_hash,
)
"""What `_verify` takes, in its order."""
_SELECT: Final = f"SELECT {', '.join(column.name for column in _COLUMNS)} FROM zapdb_migrations"


@dataclass(frozen=True, slots=True)
class StoredMigration:
    """One row, verified."""

    id: int
    parent: int
    number: int
    name: str
    summary: str
    state: str
    digest: str
    structure: bytes
    drawn: dict[str, list[int]]
    source_hash: bytes

    @property
    def label(self) -> str:
        return label(self.number, self.name)

    @property
    def replaces(self) -> tuple[str, ...]:
        """The digests of the migrations that it replaces, if it is a squash."""
        with reading(MIGRATIONS.name):
            found = cbor2.loads(self.structure).get("replaces", ())
            return tuple(map(as_text, found))


def source_hash(source: bytes) -> bytes:
    return hashlib.sha256(source).digest()


@dataclass(frozen=True, slots=True)
class ChainPlace:
    """A place in the tree of stored migrations: the number and the id of the newest migration that
    is active there."""

    position: int
    migration: int

    @classmethod
    def on(cls, chain: Chain, position: int) -> ChainPlace:
        """The place at a position of a chain of stored migrations; a chain that is shorter has
        nothing there."""
        is_there = chain.start < position <= chain.end
        return cls(position, chain.at(position).id if is_there else 0)


class StoredMigrations(Sequence[StoredMigration]):
    """The stored migrations in order, up to the one that was the newest; read when they are
    needed.

    Raises `CorruptCatalog` then, and `CatalogChanged` if the database is another one by now."""

    def __init__(
        self, storage: Storage, state: ChainState, before: StoredMigrations | None = None
    ) -> None:
        self._storage, self._state = storage, state
        self._before: StoredMigrations | None = before
        if before is not None and not before.is_read:
            self._before = before._before
        """Earlier ones that are read: only what was stored since is read then."""

    @property
    def is_read(self) -> bool:
        """Whether they are in memory."""
        return "_rows" in vars(self)

    def __iter__(self) -> Iterator[StoredMigration]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, at: int) -> StoredMigration: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[StoredMigration]: ...
    def __getitem__(self, at: int | slice) -> StoredMigration | Sequence[StoredMigration]:
        return self._rows[at]

    def list_from(self, number: int) -> Sequence[StoredMigration]:
        """Return those with this number and higher ones, reading no others if that is enough; all
        of them if there is none with the number."""
        if self.is_read:
            return self
        return self._storage.read_now(partial(list_from, state=self._state, number=number))

    def list_lines(self, first: int, last: int) -> list[LockLine]:
        """Return the lines of a lock file for the migrations with numbers from `first` to `last`:
        little is read. Which of them is a squash is not told."""
        if self.is_read:
            return [LockLine(m.label, m.digest) for m in self if first <= m.number <= last]
        return self._storage.read_now(partial(list_lines, first=first, last=last))

    def read(self, connection: Connection) -> None:
        """Read them now, by this connection."""
        self._rows = self._read(connection)

    @cached_property
    def _rows(self) -> tuple[StoredMigration, ...]:
        return self._storage.read_now(self._read)

    def _read(self, connection: Connection) -> tuple[StoredMigration, ...]:
        before, self._before = self._before, None
        known = () if before is None else before._rows
        return tuple(list_up_to(connection, self._state, known))


class StoredChain(Chain):
    """The chain of the stored migrations; they are read and resolved when something asks for more
    than the end of the chain and the schemas that are known."""

    def __init__(
        self,
        stored: StoredMigrations,
        end: int,
        before: StoredChain | None = None,
        kept: Collection[int] = (),
    ) -> None:
        """`kept` are the ids of those that keep values."""
        super().__init__()
        self.stored, self._end, self._kept = stored, end, kept
        self._known: dict[int, Schema] = {}
        self._before: StoredChain | None = before
        if before is not None and not before.is_read:
            self._before = before._before
        """An earlier one that is read: its migrations are not read again if it goes on."""

    @property
    def is_read(self) -> bool:
        """Whether the migrations are in memory."""
        return "_read" in vars(self)

    @property
    def migrations(self) -> tuple[Migration, ...]:
        return self._read

    @property
    def end(self) -> int:
        return self._end

    def knows(self, position: int) -> bool:
        """Whether the schema at a position can be told without reading anything."""
        return self.is_read or position in self._known

    def note_schema(self, position: int, schema: Schema) -> None:
        """Keep a schema that was loaded without the migrations."""
        self._known[position] = schema

    def schema_at(self, position: int) -> Schema:
        known = self._known.get(position)
        return super().schema_at(position) if known is None else known

    @cached_property
    def _read(self) -> tuple[Migration, ...]:
        before, self._before = self._before, None
        if before is None:
            return read_chain(self.stored, None, self._kept).migrations
        same = _list_same(before.migrations, self.stored, self._kept)
        return read_chain(self.stored[len(same) :], Chain(same), self._kept).migrations


class StoredLines:
    """The lines that lead to stored migrations, rolled back ones included: each is read once, when
    something asks for it. Ids are identities, so a line never becomes another one."""

    def __init__(self, storage: Storage, kept: frozenset[int]) -> None:
        """`kept` are the ids of those that keep values."""
        self._storage, self.kept = storage, kept
        self._lines = Memo[int, Chain](COMPILED_MAX)
        self.programs = Memo[Hashable, Conversion](COMPILED_MAX)
        """Programs from migrations that were rolled back."""

    def find(self, place: ChainPlace, known: Chain, connection: Connection | None = None) -> Chain:
        """Return the chain that ends at a place, given another one that may have it; read by a
        connection, or one of its own. Raises as `list_line` does."""
        if not place.migration:
            return known.up_to(known.start)
        if ChainPlace.on(known, place.position) == place:
            return known.up_to(place.position)
        read = partial(read_line, newest=place.migration, known=known, kept=self.kept)
        read_now = partial(self._storage.read_now, read)
        if connection is not None:
            read_now = partial(read, connection)
        return self._lines.get(place.migration, read_now)


def open_line(connection: Connection, place: ChainPlace, kept: Collection[int] = ()) -> StoredChain:
    """Return the chain up to a stored migration that was rolled back, which is read now; `kept` are
    the ids of those that keep values. Raises `CatalogChanged` if there is none with the id."""
    mark = connection.storage.placeholder
    found = connection.fetch_one(
        f"SELECT digest FROM zapdb_migrations WHERE id = {mark}", (place.migration,)
    )
    if found is None:
        raise _other_history()
    state = ChainState(place.position, place.migration, as_text(found[0]))
    stored = StoredMigrations(connection.storage, state)
    stored.read(connection)  # the schema is not stored beside a line that leaves the chain
    return StoredChain(stored, place.position, None, kept)


def is_rolled_back(connection: Connection, id: int) -> bool:
    """Whether the migration with this id is beside the chain."""
    return _find_state(connection, id) == ROLLED_BACK


def is_on_the_chain(connection: Connection, id: int) -> bool:
    """Whether the migration with this id is stored, and not rolled back."""
    return _find_state(connection, id) == STORED


def _find_state(connection: Connection, id: int) -> str | None:
    mark = connection.storage.placeholder
    found = connection.fetch_one(f"SELECT state FROM zapdb_migrations WHERE id = {mark}", (id,))
    if found is None:
        return None
    return as_word(found[0], MIGRATIONS.c.state)


def list_rolled_back(connection: Connection) -> set[int]:
    """Return the ids of all migrations that are beside the chain."""
    found = connection.fetch_all(
        f"SELECT id FROM zapdb_migrations WHERE {has_word_sql(MIGRATIONS.c.state, ROLLED_BACK)}"
    )
    return {as_number(id) for (id,) in found}


@dataclass(frozen=True, slots=True)
class KeptMigration:
    """A migration that was rolled back and is kept; `rolled_back_at` is in microseconds since
    1970-01-01 UTC by the database's clock."""

    id: int
    parent: int
    number: int
    name: str
    digest: str
    rolled_back_at: int
    rolled_back_by: str

    @property
    def label(self) -> str:
        return label(self.number, self.name)


def list_kept(connection: Connection, state: ChainState) -> list[KeptMigration]:
    """Return the migrations that were rolled back and are kept, each behind the one that it was
    stored behind."""
    if not state.kept:
        return []
    columns = [MIGRATIONS.c[name] for name in KeptMigration.__match_args__]
    found = connection.fetch_all(
        f"SELECT {', '.join(column.name for column in columns)} FROM zapdb_migrations"
        f" WHERE id IN ({', '.join(str(int(id)) for _, id in state.kept)}) ORDER BY id"
    )
    return [KeptMigration(*row) for row in checked(columns, found)]


def find_behind(kept: Sequence[KeptMigration], ids: Set[int]) -> set[int]:
    """The ids of migrations, and of those that are kept behind one of them."""
    found = set(ids)
    for one in kept:  # each behind its parent
        if one.parent in found:
            found.add(one.id)
    return found


class CounterAllocator(NumberAllocator):
    """Draws numbers from the database's counters, in the transaction that stores the migration.

    `expected` are as many of each kind as it will need, such as those that it drew when it was
    validated: they are drawn by one statement. `taken` are given out in place of new ones.
    """

    def __init__(
        self,
        connection: Connection,
        expected: Mapping[str, Sequence[int]],
        taken: TakenNumbers = NOTHING_TAKEN,
    ) -> None:
        super().__init__()
        self.connection = connection
        self._expected = {kind: len(numbers) for kind, numbers in expected.items()}
        self._drawn: dict[str, Iterator[int]] = {}
        self._taken: dict[str, Iterator[int | None]] = {}
        for taken_kind in taken:
            self._taken[taken_kind] = iter(taken[taken_kind])

    def allocate(self, kind: Any) -> int:
        number = next(self._taken[kind], None) if kind in self._taken else None
        if number is not None:
            return number
        number = next(self._drawn.get(kind, iter(())), None)
        if number is not None:
            return number
        count = self._expected.pop(kind, 1)
        first = rows.draw(self.connection, kind, count)
        self._drawn[kind] = iter(range(first + 1, first + count))
        return first


def list_stored(connection: Connection, state: ChainState) -> list[StoredMigration]:
    """Return the stored migrations in order; raises `CorruptCatalog` for a damaged one, a gap, or
    an end that differs from the chain's row."""
    is_stored = has_word_sql(MIGRATIONS.c.state, STORED)
    stored = connection.fetch_all(f"{_SELECT} WHERE {is_stored} ORDER BY number")
    return _require_whole([_verify(row) for row in checked(_COLUMNS, stored)], state)


def list_up_to(
    connection: Connection, state: ChainState, known: Sequence[StoredMigration] = ()
) -> list[StoredMigration]:
    """Return the stored migrations as they were when the newest of `state` was stored: others may
    have been stored since, and some of them rolled back. `known` ones are not read again.

    Raises `CatalogChanged` if a backup was restored that does not have it, and `CorruptCatalog`.
    """
    if not known and read_chain_state(connection).newest_id == state.newest_id:
        return list_stored(connection, state)
    return _require_whole(list_line(connection, state.newest_id, known), state)


def list_line(
    connection: Connection, newest: int, known: Sequence[StoredMigration] = ()
) -> list[StoredMigration]:
    """Return the migrations from the first one to that with the id `newest`, each behind its
    parent, whatever was rolled back since; `known` ones, of the same or another line, are not read
    again. Raises `CatalogChanged` if there is none with the id, and `CorruptCatalog`."""
    places = {one.id: at for at, one in enumerate(known)}
    if newest in places:
        return list(known[: places[newest] + 1])
    mark = connection.storage.placeholder
    after = known[-1].id if known else 0
    rows = connection.fetch_all(
        f"{_SELECT} WHERE id > {mark} AND id <= {mark} ORDER BY id", (after, newest)
    )
    read = {row[0]: row for row in checked(_COLUMNS, rows)}
    found, at = list[StoredMigration](), newest
    while at in read and (not found or at < found[-1].id):  # ids rise, also where one was damaged
        found.append(_verify(read[at]))
        at = found[-1].parent
    if at and at not in places:
        if known:  # the line leaves them before their end, or they are of another history
            return list_line(connection, newest)
        if found:
            stored = [row for row in map(_verify, read.values()) if row.state == STORED]
            raise _missing(found[-1].number - 1, stored)
        raise _other_history()
    return [*known[: places.get(at, -1) + 1], *reversed(found)]


def _other_history() -> CatalogChanged:
    return CatalogChanged(
        "the database has other migrations than when its catalog was read",
        hint="a backup was restored: run the operation again",
    )


def read_line(
    connection: Connection,
    newest: int,
    known: Chain | None = None,
    kept: Collection[int] = (),
) -> Chain:
    """Return the chain up to a stored migration, by its id, whether it is rolled back or not; what
    it has in common with a known one is the same there. `kept` are the ids of those that keep
    values. Raises as `list_line` does."""
    migrations = () if known is None else known.migrations
    migrations = tuple(takewhile(lambda one: one.keeps_values == (one.id in kept), migrations))
    for found in migrations:
        if known is not None and found.id == newest:
            return known.up_to(found.number)
    stored = list_line(connection, newest)
    same = _list_same(migrations, stored, kept)
    return read_chain(stored[len(same) :], Chain(same), kept)


def _list_same(
    known: Sequence[Migration], stored: Sequence[StoredMigration], kept: Collection[int]
) -> tuple[Migration, ...]:
    """The known migrations with which a line of stored ones begins; `kept` are the ids of those
    that keep values."""
    count = 0
    for made, row in zip(known, stored, strict=False):
        if (made.id, made.keeps_values) != (row.id, row.id in kept):
            break
        count += 1
    return tuple(known[:count])


def list_from(connection: Connection, state: ChainState, number: int) -> list[StoredMigration]:
    """Return the stored migrations from a number on; all of them, as `list_up_to` does, if they do
    not begin with it or do not end with the newest of `state`."""
    mark = connection.storage.placeholder
    rows = connection.fetch_all(
        f"{_SELECT} WHERE number >= {mark} AND {has_word_sql(MIGRATIONS.c.state, STORED)}"
        " ORDER BY number",
        (number,),
    )
    found = [_verify(row) for row in checked(_COLUMNS, rows)]
    is_whole = [one.number for one in found] == list(range(number, state.stored_end + 1))
    if is_whole and found and found[-1].id == state.newest_id:
        return found
    return list_up_to(connection, state)


def list_lines(connection: Connection, first: int, last: int) -> list[LockLine]:
    """Return the lines of a lock file for stored migrations, by their rows alone: digests are not
    computed again."""
    mark = connection.storage.placeholder
    found = connection.fetch_all(
        f"SELECT number, name, digest FROM zapdb_migrations WHERE number >= {mark}"
        f" AND number <= {mark} AND {has_word_sql(MIGRATIONS.c.state, STORED)} ORDER BY number",
        (first, last),
    )
    columns = (MIGRATIONS.c.number, MIGRATIONS.c.name, MIGRATIONS.c.digest)
    return [
        LockLine(label(number, name), digest) for number, name, digest in checked(columns, found)
    ]


def _require_whole(found: list[StoredMigration], state: ChainState) -> list[StoredMigration]:
    start, parent = found[0].number if found and found[0].replaces else 1, 0
    for expected, migration in enumerate(found, start):
        if migration.number != expected:
            raise _missing(expected, found)
        if migration.parent != parent:
            raise CorruptCatalog(
                "a stored migration is not behind the one before it",
                migration=migration.label,
                hint="the zapdb_migrations table was tampered with: restore it from a backup",
            )
        parent = migration.id
    last = (found[-1].number, found[-1].id, found[-1].digest) if found else (0, 0, "")
    if last != (state.stored_end, state.newest_id, state.digest):
        raise CorruptCatalog(
            "the stored migrations do not end where the catalog says",
            stored=found[-1].label if found else "(none)",
            stored_end=state.stored_end,
            hint="zapdb_migrations or zapdb_catalog was tampered with: restore both from a backup",
        )
    return found


def _missing(number: int, stored: Iterable[StoredMigration]) -> CorruptCatalog:
    return CorruptCatalog(
        "a stored migration is missing",
        number=number,
        stored=", ".join(str(m.number) for m in stored),
        hint="the zapdb_migrations table was tampered with: restore it from a backup",
    )


def pair_stored(stored: Iterable[StoredMigration], chain: Chain) -> list[StoredSchema]:
    """Return what rows of `stored_schemas` are made of: each stored migration with its schemas."""
    return [
        (row.number, row.name, row.id, made.before, made.after)
        for row, made in zip(stored, chain.migrations, strict=True)
    ]


def _verify(row: Sequence[Any]) -> StoredMigration:
    """One row of `_COLUMNS`."""
    id, parent, number, name, summary, state, digest, stored_structure, numbers, source_hash = row
    structure = bytes(stored_structure)
    found = digest_of(structure)
    if found != digest:
        raise CorruptCatalog(
            "a stored migration does not match its own digest",
            migration=label(number, name),
            stored=digest,
            found=found,
            hint="the zapdb_migrations table was tampered with: restore this row from a backup",
        )
    try:
        drawn = cbor2.loads(bytes(numbers))
        if not isinstance(drawn, dict):
            raise TypeError(type(drawn))
    except (cbor2.CBORDecodeError, TypeError) as error:
        raise CorruptCatalog(
            "the numbers of a stored migration can't be read",
            migration=label(number, name),
            hint="restore this row of zapdb_migrations from a backup",
        ) from error
    return StoredMigration(
        id, parent, number, name, summary, state, digest, structure, drawn, bytes(source_hash)
    )


def read_chain(
    stored: Sequence[StoredMigration], chain: Chain | None = None, kept: Collection[int] = ()
) -> Chain:
    """Return the chain of stored migrations, from their structures; it continues `chain`. `kept`
    are the ids of those that keep values."""
    migrations = list(chain.migrations) if chain is not None else []
    if chain is not None and not stored:
        return chain
    for row in stored:
        before = migrations[-1].after if migrations else Schema()
        migration = read_stored(row.structure, row.name, row.summary, row.drawn, before, row.id)
        if migration.number != row.number:
            raise CorruptCatalog(
                "a stored migration is in the place of another",
                migration=row.label,
                found=migration.number,
                hint="restore the zapdb_migrations table from a backup",
            )
        migrations.append(migration.keeping_values() if row.id in kept else migration)
    return Chain(tuple(migrations))


def read_number(connection: Connection, id: int) -> int:
    """Return the number of a stored migration, whether it is rolled back or not; 0 for none."""
    mark = connection.storage.placeholder
    found = connection.fetch_all(f"SELECT number FROM zapdb_migrations WHERE id = {mark}", (id,))
    return as_number(found[0][0]) if found else 0


def rolled_back_digests(connection: Connection) -> set[tuple[int, str]]:
    """Return (number, digest) of migrations that were rolled back; they are never applied again
    automatically."""
    found = connection.fetch_all(
        f"SELECT number, digest FROM zapdb_migrations WHERE state = '{ROLLED_BACK}'"
    )
    read = checked((MIGRATIONS.c.number, MIGRATIONS.c.digest), found)
    return {(number, digest) for number, digest in read}


def store(connection: Connection, migration: Migration, source: bytes) -> Migration:
    """Add a migration after the newest, inside a DDL transaction; returns it with its id."""
    id, state = rows.draw_identity(connection, "migration"), read_chain_state(connection)
    written = {
        "id": id,
        "parent": state.newest_id,
        "number": migration.number,
        "name": migration.name,
        "summary": migration.summary,
        "state": STORED,
        "digest": migration.digest,
        "structure": migration.structure,
        "numbers": dumps(migration.drawn),
        "source_hash": source_hash(source),
        "stored_at": connection.storage.now_us(connection),
        "stored_by": principal.current(),
    }
    marks = ", ".join([connection.storage.placeholder] * len(written))
    connection.run(
        f"INSERT INTO zapdb_migrations ({', '.join(written)}) VALUES ({marks})",
        [*written.values()],
    )
    store_schema(connection, id, migration.before, migration.after)
    ends = {"stored_end": migration.number, "newest_id": id, "digest": migration.digest}
    rows.put(connection, structs.replace(state, **ends))
    return replace(migration, id=id)


def move_end_back(
    connection: Connection, number: int, kept: Iterable[tuple[int, int]] = ()
) -> None:
    """Take the migrations above a number off the chain, inside a DDL transaction. They stay stored
    beside it: tenants may still be there, and records have their revisions. `kept` are all that are
    kept from then on, by number and id."""
    state = read_chain_state(connection)
    is_above = sa.and_(MIGRATIONS.c.state == STORED, MIGRATIONS.c.number > number)
    for (id,) in connection.core_execute(sa.select(MIGRATIONS.c.id).where(is_above)):
        delete_schema(connection, id)
    connection.core_execute(
        sa.update(MIGRATIONS)
        .where(is_above)
        .values(
            state=ROLLED_BACK,
            rolled_back_at=connection.storage.now_us(connection),
            rolled_back_by=principal.current(),
        )
    )
    newest = connection.core_execute(
        sa.select(MIGRATIONS.c.number, MIGRATIONS.c.id, MIGRATIONS.c.digest)
        .where(MIGRATIONS.c.state == STORED)
        .order_by(MIGRATIONS.c.number.desc())
        .limit(1)
    ).one_or_none()
    end = NO_MIGRATIONS if newest is None else ChainState(*newest)
    kept, reapplied = tuple(kept), tuple(one for one in state.reapplied if one[0] <= number)
    forgotten = [*state.forgotten, *(one for one in state.kept if one not in kept)]
    made = {"kept": kept, "reapplied": reapplied, "forgotten": tuple(forgotten)}
    rows.put(connection, structs.replace(end, has_branches=True, **made))


def move_end_forward(connection: Connection, migration: Migration) -> None:
    """Put a migration that is kept back on the chain, behind its end, inside a DDL transaction.
    Values that it made may be archived: until none is left, it keeps values."""
    state, place = read_chain_state(connection), (migration.number, migration.id)
    connection.core_execute(
        sa.update(MIGRATIONS)
        .where(MIGRATIONS.c.id == migration.id)
        .values(state=STORED, rolled_back_at=None, rolled_back_by=None)
    )
    store_schema(connection, migration.id, migration.before, migration.after)
    rows.put(
        connection,
        structs.replace(
            state,
            stored_end=migration.number,
            newest_id=migration.id,
            digest=migration.digest,
            kept=tuple(one for one in state.kept if one != place),
            reapplied=(*state.reapplied, place),
        ),
    )
