"""One migration: from a document, or from what the database stored, to a resolved value.

A document says what changes; the *resolved* migration also holds the rollback operation by
operation. What is digested is the canonical structure: number, document version, changes and
resolved rollback, as deterministic CBOR with every default filled in, and `replaces` and
`activation` where they are said. Names, summaries, reasons,
comments, key order, quoting and line ends are no part of it (rule 5).
"""

from __future__ import annotations

import contextlib
import hashlib
import typing
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Literal

import cbor2

from zapdb.errors import CorruptCatalog, Location
from zapdb.migrations.document import Mapping, Node, Scalar, Sequence, Source
from zapdb.migrations.examples import Example, parse_examples, validate_examples
from zapdb.migrations.operations import OPERATIONS, Numbers, Operation
from zapdb.migrations.operations.drop_table import DropTable
from zapdb.migrations.structure import (
    Refused,
    Reporter,
    from_structure,
    locate,
    parse,
    parse_at,
    to_structure,
)
from zapdb.records import Input, Route, Slot
from zapdb.schema import Schema, Table, shape, shape_of
from zapdb.values.json import dumps

DOCUMENT_VERSION: Final = 1
DIGEST_ALGORITHM: Final = "z1"
KEYS: Final = ("zapdb", "summary", "changes", "rollback")
OPTIONAL_KEYS: Final = ("examples", "replaces", "activation")

Activation = Literal["known"]
"""Said of a migration that waits until the files of every live node hold it (rule 12)."""
ACTIVATIONS: Final = (None, *typing.get_args(Activation))

SPLIT: Final = "put the change into a migration of its own, or write the rollback out"

Step = tuple[Operation, Schema, Schema]
"""An operation, with the schema before it and after it."""


@dataclass(frozen=True)
class Draft:
    """A parsed document; `rollback` is None where it is to be inferred."""

    number: int
    name: str
    summary: str
    changes: tuple[Operation, ...]
    rollback: tuple[Operation, ...] | None
    source: Source
    place: Location
    examples: tuple[Example, ...] = ()
    replaces: tuple[str, ...] = ()
    """Of a squash: the digests of the migrations that it stands for, all up to its own number."""
    activation: Activation | None = None


