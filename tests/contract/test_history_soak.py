"""A long life of a history store: writers, migrations, roll backs, followers that are killed, and
readers of random pasts; purges, erasures, damaged files and repairs, beside verifications.

`make soak` runs it for as long as `ZAPDB_HISTORY_SOAK_SECONDS` says, an hour in all. From time to
time the writers pause, and what the tables then have is kept: that is the model. At the end every
kept state is compared with what `db.at` says of its moment, by records, by SQL and by the store,
and with the RFC's query over files and log; but for what was purged, or erased.
"""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests import processes
from tests.contract.history_oracle import check_reconstruction
from tests.contract.history_soak_upkeep import TABLES, VICTIM, Upkeep
from tests.contract.stored_pasts import begin, check_store, flush, read_manifest
from tests.contract.tables import ITEMS
from tests.contract.test_past_stored import State, ask_sql, read_state, read_stored
from tests.support import ROOT, Workspace, wait_until
from zapdb.activation.rollback import roll_back
from zapdb.database import Database
from zapdb.errors import (
    HistoryBehind,
    HistoryDamaged,
    HistoryGap,
    HistoryPurged,
    HistoryUnavailable,
    ZapdbError,
)

pytestmark = pytest.mark.long

SOAK_SECONDS = float(os.environ.get("ZAPDB_HISTORY_SOAK_SECONDS", "20"))
WRITERS = 2
FOLLOWERS = 2
READERS = 2
COMPARED_MAX = 100
"""States that are compared at the end, by lot: each reads the tables as they were in four ways."""
TWINS = ITEMS.replace("items", "twins")


