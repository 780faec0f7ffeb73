"""A migration as its document says it: parsed, and not looked at against any schema yet.

Every violation of the document's structure is collected, with its place.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, Final

from zapdb.errors import Location
from zapdb.formats import LEVELS
from zapdb.migrations.activation_policy import Activation
from zapdb.migrations.canonical import DOCUMENT_VERSION
from zapdb.migrations.document import DocumentText, Mapping, Node, Scalar, Sequence
from zapdb.migrations.examples import RecordExample, parse_examples
from zapdb.migrations.habits import KEY_HABITS, OPERATION_HABITS, hint_at
from zapdb.migrations.operations import OPERATIONS, Operation
from zapdb.migrations.structure import (
    Refused,
    Reporter,
    check_line,
    join_lines,
    parse_at,
    parse_value,
)

KEYS: Final = ("zapdb", "summary", "changes", "rollback")
OPTIONAL_KEYS: Final = ("examples", "replaces", "activation")


@dataclass(frozen=True)
class Draft:
    """A parsed document; `rollback` is None where it is to be inferred."""

    number: int
    name: str
    summary: str
    changes: tuple[Operation, ...]
    rollback: tuple[Operation, ...] | None
    source: DocumentText
    place: Location
    examples: tuple[RecordExample, ...] = ()
    replaces: tuple[str, ...] = ()
    """Of a squash: the digests of the migrations that it stands for, all up to its own number."""
    activation: Activation | None = None
    version: int = DOCUMENT_VERSION


def parse_document(node: Node, source: DocumentText, number: int, name: str) -> Draft:
    """Read a document's structure; raises `InvalidMigration` with every violation."""
    reporter = Reporter(source)
    if not isinstance(node, Mapping):
        raise source.refuse(node.location, "a migration is a mapping", f"keys: {', '.join(KEYS)}")
    for key, location in node.keys.items():
        if key not in (*KEYS, *OPTIONAL_KEYS):
            hint = hint_at(key, (*KEYS, *OPTIONAL_KEYS), KEY_HABITS)
            reporter.report(location, f"unknown key {key!r}", hint)
    for key in KEYS:
        if key not in node.entries:
            hint = "write `rollback: inferred`, or the list of operations" * (key == "rollback")
            reporter.report(node.location, f"the key {key!r} is missing", hint)
    version = _parse_version(node, reporter)
    summary = node.entries.get("summary")
    if summary is not None and not (isinstance(summary, Scalar) and isinstance(summary.value, str)):
        reporter.report(summary.location, "a summary is text", "quote it")
    elif summary is not None:
        check_line(summary, "a summary", reporter)
    changes = _parse_operations(node.entries.get("changes"), reporter, rollback=False)
    rollback = _parse_rollback(node.entries.get("rollback"), reporter)
    examples: tuple[RecordExample, ...] = ()
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
        join_lines(summary.value),
        changes,
        rollback,
        source,
        node.location,
        examples,
        replaces,
        activation,
        version,
    )


def _parse_optional(kind: Any, node: Node | None, reporter: Reporter) -> Any:
    """The value of a top-level key; None where it is left out, or refused and reported."""
    if node is None:
        return None
    with contextlib.suppress(Refused):
        return parse_value(kind, node, reporter)
    return None


def _parse_version(node: Mapping, reporter: Reporter) -> int:
    """The document's version; one that is missing or unknown is reported."""
    version, known = node.entries.get("zapdb"), LEVELS["document"]
    if isinstance(version, Scalar) and type(version.value) is int and version.value in known:
        return version.value
    if version is not None:
        reporter.report(
            version.location,
            f"this release reads documents of version {', '.join(map(str, known))}",
            "a file of a later version needs a later release of zapdb",
        )
    return DOCUMENT_VERSION


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
        hint = hint_at(keyword, OPERATIONS, OPERATION_HABITS)
        reporter.report(place, f"no operation {keyword!r}", hint)
        raise Refused
    operation: Operation = parse_at(kind, body, reporter, place)
    return operation


def _known_operations() -> str:
    return f"there are: {', '.join(OPERATIONS)}"
