"""Telling of queries that scan since an index fits the collation or time zone data no more.

The answers are right; they take longer. While an index is rewritten in the background, each query
that would be read by it logs a warning, in the words of `explain`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from zapdb.logs import log_event
from zapdb.tables.indexes import BoundTable, IndexMaintainer, KeyBuilder
from zapdb.tables.indexes.choosing import UnionPlan
from zapdb.tables.indexes.path_planning import QueryPlan

logger: Final = logging.getLogger("zapdb.datasets")

MakeQueryPlan = Callable[[Sequence[KeyBuilder]], QueryPlan | UnionPlan]
"""A query's plan by the indexes that may be read."""


def list_warnings(bound: BoundTable) -> tuple[str, ...]:
    """What there is to say of the indexes of a table that do not fit the data in use."""
    return tuple(_describe(bound))


def _describe(bound: BoundTable) -> Iterator[str]:
    for index in bound.adapter.indexes:
        if index.descriptor.state == "rewriting":
            before, after = index.descriptor.describe_rewriting()
            yield (
                f"the entries of the index {index.name} are being rewritten, of {before} to {after}"
            )
        elif index.descriptor.state == "disabled":
            yield f"nobody keeps the index {index.name} until `zapdb reindex run`"


def warn_if_index_is_rewritten(bound: BoundTable, plan: MakeQueryPlan) -> None:
    """Warn of a query that would be read by an index that is being rewritten."""
    indexes, rewritten = bound.adapter.indexes, bound.adapter.rewritten
    if not rewritten:
        return
    found = plan([i.keys for i in indexes if i.is_readable or i.descriptor.state == "rewriting"])
    used = {
        branch.path.keys.index.number
        for branch in (found.branches if isinstance(found, UnionPlan) else (found,))
        if branch.path.keys is not None
    }
    for index in rewritten:
        if index.keys.index.number in used:
            warn(bound, index)


def warn(bound: BoundTable, index: IndexMaintainer) -> None:
    """Warn of a query that needs an index, if that is being rewritten."""
    if index.descriptor.state != "rewriting":
        return
    before, after = index.descriptor.describe_rewriting()
    log_event(
        logger,
        "query.scanned",
        "a query scans, since the entries of its index are being rewritten for other collation or "
        "time zone data",
        level=logging.WARNING,
        table=bound.adapter.schema.name,
        index=index.name,
        built_with=before,
        rewritten_for=after,
    )
