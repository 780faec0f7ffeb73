"""Values that are made at insert where none is given: UUIDs, the present moment, and numbers of
sequences.

They are made by the process that inserts, by the active schema: a process with older files gives
new records what the active schema makes in fields that it does not see. Conversions never make
values (rule 18).

SQLite has one writer at a time. The transaction that writes the records draws their numbers, as
many as there are, and its rollback takes them back: there are no gaps, and a process has none in
hand.

On PostgreSQL a process draws blocks of numbers. Each block is as large as all earlier ones of the
sequence together, up to a bound. So almost no insert needs another round trip, and a process with
few inserts leaves few numbers unused. Numbers rise within an open database. When it is closed or
killed, the rest of its block is never used: sequences have gaps.

An explicit number above the last one that is known to be drawn draws a block behind it before it is
written. So no number is drawn that was committed before, except one out of a block that another
process had in hand already: that process finds it taken when it inserts, throws the block away and
draws another one (`OperationNumbers.refuse`).
"""

from __future__ import annotations

import datetime
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast
from uuid import UUID

from zapdb.datasets import zone
from zapdb.errors import (
    CatalogChanged,
    CommitUnknown,
    ConstraintViolation,
    InvalidValue,
    RecordExists,
    SequenceExhausted,
    UniqueViolation,
)
from zapdb.limits import (
    PAGE_RECORDS_MAX,
    SEQUENCE_BLOCK_NUMBERS_MAX,
    SEQUENCE_LOCK_TIMEOUT_MS,
    SEQUENCE_MAX,
    SEQUENCE_TAKEN,
)
from zapdb.records import decoder_of
from zapdb.schema import Field, Now
from zapdb.storage import Connection, MissingTable, TransactionMode
from zapdb.storage.connection import Loan
from zapdb.storage.identifiers import make_uuid7
from zapdb.storage.own_lease import OwnLease
from zapdb.storage.retries import Again, pauses, retry
from zapdb.storage.sequences import (
    DrawnInside,
    NumberBlock,
    draw_block,
    draw_next,
    read_last_number,
)
from zapdb.tables.indexes import BoundTable
from zapdb.tables.indexes.bound_table import make_reader
from zapdb.tables.writes import NewValues
from zapdb.values import Integer

if TYPE_CHECKING:
    from zapdb.tables.session import Session


T = TypeVar("T")
NO_NUMBERS: Final[Mapping[int, Iterator[int]]] = {}


class BlockNeeded(Again):
    """An operation is to be done again once there are numbers: its own transaction can't draw them,
    since they must stay drawn if it is rolled back."""

    def __init__(
        self, session: Session, bound: BoundTable, field: int, above: int, count: int
    ) -> None:
        super().__init__(field)
        self.session = session
        self.bound = bound
        self.field = field
        self.above = above
        self.count = count

    def prepare(self) -> None:
        """Raises `CatalogChanged`; itself in a transaction, which is to begin again as a whole."""
        if self.session.storage.own_connection().transaction is not None:
            raise self
        if not _draw_apart(self.session, self):
            self.session.reload()
            raise _changed(self.bound)


REFUSED: Final = (BlockNeeded, ConstraintViolation, InvalidValue, RecordExists)
"""What is raised before anything takes effect: the numbers of the operation belong to no record."""


class _NumberTaken(Again):
    """A number that was drawn belongs to another record, into which it was written explicitly."""

    def __init__(self, numbers: OperationNumbers, error: Exception) -> None:
        super().__init__(str(error))
        self._numbers = numbers
        self._error = error

    def prepare(self) -> None:
        if not self._numbers.pass_over():
            raise self._error from None


class Hand:
    """The numbers above `given`, up to and including `last`."""

    __slots__ = ("drawn", "given", "known", "last")

    def __init__(self) -> None:
        self.given = 0
        """The last number that was given or passed over: none is given below it."""
        self.last = 0
        self.known = 0
        """Up to here, all numbers are drawn, by whatever process."""
        self.drawn = 0
        """How many numbers were drawn: as many are drawn the next time."""

    def add(self, block: NumberBlock) -> None:
        self.drawn += max(block.last - block.after, 1)  # explicit numbers draw more, too
        self.known = max(self.known, block.last)
        if block.last <= self.last:
            return  # another thread drew a later one meanwhile
        if block.after > self.last:
            self.given = block.after
        self.last = block.last

    def throw_away(self) -> None:
        self.last = self.given