@dataclass(frozen=True)
class Migration:
    """A resolved migration and its place in the chain: the schema before it and after it."""

    number: int
    name: str
    summary: str
    changes: tuple[Operation, ...]
    rollback: tuple[Operation, ...]
    before: Schema
    after: Schema
    drawn: dict[str, list[int]] = field(compare=False)
    """The numbers that its operations drew, by kind, in order."""
    examples: tuple[Example, ...] = field(default=(), compare=False)
    """None for one that the database stored: they are in the file alone."""
    replaces: tuple[str, ...] = ()
    """Of a squash: the digests of the migrations that it stands for."""
    activation: Activation | None = None
    """As the document says it; None also where the changes imply it. See `waits_for_nodes`."""

    @property
    def waits_for_nodes(self) -> bool:
        """Whether it takes force only once the files of every live node hold it (rule 12)."""
        return self.activation == "known" or implies_waiting(self.changes)

    if not TYPE_CHECKING:  # it would hide every name that is none

        def __getattr__(self, name: str) -> Any:
            """The rollback of a stored migration; raises `CorruptCatalog` if it can't be read."""
            structure = vars(self).get("structure")
            if name != "rollback" or structure is None:
                raise AttributeError(name)
            with _reading(self.name):
                rollback = _build_operations(cbor2.loads(structure)["rollback"], self.name)
            vars(self)["rollback"] = rollback
            return rollback

    @property
    def label(self) -> str:
        return label(self.number, self.name)

    @cached_property
    def structure(self) -> bytes:
        """The canonical structure: what is stored and digested."""
        structure: dict[str, Any] = {
            "zapdb": DOCUMENT_VERSION,
            "number": self.number,
            "changes": [_operation_structure(operation) for operation in self.changes],
            "rollback": [_operation_structure(operation) for operation in self.rollback],
        }
        if self.replaces:
            structure["replaces"] = list(self.replaces)
        if self.activation is not None:
            structure["activation"] = self.activation
        return dumps(structure)

    @cached_property
    def digest(self) -> str:
        return digest_of(self.structure)

    def steps_up(self) -> list[Step]:
        """The changes in order, each with the schema before it and after it."""
        numbers = ReplayedNumbers(self.drawn, self.number)
        return _steps(_states(self.before, self.changes, numbers), self.changes)

    def steps_down(self) -> list[Step]:
        """As `steps_up`, for the rollback; what it adds again has provisional numbers."""
        numbers = Numbers(step=-1, migration=self.number)
        return _steps(_states(self.after, self.rollback, numbers), self.rollback)

    def route_up(self, table: int) -> Route:
        """How the fields of the table with this number come from those before the migration."""
        numbers = ReplayedNumbers(self.drawn, self.number)
        return _route(_states(self.before, self.changes, numbers), self.changes, table)

    def route_down(self, table: int) -> Route:
        """How the fields before the migration come from those after it."""
        states = _states(self.after, self.rollback, Numbers(step=-1, migration=self.number))
        route = _route(states, self.rollback, table)
        reached = states[-1].table_kept(table)
        target = self.before.table_kept(table)
        assert reached is not None
        assert target is not None
        # What the rollback adds again has provisional numbers; its names say which fields it is.
        by_name = {f.name: f.number for f in reached.fields}
        named = {f.number: route.derivations[by_name[f.name]] for f in target.fields}
        kept = {(a.field.name, a.by): a.field.number for a in target.archived}
        numbers = {a.field.number: kept[a.field.name, a.by] for a in reached.archived}
        archives = {
            Slot(numbers[slot.number], slot.type, slot.optional): derivation
            for slot, derivation in route.archives.items()
            if slot.number in numbers
        }
        return Route(named, archives)


class ReplayedNumbers(Numbers):
    """Gives out again what was drawn when the migration was stored."""

    def __init__(self, drawn: dict[str, list[int]], migration: int) -> None:
        super().__init__(migration=migration)
        self.rest = {kind: iter(numbers) for kind, numbers in drawn.items()}

    def draw(self, kind: str) -> int:
        number = next(self.rest[kind], None)
        if number is None:
            raise ValueError(f"too few {kind} numbers are stored")
        return number


class _RecordedNumbers(Numbers):
    def __init__(self, inner: Numbers, migration: int) -> None:
        super().__init__(migration=migration)
        self.inner = inner
        self.drawn: dict[str, list[int]] = {}

    def draw(self, kind: Any) -> int:
        number = self.inner.draw(kind)
        self.drawn.setdefault(kind, []).append(number)
        return number


def label(number: int, name: str) -> str:
    """How a migration is called: its file's name without the ending."""
    return f"{number:04d}_{name}"


def implies_waiting(changes: tuple[Operation, ...]) -> bool:
    """Whether the changes wait unasked: a node without them would go on using what they drop."""
    return any(isinstance(operation, DropTable) for operation in changes)


def digest_of(structure: bytes) -> str:
    return f"{DIGEST_ALGORITHM}:{hashlib.sha256(structure).hexdigest()}"


