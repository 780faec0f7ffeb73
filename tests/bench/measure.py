"""Measuring in turns, and what a measurement is: a row of the table."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from rich.table import Table

Unit = Literal["s", "/s", "MB", "trips", "×"]
Reach = tuple[Literal["≤", "≥"], float]


@dataclass(frozen=True, slots=True)
class Row:
    """One line: `ratio` is to be at most, or at least, what `reach` says; None is information.

    `unit` says what the two figures are: seconds, things per second, megabytes, round trips, or
    ratios.
    """

    work: str
    against: str
    measured: float
    reference: float
    reach: Reach | None
    unit: Unit = "s"

    @property
    def ratio(self) -> float:
        """Seconds and megabytes: ours by theirs for "at most", theirs by ours for "at least"."""
        ours_by_theirs = self.measured / self.reference
        if self.reach is None or self.reach[0] == "≤" or self.unit == "/s":
            return ours_by_theirs
        return 1 / ours_by_theirs

    @property
    def reached(self) -> bool | None:
        if self.reach is None:
            return None
        way, bound = self.reach
        return self.ratio <= bound if way == "≤" else self.ratio >= bound


def take_turns(rounds: int, *actions: Callable[[], object]) -> list[float]:
    """The median seconds of each action; each round runs all, in an order that rotates.

    The first round warms up and is not counted.
    """
    return time_turns(rounds, *(_timed(action) for action in actions))


def time_turns(rounds: int, *actions: Callable[[], float], warm_up: bool = True) -> list[float]:
    """As `take_turns`, for actions that return what they measured themselves."""
    measured: list[list[float]] = [[] for _ in actions]
    for number in range(rounds + warm_up):
        for at in range(len(actions)):
            turn = (at + number) % len(actions)
            seconds = actions[turn]()
            if number >= warm_up:
                measured[turn].append(seconds)
    return [statistics.median(seconds) for seconds in measured]


def _timed(action: Callable[[], object]) -> Callable[[], float]:
    def run() -> float:
        gc.collect()
        started = time.perf_counter()
        action()
        return time.perf_counter() - started

    return run


def show(rows: Iterable[Row]) -> Table:
    table = Table("work", "measured", "against", "", "ratio", "to reach", "reached")
    for row in rows:
        table.add_row(
            row.work,
            _show_figure(row.measured, row.unit),
            row.against,
            _show_figure(row.reference, row.unit),
            f"{row.ratio:.2f}×",
            "" if row.reach is None else f"{row.reach[0]} {row.reach[1]:g}×",
            {None: "", True: "[green]yes", False: "[bold red]no"}[row.reached],
        )
    return table


def _show_figure(figure: float, unit: Unit) -> str:
    if unit == "MB":
        return f"{figure:.1f} MB"
    if unit == "×":
        return f"{figure:.2f}×"
    if unit == "trips":
        return f"{figure:g}"
    if unit == "/s":
        return f"{figure:,.0f}/s"
    if figure >= 1:
        return f"{figure:.3g} s"
    return f"{figure * 1e3:.3g} ms" if figure >= 1e-3 else f"{figure * 1e6:.3g} µs"
