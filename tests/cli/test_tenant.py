"""`zapdb tenant`, and commands about one tenant or all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

import zapdb
from tests.cli.program import MIGRATIONS, Project, strip_ansi

ABOUT_ONE_TENANT = [
    ("migrate", "up"),
    ("migrate", "status"),
    ("migrate", "plan"),
    ("migrate", "rehearse"),
    ("migrate", "prune-archive", "--yes"),
    ("convert", "run"),
    ("convert", "status"),
    ("verify",),
    ("catalog", "list"),
    ("catalog", "show", "people"),
    ("catalog", "revisions", "--table", "people"),
    ("catalog", "fingerprint", "people"),
    ("catalog", "prune", "--table", "people", "--keep-last", "1"),
]


def tenants(project: Project) -> dict[str, int]:
    found = project.run("tenant", "list", "--json").json["tenants"]
    return {tenant["name"]: tenant["position"] for tenant in found}


def test_tenants_are_created_listed_and_removed(current: Project) -> None:
    assert current.run("tenant", "create", "acme").out == "created acme\n"
    created = current.run("tenant", "create", "b.corp", "--json").json
    assert (created["name"], created["position"], created["removing"]) == ("b.corp", 0, False)
    assert tenants(current) == {"default": 4, "acme": 0, "b.corp": 0}
    lines = current.run("tenant", "list").out.splitlines()
    assert lines[0].split() == ["tenant", "position", "created", "by"]
    assert lines[2].split()[:2] == ["default", "0004"]
    assert lines[3].split()[:4] == ["acme", "0000", "(4", "behind)"]
    again = current.run("tenant", "create", "acme")
    assert (again.status, again.err) == (
        2,
        "error: a tenant of this name already exists\n  tenant: acme\n",
    )
    assert current.run("migrate", "up", "--tenant", "acme").status == 0
    removed = current.run("tenant", "remove", "acme", "--yes")
    assert (removed.status, removed.out) == (0, "removed acme: 1 row\n")
    assert tenants(current) == {"default": 4, "b.corp": 0}
    as_json = current.run("tenant", "remove", "b.corp", "--yes", "--json").json
    assert as_json.pop("seq") > 0
    assert as_json == {"tenant": "b.corp", "rows": {}, "history_left": []}


def test_a_removal_is_asked_for(current: Project) -> None:
    current.run("tenant", "create", "acme")
    before = current.dump()
    assert current.run("tenant", "remove", "acme").err.startswith(
        "delete the tenant acme with all its records? [y/N] \nerror: a removal needs confirmation"
    )
    declined = current.run("tenant", "remove", "acme", stdin="n\n")
    assert (declined.status, declined.out) == (1, "nothing was changed\n")
    assert current.run("tenant", "remove", "acme", "--json").error["hint"] == "add --yes"
    stays = current.run("tenant", "remove", "default", "--yes")
    assert (stays.status, stays.err) == (
        2,
        "error: the default tenant cannot be removed\n"
        "  tenant: default\n"
        "  hint: delete its records instead\n",
    )
    assert current.dump() == before
    assert current.run("tenant", "remove", "acme", stdin="y\n").out == "removed acme: 0 rows\n"


@pytest.mark.parametrize("name", ["", "a b", "-a", "../x", "é", "x" * 64, "'; DROP TABLE x --"])
def test_names_that_are_none(current: Project, name: str) -> None:
    before = current.dump()
    result = current.run("tenant", "create", "--", name)
    assert result.status == 2
    assert result.err == (
        "error: this is not a valid name of a tenant\n"
        f"  name: {name}\n"
        "  hint: use up to 63 letters, digits and _ . @ -, beginning with a letter or "
        "digit\n"
    )
    assert current.dump() == before


@pytest.mark.parametrize("command", ABOUT_ONE_TENANT, ids=" ".join)
def test_an_unknown_tenant(
    current: Project, command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Named by an option, by the environment, and by pyproject.toml."""
    current.run("tenant", "create", "acme")
    before = current.dump()
    message = (
        "error: there is no such tenant\n"
        "  tenant: nobody\n"
        "  tenants: acme, default\n"
        "  hint: create it with `zapdb tenant create NAME`, or "
        "`db.admin.create_tenant(name)`\n"
    )
    result = current.run(*command, "--tenant", "nobody")
    assert (result.status, result.err) == (1, message)
    monkeypatch.setenv("ZAPDB_TENANT", "nobody")
    result = current.run(*command)
    assert (result.status, result.err) == (1, message)
    monkeypatch.delenv("ZAPDB_TENANT")
    Path("pyproject.toml").write_text('[tool.zapdb]\ntenant = "nobody"\n')
    result = current.run(*command)
    assert (result.status, result.err) == (1, message)
    assert current.dump() == before


@pytest.mark.parametrize("command", [("tenant", "remove", "nobody", "--yes")], ids=" ".join)
def test_a_tenant_that_is_not_there(current: Project, command: tuple[str, ...]) -> None:
    before = current.dump()
    result = current.run(*command)
    assert result.status == 1
    assert result.err.startswith(
        "error: there is no such tenant\n  tenant: nobody\n  tenants: default\n"
    )
    assert current.dump() == before


