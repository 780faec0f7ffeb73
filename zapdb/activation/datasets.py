"""Compare this process's datasets with those that indexes were built with (rule 26).

A process does not read or write an index with other collation or time zone data: new bounds over
old entries miss rows without an error. The setting `on_dataset_change` decides. `rebuild` builds it
again with the datasets of this process, `rewrite` replaces its entries one by one; both only if no
live process has other datasets, since keys of both must not mix. `scan` disables it for all
processes, so that processes with different datasets can work at the same time, until an operator
rebuilds it.

Under `rebuild`, datasets of an index only move forward. The index stores its former datasets, and a
process with one of these does not rebuild it. Otherwise, two releases of a dataset in turn would
discard each other's work. That process scans, and its writes to the index are refused, until an
operator rebuilds the index. The operator may do so with the former dataset, which is then the
newest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import assert_never

from zapdb.activation.activate import disable_index, rebuild_index, rewrite_index
from zapdb.activation.descriptors import IndexDescriptor
from zapdb.activation.tenant_catalog import TableDescriptor, TenantCatalog, load_tenant_catalog
from zapdb.catalog.cluster import nodes
from zapdb.catalog.cluster.nodes import Node
from zapdb.catalog.settings import DatasetPolicy
from zapdb.catalog.stored_settings import read_settings
from zapdb.datasets import dataset_of
from zapdb.errors import DatasetMismatch
from zapdb.storage import Connection, Storage, TransactionMode

logger = logging.getLogger("zapdb.datasets")


def mismatched_indexes(catalog: TenantCatalog) -> list[tuple[TableDescriptor, IndexDescriptor]]:
    """Return the indexes whose keys this process would build differently."""
    return [
        (descriptor, index)
        for descriptor in catalog.all_tables
        for index in descriptor.indexes
        if index.is_mismatched
    ]


def datasets_in_use(catalog: TenantCatalog) -> dict[str, tuple[str, str]]:
    """Return version and fingerprint, on this machine, of the datasets that a tenant's indexes
    need."""
    found = {
        dependency.dataset: dataset_of(dependency)
        for descriptor in catalog.all_tables
        for index in descriptor.indexes
        for dependency in index.dependencies
    }
    return {name: (dataset.version, dataset.fingerprint) for name, dataset in found.items()}


def _agrees(other: Node, mismatched: list[tuple[TableDescriptor, IndexDescriptor]]) -> bool:
    """Return whether a process is known to have this process's data for all these indexes."""
    return all(
        other.row.datasets.get(dependency.dataset, ("", ""))[1]
        == dataset_of(dependency).fingerprint
        for _, index in mismatched
        for dependency in index.dependencies
    )


def apply_dataset_policies(storage: Storage, catalog: TenantCatalog, node: Node) -> TenantCatalog:
    """Apply the policies of mismatched indexes.

    Raises `DatasetMismatch` if a policy needs a change while other processes use the other data, or
    if a unique index would have to be rewritten in the background. Nothing is changed then.
    """
    if not mismatched_indexes(catalog):
        return catalog
    with storage.transaction(TransactionMode.DDL) as connection:
        catalog = load_tenant_catalog(connection, catalog.tenant, catalog)
        settings = read_settings(connection, catalog.tenant)
        mismatched = [
            (descriptor, index, settings.dataset_policy(descriptor.schema, index.index))
            for descriptor, index in mismatched_indexes(catalog)
        ]
        for descriptor, index, policy in mismatched:
            if policy == "rewrite" and index.index.unique:
                raise _no_background(descriptor, index)
        # For an index that will be disabled, the datasets of other processes do not matter. A
        # unique one still binds their writes.
        shared = [
            (descriptor, index)
            for descriptor, index, policy in mismatched
            if policy != "scan" or index.index.unique
        ]
        require_agreement(connection, shared, node)
        for descriptor, index, policy in mismatched:
            _apply_policy(connection, catalog.tenant, descriptor, index, policy)
        return load_tenant_catalog(connection, catalog.tenant, catalog)


