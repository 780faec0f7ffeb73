"""`zapdb history start`, `run`, `flush`, `stop`, `status`, `purge` and `erase`."""

from __future__ import annotations

import sys

import zapdb
from tests import processes
from tests.cli.program import Project
from tests.support import GUARD_SECONDS, wait_until


def test_a_store_is_begun_followed_stopped_and_shown(current: Project) -> None:
    none = current.run("history", "status")
    assert (none.status, "no history store" in none.err) == (2, True)
    lost = current.run("history", "start")
    assert (lost.status, "switched on" in lost.err) == (2, False)
    (current.directory / "file").write_text("")
    for wrong in ("file", "a*b"):
        refused = current.run("history", "start", wrong)
        assert (refused.status, "switched on" in refused.err) == (2, False)
    made = current.run("history", "start", "past")
    assert (made.status, "the change log was off and is switched on" in made.err) == (0, True)
    assert f"in {current.directory / 'past'}" in made.out
    early = current.run("history", "status", "--json")
    store = early.json
    assert (early.status, store["state"], store["unfinished"]) == (3, "baseline", ["people"])
    assert current.run("history", "run", "--once").status == 0
    assert current.run("data", "put", "people", "id=1", "age=99").status == 0
    behind = current.run("history", "status", "--json")
    assert (behind.status, behind.json["changes_behind"]) == (3, 1)
    done = current.run("history", "flush", "--json")
    store = done.json
    assert (done.status, store["changes_behind"], store["files"]) == (0, 0, 4)
    assert len(list((current.directory / "past").rglob("*.parquet"))) == 4
    elsewhere = current.run("history", "start", "other")
    assert (elsewhere.status, "in another directory" in elsewhere.err) == (2, True)
    stopped = current.run("history", "stop")
    assert (stopped.status, "goes on" in stopped.err) == (0, True)
    refused = current.run("history", "flush")
    assert (refused.status, "the history store is stopped" in refused.err) == (2, True)
    assert current.run("history", "start").status == 0
    (current.directory / "past").rename(current.directory / "away")
    unneeded = current.run("history", "flush")
    assert (unneeded.status, "is not there" in unneeded.err) == (1, True)
    lost = current.run("history", "status")
    assert (lost.status, "where it was: until then" in lost.err) == (1, True)
    current.run("data", "put", "people", "id=1", "age=98")
    gone = current.run("history", "flush")
    assert (gone.status, "is not there" in gone.err) == (1, True)
    told = current.run("history", "status")
    assert (told.status, "is not there" in told.err) == (1, True)
    (current.directory / "away").rename(current.directory / "past")
    assert current.run("history", "flush").status == 0
    assert current.run("history", "status").status == 0
    both = current.run("history", "status", "--all-tenants", "--tenant", "x")
    assert (both.status, "contradict" in both.err) == (2, True)
    every = current.run("history", "run", "--once", "--all-tenants")
    assert (every.status, every.err) == (0, "")


def test_the_manifest_is_rebuilt_from_the_directory(current: Project) -> None:
    assert current.run("history", "start", "past").status == 0
    assert current.run("history", "run", "--once").status == 0
    command = "history", "rebuild-manifest", "past"
    refused = current.run(*command, "--json")
    assert (refused.status, "--yes" in refused.err) == (2, True)
    asked = current.run(*command)
    assert (asked.status, "add --yes" in asked.err) == (2, True)
    current.sql("DELETE FROM zapdb_history_stores")
    planned = current.run(*command, "--dry-run", "--json")
    assert (planned.status, planned.json["done"]) == (0, False)
    assert current.run("history", "status").status == 2
    done = current.run(*command, "--yes", "--json")
    assert (done.status, done.json) == (0, planned.json | {"done": True})
    (timeline,) = done.json["timelines"]
    assert (timeline["files"], timeline["cut_from"]) == (2, None)
    assert current.run("history", "status").status == 0
    elsewhere = current.run("history", "rebuild-manifest", "nowhere", "--yes")
    assert (elsewhere.status, "has no manifest" in elsewhere.err) == (2, True)