def parse_document(node: Node, source: Source, number: int, name: str) -> Draft:
    """Read a document's structure; raises `InvalidMigration` with every violation."""
    reporter = Reporter(source)
    if not isinstance(node, Mapping):
        raise source.refuse(node.location, "a migration is a mapping", f"keys: {', '.join(KEYS)}")
    for key, location in node.keys.items():
        if key not in (*KEYS, *OPTIONAL_KEYS):
            there = ", ".join((*KEYS, *OPTIONAL_KEYS))
            reporter.report(location, f"unknown key {key!r}", f"there are: {there}")
    for key in KEYS:
        if key not in node.entries:
            hint = "write `rollback: inferred`, or the list of operations" * (key == "rollback")
            reporter.report(node.location, f"the key {key!r} is missing", hint)
    _check_version(node, reporter)
    summary = node.entries.get("summary")
    if summary is not None and not (isinstance(summary, Scalar) and isinstance(summary.value, str)):
        reporter.report(summary.location, "a summary is text", "quote it")
    changes = _parse_operations(node.entries.get("changes"), reporter, rollback=False)
    rollback = _parse_rollback(node.entries.get("rollback"), reporter)
    examples: tuple[Example, ...] = ()
    if "examples" in node.entries:
        with contextlib.suppress(Refused):
            examples = parse_examples(node.entries["examples"], reporter)
    replaces = _parse_optional(tuple[str, ...], node.entries.get("replaces"), reporter) or ()
    activation = _parse_optional(Activation, node.entries.get("activation"), reporter)
    reporter.raise_violations()
    assert isinstance(summary, Scalar)
    return Draft(
        number,
        name,
        str(summary.value),
        changes,
        rollback,
        source,
        node.location,
        examples,
        replaces,
        activation,
    )


def _parse_optional(kind: Any, node: Node | None, reporter: Reporter) -> Any:
    """The value of a top-level key; None where it is left out, or refused and reported."""
    if node is None:
        return None
    with contextlib.suppress(Refused):
        return parse(kind, node, reporter)
    return None


def _check_version(node: Mapping, reporter: Reporter) -> None:
    version = node.entries.get("zapdb")
    if version is not None and not (
        isinstance(version, Scalar)
        and version.value == DOCUMENT_VERSION
        and type(version.value) is int
    ):
        reporter.report(
            version.location,
            f"this release reads documents of version {DOCUMENT_VERSION}",
            "a file of a later version needs a later release of zapdb",
        )


def _parse_rollback(node: Node | None, reporter: Reporter) -> tuple[Operation, ...] | None:
    if isinstance(node, Scalar):
        if node.value != "inferred":
            reporter.report(node.location, "a rollback is `inferred` or a list of operations")
        return None
    return _parse_operations(node, reporter, rollback=True)


def _parse_operations(
    node: Node | None, reporter: Reporter, *, rollback: bool
) -> tuple[Operation, ...]:
    if node is None:
        return ()
    if not isinstance(node, Sequence):
        reporter.report(node.location, "a list of operations is needed here")
        return ()
    if not node.items and not rollback:
        reporter.report(node.location, "a migration changes something")
    parsed = []
    for item in node.items:
        try:
            parsed.append(_parse_operation(item, reporter))
        except Refused:
            continue
    return tuple(parsed)


def _parse_operation(item: Node, reporter: Reporter) -> Operation:
    if not isinstance(item, Mapping) or len(item.entries) != 1:
        reporter.report(
            item.location, "an operation is a mapping with one key, its kind", _known_operations()
        )
        raise Refused
    ((keyword, body),) = item.entries.items()
    kind = OPERATIONS.get(keyword)
    place = item.keys[keyword]
    if kind is None:
        reporter.report(place, f"no operation {keyword!r}", _known_operations())
        raise Refused
    operation: Operation = parse_at(kind, body, reporter, place)
    return operation


def _known_operations() -> str:
    return f"there are: {', '.join(OPERATIONS)}"


def _operation_structure(operation: Operation) -> dict[str, Any]:
    return {operation.keyword: to_structure(operation)}