def test_commands_about_one_tenant(current: Project) -> None:
    for name in ("acme", "other"):
        current.run("tenant", "create", name)
    up = current.run("migrate", "up", "--tenant", "acme", "--json").json
    assert [one["number"] for one in up["applied"]] == [4]
    assert (up["position"], up["all_tenants"]) == (4, None)
    assert tenants(current) == {"default": 4, "acme": 4, "other": 0}
    status = current.run("migrate", "status", "--tenant", "other")
    assert status.status == 3
    assert status.out.count("pending") == 4
    shown = current.run("catalog", "revisions", "--table", "people", "--tenant", "acme", "--json")
    assert [line["event"] for line in shown.lines] == ["create"]


# The fleet


def test_all_tenants_are_brought_up(current: Project) -> None:
    for name in ("acme", "b", "c"):
        current.run("tenant", "create", name)
    status = current.run("migrate", "status", "--all-tenants")
    assert status.status == 3
    assert status.out.endswith(
        "\n4 tenants\n  3 at 0000\n  1 at 0004, the newest\nbehind: acme, b, c\n"
    )
    fleet = current.run("migrate", "status", "--all-tenants", "--json").json["all_tenants"]
    assert fleet == {
        "tenants": 4,
        "positions": {"0": 3, "4": 1},
        "behind": [{"tenant": name, "position": 0} for name in ("acme", "b", "c")],
    }
    up = current.run("migrate", "up", "--all-tenants")
    assert (up.status, up.err) == (0, "")
    assert "migrated 3 more tenants\n" in up.out
    assert set(tenants(current).values()) == {4}
    assert current.run("migrate", "status", "--all-tenants").status == 0
    before = current.dump()
    again = current.run("migrate", "up", "--all-tenants", "--json").json
    assert again["all_tenants"] == {"migrated": 0, "failed": []}
    passing = dict.fromkeys(("zapdb_catalog", "zapdb_counters", "zapdb_leases"))
    assert current.dump() | passing == before | passing


def test_a_bar_shows_how_far_the_fleet_is(current: Project) -> None:
    for at in range(5):
        current.run("tenant", "create", f"t{at}")
    shown = current.show("migrate", "up", "--all-tenants", columns=100)
    assert "migrating tenants" in shown
    assert "5/5" in shown
    assert "migrated 5 more tenants" in strip_ansi(shown)


def test_one_tenant_that_fails_does_not_keep_the_others(current: Project) -> None:
    for name in ("acme", "frozen", "c"):
        current.run("tenant", "create", name)
    current.run("settings", "set", "schema_changes", "refuse", "--tenant", "frozen")
    up = current.run("migrate", "up", "--all-tenants")
    assert up.status == 1
    assert "migrated 2 more tenants\n" in up.out
    assert up.err.startswith("tenant frozen is at 0000:\nerror: a setting refuses schema changes\n")
    assert "`zapdb settings set schema_changes allow --tenant" in up.err
    assert tenants(current) == {"default": 4, "acme": 4, "frozen": 0, "c": 4}
    failed = current.run("migrate", "up", "--all-tenants", "--json").json["all_tenants"]["failed"]
    assert [(one["tenant"], one["position"]) for one in failed] == [("frozen", 0)]
    assert failed[0]["error"]["code"] == "migration.schema_changes_refused"


def test_of_many_that_fail_some_are_shown(current: Project) -> None:
    current.run("settings", "set", "schema_changes", "refuse")
    for at in range(12):
        current.run("tenant", "create", f"t{at}")
    up = current.run("migrate", "up", "--all-tenants")
    assert up.status == 1
    assert up.err.count("error: a setting refuses schema changes") == 10
    assert up.err.endswith("2 more tenants could not be migrated: --json names all\n")
    failed = current.run("migrate", "up", "--all-tenants", "--json").json["all_tenants"]["failed"]
    assert len(failed) == 12


def test_options_that_contradict_each_other(current: Project) -> None:
    for more in (("--tenant", "default"), ("--to", "1")):
        result = current.run("migrate", "up", "--all-tenants", *more)
        assert result.err == (
            "error: --all-tenants migrates all tenants to the stored end, so it cannot "
            "be combined with a tenant or --to\n"
            "  hint: leave out --tenant, ZAPDB_TENANT and --to\n"
        )


def test_rule_12_tenants_wait_for_running_processes(current: Project) -> None:
    """All go as far as they may; the rest is pending, and so is the exit status."""
    for name in ("acme", "b"):
        current.run("tenant", "create", name)
    address = f"sqlite:///{current.database}"
    with zapdb.open(address, migrations=current.migrations):
        current.file("0005_more").write_text(
            MIGRATIONS["0002_add_age"].replace("name: age", "name: height")
        )
        current.file("0006_known").write_text(
            MIGRATIONS["0002_add_age"].replace("name: age", "name: weight")
            + "activation: wait_for_nodes\n"
        )
        up = current.run("migrate", "up", "--all-tenants", "--json")
        assert up.status == 3
        assert [(one["number"], one["active"]) for one in up.json["applied"]] == [
            (5, True),
            (6, False),
        ]
        failed = up.json["all_tenants"]["failed"]
        assert [(one["tenant"], one["position"]) for one in failed] == [
            (name, 5) for name in ("default", "acme", "b")
        ]
        assert {one["error"]["code"] for one in failed} == {"migration.activation_pending"}
        text = current.run("migrate", "up", "--all-tenants")
        assert text.status == 3
        assert "this migration waits until every running process has its file" in text.err
        assert set(tenants(current).values()) == {5}
    assert current.run("migrate", "up", "--all-tenants").status == 0
    assert set(tenants(current).values()) == {6}
