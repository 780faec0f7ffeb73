"""One of many processes that change the catalog at random: `python -m tests.contract.operators`.

Each operation is printed with its result, and when it began and ended by the clock of the machine.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from zapdb.activation.rollback import roll_back
from zapdb.activation.tenant_removal import remove_tenant
from zapdb.activation.up import MigrationChoice, migrate_up
from zapdb.catalog import DEFAULT_TENANT
from zapdb.catalog.cluster import (
    node_registration,
    nodes,
)
from zapdb.catalog.cluster.cluster_status import evict_nodes
from zapdb.catalog.settings import Scope
from zapdb.catalog.stored_migrations import read_chain_state
from zapdb.catalog.stored_settings import read_settings, write_setting
from zapdb.catalog.tenants import list_tenants
from zapdb.errors import (
    ConcurrencyError,
    GateTimeout,
    LeaseHeld,
    MigrationConflict,
    TenantExists,
    TransactionConflict,
    UnknownName,
)
from zapdb.migrations import load_directory
from zapdb.past.files.wanted_stores import create_tenant
from zapdb.storage import Storage, TransactionMode, connect

REFUSED = (GateTimeout, LeaseHeld, TransactionConflict)
"""Nothing was done, and may be tried again."""
NAMES = ("x", "y")
SETTING = "job_records_per_second"


class Operator:
    def __init__(self, storage: Storage, directory: Path) -> None:
        self.storage = storage
        self.directories = sorted(directory.iterdir())
        self.digests = {
            path.name: load_directory(path).migrations[-1].digest for path in self.directories
        }
        self.operations: dict[str, Callable[..., Any]] = {
            "up": self.up,
            "forget": self.forget,
            "set": self.set,
            "create": self.create,
            "remove": self.remove,
            "register": self.register,
            "evict": self.evict,
            "read": self.read,
        }
        self.nodes: list[str] = []

    def choose(self) -> tuple[str, tuple[Any, ...]]:
        name = random.choice(list(self.operations))
        match name:
            case "up" | "forget":
                return name, (random.choice(self.directories).name,)
            case "set":
                return name, (str(random.randint(1, 9)),)
            case "create" | "remove":
                return name, (random.choice(NAMES),)
            case "evict":
                known = [node.id for node, _ in nodes.list_nodes(self.storage.connection())]
                return name, (random.choice([*known, *self.nodes, "nobody"]),)
        return name, ()

    def up(self, variant: str) -> str:
        directory = next(path for path in self.directories if path.name == variant)
        try:
            done = migrate_up(self.storage, DEFAULT_TENANT, directory, MigrationChoice(again=True))
        except MigrationConflict:
            return "conflict"
        return "applied" if done else "nothing"

    def forget(self, variant: str) -> str:
        try:
            roll_back(self.storage, digests=[self.digests[variant]])
        except REFUSED:
            raise
        except ConcurrencyError as error:
            if "a newer migration" not in str(error):
                raise
            return "another"
        return "forgotten"

    def set(self, value: str) -> str:
        with self.storage.transaction(TransactionMode.CATALOG) as connection:
            write_setting(connection, SETTING, value)
        return "set"

    def create(self, name: str) -> str:
        try:
            create_tenant(self.storage, name)
        except TenantExists:
            return "exists"
        return "created"

    def remove(self, name: str) -> str:
        try:
            remove_tenant(self.storage, name)
        except UnknownName:
            return "unknown"
        return "removed"

    def register(self) -> str:
        node = node_registration.register(self.storage, 1)
        self.nodes.append(node.id)
        return node.id

    def evict(self, node: str) -> str:
        return "evicted" if evict_nodes(self.storage, [node]) else "gone"

    def read(self) -> tuple[str, str, list[str], list[str]]:
        variants = {digest: variant for variant, digest in self.digests.items()}
        with self.storage.transaction(TransactionMode.READ) as connection:
            state = read_chain_state(connection)
            setting, _ = read_settings(connection, 0).find(SETTING, Scope())
            tenants = [tenant.name for tenant in list_tenants(connection)]
            found = [node.id for node, _ in nodes.list_nodes(connection)]
        return variants.get(state.digest, ""), setting, tenants[1:], found


def main(address: str, directory: str, number: str, times: str, seed: str) -> None:
    random.seed(int(seed) * 1_000 + int(number))
    storage = connect(address)
    operator = Operator(storage, Path(directory))
    for _ in range(int(times)):
        name, arguments = operator.choose()
        invoked = time.monotonic()
        try:
            result = operator.operations[name](*arguments)
        except REFUSED:
            continue
        returned = time.monotonic()
        print(json.dumps([int(number), name, arguments, result, invoked, returned]), flush=True)
    storage.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