def resolve(draft: Draft, before: Schema, numbers: Numbers) -> Migration:
    """Validate a draft against the schema before it and resolve its rollback.

    Raises `InvalidMigration`, or `NotExhaustive` where a rollback is missing and nothing else is.
    """
    reporter = Reporter(draft.source)
    if len(draft.replaces) not in (0, draft.number):
        reporter.report(
            draft.place,
            f"a squash with the number {draft.number} replaces as many migrations, "
            f"not {len(draft.replaces)}",
            "let `zapdb migrate squash` write it",
        )
    recorded = _RecordedNumbers(numbers, draft.number)
    schema = before
    inverses: list[tuple[Operation, ...]] = []
    changes: list[Operation] = []
    for given in draft.changes:
        met = schema
        operation, schema = _apply_checked(given, met, recorded, reporter)
        changes.append(operation.without_way_back())
        if draft.rollback is None:
            inverse = operation.invert(met, draft.number, reporter)
            inverses.append(locate(inverse, given.place))
    reporter.raise_violations()
    if draft.rollback is None:
        rollback = tuple(op for inverse in reversed(inverses) for op in inverse)
    else:
        rollback = draft.rollback
    rollback = _check_rollback(draft, rollback, before, schema, reporter)
    validate_examples(draft.examples, before, schema, reporter)
    reporter.raise_violations()
    migration = Migration(
        draft.number,
        draft.name,
        draft.summary,
        tuple(changes),
        rollback,
        before,
        schema,
        recorded.drawn,
        draft.examples,
        draft.replaces,
        None if implies_waiting(draft.changes) else draft.activation,
    )
    _refuse_round_trips(migration, draft, reporter)
    reporter.raise_violations()
    return migration


def _refuse_round_trips(migration: Migration, draft: Draft, reporter: Reporter) -> None:
    """A table that changes there and back has the shape that it had: nothing would tell records
    that were converted from those that were not."""
    for table in migration.before:
        after = migration.after.table_kept(table.number)
        if after is table or after != table:
            continue
        routes = migration.route_up(table.number), migration.route_down(table.number)
        if not all(route.is_identity for route in routes):
            reporter.report(
                draft.place,
                f"the changes of {table.name!r} lead back to the shape that it had, and change "
                "values on the way",
                "put the way there and the way back into two migrations",
            )


def _apply_checked(
    operation: Operation, schema: Schema, numbers: Numbers, reporter: Reporter
) -> tuple[Operation, Schema]:
    """Normalize and apply if valid; else stop here, since what follows may rest on it."""
    noted = len(reporter.violations)
    with contextlib.suppress(Refused):
        operation.validate(schema, reporter)
    if len(reporter.violations) > noted:
        reporter.raise_violations()
    operation = operation.normalize(schema, numbers.migration)
    return operation, operation.apply(schema, numbers)


def _check_rollback(
    draft: Draft,
    rollback: tuple[Operation, ...],
    before: Schema,
    after: Schema,
    reporter: Reporter,
) -> tuple[Operation, ...]:
    """The rollback, normalized; it must lead from the schema after the migration to that before."""
    reached, numbers = after, Numbers(step=-1, migration=draft.number)
    normal = []
    for given in rollback:
        context: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if draft.rollback is None:
            context = reporter.within(f"in the inferred rollback, {_describe(given)}", SPLIT)
        with context:
            operation, reached = _apply_checked(given, reached, numbers, reporter)
        normal.append(operation)
    wanted = {table.name: shape(table) for table in before}
    found = {table.name: shape(table) for table in reached}
    for name in sorted(wanted.keys() | found.keys()):
        if wanted.get(name) != found.get(name):
            reporter.report(
                draft.place,
                f"the rollback does not bring back the table {name!r} as it was before",
                "let it be inferred, or make it end at the schema before the migration",
            )
    for table in before:
        if after.table_kept(table.number) and not reached.table_kept(table.number):
            reporter.report(
                draft.place,
                f"the rollback drops the table {table.name!r} and makes another one: its records "
                "would be lost",
                "let it be inferred, or change the table back instead",
            )
    # What a discarded table had archived went with its records.
    held = {table.number for table in before if after.table_kept(table.number)}
    for what in sorted(_archived_in(before, held) ^ _archived_in(reached, held)):
        reporter.report(
            draft.place,
            f"the rollback does not leave the archive as it was: {what}",
            "take back with restore_field and restore_table what the changes archive, and archive "
            "with archived_by what they restore; or let the rollback be inferred",
        )
    kept = {kind.declared_name: shape_of(kind) for kind in before.types}
    left = {kind.declared_name: shape_of(kind) for kind in reached.types}
    for name in sorted(kept.keys() | left.keys()):
        if kept.get(name) != left.get(name):
            reporter.report(
                draft.place,
                f"the rollback does not bring back the type {name!r} as it was before",
                "let it be inferred, or make it end at the schema before the migration",
            )
    return tuple(normal)


