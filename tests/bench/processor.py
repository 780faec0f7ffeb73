"""Processor time of this process and of a PostgreSQL server that a benchmark started: what load on
the machine does not change much."""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of one action."""

    client: float
    server: float
    wall: float

    @property
    def processor(self) -> float:
        return self.client + self.server


def spend_turns(rounds: int, server: Path | None, *actions: Callable[[], object]) -> list[Spent]:
    """The medians of each action; each round runs all, in an order that rotates, and one round more
    warms up. `server` is the data directory of the server that they use."""
    measured: list[list[Spent]] = [[] for _ in actions]
    for number in range(rounds + 1):
        for at in range(len(actions)):
            turn = (at + number) % len(actions)
            spent = spend(server, actions[turn])
            if number:
                measured[turn].append(spent)
    return [
        Spent(*(statistics.median(values) for values in zip(*map(_parts, spent), strict=True)))
        for spent in measured
    ]


def _parts(spent: Spent) -> tuple[float, float, float]:
    return spent.client, spent.server, spent.wall


def spend(server: Path | None, action: Callable[[], object]) -> Spent:
    """What one action takes."""
    gc.collect()
    server_began = _server_seconds(server)  # which takes some milliseconds of this process
    began = time.process_time(), time.perf_counter()
    action()
    client, wall = time.process_time() - began[0], time.perf_counter() - began[1]
    return Spent(client, _server_seconds(server) - server_began, wall)


def spend_tree(server: Path | None, action: Callable[[], object]) -> float:
    """The seconds of this process, of those that it has started, and of the server."""
    gc.collect()
    roots = os.getpid(), *(() if server is None else (postmaster_of(server),))
    began = tree_seconds(*roots)
    action()
    return tree_seconds(*roots) - began


def _server_seconds(directory: Path | None) -> float:
    """What the server and all its processes have used, also those that have ended."""
    return 0.0 if directory is None else tree_seconds(postmaster_of(directory))


def postmaster_of(directory: Path) -> int:
    """The process from which all others of a server with this data directory descend."""
    return int((directory / "postmaster.pid").read_text().split()[0])


def tree_seconds(*roots: int) -> float:
    """What these processes and their descendants have used, ended ones too: what a process has used
    counts for its parent when it has ended."""
    stats = dict(_read_stats())
    children: dict[int, list[int]] = {}
    for process, (parent, _) in stats.items():
        children.setdefault(parent, []).append(process)
    seconds, left = 0.0, [root for root in roots if root in stats]
    while left:
        process = left.pop()
        seconds += stats[process][1]
        left += children.get(process, [])
    return seconds


def _read_stats() -> Iterator[tuple[int, tuple[int, float]]]:
    """Each process: its parent, and its seconds with those of the children it has waited for. Only
    the latter are in ticks, which are too long for a few hundred statements."""
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
            process = int(path.parent.name)
            seconds = time.clock_gettime(~process << 3 | 2)  # see clock_getcpuclockid(3)
        except OSError:  # it has ended
            continue
        waited_for = sum(map(int, fields[13:15])) / TICKS_PER_SECOND
        yield process, (int(fields[1]), seconds + waited_for)
