"""Commands with an idempotency key, and commands that watch: of a service as of a database."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests import processes
from tests.cli.program import Result, run_here
from tests.contract.tables import ADD_COLOR, ADD_WEIGHT, ITEMS
from tests.services import Served, served
from tests.support import GUARD_SECONDS, Workspace
from zapdb.cli.commands import load_function
from zapdb.cli.connecting import KeyedDatabaseOptions
from zapdb.cli.served_commands import list_served_commands
from zapdb.jobs import plan_jobs
from zapdb.service.methods import METHODS

BY_TITLE = "create_index: {table: items, index: by_title, fields: [{field: title}]}"


@pytest.fixture
def service(workspace: Workspace) -> Iterator[Served]:
    workspace.write(1, ITEMS)
    with workspace.open() as db:
        db.table("items").insert(id=0, title="Milk")  # an index of nothing has no job
    with served(workspace.address) as one:
        yield one


def run(service: Served, *command: str, key: str | None = "k") -> Result:
    keyed = () if key is None else ("--idempotency-key", key)
    return run_here([*command, *keyed, "-d", f"grpc://{service.address}"])


def up(service: Served, workspace: Workspace, *more: str) -> Result:
    return run(service, "migrate", "up", "-m", str(workspace.directory), *more)


# Keys


def test_a_repeated_migration_is_the_same_call(service: Served, workspace: Workspace) -> None:
    workspace.write(2, ADD_COLOR)
    workspace.write(3, BY_TITLE)
    first = up(service, workspace)
    assert first.status == 0
    assert "2 migrations applied" in first.out
    run_here(["migrate", "rollback", "--yes", "-d", workspace.address])
    assert up(service, workspace) == first  # and is not done again
    assert run_here(["migrate", "status", "-m", str(workspace.directory), "-d",
                     workspace.address]).status == 3  # fmt: skip
    as_json = up(service, workspace, "--json").json
    assert [one["number"] for one in as_json["applied"]] == [2, 3]
    assert [one["kind"] for one in as_json["built"]] == ["index"]
    workspace.write(4, ADD_WEIGHT)
    other = up(service, workspace)
    assert other.status == 1
    assert "another request has this idempotency key" in other.err


def test_a_repeated_rollback_rolls_back_once(service: Served, workspace: Workspace) -> None:
    for number, operation in ((2, ADD_COLOR), (3, ADD_WEIGHT)):
        workspace.write(number, operation)
    assert run_here(["migrate", "up", "-m", str(workspace.directory), "-d",
                     workspace.address]).status == 0  # fmt: skip
    rollback = ("migrate", "rollback")
    asked = run(service, *rollback)
    assert (asked.status, "add --yes" in asked.err) == (2, True)
    first = run(service, *rollback, "--yes")
    assert "rolled back 0003_test" in first.out
    assert run(service, *rollback, "--yes") == first
    as_json = run(service, *rollback, "--yes", "--json").json
    assert (as_json["position"], len(as_json["rolled_back"])) == (2, 1)
    assert "rolled back 0002_test" in run(service, *rollback, "--yes", key="other").out


def test_repeated_changes_of_settings_jobs_and_schema_histories(
    service: Served, workspace: Workspace
) -> None:
    workspace.write(2, BY_TITLE, ITEMS.replace("items", "others"))
    workspace.write(3, ADD_COLOR.replace("items", "others"))
    workspace.open().close()
    storage = workspace.connect()
    job = plan_jobs(storage, 1, kinds=["index"])[0].id
    commands = (
        ("settings", "set", "on_read", "leave"),
        ("settings", "unset", "on_read"),
        ("settings", "profile", "development"),
        ("jobs", "pause", job),
        ("jobs", "resume", job),
        ("jobs", "priority", job, "7"),
        ("jobs", "throttle", job, "--records-per-second", "5"),
        ("jobs", "cancel", job),
        ("catalog", "prune", "--table", "others", "--keep-last", "1", "--yes"),
    )
    done = {command: run(service, *command, key=" ".join(command[:3])) for command in commands}
    assert {result.status for result in done.values()} == {0}, done
    assert "pruned 1 entry" in done[commands[-1]].out
    for command, result in done.items():
        assert run(service, *command, key=" ".join(command[:3])) == result


KEYLESS = {"cluster evict", "cluster upgrade"}
"""They do nothing the second time."""


def test_each_command_that_changes_something_takes_a_key() -> None:
    keyed = set[str]()
    for name in list_served_commands():
        group, _, inner = name.partition(" ")
        function = find_command(group, inner)
        kinds = function.__annotations__.values()
        module = sys.modules[function.__module__]
        found = [getattr(module, kind, None) for kind in kinds if isinstance(kind, str)]
        if any(isinstance(one, type) and issubclass(one, KeyedDatabaseOptions) for one in found):
            keyed.add(name)
    assert keyed == {
        *("migrate up", "migrate rollback", "migrate forget", "catalog prune", "settings set"),
        *("settings profile", "jobs pause", "jobs resume", "jobs cancel", "jobs priority"),
        "jobs throttle",
        "settings unset",
    }
    without = {"Register", "Deregister", "EvictNodes", "Upgrade"}
    changing = {one.name for one in METHODS if one.changes} - without
    assert len(changing) == len(keyed) - 1  # a profile is a setting
    assert set(list_served_commands()) >= keyed | KEYLESS


def find_command(group: str, inner: str) -> Any:
    from zapdb.cli.commands import COMMANDS

    place: Any = COMMANDS[group]
    return load_function(place if isinstance(place, str) else place.commands[inner])


def test_a_database_itself_takes_no_key(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    workspace.open().close()
    command = ["settings", "set", "on_read", "write_back", "--idempotency-key", "k"]
    refused = run_here([*command, "-d", workspace.address])
    assert refused.status == 2
    assert "a database keeps no answers" in refused.err
    assert "leave it out" in refused.err
    assert workspace.open().admin.settings()["on_read"] == "leave"


# Watching


@contextmanager
def watching(*command: str) -> Iterator[Any]:
    process = processes.Popen(
        [sys.executable, "-m", "zapdb", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def interrupt(process: Any) -> str:
    """Ctrl-C; the status is the one that shells have for it, and nothing else is said."""
    process.send_signal(signal.SIGINT)
    assert process.wait(GUARD_SECONDS) == 130
    said = str(process.stderr.read())
    assert said.endswith("interrupted\n")
    assert "Traceback" not in said
    return said


@pytest.fixture(params=["database", "service"])
def address(request: pytest.FixtureRequest, service: Served, workspace: Workspace) -> str:
    return workspace.address if request.param == "database" else f"grpc://{service.address}"


def test_a_catalog_is_watched(workspace: Workspace, address: str) -> None:
    db = workspace.open()
    with watching("catalog", "watch", "--json", "--kind", "setting", "--kind", "tenant",
                  "-d", address) as process:  # fmt: skip
        first = json.loads(process.stdout.readline())
        assert {row["kind"] for row in first["rows"]} == {"tenant"}
        seq = db.admin.set_setting("on_read", "leave")
        told = json.loads(process.stdout.readline())
        assert told["rows"] == [
            {"seq": seq, "kind": "setting", "key": "*/*/*/on_read", "is_deleted": False}
        ]
        db.admin.set_setting("on_read", None)
        assert json.loads(process.stdout.readline())["rows"][0]["is_deleted"]
        said = interrupt(process)
    place = said.partition("--since ")[2].partition(" ")[0]
    assert int(place) >= seq
    written = db.admin.set_setting("on_read", "write_back")
    with watching("catalog", "watch", "--since", place, "-d", address) as process:
        while (line := process.stdout.readline().split())[0] != str(written):
            assert line[1:] == ["setting", "*/*/*/on_read", "deleted"]  # of before Ctrl-C
        assert line[1:] == ["setting", "*/*/*/on_read"]
        interrupt(process)
    refused = run_here(["catalog", "watch", "--kind", "nothing", "-d", address])
    assert (refused.status, "no rows of this kind" in refused.err) == (1, True)


def test_a_job_is_watched_until_its_end(workspace: Workspace, address: str) -> None:
    db = workspace.open()
    db.table("items").insert_many({"id": at, "title": "Milk"} for at in range(1, 50))
    db.close()
    workspace.write(2, BY_TITLE)
    db = workspace.open()
    storage = workspace.connect()
    job = plan_jobs(storage, 1, kinds=["index"])[0].id
    db.jobs.pause(job)
    with watching("jobs", "watch", job[:7], "--json", "-d", address) as process:
        seen = json.loads(process.stdout.readline())
        assert (seen["id"], seen["state"], seen["read"]) == (job, "paused", 0)
        db.jobs.resume(job)
        db.admin.run_jobs()
        rest = [json.loads(line) for line in process.stdout]
        assert (rest[-1]["state"], rest[-1]["read"]) == ("done", 50)
        assert process.wait(GUARD_SECONDS) == 0
    with watching("jobs", "watch", job, "-d", address) as process:
        out, err = process.communicate(timeout=GUARD_SECONDS)
        assert (out, err, process.returncode) == (
            "building index by_title of items: done, 50 of 50 records\n", "", 0
        )  # fmt: skip


def test_a_watch_of_a_job_ends_and_the_job_goes_on(workspace: Workspace, address: str) -> None:
    workspace.write(2, BY_TITLE)
    db = workspace.open()
    job = plan_jobs(workspace.connect(), 1, kinds=["index"])[0].id
    with watching("jobs", "watch", job, "-d", address) as process:
        assert "planned, 0 of 1 records; waits: no process works" in process.stdout.readline()
        interrupt(process)
    assert db.jobs.get(job).job.state == "planned"
    db.jobs.cancel(job)
    ended = run_here(["jobs", "watch", job, "-d", address])
    assert (ended.status, "cancelled" in ended.out) == (1, True)
    unknown = run_here(["jobs", "watch", "nothing", "-d", address])
    assert "there is no such job" in unknown.err