@dataclass
class Soak:
    """All that goes on, and what is known of it."""

    place: Workspace
    directory: Path
    rnd: random.Random = field(default_factory=lambda: random.Random(11))
    number: int = 1
    states: dict[int, State] = field(default_factory=dict)
    answers: dict[tuple[int, str], bytes] = field(default_factory=dict)
    done: Counter[str] = field(default_factory=Counter)
    processes: dict[str, subprocess.Popen[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.upkeep = Upkeep(self.states, self.done)

    @property
    def pause(self) -> Path:
        return self.directory / "pause"

    # Processes

    def start_writer(self, number: int) -> None:
        first = self.directory / "first"
        if not first.exists():
            first.mkdir()
            for path in self.place.directory.glob("0001_*.yaml"):
                (first / path.name).write_bytes(path.read_bytes())
        given = (self.place.address, str(first), str(number), str(self.pause))
        self._start(f"writer{number}", "-m", "tests.contract.history_soak_writer", *given)

    def start_follower(self, number: int) -> None:
        run = ("-m", "zapdb", "history", "run", "-d", self.place.address)
        self._start(f"follower{number}", *run)

    def _start(self, name: str, *arguments: str) -> None:
        with (self.directory / f"{name}.log").open("a") as log:
            self.processes[name] = processes.Popen(
                [sys.executable, *arguments],
                cwd=ROOT,
                stdout=subprocess.PIPE if name.startswith("writer") else log,
                stderr=log,
                text=True,
            )

    def kill_follower(self) -> None:
        number = self.rnd.randrange(FOLLOWERS)
        process = self.processes[f"follower{number}"]
        assert process.poll() is None, (self.directory / f"follower{number}.log").read_text()
        process.kill()
        process.wait()
        self.start_follower(number)
        self.done["follower killed"] += 1

    def end(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    # What happens

    def migrate(self) -> None:
        """The next of a row of migrations, or a roll back of the newest one."""
        if self.number > 2 and self.rnd.random() < 0.25:
            roll_back(self.place.connect())
            self.place.remove(self.number)
            self.number -= 1
            self.done["roll back"] += 1
            return
        self.number += 1
        self.place.write(self.number, *self._choose_change(), name=f"turn{self.done.total()}")
        with self.place.open():
            pass
        self.done["migration"] += 1

    def _choose_change(self) -> tuple[str, ...]:
        name = f"c{self.done.total()}"
        with self.place.follow() as db:
            fields = [one.name for one in db._catalog.table("items").schema.fields]
        extra = [one for one in fields if one[0] == "c"]
        change = self.rnd.choice(["add", "add", "rename", "retype", "drop", "table"])
        if change == "table":
            # A DROP would wait for the writers, whose files are old; a roll back takes it away.
            made = f"{{table: s{name}, key: [id], fields: [{{name: id, type: integer}}]}}"
            return (f"create_table: {made}",)
        if change == "add" or not extra:
            added = f"{{name: {name}, type: string, default: red}}"
            return (f"add_field: {{table: items, field: {added}}}",)
        if change == "rename":
            return (f"rename_field: {{table: items, field: {extra[0]}, to: {name}}}",)
        if change == "retype":
            return (
                f"transform: {{table: items, from: {{{extra[0]}: string}},"
                f" into: {{{name}: {{type: string, default: blue}}}},"
                f" up: {{{name}: \"join('+', {extra[0]}, text(length({extra[0]})))\"}},"
                f" down: {{{extra[0]}: {name}}}, reversibility: lossy, because: a test}}",
            )
        # One that was rolled back is not applied again: each is another one.
        restore = f"{{archive: true, otherwise: {{value: lost{name}}}}}"
        return (f"drop_field: {{table: items, field: {extra[0]}, restore: {restore}}}",)

    def note(self, db: Database) -> None:
        """Keep what the tables have while nobody writes."""
        self.pause.touch()
        for name, process in self.processes.items():
            if name.startswith("writer"):
                assert process.stdout is not None
                line = process.stdout.readline()
                assert line.startswith("paused"), (self.directory / f"{name}.log").read_text()
                self.done["writes"] = max(self.done["writes"], int(line.split()[1]))
        moment = next(db.moments()).number
        self.states[moment] = read_state(db)
        self.done["state"] += 1
        self.pause.unlink()
        for name, process in self.processes.items():
            if name.startswith("writer"):
                assert process.stdout is not None
                assert process.stdout.readline() == "goes on\n"

    def read(self, seed: int, is_over: threading.Event) -> None:
        """Ask for random pasts: whole transactions, and the answer that was given before."""
        rnd = random.Random(seed)
        with self.place.follow() as db:
            while not is_over.is_set():
                newest = next(db.moments()).number
                known = [*self.answers]
                moment = rnd.randint(self.began, newest)
                if known and rnd.random() < 0.3:
                    moment = rnd.choice(known)[0]
                try:
                    self.ask(db, moment)
                    self.done["past read"] += 1
                except HistoryUnavailable as error:
                    self.done[type(error).__name__] += 1
                except HistoryDamaged as error:
                    if error.context["path"] not in self.upkeep.damaged:
                        raise
                time.sleep(0.05)
            db._storage.release_connection()

    def verify(self, is_over: threading.Event) -> None:
        with self.place.follow() as db:
            self.upkeep.watch(db, is_over)
            db._storage.release_connection()

    @property
    def began(self) -> int:
        return min(self.states)

    def ask(self, db: Database, moment: int) -> None:
        past = db.at(moment)
        records, others = (
            [one for one in past.table(name).scan() if one.id < VICTIM] for name in TABLES
        )
        items, twins = (
            [(one.id, one.title, one.size) for one in some] for some in (records, others)
        )
        assert items == twins, moment
        told = hashlib.sha256(repr([*map(repr, records)]).encode()).digest()
        names = ",".join(past.table("items").field_names)
        assert self.answers.setdefault((moment, names), told) == told, moment
        assert len({n for at, n in [*self.answers] if at == moment}) == 1, moment

    # The end

    def check(self, db: Database) -> None:
        compared, kept_from = dict[int, State](), self.upkeep.kept_from
        some = self.rnd.sample(sorted(self.states), min(len(self.states), COMPARED_MAX))
        for moment, state in ((number, self.states[number]) for number in some):
            if moment < kept_from:
                self.check_purged(db, moment)
                continue
            past = db.at(moment)
            assert set(past.tables) == set(state), moment
            whole = True
            for name, rows in state.items():
                try:
                    assert list(read_state_of(past, name)) == rows, (moment, name)
                    assert read_stored(past, name) == rows, (moment, name)
                    if self.rnd.random() < 0.3:
                        assert ask_sql(past, name, rows) == rows, (moment, name)
                    self.done["compared"] += 1
                except HistoryGap:
                    self.done["in a gap"] += 1
                    whole = False
            if whole and past.exact:
                compared[moment] = state
        self.done["reconstructed"] = check_reconstruction(db, compared)

    def check_purged(self, db: Database, moment: int) -> None:
        """The change log may lead back to it, but no file does."""
        for name, rows in self.states[moment].items():
            try:
                assert read_state_of(db.at(moment), name) == rows, (moment, name)
                self.done["rewound"] += 1
            except (HistoryPurged, HistoryGap):
                self.done["purged"] += 1


def read_state_of(past: Any, name: str) -> Any:
    return read_state(past)[name]


def test_a_store_lives_on(workspace: Workspace, tmp_path: Path) -> None:
    """H1, H2, H3, H4, H7, H10."""
    workspace.write(1, ITEMS, TWINS)
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    db.admin.set_setting("history_store_flush_changes", "300")
    db.admin.set_setting("history_store_flush_seconds", "3")
    begin(db, tmp_path / "store")
    db.close()
    soak, errors, is_over = Soak(workspace, tmp_path), list[BaseException](), threading.Event()
    with ExitStack() as stack:
        stack.callback(soak.end)
        stack.callback(is_over.set)
        for number in range(WRITERS):
            soak.start_writer(number)
        for number in range(FOLLOWERS):
            soak.start_follower(number)
        with workspace.follow() as first:
            soak.note(first)
        beside = [partial(soak.read, seed) for seed in range(READERS)] + [soak.verify]
        readers = [threading.Thread(target=_guard, args=(one, is_over, errors)) for one in beside]
        for reader in readers:
            reader.start()
        deadline = time.monotonic() + SOAK_SECONDS
        while time.monotonic() < deadline and not errors:
            chance = soak.rnd.random()
            if chance < 0.25:
                soak.migrate()
            elif chance < 0.35:
                soak.kill_follower()
            elif chance < 0.7:
                with workspace.open() as caring:
                    soak.upkeep.step(caring)
            else:
                time.sleep(soak.rnd.random())
            with workspace.open() as watching:
                soak.note(watching)
        is_over.set()
        for reader in readers:
            reader.join()
        if errors:
            raise errors[0]
    db = workspace.open()
    wait_until(lambda: _flushed(db), "the store has all")
    soak.check(db)
    print(f"{workspace.engine}: {dict(soak.done)}")
    check_store(db, soak.upkeep.kept_from or None)
    _, eras, files = read_manifest(db)
    print(f"{len(eras)} eras, {len(files)} files")
    assert soak.done["past read"] > 0
    assert soak.done["verified"] > 0
    assert soak.done["compared"] > 10 * soak.done["in a gap"]


def _guard(
    act: Callable[[threading.Event], None], is_over: threading.Event, errors: list[BaseException]
) -> None:
    try:
        act(is_over)
    except BaseException as error:
        errors.append(error)
        is_over.set()


def _flushed(db: Database) -> bool:
    """The killed leave a lease behind, for a while."""
    try:
        flush(db)
    except (ZapdbError, HistoryBehind):
        return False
    return True