def test_the_past_is_erased_and_purged(current: Project) -> None:
    assert current.run("history", "start", "past").status == 0
    assert current.run("history", "run", "--once").status == 0
    early = current.run("history", "erase", "people", "1", "--yes")
    assert (early.status, "delete it first" in early.err) == (2, True)
    with zapdb.open(f"sqlite:///{current.database}") as db:
        db.table("people").delete(1)
    asked = current.run("history", "erase", "people", "1")
    assert (asked.status, "add --yes" in asked.err) == (2, True)
    wrong = current.run("history", "erase", "people", "one", "--yes")
    assert (wrong.status, "one" in wrong.err) == (1, True)
    for given, told in (
        (("people",), "no record is named"),
        (("people", "--all-records"), "needs fields"),
        (("people", "1", "--all-records", "--field", "age"), "contradict"),
        (("people", "--all-records", "--field", "id"), "a field of the key"),
    ):
        refused = current.run("history", "erase", *given, "--yes")
        assert (refused.status, told in refused.err) == (2, True)
    fields = current.run("history", "erase", "people", "--all-records", "--field", "age", "--yes")
    assert (fields.status, "past values of age from people" in fields.out) == (0, True)
    one = current.run("history", "erase", "people", "1", "--field", "age", "--yes", "--json")
    assert (one.status, one.json["fields"]) == (0, ["age"])
    unknown = current.run("history", "erase", "persons", "1", "--yes")
    assert (unknown.status, "no table has or ever had this name" in unknown.err) == (1, True)
    never = current.run("history", "erase", "people", "77", "--yes")
    assert (never.status, "nothing of it was found" in never.err) == (0, True)
    done = current.run("history", "erase", "people", "1", "--yes", "--json")
    assert (done.status, done.json["changes"], done.json["rows"]) == (0, 1, 1)
    assert len(done.json["key_sha256"]) == 64
    again = current.run("history", "erase", "people", "1", "--yes")
    assert (again.status, "without 0 rows" in again.out) == (0, True)
    assert current.run("history", "flush").status == 0
    right = current.run("history", "verify")
    assert (right.status, "0 problems" in right.out) == (0, True)
    file = next((current.directory / "past" / "1" / "0").glob("*.parquet"))
    kept = file.read_bytes()
    file.write_bytes(kept[:-1])
    damaged = current.run("history", "verify", "--sample", "0", "--json")
    assert (damaged.status, len(damaged.json["problems"])) == (1, 1)
    planned = current.run("history", "verify", "--repair", "--dry-run")
    assert (planned.status, "its digest is another one; " in planned.out) == (1, True)
    asked = current.run("history", "verify", "--repair")
    assert (asked.status, "add --yes" in asked.err) == (2, True)
    repaired = current.run("history", "verify", "--repair", "--yes", "--json")
    assert (repaired.status, len(repaired.json["repaired"])) == (0, 1)
    future = current.run("history", "purge", "--before", "#99", "--yes")
    assert (future.status, "not in the files" in future.err) == (2, True)
    planned = current.run("history", "purge", "--before", "#2", "--dry-run", "--json")
    assert (planned.status, planned.json["done"], planned.json["kept_from"]) == (0, False, 2)
    moved = current.run("history", "move", "--before", "#2", "--to", "cold", "--json")
    assert (moved.status, moved.json["directory"]) == (0, str(current.directory / "cold"))
    unclear = current.run("history", "move", "--before", "soon", "--to", "cold")
    assert (unclear.status, "names no moment" in unclear.err) == (2, True)
    purged = current.run("history", "purge", "--before", "#2", "--yes")
    assert (purged.status, "moments are kept from #2 on" in purged.out) == (0, True)