def _apply_policy(
    connection: Connection,
    tenant: int,
    descriptor: TableDescriptor,
    index: IndexDescriptor,
    policy: DatasetPolicy,
) -> None:
    change: Callable[[], object] | None = None
    match policy:
        case "scan":
            fate = "is kept by nobody, and queries on it scan until `zapdb reindex run`"
            change = partial(disable_index, connection, tenant, descriptor.schema, index)
        case "rebuild" if index.is_ahead:
            fate = (
                "was built with the data of here before: it stays as it is, queries on it scan, "
                "and writes are refused until `zapdb reindex run`"
            )
        case "rewrite" if _is_whole(index):
            fate = "gets its entries rewritten, and queries on it scan until then"
            change = partial(rewrite_index, connection, tenant, descriptor.schema, index)
        case "rebuild" | "rewrite":
            fate = "is built again, and queries on it scan until then"
            change = partial(rebuild_index, connection, tenant, descriptor, index.index)
        case _:
            assert_never(policy)
    logger.warning(
        "the collation or time zone data changed: index %r of table %r %s (built with %s, here %s)",
        index.index.name,
        descriptor.schema.name,
        fate,
        *index.describe_difference(),
    )
    if change is not None:
        change()


def _is_whole(index: IndexDescriptor) -> bool:
    """Return whether every record has an entry, even if it was made with other data."""
    return index.state in ("readable", "rewriting")


def require_agreement(
    connection: Connection,
    indexes: list[tuple[TableDescriptor, IndexDescriptor]],
    node: Node | None,
) -> None:
    """Raise `DatasetMismatch` while a process other than `node` has other data than this one.

    Called inside a DDL transaction; evicts nodes whose lease has expired.
    """
    if not any(index.dependencies for _, index in indexes):
        return
    others, silent = [], []
    for other, alive in nodes.list_nodes(connection):
        if not alive:
            silent.append(other)
        elif (node is None or other.id != node.id) and not _agrees(other, indexes):
            others.append(str(other))
    if others:
        descriptor, index = indexes[0]
        built_with, here = index.describe_difference()
        raise DatasetMismatch(
            "other running processes use different collation or time zone data",
            table=descriptor.schema.name,
            index=index.index.name,
            built_with=built_with,
            here=here,
            processes="; ".join(others),
            hint="stop them, or give all processes the same ICU and time zone data; the "
            "policy `scan` lets processes with different data work side by side",
        )
    for other in silent:
        # It may only be suspended, and have the other data when it wakes up.
        nodes.evict(connection, other)


def _no_background(descriptor: TableDescriptor, index: IndexDescriptor) -> DatasetMismatch:
    built_with, here = index.describe_difference()
    table, name = descriptor.schema.name, index.index.name
    return DatasetMismatch(
        "the collation or time zone data changed, and a unique index cannot be rewritten "
        "in the background",
        table=table,
        index=name,
        built_with=built_with,
        here=here,
        hint=f"run `zapdb settings set on_dataset_change rebuild --table {table} --index {name}`, "
        "which rebuilds the whole index",
    )


def needs_rebuilding(index: IndexDescriptor) -> bool:
    """Return whether this process can't use an index until it is rebuilt."""
    return index.state == "disabled" or index.is_mismatched


def restart_indexes(
    storage: Storage,
    catalog: TenantCatalog,
    chosen: Callable[[TableDescriptor, IndexDescriptor], bool],
    node: Node | None,
) -> list[tuple[TableDescriptor, IndexDescriptor]]:
    """Restart the build of indexes with the data of this process, which is `node` if it is one.

    Returns the indexes as they were. Raises `DatasetMismatch`, without a change, while other
    processes use other data.
    """
    with storage.transaction(TransactionMode.DDL) as connection:
        catalog = load_tenant_catalog(connection, catalog.tenant, catalog)
        found = [
            (descriptor, index)
            for descriptor in catalog.all_tables
            for index in descriptor.indexes
            if chosen(descriptor, index)
        ]
        require_agreement(connection, found, node)
        for descriptor, index in found:
            rebuild_index(connection, catalog.tenant, descriptor, index.index)
    return found