class Sequences:
    """The numbers in hand for one tenant, by the number of the field. Thread-safe.

    What an open transaction drew itself is its own until it ends: nobody else may use a number that
    may not stay drawn. What is left of it then goes to the process.
    """

    def __init__(self, tenant: int, *, are_exact: bool) -> None:
        self._tenant = tenant
        self.are_exact = are_exact
        """Whether nobody else draws meanwhile, so that a transaction draws what it needs."""
        self._lock = threading.Lock()
        self._hands: dict[int, Hand] = {}
        self._inside: list[tuple[DrawnInside, int]] = []
        """Which transactions drew from which sequence themselves, and are not settled."""

    def find(self, connection: Connection, field: int) -> Hand:
        """Return what a transaction takes the numbers of a field from."""
        with self._lock:
            transaction = connection.transaction
            drawn = None if transaction is None else transaction.drawn
            own = None if drawn is None else drawn.hands.get(self._at(field))
            if own is not None:
                return cast(Hand, own)
            self._take_over_rest()
            return self._hands.setdefault(field, Hand())

    def _at(self, field: int) -> tuple[int, int]:
        return self._tenant, field

    def _take_over_rest(self) -> None:
        """Take over what transactions that have ended leave of the blocks that they drew."""
        left = list[tuple[DrawnInside, int]]()
        for inside, field in self._inside:
            if inside.is_open or (inside.is_kept and not inside.is_confirmed):
                left.append((inside, field))
            elif inside.is_kept:
                rest, hand = inside.hands[self._at(field)], self._hands[field]
                hand.known = max(hand.known, rest.known)
                if hand.last == hand.given == rest.last:  # nothing was drawn since
                    hand.given = rest.given
        self._inside = left

    def is_drawn_inside(self, field: int) -> bool:
        """Whether an open transaction holds the sequence's row, so that drawing waits for it."""
        with self._lock:
            return any(at == field and inside.is_open for inside, at in self._inside)

    def needs_block(self, hand: Hand, above: int, count: int) -> bool:
        """Whether a block is to be drawn, before `count` numbers can be given, or before a record
        is written with the explicit number `above`; passes over the numbers up to that one."""
        with self._lock:
            if above > hand.known:
                return True
            hand.given = max(hand.given, min(above, hand.last))
            return hand.last - hand.given < count

    def take(self, hand: Hand, count: int) -> range | None:
        """The next numbers; None if another thread has taken them meanwhile."""
        with self._lock:
            if hand.last - hand.given < count:
                return None
            first, hand.given = hand.given + 1, hand.given + count
            return range(first, hand.given + 1)

    def plan(self, hand: Hand, above: int, count: int) -> tuple[int, int, bool]:
        """Behind which number how many are to be drawn; and whether none is known to be drawn."""
        with self._lock:
            size = max(count, min(hand.drawn, SEQUENCE_BLOCK_NUMBERS_MAX))
            return max(above, hand.given), size, not hand.known

    def add(self, field: int, block: NumberBlock) -> None:
        """Numbers that were drawn for the process."""
        with self._lock:
            self._hands.setdefault(field, Hand()).add(block)

    def add_inside(
        self, connection: Connection, field: int, block: NumberBlock, lease: OwnLease
    ) -> None:
        """Numbers that an open transaction drew itself. What the process has in hand is lower, and
        would not rise any more."""
        transaction = connection.transaction
        assert transaction is not None
        with self._lock:
            inside = transaction.drawn = transaction.drawn or DrawnInside(lease)
            inside.add(self._tenant, field, block)
            shared, own = self._hands.setdefault(field, Hand()), inside.hands.get(self._at(field))
            if own is None:
                own = inside.hands[self._at(field)] = Hand()
                own.given, own.drawn = shared.given, shared.drawn
                self._inside.append((inside, field))
            own.add(block)
            shared.drawn = own.drawn
            shared.given = shared.last = max(shared.given, block.last)

    def give_back(self, hand: Hand, numbers: range) -> None:
        """Give numbers again that nothing was written with, if none behind them was given."""
        with self._lock:
            if hand.given == numbers[-1] <= hand.known:
                hand.given = numbers[0] - 1

    def throw_away(self, hand: Hand) -> None:
        """Give no more numbers of the block in hand."""
        with self._lock:
            hand.throw_away()


