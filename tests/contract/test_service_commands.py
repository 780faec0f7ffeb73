"""A command says the same of a database that it opens itself as of one that a service serves.

Each command is run in both ways against the same database, while the service runs: its text, its
`--json`, its errors and its exit status are compared. What a command changes is undone between the
two, or it is about one of two tenants that are alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import pytest

import zapdb
from tests import services
from tests.cli.program import Result, run_here
from tests.documents import document
from tests.support import PostgresServer
from zapdb.activation import load_tenant_catalog
from zapdb.catalog.schema_history import format_fingerprint
from zapdb.control import catalog, cluster
from zapdb.control.jobs import listing, showing
from zapdb.control.settings import SettingScope
from zapdb.errors import (
    IncompatibleVersion,
    InvalidValue,
    LeaseLost,
    NotAllowed,
    UnknownName,
    UsageError,
)
from zapdb.jobs.job import tenant_of_job
from zapdb.jobs.quarantine import put_in_quarantine
from zapdb.limits import HISTORY_ENTRIES_MAX
from zapdb.records import codec_for
from zapdb.schema import fingerprint, read_canonical_bytes
from zapdb.service.client import Client, connected_control
from zapdb.service.principals import Grant
from zapdb.storage import TransactionMode, connect

COUNTRIES = """\
create_table: {table: countries, key: [code], fields: [
      {name: code, type: string}, {name: name, type: string}]}"""
PEOPLE = """\
create_table: {table: people, key: [id, day], fields: [
      {name: id, type: integer},
      {name: day, type: date},
      {name: token, type: uuid, generated: true},
      {name: name, type: string, default: Ada},
      {name: paid, type: decimal, scale: 2, default: "0.50"},
      {name: made, type: timestamp, default: now},
      {name: tags, type: list, of: string, default: []},
      {name: country, type: reference, to: countries, optional: true},
      {name: fax, type: string, optional: true}]}"""
BY_NAME = """\
create_index: {table: people, index: by_name, fields: [
      {field: name, collation: {locale: de, strength: primary}},
      {field: paid, descending: true}]}"""
DROP_FAX = """\
drop_field: {table: people, field: fax,
    restore: {archive: true, otherwise: {value: null}}}"""
MIGRATIONS = (
    (COUNTRIES, PEOPLE),
    (
        "add_field: {table: people, field: {name: age, type: integer, default: 7}}",
        "create_index: {table: countries, index: by_name, unique: true, fields: [{field: name}]}",
    ),
    (BY_NAME, "add_check: {table: people, check: old, expression: age > 0}"),
    (DROP_FAX,),
)
DAY = date(2026, 11, 29)
TENANTS = ("default", "twin")
"""They have the same history and the same records."""


@dataclass(frozen=True)
class Served:
    """A database, and the service over it."""

    engine: str
    address: str
    service: str
    migrations: Path

    def here(self, *command: str) -> Result:
        return run_here([*command, "-d", self.address])

    def there(self, *command: str) -> Result:
        return run_here([*command, "-d", self.service])

    def open(self, tenant: str = "default") -> zapdb.Database:
        return zapdb.open(self.address, tenant=tenant)


def make_database(address: str, migrations: Path) -> None:
    """Two tenants; of the people of each, some are stale, an index is not built, and a column was
    dropped, added again and dropped. The job of a unique index is blocked by records."""
    given = ("-d", address, "-m", str(migrations))
    for number, operations in enumerate(MIGRATIONS, 1):
        path = migrations / f"{number:04d}_step.yaml"
        path.write_text(document(*operations), encoding="utf-8")
        if number == 1:
            run_well("migrate", "up", *given)
            run_well("tenant", "create", "twin", "-d", address)
            for tenant in TENANTS:
                fill(address, tenant)
        else:
            for tenant in TENANTS:
                run_well("migrate", "up", "--no-build", "--tenant", tenant, *given)
    run_well("migrate", "rollback", "--yes", "-d", address)
    for tenant in TENANTS:
        run_well("migrate", "up", "--no-build", "--tenant", tenant, *given)
        of_tenant = ("--tenant", tenant, "-d", address)
        run_well("convert", "run", "--plan-only", *of_tenant)
        jobs = run_well("jobs", "list", *of_tenant, "--json").json["jobs"]
        others = [job["id"] for job in jobs if job["table"] != "countries"]
        for job in others:
            run_well("jobs", "pause", job, *of_tenant)
        assert "violates the index by_name" in run_here(["convert", "run", *of_tenant]).out
        for job in others:
            run_well("jobs", "resume", job, *of_tenant)
        note_unreadable(address, next(job for job in others if job.startswith("convert/")))


def note_unreadable(address: str, job: str) -> None:
    """As a worker does that could not read a record."""
    storage = connect(address)
    with storage.transaction(TransactionMode.CATALOG) as connection:
        key = codec_for(load_tenant_catalog(connection, 1).table("people").schema)
        unreadable = {key.encode_key({"id": 3, "day": DAY}): "a byte is missing"}
        put_in_quarantine(connection, tenant_of_job(job), job, unreadable)
    storage.close()


def fill(address: str, tenant: str) -> None:
    with zapdb.open(address, tenant=tenant) as db, db.transaction():
        for code in ("nl", "ho"):
            db.table("countries").insert(code=code, name="Holland")
        for number in range(20):
            db.table("people").insert(id=number, day=DAY, country="nl", name=f"A{number}")


def run_well(*command: str) -> Result:
    result = run_here(command)
    assert result.status in (0, 3), (command, result)
    return result


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[dict[object, Served], ExitStack]]:
    """What is served so far: each database is made once for all tests of this file."""
    with ExitStack() as ended:
        yield {}, ended


@pytest.fixture
def served(
    engine: str,
    request: pytest.FixtureRequest,
    servers: tuple[dict[object, Served], ExitStack],
    tmp_path_factory: pytest.TempPathFactory,
) -> Served:
    known, ended = servers
    server: PostgresServer | None = None
    if engine == "postgresql":
        server = request.getfixturevalue("postgres")
    if server not in known:
        directory = tmp_path_factory.mktemp("served")
        address = f"sqlite:///{directory / 'test.db'}"
        if server is not None:
            address = ended.enter_context(server.fresh_database(server.prepared))
        migrations = directory / "migrations"
        migrations.mkdir()
        make_database(address, migrations)
        port, _ = ended.enter_context(services.serving_process(address))
        known[server] = Served(engine, address, f"grpc://{port}", migrations)
    return known[server]


PASSING = re.compile(
    r'"(age_seconds|lease_seconds|lease_left_us|seq)": -?[0-9.e-]+'
    r"|-?\b[0-9.]+ m?s\b"
)
"""What differs from moment to moment."""


WIDTHS = re.compile(r"(?<=\S) {2,}| {2,}(?=\S)|-{2,}")
"""What depends in tables on how long a time is."""


def settle(result: Result) -> Result:
    out = PASSING.sub("…", result.out)
    if out != result.out:
        out = WIDTHS.sub(" ", out)
    return Result(result.status, out, PASSING.sub("…", result.err))


LOOK_UPS: dict[str, tuple[str, ...]] = {
    "list": ("catalog", "list"),
    "show": ("catalog", "show", "people"),
    "show code": ("catalog", "show", "people", "--code"),
    "show ranges": ("catalog", "show", "people", "--ranges"),
    "show unknown": ("catalog", "show", "nobody"),
    "fingerprint": ("catalog", "fingerprint", "people"),
    "fingerprint verbose": ("catalog", "fingerprint", "people", "--verbose"),
    "fingerprint never": ("catalog", "fingerprint", "people", "--find", "0x1"),
    "fingerprint wrong": ("catalog", "fingerprint", "people", "--find", "1"),
    "fingerprint found": ("catalog", "fingerprint", "people", "--find", "{first}"),
    "revisions": ("catalog", "revisions", "--table", "people"),
    "revisions of a number": ("catalog", "revisions", "--table-number", "2", "--desc"),
    "revisions limited": ("catalog", "revisions", "--table", "people", "--desc", "--limit", "2"),
    "revisions since one": ("catalog", "revisions", "--table", "people", "--since", "3"),
    "revisions since later": ("catalog", "revisions", "--table", "people", "--since", "5000"),
    "revisions since a time": ("catalog", "revisions", "--table", "people", "--since", "99999w"),
    "revisions since a schema": ("catalog", "revisions", "--table", "people", "--since", "{first}"),
    "revisions since nothing": ("catalog", "revisions", "--table", "people", "--since", "x"),
    "revisions since never": ("catalog", "revisions", "--table", "people", "--since", "0x1"),
    "revisions of two": ("catalog", "revisions", "--table", "people", "--table-number", "2"),
    "revisions of nobody": ("catalog", "revisions", "--table", "nobody"),
    "diff": ("catalog", "revisions", "--table", "people", "--diff", "1", "4"),
    "diff unknown": ("catalog", "revisions", "--table", "people", "--diff", "1", "99"),
    "prune what": ("catalog", "prune", "--table", "people", "--keep-last", "1", "--dry-run"),
    "prune nothing": ("catalog", "prune", "--table", "countries", "--before", "1", "--dry-run"),
    "prune how": ("catalog", "prune", "--table", "people", "--dry-run"),
    "status": ("cluster", "status"),
    "nodes": ("cluster", "nodes"),
    "leases": ("cluster", "leases"),
    "evict none": ("cluster", "evict", "--expired"),
    "evict unknown": ("cluster", "evict", "nobody"),
    "upgrade what": ("cluster", "upgrade", "--dry-run"),
    "upgrade nothing": ("cluster", "upgrade"),
    "settings": ("settings", "list"),
    "settings of a tenant": ("settings", "list", "--tenant", "twin"),
    "settings of nobody": ("settings", "list", "--tenant", "nobody"),
    "setting": ("settings", "get", "change_log"),
    "setting of an index": (
        *("settings", "get", "on_dataset_change", "--table", "people", "--index", "by_name"),
    ),
    "setting of nobody": ("settings", "get", "convert", "--table", "nobody"),
    "setting of nothing": ("settings", "get", "convert", "--field", "name"),
    "setting unknown": ("settings", "get", "nothing"),
    "jobs": ("jobs", "list"),
    "all jobs": ("jobs", "list", "--all", "--tenant", "twin"),
    "job": ("jobs", "show", "convert"),
    "blocked job": ("jobs", "show", "index/1/1"),
    "job unknown": ("jobs", "show", "nothing"),
    "job of several": ("jobs", "pause", ""),
    "throttle nothing": ("jobs", "throttle", "convert"),
    "throttle wrong": ("jobs", "throttle", "convert", "--max-latency", "x"),
    "throttle never": ("jobs", "throttle", "convert", "--window", "25:00-26:00"),
    "throttle nowhere": (
        *("jobs", "throttle", "convert", "--window", "22:00-06:00", "--zone", "Nowhere"),
    ),
    "priority wrong": ("jobs", "priority", "convert", "1001"),
    "conversion": ("convert", "status"),
    "rebuilding": ("reindex", "status"),
}
"""Commands that change nothing, by what they are about."""


@pytest.mark.parametrize("command", LOOK_UPS.values(), ids=LOOK_UPS)
@pytest.mark.parametrize("options", [(), ("--json",)], ids=["text", "json"])
def test_a_look_up(served: Served, command: tuple[str, ...], options: tuple[str, ...]) -> None:
    revisions = served.here("catalog", "revisions", "--table", "people", "--json").lines
    given = [part.format(first=revisions[0]["fingerprint"]) for part in command]
    given += options
    here, there = settle(served.here(*given)), settle(served.there(*given))
    assert there == here
    assert bool(here.out or here.err)


@pytest.mark.parametrize("command", [("catalog", "list"), ("catalog", "revisions", "--table", "a")])
def test_of_a_tenant_that_is_not_there(served: Served, command: tuple[str, ...]) -> None:
    given = (*command, "--tenant", "nobody", "--json")
    here, there = served.here(*given), served.there(*given)
    assert there == here
    assert here.error["code"] == "name.unknown"


Steps = Callable[[Served, Callable[..., Result]], Iterator[Result]]
"""Commands that change something, run in one of the ways, one after the other."""


def prune(served: Served, run: Callable[..., Result]) -> Iterator[Result]:
    tenant = "default" if run == served.here else "twin"
    given = ("catalog", "prune", "--table", "people", "--tenant", tenant)
    yield run(*given, "--keep-last", "2")
    yield run(*given, "--keep-last", "2", "--yes")
    yield run(*given, "--before", "2", "--yes")
    yield run(*given, "--older-than", "7d", "--yes", "--json")


def evict(served: Served, run: Callable[..., Result]) -> Iterator[Result]:
    with connected_control(served.service, "default") as control:
        joined = [control.call(cluster.register, "elsewhere", 7, "9", 1).node for _ in range(3)]
    yield run("cluster", "evict", joined[0])
    yield run("cluster", "evict", joined[0], "--yes", "--json")
    yield run("cluster", "evict", *joined[1:], "--yes")
    yield run("cluster", "evict", joined[0], "--yes")


def change_jobs(served: Served, run: Callable[..., Result]) -> Iterator[Result]:
    tenant = ("--tenant", "default" if run == served.here else "twin")
    yield run("jobs", "resume", "convert", *tenant)
    yield run("jobs", "pause", "convert", *tenant)
    yield run("jobs", "pause", "convert", *tenant, "--json")
    yield run("jobs", "show", "convert", *tenant)
    yield run("jobs", "resume", "convert", *tenant)
    yield run("jobs", "priority", "convert", "900", *tenant)
    yield run("jobs", "throttle", "convert", "--bytes-per-second", "1000", *tenant)
    window = ("--window", "22:00-06:00", "--zone", "Europe/Amsterdam")
    yield run("jobs", "throttle", "convert", *window, "--max-latency", "20", *tenant)
    yield run("jobs", "show", "convert", *tenant, "--json")
    yield run("jobs", "throttle", "convert", "--window", "none", *tenant, "--json")
    yield run("jobs", "throttle", "convert", "--bytes-per-second", "none", *tenant)
    yield run("jobs", "cancel", "convert", *tenant)
    yield run("jobs", "pause", "convert", *tenant)
    yield run("jobs", "show", "convert", *tenant)


def change_settings(served: Served, run: Callable[..., Result]) -> Iterator[Result]:
    tenant = ("--tenant", "default" if run == served.here else "twin")
    for form in ((), ("--json",)):
        for scope in (tenant, (*tenant, "--table", "people"), ("--table", "countries")):
            yield run("settings", "set", "convert", "background", *scope, *form)
            yield run("settings", "get", "convert", *scope)
            yield run("settings", "unset", "convert", *scope, *form)
        yield run("settings", "profile", "production", *form)
        yield run("settings", "profile", "development", *form)
        yield run("settings", "profile", "x", *form)
        yield run("settings", "set", "nothing", "x", *form)
        yield run("settings", "set", "convert", "x", *form)
        yield run("settings", "set", "convert", "background", "--table", "nobody", *form)


NAMES = re.compile(
    r'"(?:changed|found)_at": [0-9]+|\d{4}-\d\d-\d\d[T ][0-9:.]+'
    r"|\b[0-9a-f]{12}\b|default|twin|/[12](?=/)"
)
"""Of jobs, nodes, tenants, and moments."""


@pytest.mark.parametrize("steps", [prune, evict, change_jobs, change_settings])
def test_what_changes_something(served: Served, steps: Steps) -> None:
    told = [
        [
            Result(result.status, NAMES.sub("…", result.out), NAMES.sub("…", result.err))
            for result in map(settle, steps(served, run))
        ]
        for run in (served.here, served.there)
    ]
    assert told[0] == told[1]


# --- what no command shows -----------------------------------------------------------------------


def test_a_client_can_rebuild_a_schema(served: Served) -> None:
    with connected_control(served.service, "default") as control:
        found = control.call(catalog.get_table, "people")
        (newest,) = control.call(
            catalog.get_fingerprint_history, "people", descending=True, limit=1
        )
    assert newest.schema == found.schema
    schema = read_canonical_bytes(found.schema)
    assert format_fingerprint(fingerprint(schema)) == found.fingerprint
    assert [one.name for one in schema.fields] == [one.name for one in found.fields]


def test_a_request_for_the_schema_history_has_bounds(served: Served) -> None:
    with connected_control(served.service, "default") as control:
        (newest,) = control.call(
            catalog.get_fingerprint_history, "people", descending=True, limit=1
        )
        last = newest.revision + HISTORY_ENTRIES_MAX
        found = control.call(catalog.get_fingerprint_history, "people", since_generation=last)
        assert list(found) == []
        with pytest.raises(InvalidValue, match="never had this revision"):
            list(control.call(catalog.get_fingerprint_history, "people", since_generation=last + 1))
    assert InvalidValue.rpc_status == "INVALID_ARGUMENT"
    assert UnknownName.rpc_status == "NOT_FOUND"


def test_pruning_answers_with_a_seq_that_can_be_waited_for(served: Served) -> None:
    bound = catalog.HistoryBound(before=1)
    with connected_control(served.service, "default") as control:
        found = control.call(catalog.prune_fingerprint_history, bound, "countries")
    with served.open() as db:
        assert db.admin.wait_for_catalog(found.seq).seq >= found.seq
    assert not found.done


def test_a_process_joins_through_a_service(served: Served) -> None:
    """While it is a node, it holds the level down; evicted, it is told so."""
    with connected_control(served.service, "default") as control:
        with pytest.raises(IncompatibleVersion) as refused:
            control.call(cluster.register, "elsewhere", 7, "0.1", 0)
        assert refused.value.context["level_needed"] == "1"
        joined = control.call(cluster.register, "elsewhere", 7, "0.1", 1)
        alive = control.call(cluster.find_nodes, (joined.node,)).nodes
        assert [(one.host, one.pid, one.release, one.alive) for one in alive] == [
            ("elsewhere", 7, "0.1", True)
        ]
        later = control.call(cluster.send_heartbeat, joined.node)
        assert (later.level, later.node) == (joined.level, joined.node)
        assert later.seq >= joined.seq
        control.call(cluster.evict_nodes, (joined.node,))
        with pytest.raises(LeaseLost, match="was evicted"):
            control.call(cluster.send_heartbeat, joined.node)
        again = control.call(cluster.register, "elsewhere", 7, "0.1", 1)
        assert control.call(cluster.deregister, again.node).seq > again.seq
        with pytest.raises(UnknownName):
            control.call(cluster.find_nodes, (again.node,))
    assert IncompatibleVersion.rpc_status == "FAILED_PRECONDITION"


def test_nobody_sends_the_heartbeat_of_another_process(served: Served) -> None:
    """A name of a node is no secret: what did not join for this principal is left alone."""
    with served.open() as db, connected_control(served.service, "default") as control:
        assert db._node is not None
        for method in (cluster.send_heartbeat, cluster.deregister):
            with pytest.raises(LeaseLost, match="no such node"):
                control.call(method, db._node.id)
        db.table("countries").update("nl", name="Holland")


def test_a_job_is_watched_until_it_ends(served: Served) -> None:
    """Each second an answer; what changes meanwhile is in the next one."""
    with connected_control(served.service, "twin") as control:
        told = control.call(showing.watch_job, "validate")
        first = next(told)
        assert (first.state, first.is_running, first.records_per_second) == ("planned", False, None)
        later = next(told)
        assert later.records_per_second == 0
        control.call(listing.cancel_job, first.id)
        *_, last = told
        assert (last.id, last.state) == (first.id, "cancelled")
        # For whoever uses the database next.
        run_well("convert", "run", "--plan-only", "--tenant", "twin", "-d", served.address)
        with pytest.raises(UnknownName):
            next(control.call(showing.watch_job, "nothing"))
        with pytest.raises(InvalidValue, match="out of its range"):
            control.call(showing.get_job, first.id, 61.0)


def test_who_may_not_see_records_sees_none_of_those_that_block_a_job(
    served: Served, tmp_path: Path
) -> None:
    keys = services.make_keys(tmp_path)
    seen = []
    with services.served(served.address, keys) as service:
        for tables in (frozenset({"people"}), frozenset({"countries"}), None):
            jobs = Grant("*", frozenset({"jobs:read"}))
            data = Grant("default", frozenset({"data:read"}), tables)
            token = services.token_for(keys, "ci", jobs, data)
            with zapdb.connect(f"grpc://{service.address}", token=token) as client:
                told = [
                    *(job.findings for job in client.jobs.list_jobs().jobs),
                    client.jobs.get_job("index/1/1").findings,
                    *(job.findings for job in client.jobs.get_conversion_status().blocked),
                ]
                quarantine = client.jobs.get_job("convert").quarantine
            findings = [finding for found in told for finding in found]
            assert {finding.count for finding in findings} == {1}
            seen.append((all(finding.examples for finding in findings), len(quarantine)))
    assert seen == [(False, 1), (True, 0), (True, 1)]


def test_settings_are_set_by_who_may_for_a_tenant_or_for_all(
    served: Served, tmp_path: Path
) -> None:
    keys = services.make_keys(tmp_path)
    of_twin, everywhere = SettingScope(of_tenant=True), SettingScope()
    with services.served(served.address, keys) as service:

        def connect(tenant: str) -> Client:
            token = services.token_for(keys, "ci", Grant(tenant, frozenset({"catalog:admin"})))
            return zapdb.connect(f"grpc://{service.address}", token=token, tenant="twin")

        with connect("twin") as client:
            done = client.settings.set_setting("convert", "background", of_twin)
            assert (done.value, done.from_, done.refused) == ("background", "tenant", ())
            with pytest.raises(NotAllowed):
                client.settings.set_setting("convert", "background", everywhere)
            with pytest.raises(NotAllowed):
                client.settings.unset_setting("convert", everywhere)
            undone = client.settings.unset_setting("convert", of_twin)
            assert (undone.value, undone.from_) == ("on_access", "default")
            assert undone.seq > done.seq
        with connect("*") as client:
            assert client.settings.unset_setting("convert", everywhere).from_ == "default"
            with pytest.raises(UsageError, match="a directory of the machine"):
                client.settings.set_setting("history_store", str(tmp_path / "h"), everywhere)
    assert not (tmp_path / "h").exists()