def test_the_stores_of_all_tenants_are_kept_up_together(current: Project) -> None:
    every = "--all-tenants"
    assert current.run("tenant", "create", "north").status == 0
    assert current.run("tenant", "create", "south").status == 0
    with zapdb.open(f"sqlite:///{current.database}") as db:
        north = db.for_tenant("north")
        north.admin.set_setting("change_log", "on")
        north.table("people").insert(**zapdb.asdict(db.table("people").get(1)))
        north.table("people").delete(1)
    assert current.run("history", "start", "past", "--tenant", "north").status == 0
    assert current.run("history", "start", "past", "--tenant", "default").status == 0
    assert current.run("history", "run", "--once", every).status == 0
    found = current.run("history", "verify", every, "--json")
    tenants = {one["tenant"]: one["problems"] for one in found.json["tenants"]}
    assert (found.status, tenants) == (0, {"default": [], "north": []})
    erased = current.run("history", "erase", "people", "1", every, "--yes", "--json")
    told = {one["tenant"]: "error" in one for one in erased.json["tenants"]}
    assert (erased.status, told) == (1, {"default": True, "north": False})
    assert "default: the record is still in the table" in erased.err
    assert current.run("history", "flush", every).status == 0
    for command in (("purge", "--exact", "--yes"), ("move", "--to", "cold")):
        numbered = current.run("history", *command, "--before", "#1", every)
        assert (numbered.status, "for each tenant apart" in numbered.err) == (2, True)
        done = current.run("history", *command, "--before", "0s", every, "--json")
        assert (done.status, len(done.json["tenants"])) == (0, 2), done.err
    current.sql("DELETE FROM zapdb_history_stores")
    rebuilt = current.run("history", "rebuild-manifest", "past", "--yes", every, "--json")
    tenants = {one["tenant"]: one["done"] for one in rebuilt.json["tenants"]}
    assert (rebuilt.status, tenants) == (0, {"default": True, "north": True})
    found = current.run("history", "verify", every, "--json")
    assert [one["problems"] for one in found.json["tenants"]] == [[], []]


def test_a_tenant_that_refuses_does_not_keep_the_others_from_their_stores(
    current: Project,
) -> None:
    for name in ("acme", "other"):
        assert current.run("tenant", "create", name).status == 0
    assert current.run("settings", "set", "change_log", "off", "--tenant", "acme").status == 0
    started = current.run("history", "start", "past", "--all-tenants", "--json")
    assert started.status == 1
    assert set(started.json) == {"tenants"}
    tenants = {one["tenant"]: one for one in started.json["tenants"]}
    assert {name for name in tenants if "error" not in tenants[name]} == {"default", "other"}
    assert tenants["default"]["state"] == "baseline"
    assert set(tenants["acme"]) == {"tenant", "error"}
    assert "switched off" in tenants["acme"]["error"]
    assert "acme: the change log is switched off" in started.err
    assert current.run("settings", "set", "change_log", "on", "--tenant", "acme").status == 0
    again = current.run("history", "start", "past", "--all-tenants", "--json")
    assert again.status == 0
    assert [one.get("error") for one in again.json["tenants"]] == [None] * 3


def test_a_store_that_refuses_does_not_keep_the_others_from_their_work(current: Project) -> None:
    """Whatever is done for all tenants: others go on, the one is named, and the status says so."""
    every = "--all-tenants"
    for name in ("acme", "other"):
        assert current.run("tenant", "create", name).status == 0
    assert current.run("history", "start", "past", every).status == 0
    current.sql("UPDATE zapdb_history_stores SET format = 99 WHERE tenant = 2")
    for command in (("run", "--once"), ("flush",), ("stop",), ("start",), ("verify",)):
        done = current.run("history", *command, every, "--json")
        assert set(done.json) == {"tenants"}, command
        tenants = {one["tenant"]: one for one in done.json["tenants"]}
        assert set(tenants) == {"default", "acme", "other"}, command
        failed = {name for name, one in tenants.items() if "error" in one}
        assert (done.status, failed) == ((1, {"acme"}) if failed else (0, failed)), command
        assert bool(failed) == (command in (("run", "--once"), ("flush",))), command
        if failed:
            assert "acme: the history store has a newer format" in done.err
    current.sql("UPDATE zapdb_history_stores SET directory = 'relative' WHERE tenant = 3")
    status = current.run("history", "status", every, "--json")
    (other,) = [one for one in status.json["tenants"] if "error" in one]
    assert (status.status, other["tenant"]) == (1, "other")
    alone = current.run("history", "status", "--tenant", "other", "--json")
    assert (alone.status, alone.out) == (1, "")