class OperationNumbers:
    """What one operation takes from sequences."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._drawn: dict[int, range] = {}
        """The numbers that were drawn last, by field."""
        self._passed: dict[int, int] = {}
        """The last number of a field that was found to be taken: those behind it are drawn."""
        self._taken: list[tuple[Hand, range]] = []
        """What was taken from what the process has in hand, in this order."""
        self._bound: BoundTable | None = None
        self._tries: Iterator[float] | None = None
        """Those that are left after numbers that were taken."""

    def draw_for(
        self, connection: Connection, bound: BoundTable, records: Sequence[Mapping[str, Any]]
    ) -> Mapping[int, Iterator[int]]:
        """Numbers for the records that have none, by field; explicit ones move the sequence on."""
        if not bound.adapter.sequences:
            return NO_NUMBERS
        self._bound, wanted = bound, list[tuple[int, int]]()
        for field, name in bound.adapter.sequences.items():
            count, above = len(records), 0
            for values in records:
                if name is not None and name in values:
                    count, above = count - 1, max(above, _as_number(values[name]))
            self.have(connection, bound, field, above, count)
            if count:
                wanted.append((field, count))
        drawn = dict[int, Iterator[int]]()
        for field, count in wanted:
            if not self._session.sequences.are_exact:
                self._drawn[field] = self._take(connection, bound, field, count)
            drawn[field] = iter(self._drawn[field])
        return drawn

    def _draw_exactly(
        self, connection: Connection, bound: BoundTable, field: int, above: int, count: int
    ) -> None:
        """Draw this many numbers in the transaction that writes them, or else pass over those up to
        an explicit one. Raises `CatalogChanged` and `SequenceExhausted`."""
        if not (count or above):
            return
        above, tenant = max(above, self._passed.get(field, 0)), bound.catalog.tenant
        block = draw_next(connection, tenant, field, above, count)
        if block is None:
            if read_last_number(connection, tenant, field) is not None:
                return  # an explicit number that is not above it
            needed = BlockNeeded(self._session, bound, field, above, count)
            start = _find_start(connection, bound, field)
            block = _draw(connection, needed, max(start, above), count)
            if block is None:
                raise _changed(bound)
        if block.last - block.after < count:
            raise _exhausted(bound, field, block)
        if count:
            self._drawn[field] = range(block.after + 1, block.last + 1)

    def have(
        self, connection: Connection, bound: BoundTable, field: int, above: int, count: int
    ) -> None:
        """Make sure that this many numbers are available. Raises `BlockNeeded`, `CatalogChanged`
        and `SequenceExhausted`."""
        sequences = self._session.sequences
        if sequences.are_exact:
            self._draw_exactly(connection, bound, field, above, count)
            return
        while sequences.needs_block(sequences.find(connection, field), above, count):
            needed = BlockNeeded(self._session, bound, field, above, count)
            if not isinstance(connection.keeper, Loan):  # the transaction is this operation's alone
                raise needed
            if not _draw_in(self._session, connection, needed):
                raise _changed(bound)

    def _take(self, connection: Connection, bound: BoundTable, field: int, count: int) -> range:
        sequences = self._session.sequences
        hand = sequences.find(connection, field)
        while (numbers := sequences.take(hand, count)) is None:
            self.have(connection, bound, field, 0, count)
            hand = sequences.find(connection, field)
        self._taken.append((hand, numbers))
        return numbers

    def reserve(
        self,
        connection: Connection,
        bound: BoundTable,
        records: Sequence[Mapping[str, Any]],
        times: int,
    ) -> None:
        """Have so many times the numbers that the records need; else a transaction begins again."""
        if self._session.sequences.are_exact:
            return
        for field, name in bound.adapter.sequences.items():
            wanted = sum(name is None or name not in values for values in records)
            self.have(connection, bound, field, 0, wanted * times)

    def refuse(self, error: Exception) -> None:
        """What was to be written with the numbers is refused: they are given back. If one of them
        belongs to another record already, raises what makes the operation begin again with
        others."""
        if self._is_taken(error):
            raise _NumberTaken(self, error) from error
        for hand, numbers in reversed(self._taken):
            self._session.sequences.give_back(hand, numbers)
        self._taken.clear()

    def pass_over(self) -> bool:
        """Draw other numbers from now on; False if that was tried often enough."""
        self._tries = self._tries or pauses(SEQUENCE_TAKEN, time.monotonic())
        if next(self._tries, None) is None:
            return False
        for hand, _ in self._taken:
            self._session.sequences.throw_away(hand)
        self._passed |= {field: numbers[-1] for field, numbers in self._drawn.items()}
        self._drawn.clear()
        self._taken.clear()
        return True

    @property
    def have_key(self) -> bool:
        """Whether a number that was drawn is part of the key."""
        return self._bound is not None and not self._drawn.keys().isdisjoint(self._bound.schema.key)

    def _is_taken(self, error: Exception) -> bool:
        """Whether an error is about a number that was drawn."""
        if isinstance(error, RecordExists):
            return self.have_key
        if not isinstance(error, UniqueViolation) or self._bound is None:
            return False
        names = {f.name for f in self._bound.schema.fields if f.number in self._drawn}
        return not names.isdisjoint(str(error.context["fields"]).split(", "))


def note_given(
    session: Session, connection: Connection, bound: BoundTable, changes: Mapping[str, Any]
) -> None:
    """Explicit numbers that are written into a record move their sequences on."""
    for field, name in bound.adapter.sequences.items():
        if name is not None and name in changes:
            numbers = OperationNumbers(session)
            numbers.have(connection, bound, field, _as_number(changes[name]), 0)


def _draw_apart(session: Session, needed: BlockNeeded) -> bool:
    """Draw a block between the tries of an operation; False if the catalog has changed.

    Then the epoch of the node's lease is raised: a backup from before has neither, so this process
    does not give the block's numbers where it was restored (`storage.own_lease`).
    """
    storage, sequences, own = session.storage, session.sequences, session.own_lease
    connection, is_waiting = storage.own_connection(), sequences.is_drawn_inside(needed.field)
    after, size = _plan(connection, sequences, needed)

    def draw() -> tuple[NumberBlock | None, int]:
        if not is_waiting:
            return _draw(connection, needed, after, size), own.rise(connection)
        with storage.transaction(TransactionMode.CATALOG) as begun:
            return _draw_waiting(begun, needed, after, size), own.rise(begun)

    # A block whose COMMIT has an unknown outcome is left unused.
    block, epoch = retry(SEQUENCE_TAKEN, draw, on=CommitUnknown)
    own.note(epoch)
    if block is not None:
        sequences.add(needed.field, block)
    return block is not None


def _draw_in(session: Session, connection: Connection, needed: BlockNeeded) -> bool:
    """The same for a transaction that stays open: on its connection, since whoever holds one and
    waits for another waits for ever where there are too few. As long as its BEGIN is not sent, that
    is a statement by itself before it; else a part of the transaction."""
    sequences, own = session.sequences, session.own_lease
    with connection.before_beginning() as is_apart:
        if is_apart and not sequences.is_drawn_inside(needed.field):
            block = _draw(connection, needed, *_plan(connection, sequences, needed))
            own.note(own.rise(connection))
            if block is not None:
                sequences.add(needed.field, block)
            return block is not None
    block = _draw_waiting(connection, needed, *_plan(connection, sequences, needed))
    if block is not None:
        sequences.add_inside(connection, needed.field, block, own)
    return block is not None


def _plan(connection: Connection, sequences: Sequences, needed: BlockNeeded) -> tuple[int, int]:
    hand = sequences.find(connection, needed.field)
    after, size, is_first = sequences.plan(hand, needed.above, needed.count)
    if is_first:
        after = max(after, _find_start(connection, needed.bound, needed.field))
    return after, size


def _draw_waiting(
    connection: Connection, needed: BlockNeeded, after: int, size: int
) -> NumberBlock | None:
    """Draw a block inside a transaction; wait not for long for another one that has drawn."""
    connection.send(f"SET LOCAL lock_timeout = {SEQUENCE_LOCK_TIMEOUT_MS}")
    block = _draw(connection, needed, after, size)
    connection.send("SET LOCAL lock_timeout = 0")
    return block


def _draw(connection: Connection, needed: BlockNeeded, after: int, size: int) -> NumberBlock | None:
    catalog = needed.bound.catalog
    block = draw_block(connection, catalog.tenant, needed.field, catalog.version, after, size)
    if block is not None and block.after == block.last and needed.count:
        raise _exhausted(needed.bound, needed.field, block)
    return block


def _exhausted(bound: BoundTable, field: int, block: NumberBlock) -> SequenceExhausted:
    table = bound.schema
    names = [f.name for f in table.fields if f.number == field]
    return SequenceExhausted(
        "the sequence has no more numbers",
        field=".".join((table.name, *names)),
        last=block.last,
        hint="give the numbers of new records yourself: those below that were never used",
    )


def _find_start(connection: Connection, bound: BoundTable, field: int) -> int:
    """The greatest number in the records of a table, if nothing was ever drawn for the field: those
    that are older than it may have some. Else 0."""
    table = bound.schema
    if field not in {f.number for f in table.fields}:
        return 0
    if read_last_number(connection, bound.catalog.tenant, field) is not None:
        return 0
    try:
        if field == table.key[0]:
            bound_key = Integer().encode_key(SEQUENCE_MAX + 1)
            _, page = bound.records.page(connection, None, bound_key, None, 1, descending=True)
            return _as_number(bound.codec.decode_key(page[0][0])[0]) if page else 0
        return _scan(connection, bound, field)
    except MissingTable:
        return 0


def _scan(connection: Connection, bound: BoundTable, field: int) -> int:
    catalog, descriptor = bound.catalog, bound.descriptor
    reader = make_reader(
        bound.storage,
        catalog,
        descriptor,
        bound.place,
        descriptor.revision,
        decoder_of(bound.schema, frozenset({field}), catalog.zones),
    )
    name, greatest, after = bound.schema.field_numbered(field).name, 0, None
    while True:
        _, page = bound.records.page(
            connection, None, None, after, PAGE_RECORDS_MAX, descending=False
        )
        if not page:
            return greatest
        found = (_as_number(getattr(reader.read(key, value), name)) for key, _, value in page)
        greatest, after = max(greatest, *found), page[-1][:2]


def _as_number(given: Any) -> int:
    """An explicit number; 0 for what the sequence could never reach."""
    return given if type(given) is int and 0 < given <= SEQUENCE_MAX else 0


def _changed(bound: BoundTable) -> CatalogChanged:
    return CatalogChanged(
        "the schema changed while numbers were drawn",
        table=bound.schema.name,
        hint="run it again, or use db.run(function), which repeats it",
    )


Values = Mapping[str, Any]
NOTHING: Final[Values] = {}
Numbers = Mapping[int, Iterator[int]]
"""What was drawn for the new records, by the number of the field."""


def generate_values(
    numbers: OperationNumbers,
    connection: Connection,
    bound: BoundTable,
    records: Sequence[Values],
) -> list[NewValues]:
    """The values of new records that were given with these, all made at one moment. Raises what
    `OperationNumbers.draw_for` raises."""
    shape = bound.adapter
    if not (shape.made_fields or shape.unseen_made_fields):
        return [(values, NOTHING) for values in records]
    drawn = numbers.draw_for(connection, bound, records)
    moment = datetime.datetime.now(datetime.UTC)
    return [
        (
            _complete(values, shape.made_fields, drawn, moment),
            _complete(NOTHING, shape.unseen_made_fields, drawn, moment)
            if shape.unseen_made_fields
            else NOTHING,
        )
        for values in records
    ]


def has_whole_key(bound: BoundTable, values: Values) -> bool:
    """Whether no part of the key is to be made; else the record is new."""
    shape = bound.adapter
    return all(f.name in values for f in shape.made_fields if f.name in shape.key_names)


def _complete(
    values: Values, fields: Sequence[Field], drawn: Numbers, moment: datetime.datetime
) -> Values:
    made = {}
    for field in fields:
        if field.name not in values:
            made[field.name] = _make(field, drawn, moment)
    return {**values, **made} if made else values


def _make(field: Field, drawn: Numbers, moment: datetime.datetime) -> Any:
    match field:
        case Field(generated="sequence"):
            return next(drawn[field.number])
        case Field(generated="uuid"):
            return UUID(bytes=make_uuid7())
        case Field(default=Now("")):
            return moment
    return moment.astimezone(zone(field.default.zone))
