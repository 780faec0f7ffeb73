"""Changes of the catalog by many processes happen as if one after another (rules 6, 9 and 13)."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import processes
from tests.contract.tables import ITEMS
from tests.documents import document
from tests.linearizability import Operation, find_order
from tests.support import GUARD_SECONDS, ROOT, Workspace

PROCESSES = 8
OPERATIONS = 12
SOAK_SECONDS = float(os.environ.get("ZAPDB_SOAK_SECONDS", "0"))
VARIANTS = ("a", "b", "c")


# The checker itself


def register(state: int, operation: Operation) -> int | None:
    """A number that is written and read."""
    if operation.name == "write":
        return int(operation.arguments[0])
    return state if operation.result == state else None


def write(process: int, value: int, invoked: float, returned: float = math.inf) -> Operation:
    return Operation(process, "write", (value,), None, invoked, returned)


def read(process: int, value: int, invoked: float, returned: float) -> Operation:
    return Operation(process, "read", (), value, invoked, returned)


@pytest.mark.parametrize(
    "history",
    [
        [],
        [write(1, 1, 0, 1), read(1, 1, 2, 3)],
        [write(1, 1, 0, 10), read(2, 0, 1, 2), read(2, 1, 3, 4)],
        [write(1, 1, 0, 10), write(2, 2, 0, 10), read(3, 2, 11, 12)],
        [write(1, 1, 0), read(2, 0, 5, 6), read(2, 1, 7, 8)],  # never returned, and done
        [write(1, 1, 0), read(2, 0, 5, 6)],  # never returned, and never done
    ],
)
def test_the_checker_finds_an_order(history: list[Operation]) -> None:
    order = find_order(history, register, 0)
    assert order is not None
    state: int | None = 0
    for at, operation in enumerate(order):
        assert state is not None
        state = register(state, operation)
        assert all(later.returned >= operation.invoked for later in order[at:])
    assert {op for op in history if not op.is_open} <= set(order)


@pytest.mark.parametrize(
    "history",
    [
        [write(1, 1, 0, 1), read(2, 0, 2, 3)],  # stale
        [read(2, 1, 0, 1), write(1, 1, 2, 3)],  # from the future
        [write(1, 1, 0, 10), read(2, 1, 1, 2), read(3, 0, 3, 4)],  # back again
        [write(1, 1, 0, 9), write(2, 2, 0, 9), read(3, 1, 10, 11), read(4, 2, 12, 13)],
        [read(1, 7, 0, 1)],  # never written
    ],
)
def test_the_checker_finds_that_there_is_none(history: list[Operation]) -> None:
    assert find_order(history, register, 0) is None


# The catalog


class Catalog(NamedTuple):
    """What the operations below change: which migration 2 is stored, a setting, the tenants, the
    nodes."""

    second: str
    setting: str
    tenants: frozenset[str]
    nodes: frozenset[str]


START = Catalog("", "none", frozenset(), frozenset())


def catalog(state: Catalog, operation: Operation) -> Catalog | None:
    match operation.name, operation.arguments, operation.result:
        case "up", (variant,), "applied":
            return state._replace(second=variant) if not state.second else None
        case "up", (variant,), "nothing":
            return state if state.second == variant else None
        case "up", (variant,), "conflict":
            return state if state.second not in ("", variant) else None
        case "forget", (variant,), "forgotten":
            return state._replace(second="") if state.second == variant else None
        case "forget", (variant,), "another":
            return state if state.second != variant else None
        case "set", (value,), "set":
            return state._replace(setting=value)
        case "create", (name,), "created":
            return _with_tenant(state, name)
        case "create", (name,), "exists":
            return state if name in state.tenants else None
        case "remove", (name,), "removed":
            left = state.tenants - {name}
            return state._replace(tenants=left) if name in state.tenants else None
        case "remove", (name,), "unknown":
            return state if name not in state.tenants else None
        case "register", (), node:
            return state._replace(nodes=state.nodes | {node})
        case "evict", (node,), "evicted":
            left = state.nodes - {node}
            return state._replace(nodes=left) if node in state.nodes else None
        case "evict", (node,), "gone":
            return state if node not in state.nodes else None
        case "read", (), (second, setting, tenants, nodes):
            seen = Catalog(second, setting, frozenset(tenants), frozenset(nodes))
            return state if seen == state else None
    raise AssertionError(operation)


def _with_tenant(state: Catalog, name: str) -> Catalog | None:
    return state._replace(tenants=state.tenants | {name}) if name not in state.tenants else None


def prepare(place: Workspace, directory: Path) -> None:
    """A directory for each variant of migration 2."""
    place.write(1, ITEMS)
    place.open().close()
    first = next(place.directory.glob("0001_*"))
    for variant in VARIANTS:
        (directory / variant).mkdir()
        (directory / variant / first.name).write_bytes(first.read_bytes())
        (directory / variant / "0002_test.yaml").write_text(
            document(
                f"add_field: {{table: items, field: {{name: {variant}, type: integer,"
                " default: 1}}"
            )
        )


def record_history(place: Workspace, directory: Path, seed: int) -> list[Operation]:
    """What the processes did, each at random; what was refused for the moment is left out."""
    command = [sys.executable, "-m", "tests.contract.operators", place.address, str(directory)]
    operators = [
        processes.Popen(
            [*command, str(number), str(OPERATIONS), str(seed)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,  # who was evicted, and the like
            text=True,
        )
        for number in range(PROCESSES)
    ]
    history = []
    for process in operators:
        out, told = process.communicate(timeout=GUARD_SECONDS)
        assert process.returncode == 0, told
        for line in out.splitlines():
            number, name, arguments, result, invoked, returned = json.loads(line)
            result = tuple(map(_frozen, result)) if isinstance(result, list) else result
            history.append(Operation(number, name, tuple(arguments), result, invoked, returned))
    return history


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _last_state(history: list[Operation], state: Catalog) -> Catalog:
    order = find_order(history, catalog, state)
    assert order is not None
    for operation in order:
        after = catalog(state, operation)
        assert after is not None
        state = after
    return state


@pytest.mark.parametrize("engine", ["postgresql"])
def test_rule_06_changes_of_the_catalog_are_linearizable(
    workspace: Workspace, tmp_path: Path
) -> None:
    directory = tmp_path / "variants"
    directory.mkdir()
    prepare(workspace, directory)
    state, deadline, seed = START, time.monotonic() + SOAK_SECONDS, 7
    history = record_history(workspace, directory, seed)
    while time.monotonic() < deadline:
        state, seed = _last_state(history, state), seed + 1
        history = record_history(workspace, directory, seed)
        assert find_order(history, catalog, state) is not None
    print(f"{seed - 6} histories")
    if seed > 7:
        return
    done = {(operation.name, str(operation.result)) for operation in history}
    assert {("up", "applied"), ("create", "created"), ("set", "set")} <= done
    assert {name for name, _ in done} >= {"read", "remove", "register", "evict", "forget"}
    assert len(history) > PROCESSES * OPERATIONS / 2
    assert find_order(history, catalog, START) is not None
    # It would be noticed: a read that saw a tenant which nobody had created, or a change lost.
    reads = [at for at, operation in enumerate(history) if operation.name == "read"]
    second, setting, tenants, nodes = history[reads[-1]].result
    history[reads[-1]] = replace(
        history[reads[-1]], result=(second, setting, (*tenants, "nobody"), nodes)
    )
    assert find_order(history, catalog, START) is None