def test_a_setting_begins_the_stores_of_all_tenants(current: Project) -> None:
    every = "--all-tenants"
    for name in ("acme", "other"):
        assert current.run("tenant", "create", name).status == 0
    assert current.run("settings", "set", "change_log", "off", "--tenant", "acme").status == 0
    done = current.run("settings", "set", "history_store", "past", "--json")
    assert (done.status, done.json["value"]) == (1, str(current.directory / "past"))
    (refused,) = done.json["refused"]
    assert refused["tenant"] == "acme"
    assert "acme: the change log is switched off" in done.err
    status = current.run("history", "status", every, "--json")
    told = {one["tenant"]: "error" in one for one in status.json["tenants"]}
    assert (status.status, told) == (1, {"default": False, "acme": True, "other": False})
    assert "acme: the tenant has no history store" in status.err
    flushed = current.run("history", "flush", every, "--json")
    assert (flushed.status, "acme: the change log is switched off" in flushed.err) == (1, True)
    assert current.run("settings", "set", "change_log", "on", "--tenant", "acme").status == 0
    assert current.run("tenant", "create", "late").status == 0
    flushed = current.run("history", "run", "--once", every, "--json")
    directories = {one["tenant"]: one["directory"] for one in flushed.json["tenants"]}
    place = str(current.directory / "past")
    assert directories == dict.fromkeys(("default", "acme", "other", "late"), place)
    assert flushed.status == 0
    listed = {
        one["name"]: one for one in current.run("settings", "list", "--json").json["settings"]
    }
    assert listed["history_store"]["values"] == ["none", "DIRECTORY"]
    assert current.run("settings", "get", "history_store").out == f"{place}\n"

    (current.directory / "past").rename(current.directory / "away")
    gone = current.run("tenant", "create", "more")
    assert (gone.status, "is not there" in gone.err) == (1, True)
    assert "more" not in current.run("tenant", "list").out
    (current.directory / "away").rename(current.directory / "past")
    assert current.run("settings", "unset", "history_store").status == 0
    assert current.run("tenant", "create", "more").status == 0
    assert current.run("history", "status", "--tenant", "more").status == 2
    assert current.run("history", "status", every).status == 0
    for wrong in (("set", "history_store", ""), ("set", "history_store", "p", "--tenant", "acme")):
        assert current.run("settings", *wrong).status == 2
    assert not [*current.directory.glob("*.json"), *current.directory.glob("p")]


def test_the_stores_of_tenants_that_come_are_followed(current: Project) -> None:
    """A process that follows all looks for new ones."""
    for name, value in (("history_store", "past"), ("history_store_flush_seconds", "0")):
        assert current.run("settings", "set", name, value).status == 0
    command = [sys.executable, "-m", "zapdb", "history", "run", "--all-tenants"]
    with processes.Popen([*command, "-d", f"sqlite:///{current.database}"]) as process:
        try:
            with zapdb.open(f"sqlite:///{current.database}") as db:
                record = zapdb.asdict(db.table("people").get(1))
                for name in ("default", "late", "later"):
                    if name != "default":
                        db.admin.create_tenant(name)
                        db.for_tenant(name).table("people").insert(**record)
                    store = db.for_tenant(name).history
                    assert store.wait(seconds=GUARD_SECONDS).lag.changes == 0
                    wait_until(lambda of=store: of.status().is_followed, "it is followed")
            assert process.poll() is None
        finally:
            process.kill()
