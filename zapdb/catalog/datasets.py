"""Datasets in use against those that indexes were built with (rule 26).

An index whose collation or time zone data are not this process's is not read or written: old
entries under new bounds miss rows without an error. Where no other live process has the data that
it was built with, it is started anew with those of this process; where one has, the two must not
mix.
"""

from __future__ import annotations

import logging

from zapdb.catalog import nodes
from zapdb.catalog.activation import rebuild_index
from zapdb.catalog.nodes import Node
from zapdb.catalog.view import IndexState, TableState, View, load_view
from zapdb.datasets import dataset_of
from zapdb.errors import DatasetMismatch
from zapdb.storage import Mode, Storage

logger = logging.getLogger("zapdb.datasets")


def outdated_indexes(view: View) -> list[tuple[TableState, IndexState]]:
    """The indexes whose keys this process would build differently."""
    return [
        (state, index)
        for state in view.tables.values()
        for index in state.indexes
        if index.is_outdated
    ]


def datasets_in_use(view: View) -> dict[str, tuple[str, str]]:
    """Version and fingerprint, on this machine, of the datasets that the view's indexes need."""
    found = {
        dependency.dataset: dataset_of(dependency)
        for state in view.tables.values()
        for index in state.indexes
        for dependency in index.dependencies
    }
    return {name: (dataset.version, dataset.fingerprint) for name, dataset in found.items()}


def _agrees(other: Node, outdated: list[tuple[TableState, IndexState]]) -> bool:
    """Whether a process is known to have the data that this one has, for all these indexes."""
    return all(
        other.datasets.get(dependency.dataset, ("", ""))[1] == dataset_of(dependency).fingerprint
        for _, index in outdated
        for dependency in index.dependencies
    )


def settle_datasets(storage: Storage, view: View, node: Node) -> View:
    """Start outdated indexes anew; raises `DatasetMismatch` while others use the other data."""
    if not outdated_indexes(view):
        return view
    with storage.transaction(Mode.CHANGE) as connection:
        view = load_view(connection, view.tenant, view)
        outdated = outdated_indexes(view)
        others = []
        for other, alive in nodes.list_nodes(connection):
            if not alive:
                # It may only be suspended, and have the other data when it wakes up.
                nodes.evict(connection, other)
            elif other.id != node.id and not _agrees(other, outdated):
                others.append(str(other))
        for state, index in outdated:
            built_with, here = index.describe_difference()
            if others:
                raise DatasetMismatch(
                    "running processes use other collation or time zone data than this one",
                    table=state.table.name,
                    index=index.index.name,
                    built_with=built_with,
                    here=here,
                    processes="; ".join(others),
                    hint="stop them, or give all processes the same ICU and time zone data",
                )
            logger.warning(
                "the collation or time zone data changed: index %r of table %r is built again, and "
                "queries on it scan until then (built with %s, here %s)",
                index.index.name,
                state.table.name,
                built_with,
                here,
            )
            rebuild_index(connection, view.tenant, state, index.index)
        return load_view(connection, view.tenant, view)
