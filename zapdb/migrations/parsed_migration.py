"""A migration as its document says it: parsed, and not yet checked against any schema.

Every violation of the document's structure is collected, with its place.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, Final

from zapdb.errors import Location
from zapdb.formats import LEVELS
from zapdb.migrations.canonical_migration import DOCUMENT_VERSION, ActivationPolicy
from zapdb.migrations.did_you_mean_key import KEY_HABITS, KEY_NOTES, OPERATION_HABITS, hint_at
from zapdb.migrations.document import DocumentText, Mapping, Node, Scalar, Sequence
from zapdb.migrations.document_structure import (
    ParsingStopped,
    ViolationCollector,
    check_line,
    join_lines,
    parse_at,
    parse_value,
)
from zapdb.migrations.operations import OPERATIONS, Operation
from zapdb.migrations.record_examples import RecordExample, parse_examples

KEYS: Final = ("zapdb", "summary", "changes", "rollback")
OPTIONAL_KEYS: Final = ("examples", "replaces", "activation")


@dataclass(frozen=True)
class ParsedMigration:
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
    activation: ActivationPolicy | None = None
    version: int = DOCUMENT_VERSION
    is_proven: bool = False
    """Whether another process has proven it already."""


def parse_document(node: Node, source: DocumentText, number: int, name: str) -> ParsedMigration:
    """Read a document's structure; raises `InvalidMigration` with every violation."""
    collector = ViolationCollector(source)
    if not isinstance(node, Mapping):
        raise source.refuse(node.location, "a migration is a mapping", f"keys: {', '.join(KEYS)}")
    for key, location in node.keys.items():
        if key not in (*KEYS, *OPTIONAL_KEYS):
            hint = hint_at(key, (*KEYS, *OPTIONAL_KEYS), KEY_HABITS, otherwise=KEY_NOTES)
            collector.report(location, f"unknown key {key!r}", hint)
    for key in KEYS:
        if key not in node.entries:
            hint = "write `rollback: inferred`, or the list of operations" * (key == "rollback")
            collector.report(node.location, f"the key {key!r} is missing", hint)
    version = _parse_version(node, collector)
    summary = node.entries.get("summary")
    if summary is not None and not (isinstance(summary, Scalar) and isinstance(summary.value, str)):
        collector.report(summary.location, "a summary is text", "quote it")
    elif summary is not None:
        check_line(summary, "a summary", collector)
    changes = _parse_operations(node.entries.get("changes"), collector, rollback=False)
    rollback = _parse_rollback(node.entries.get("rollback"), collector)
    examples: tuple[RecordExample, ...] = ()
    if "examples" in node.entries:
        with contextlib.suppress(ParsingStopped):
            examples = parse_examples(node.entries["examples"], collector)
    replaces = _parse_optional(tuple[str, ...], node.entries.get("replaces"), collector) or ()
    activation = _parse_optional(ActivationPolicy, node.entries.get("activation"), collector)
    collector.raise_violations()
    assert isinstance(summary, Scalar)
    return ParsedMigration(
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


def _parse_optional(kind: Any, node: Node | None, collector: ViolationCollector) -> Any:
    """The value of a top-level key; None where it is left out, or refused and reported."""
    if node is None:
        return None
    with contextlib.suppress(ParsingStopped):
        return parse_value(kind, node, collector)
    return None


def _parse_version(node: Mapping, collector: ViolationCollector) -> int:
    """The document's version; one that is missing or unknown is reported."""
    version, known = node.entries.get("zapdb"), LEVELS["document"]
    if isinstance(version, Scalar) and type(version.value) is int and version.value in known:
        return version.value
    if version is not None:
        collector.report(
            version.location,
            f"this release reads documents of version {', '.join(map(str, known))}",
            "a file of a later version needs a later release of zapdb",
        )
    return DOCUMENT_VERSION


def _parse_rollback(
    node: Node | None, collector: ViolationCollector
) -> tuple[Operation, ...] | None:
    if isinstance(node, Scalar):
        if node.value != "inferred":
            collector.report(
                node.location,
                "a rollback is `inferred` or a list of operations",
                "write `rollback: inferred`; if it can't be inferred, the error says what to add",
            )
        return None
    return _parse_operations(node, collector, rollback=True)


def _parse_operations(
    node: Node | None, collector: ViolationCollector, *, rollback: bool
) -> tuple[Operation, ...]:
    if node is None:
        return ()
    if not isinstance(node, Sequence):
        hint = "begin each with a dash: - create_table: {…}"
        if isinstance(node, Scalar) and node.value is None and not rollback:
            hint = "take the # from one of the examples, or write your changes below `changes:`"
        collector.report(node.location, "a list of operations is needed here", hint)
        return ()
    if not node.items and not rollback:
        hint = "write one operation or more, such as - create_table: {…}"
        collector.report(node.location, "a migration changes something", hint)
    parsed = []
    for item in node.items:
        try:
            parsed.append(_parse_operation(item, collector))
        except ParsingStopped:
            continue
    return tuple(parsed)


def _parse_operation(item: Node, collector: ViolationCollector) -> Operation:
    if not isinstance(item, Mapping) or len(item.entries) != 1:
        message = "an operation is a mapping with one key, its kind"
        collector.report(item.location, message, _hint_for_mapping(item))
        raise ParsingStopped
    ((keyword, body),) = item.entries.items()
    kind = OPERATIONS.get(keyword)
    place = item.keys[keyword]
    if kind is None:
        hint = hint_at(keyword, OPERATIONS, OPERATION_HABITS)
        collector.report(place, f"no operation {keyword!r}", hint)
        raise ParsingStopped
    operation: Operation = parse_at(kind, body, collector, place)
    return operation


def _hint_for_mapping(item: Node) -> str:
    """The hint for what is no single operation: its lines are indented wrongly, most likely."""
    kinds = [key for key in item.entries if key in OPERATIONS] if isinstance(item, Mapping) else []
    if len(kinds) > 1:
        return "begin each operation with a dash"
    if kinds and isinstance(item, Mapping):
        body = item.entries[kinds[0]]
        if isinstance(body, Scalar) and body.value is None:
            return f"indent the lines below `{kinds[0]}:` by two more blanks"
    return _known_operations()


def _known_operations() -> str:
    return f"available: {', '.join(OPERATIONS)}"
