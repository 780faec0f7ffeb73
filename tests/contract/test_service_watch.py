"""What changes in the catalog, watched through a service."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import zapdb
from tests.contract.tables import ITEMS
from tests.services import ALL, Served, make_keys, served, token_for
from tests.support import Workspace
from zapdb.catalog import feed
from zapdb.control import catalog, target
from zapdb.errors import CatalogChangesPurged, NotAllowed, UnknownName
from zapdb.service.principals import EVERY_TENANT, Grant

SETTING = "on_read"
Rows = dict[tuple[str, str], tuple[int, bool]]
"""The seq of the newest change of each row, and whether it is deleted."""


@pytest.fixture
def service(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Served]:
    monkeypatch.setitem(catalog.watch_catalog.__dict__, target._PACE, 0.05)
    workspace.write(1, ITEMS)
    workspace.open().admin.create_tenant("acme")
    with served(workspace.address, make_keys(tmp_path)) as one:
        yield one


def connect(service: Served, tmp_path: Path, *grants: Grant) -> Any:
    token = token_for(tmp_path / "keys.json", "ci", *grants)
    return zapdb.connect(f"grpc://{service.address}", token=token)


def take(told: Rows, changes: catalog.CatalogChanges) -> int:
    """Note what an answer tells; no row comes twice with one seq."""
    for row in changes.rows:
        assert row.seq <= changes.seq
        assert told.get((row.kind, row.key), (0, False))[0] != row.seq
        told[row.kind, row.key] = row.seq, row.is_deleted
    return changes.seq


def change_something(db: Any, rnd: random.Random) -> None:
    tenant = rnd.choice([None, "acme", "default"])
    db.admin.set_setting(SETTING, rnd.choice([None, "leave", "write_back"]), tenant=tenant)


def test_a_watch_that_is_broken_off_goes_on_and_tells_each_change(
    service: Served, workspace: Workspace, tmp_path: Path
) -> None:
    db, rnd, told, seq = workspace.open(), random.Random(1), Rows(), 0
    with connect(service, tmp_path) as client:
        for _ in range(8):
            watch = client.catalog.watch_catalog(after=seq, all_tenants=True)
            for _ in range(rnd.randrange(1, 4)):
                seq = take(told, next(watch))
                change_something(db, rnd)
            watch.close()
        last = next(client.catalog.watch_catalog(after=seq, all_tenants=True))
        seq = take(told, last)
        everything: Rows = {}
        take(everything, next(client.catalog.watch_catalog(all_tenants=True)))
    kinds = {kind for kind, _ in everything}
    assert kinds >= {"setting", "tenant", "tenant-name", "chain", "level", "node"}
    steady = {one: known for one, known in everything.items() if one[0] != "node"}
    assert {one: known for one, known in told.items() if one in steady} == steady
    assert {one for one in told if one[0] != "node"} == set(steady)


def test_rows_about_other_tenants_are_told_to_those_who_may_see_all(
    service: Served, workspace: Workspace, tmp_path: Path
) -> None:
    db = workspace.open()
    for name in ("acme", "default"):
        db.admin.set_setting(SETTING, "leave", tenant=name)
    db.admin.set_setting(SETTING, "leave")
    own = Grant("default", frozenset({"catalog:read"}))
    with connect(service, tmp_path, own) as client:
        rows = next(client.catalog.watch_catalog()).rows
        settings = {row.key for row in rows if row.kind == "setting"}
        assert {key.partition("/")[0] for key in settings} == {"1", "*"}
        assert {row.key for row in rows if row.kind == "tenant"} == {"1"}
        assert "node" not in {row.kind for row in rows}
        with pytest.raises(NotAllowed):
            next(client.catalog.watch_catalog(all_tenants=True))
        with pytest.raises(NotAllowed):
            next(client.for_tenant("acme").catalog.watch_catalog())
    with connect(service, tmp_path, Grant(EVERY_TENANT, ALL)) as client:
        (row,) = next(client.catalog.watch_catalog(kinds=["tenant-name"], all_tenants=True)).rows[
            1:
        ]
        assert row.key == "acme"
        with pytest.raises(UnknownName, match="no rows of this kind"):
            next(client.catalog.watch_catalog(kinds=["tables"]))


def test_a_watch_from_before_the_horizon_says_where_changes_are_kept(
    service: Served, workspace: Workspace, tmp_path: Path
) -> None:
    db = workspace.open()
    with connect(service, tmp_path) as client:
        begun = next(client.catalog.watch_catalog()).seq
        for value in ("100", None, "200", None):
            db.admin.set_setting("call_log_retention_seconds", value)
        feed.purge(workspace.connect(), kept=1)
        with pytest.raises(CatalogChangesPurged) as refused:
            next(client.catalog.watch_catalog(after=begun))
        again = next(client.catalog.watch_catalog(after=int(refused.value.context["newest"])))
        assert again.seq >= int(refused.value.context["oldest"]) > begun
        with pytest.raises(CatalogChangesPurged):  # of another history
            next(client.catalog.watch_catalog(after=again.seq * 2))