def _describe(operation: Operation) -> str:
    """What an operation does to what: `drop_field of people.name`."""
    name = getattr(operation, "field", "")
    parts = [
        getattr(operation, "table", getattr(operation, "type", "")),
        getattr(name, "name", name),
    ]
    return f"{operation.keyword} of {'.'.join(filter(None, parts))}"


def _archived_in(schema: Schema, tables: set[int]) -> set[str]:
    """What is archived of these tables, and which tables are, by their names and migrations."""
    fields = {
        f"{table.name}.{archived.field.name} by {archived.by}"
        for table in schema
        if table.number in tables
        for archived in table.archived
    }
    return fields | {f"{archived.table.name} by {archived.by}" for archived in schema.archived}


def read_stored(
    structure: bytes,
    name: str,
    summary: str,
    drawn: dict[str, list[int]],
    before: Schema,
) -> Migration:
    """The migration that the database stored; raises `CorruptCatalog` if it can't be one."""
    with _reading(name):
        content = cbor2.loads(structure)
        number, replaces = content["number"], tuple(content.get("replaces", ()))
        changes = _build_operations(content["changes"], name)
        activation = content.get("activation")
        assert activation in ACTIVATIONS
        assert type(content["rollback"]) is list
        after = _states(before, changes, ReplayedNumbers(drawn, number))[-1]
    migration = Migration(
        number,
        name,
        summary,
        changes,
        (),
        before,
        after,
        drawn,
        replaces=replaces,
        activation=activation,
    )
    # As it is stored, not made anew: a later release may fill in more.
    vars(migration)["structure"] = structure
    del vars(migration)["rollback"]  # read when it is looked at, which most are not
    return migration


@contextlib.contextmanager
def _reading(name: str) -> Iterator[None]:
    """What goes wrong inside is the fault of the migration with this name, as it is stored."""
    try:
        yield
    except (
        cbor2.CBORError,
        AssertionError,
        LookupError,
        ValueError,
        TypeError,
        AttributeError,
    ) as error:
        raise CorruptCatalog(
            "a stored migration can't be read",
            migration=name,
            cause=repr(error),
            hint="restore the zapdb_migrations table from a backup",
        ) from error


def _build_operations(structures: Any, name: str) -> tuple[Operation, ...]:
    place = Location(f"<stored migration {name}>")
    operations: list[Operation] = []
    for structure in structures:
        ((keyword, body),) = structure.items()
        operation: Operation = from_structure(OPERATIONS[keyword], body)
        vars(operation)["location"] = place
        operations.append(operation)
    return tuple(operations)


def _states(schema: Schema, operations: tuple[Operation, ...], numbers: Numbers) -> list[Schema]:
    states = [schema]
    for operation in operations:
        states.append(operation.apply(states[-1], numbers))
    return states


def _route(states: list[Schema], operations: tuple[Operation, ...], table: int) -> Route:
    """One table's way through a list of operations."""
    start = states[0].table_kept(table)
    assert start is not None
    route = Route({f.number: Input(f.number) for f in start.fields})
    for operation, before, after in zip(operations, states, states[1:], strict=False):
        old, new = before.table_kept(table), after.table_kept(table)
        if old is None or new is None or old is new:
            continue
        route = route.then(route_of(operation, old, new))
    return route


def route_of(operation: Operation, before: Table, after: Table) -> Route:
    """What one operation does to the records of a table that it changes."""
    carried = {f.number: Input(f.number) for f in after.fields}
    return Route(carried | operation.derive(before, after), operation.archive(before, after))


def _steps(states: list[Schema], operations: tuple[Operation, ...]) -> list[Step]:
    return list(zip(operations, states, states[1:], strict=False))
