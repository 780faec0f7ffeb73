"""Metrics and structured logs: what an operator sees."""

from __future__ import annotations

import io
import json
import logging
import threading
import time
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.contract.tables import ADD_COLOR, INDEX_SIZE, ITEMS
from tests.support import Workspace, dead_process
from zapdb.activation.rollback import roll_back
from zapdb.catalog import DEFAULT_TENANT
from zapdb.catalog.cluster import leases
from zapdb.catalog.cluster.leases import Owner
from zapdb.database import (
    metrics_text as database_metrics,
)
from zapdb.errors import TransactionConflict
from zapdb.jobs import (
    job_run,
    plan_jobs,
)
from zapdb.jobs.job_run import run_job, run_locally
from zapdb.logs import EVENTS, log_as_json
from zapdb.metrics import Counter, Histogram
from zapdb.storage import Storage, TransactionMode
from zapdb.storage import storage as storage_module

pytestmark = pytest.mark.long_on("postgresql")


def parse(text: str) -> dict[tuple[str, ...], float]:
    """Samples by name and label values, which stand in the order of the labels' names."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_lag_of_the_catalog_cache_counts_writes(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    seq = db.admin.catalog_seq()
    db.admin.create_tenant("other")
    gauges = database_metrics.read_gauges(db._storage, db._catalog, cache_seq=seq)
    (lag,) = (gauge.samples for gauge in gauges if gauge.name == "zapdb_catalog_cache_lag")
    assert 0 < lag[0][1] < 20


def test_metrics_say_what_is_in_the_database(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    db.admin.create_tenant("behind")
    db.table("items").insert_many({"id": n, "title": "Milk"} for n in range(5))
    workspace.write(2, ADD_COLOR, INDEX_SIZE)
    other = workspace.open()
    other.table("items").insert(id=9, title="new")
    seq = other.admin.catalog_seq()
    other.admin.wait_for_catalog(seq)
    found = parse(other.admin.metrics())
    wanted = {
        ("zapdb_stored_end",): 2,
        ("zapdb_tenants",): 2,
        ("zapdb_tenants_behind",): 1,
        ("zapdb_tenant_position", "default"): 2,
        ("zapdb_tenant_position", "behind"): 0,
        ("zapdb_catalog_seq",): seq,
        ("zapdb_catalog_cache_lag",): 0,
        ("zapdb_nodes", "live"): 2,
        ("zapdb_nodes", "dead"): 0,
        ("zapdb_leases", "held"): 2,
        ("zapdb_records", "items", "default"): 6,
        ("zapdb_stale_records", "items", "default"): 5,
        ("zapdb_index_state", "by_size", "building", "items", "default"): 1,
        ("zapdb_unvalidated_constraints", "items", "default"): 0,
    }
    assert {name: found.get(name) for name in wanted} == wanted
    other.admin.run_jobs()
    found = parse(other.admin.metrics())
    assert found["zapdb_stale_records", "items", "default"] == 0
    assert found["zapdb_index_state", "by_size", "readable", "items", "default"] == 1
    assert found["zapdb_jobs", "convert", "done"] == 1
    assert not [
        name
        for name in parse(other.admin.metrics(count_records=False))
        if "records" in name[0] and "job" not in name[0]
    ]


def test_metrics_count_what_the_process_did(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()

    def read(*name: str) -> float:
        return parse(db.admin.metrics(count_records=False)).get(name, 0)

    waits, jobs = read("zapdb_gate_wait_seconds_count", "shared"), ("convert",)
    written = read("zapdb_job_records_written_total", *jobs)
    for number in range(3):
        db.table("items").insert(id=number, title="Milk")
    assert read("zapdb_gate_wait_seconds_count", "shared") == waits + 3
    assert read("zapdb_gate_wait_seconds_bucket", "shared", "+Inf") == waits + 3
    conflicts = read("zapdb_transaction_conflicts_total", "write")
    with pytest.raises(TransactionConflict), db.transaction():
        raise TransactionConflict("made by a test")
    assert read("zapdb_transaction_conflicts_total", "write") == conflicts + 1
    retries = read("zapdb_retries_total", "write")
    attempts = []

    def twice() -> None:
        attempts.append(1)
        if len(attempts) < 3:
            raise TransactionConflict("made by a test")

    db.run(twice)
    assert read("zapdb_retries_total", "write") == retries + 2
    workspace.write(2, ADD_COLOR)
    workspace.open().admin.run_jobs()
    assert read("zapdb_job_records_written_total", *jobs) == written + 3
    assert read("zapdb_job_seconds_total", *jobs) > 0


def test_metrics_name_a_bounded_number_of_tenants(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_metrics, "METRICS_TENANTS_MAX", 3)
    workspace.write(1, ITEMS)
    db = workspace.open()
    for number in range(5):
        db.admin.create_tenant(f"tenant {number}".replace(" ", "-"))
    found = parse(db.admin.metrics())
    assert found["zapdb_tenants",] == 6
    assert len([name for name in found if name[0] == "zapdb_tenant_position"]) == 3


@pytest.mark.on_each_engine
def test_counters_and_histograms_add_up() -> None:
    counter = Counter("c", "says", ("a",))
    counter.add("x")
    counter.add("x", amount=2)
    assert counter.read() == {("x",): 3}
    histogram = Histogram("h", "says", (), (1.0, 2.0))
    threads = [
        threading.Thread(target=lambda: [histogram.observe(v) for v in (0.5, 1.0, 1.5, 9.0)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert histogram.read() == {(): ([8, 12, 16], 48)}


# Logs


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    end = log_as_json(stream)
    yield stream
    end()


def all_events(log: io.StringIO) -> list[tuple[str, dict[str, object]]]:
    """All events in order, with their fields."""
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    for line in lines:
        assert {"time", "level", "logger", "message", "process", "thread"} <= line.keys()
        assert line["logger"].startswith("zapdb.")
    return [(line["event"], line["fields"]) for line in lines if "event" in line]


def events(log: io.StringIO) -> dict[str, dict[str, object]]:
    """The fields of the last event of each name."""
    return dict(all_events(log))


def test_what_happens_is_logged_with_its_fields(
    workspace: Workspace, log: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    assert (
        events(log)["migration.applied"].items()
        >= {
            "tenant": 1,
            "migration": "0001_test",
            "tables": ["items"],
        }.items()
    )
    db.table("items").insert(id=1, title="Milk")
    workspace.write(2, ADD_COLOR)
    newer = workspace.open()
    newer.admin.run_jobs()
    done = events(log)["job.done"]
    assert (done["kind"], done["table"], done["written"]) == ("convert", "items", 1)
    roll_back(newer._storage, evict=True)
    assert events(log)["migration.rolled_back"]["migration"] == "0002_test"
    assert events(log)["node.evicted"]["node"] == newer._node.id
    gone = Owner("dead", "elsewhere", dead_process())
    leases.acquire(db._storage, "a", gone, 0.01)
    time.sleep(0.02)
    leases.acquire(db._storage, "a", Owner.here(), 1)
    assert events(log)["lease.taken_over"] == {"lease": "a", "owner": str(gone), "epoch": 2}
    monkeypatch.setattr(storage_module, "GATE_WAIT_LOGGED_SECONDS", -1.0)
    with db._storage.transaction(TransactionMode.DDL):
        pass
    assert events(log)["gate.waited"]["mode"] == "ddl"
    assert events(log).keys() <= EVENTS.keys()


UNIQUE_TITLE = "create_index: {table: items, index: one, unique: true, fields: [{field: title}]}"


@pytest.mark.parametrize("moment", ["run_job", "load_work", "_end_job"])
@pytest.mark.parametrize(("change", "event"), [(ADD_COLOR, "done"), (UNIQUE_TITLE, "blocked")])
def test_a_job_is_logged_as_ended_by_the_process_that_ended_it(
    workspace: Workspace,
    log: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
    change: str,
    event: str,
    moment: str,
) -> None:
    """A twin ends it where this one has only begun, or has nothing left to do but to end it."""
    workspace.write(1, ITEMS)
    with workspace.open() as db:
        db.table("items").insert_many({"id": n, "title": "Milk"} for n in range(5))
    workspace.write(2, change)
    db = workspace.open()
    (job,) = plan_jobs(db._storage, DEFAULT_TENANT)
    twin, ended = workspace.connect(), []
    original = getattr(job_run, moment)

    def end_first(storage: Storage, *arguments: object, **named: object) -> object:
        monkeypatch.undo()
        ended.append(run_job(twin, job, run_locally))
        return original(storage, *arguments, **named)

    monkeypatch.setattr(job_run, moment, end_first)
    ended.append(job_run.run_job(db._storage, job, run_locally))
    assert [report.job.state for report in ended] == [event] * 2
    told = [(name, fields["job"]) for name, fields in all_events(log) if name.startswith("job.")]
    assert told == [(f"job.{event}", job.id)]


def test_a_log_record_without_an_event_is_json_too(log: io.StringIO) -> None:
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        logging.getLogger("zapdb.test").exception("it failed: %s", "so")
    (line,) = [json.loads(line) for line in log.getvalue().splitlines()]
    assert (line["message"], line["level"]) == ("it failed: so", "error")
    assert "ZeroDivisionError" in line["error"]
    assert "event" not in line


def test_logging_as_json_ends() -> None:
    logger = logging.getLogger("zapdb")
    before = (logger.level, logger.propagate, list(logger.handlers))
    log_as_json(io.StringIO())()
    assert (logger.level, logger.propagate, list(logger.handlers)) == before
