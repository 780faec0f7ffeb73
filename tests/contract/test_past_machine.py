"""Random lives of a database whose past is kept: what it had after each step is what `db.at` says
of that moment, for good.

The lives are those of `test_machine`: every operation, jobs, roll backs, archives that are pruned,
and a process with older files that goes on writing. Beside them the history store is flushed late
or soon, purged with and without `--exact`, and the change log is pruned behind it, so that pasts
are read from files alone.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, event, settings
from hypothesis import strategies as st
from hypothesis.errors import FlakyStrategyDefinition
from hypothesis.stateful import initialize, invariant, precondition, rule, run_state_machine_as_test

import zapdb
from tests.contract.stored_pasts import WAYS, forcing
from tests.contract.test_machine import Life
from tests.contract.test_past_stored import read_stored
from tests.strategies import Author
from tests.support import PostgresServer
from zapdb.catalog import DEFAULT_TENANT
from zapdb.errors import HistoryBehind, HistoryGap, HistoryPurged
from zapdb.log.change_log import ChangeLog
from zapdb.log.moments import LoggedMoment
from zapdb.past.reading.moment import open_moments
from zapdb.tables.changes import find_newest_stamp, within_snapshot

done = Counter[str]()


def read_rows(source: Any, name: str) -> list[dict[str, Any]]:
    return [zapdb.asdict(record) for record in source.table(name).scan()]


def read_state(source: Any) -> dict[str, str]:
    """The tables by name, each as text: so NaN is NaN."""
    return {name: repr(read_rows(source, name)) for name in source.tables}


class PastLife(Life):
    """A life whose states are kept, by moment."""

    def __init__(self, server: PostgresServer | None) -> None:
        super().__init__(server)
        self.states = dict[int, dict[str, str]]()
        self.kept_from = self.began_at = 0
        self.has_store = False
        self.is_late = False
        """Whether the follower has not come to a rollback yet."""
        self.may_have_gaps: tuple[type[HistoryGap], ...] = ()
        """Behind a rollback, records are as they were before its migration, or as the way forth and
        back makes them, if they were converted. Where another migration comes before the follower,
        nothing tells which; nor does it where a purge has deleted the earlier ones. Then there is
        an error, and never another value."""

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        super().begin(data)
        self.db.admin.set_setting("change_log", "on")
        self.db.admin.set_setting("history_store_flush_changes", "5")
        self.db.history.start(self.migrations.parent / "store")
        self.db.history.flush()
        self.has_store = True
        self.kept_from = self.began_at = self.newest().number

    def newest(self) -> LoggedMoment:
        find_newest_stamp(self.db._session, ChangeLog(self.db._storage, DEFAULT_TENANT))
        moments = open_moments(self.db._session)
        with within_snapshot(self.db._session) as connection:
            return moments.find_newest(connection)

    @rule(data=st.data())
    @precondition(lambda self: self.tables)
    def archive(self, data: st.DataObject) -> None:
        """A field is dropped with its archive, and a process with older files goes on with it. The
        migration may be rolled back, and applied again."""
        author, table = Author(data.draw, archives=True), data.draw(st.sampled_from(self.tables))
        found = [author.drop_field(table) for _ in range(4)]
        archived = [one for one in found if one is not None and "archive" in repr(one)]
        if not archived:
            return
        is_followed = data.draw(st.booleans())
        for is_again in (False, True):
            end = self.chain.end
            self.apply(data, archived[0])
            if self.chain.end == end:
                return  # its roll back is not proven
            self.live(data, is_followed=is_followed)
            if not data.draw(st.booleans()):
                return
            self.forget()
            self.live(data, is_followed=is_followed)
            event("applied again" if is_again else "rolled back")

    def live(self, data: st.DataObject, *, is_followed: bool) -> None:
        """Both processes write."""
        self.note()
        for _ in range(data.draw(st.integers(0, 4))):
            if any(self._seen(table) for table in self.older_tables):
                step = data.draw(st.sampled_from(["update", "update", "insert", "delete", "jobs"]))
                if step == "update":
                    self.update_older(data)
                elif step == "insert":
                    self.insert_older(data)
                elif step == "delete":
                    self.delete_older(data)
                else:
                    self.run_jobs()
            elif self.has_records:
                self.update(data)
            self.note()
        if is_followed:
            self.flush()

    @rule()
    def flush(self) -> None:
        self.db.history.flush()
        self.is_late = False

    def apply(self, data: st.DataObject, operation: Any) -> None:
        self.follow_late()
        super().apply(data, operation)

    def follow_late(self) -> None:
        if self.is_late:
            self.may_have_gaps = (HistoryGap,)

    @rule(data=st.data(), is_exact=st.booleans())
    def purge(self, data: st.DataObject, is_exact: bool) -> None:
        self.flush()
        moment = data.draw(st.integers(self.kept_from, self.newest().number))
        if moment > self.kept_from:
            self.db.history.purge(moment, exact=is_exact)
            self.kept_from = moment
            event("purged exactly" if is_exact else "purged")

    @rule()
    def prune_log(self) -> None:
        """What is asked of earlier moments is told by files alone."""
        self.flush()
        self.db.change_log.prune(self.newest().bookmark)
        event("the log was pruned")

    @rule()
    @precondition(lambda self: self.chain.end > 2)
    def forget(self) -> None:
        self.follow_late()
        super().forget()
        self.is_late = True
        if self.kept_from > self.began_at:
            self.may_have_gaps = (HistoryGap,)

    @rule(data=st.data())
    @precondition(lambda self: self.states)
    def ask(self, data: st.DataObject) -> None:
        moment = data.draw(st.sampled_from(sorted(self.states)))
        with suppress(HistoryBehind, HistoryPurged, *self.may_have_gaps):
            assert read_state(self.db.at(moment)) == self.states[moment], moment

    @invariant()
    def note(self) -> None:
        if self.has_store:
            self.states[self.newest().number] = read_state(self.db)

    def teardown(self) -> None:
        try:
            if self.states:
                self.check()
        finally:
            super().teardown()

    def check(self) -> None:
        self.db.history.flush()
        wrong = dict[Any, Any]()
        for moment, state in self.states.items():
            if moment < self.kept_from:
                continue
            past = self.db.at(moment)
            assert set(past.tables) == set(state), moment
            assert (past.exact, past.doubts) == (True, {}), moment
            for name, rows in state.items():
                ways = dict[str, str]()
                with suppress(*self.may_have_gaps):
                    ways["rows of files"] = repr(read_stored(past, name))
                for way in WAYS:
                    with forcing(way), suppress(*self.may_have_gaps):
                        ways[way] = repr(read_rows(self.db.at(moment), name))
                wrong |= {
                    (moment, name, way): (told, rows) for way, told in ways.items() if told != rows
                }
                done["compared"] += 1
        assert wrong == {}
        assert not self.db.history.verify(sample=3).problems
        done["lives"] += 1
        done["states"] += len(self.states)


LIVES = {"sqlite": 6, "postgresql": 3}
LIVES_LONG = {"sqlite": 120, "postgresql": 40}


def test_h1_every_state_of_a_random_life_is_kept(
    engine: str, request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue("postgres") if engine == "postgresql" else None
    lives = LIVES_LONG if request.config.getoption("--long") else LIVES
    wanted = done["lives"] + lives[engine]
    for _ in range(lives[engine]):
        left = wanted - done["lives"]
        if left <= 0:
            break
        given = settings(
            max_examples=left,
            stateful_step_count=30,
            deadline=None,
            database=None,
            # A life is not made shorter when it fails: that takes longer than finding out why.
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        # What is drawn depends on how fast jobs and followers were, and Hypothesis ends where two
        # lives that began in the same way go on differently.
        with suppress(FlakyStrategyDefinition):
            run_state_machine_as_test(lambda: PastLife(server), settings=given)
    assert done["lives"] >= wanted
