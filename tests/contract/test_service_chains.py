"""What a service lets a principal do to the chain of migrations, which all tenants share."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import zapdb
from tests.contract.tables import ITEMS
from tests.services import Served, make_keys, served, token_for
from tests.support import Workspace
from zapdb.errors import CommitUnknown, ConcurrencyError, NotAllowed, NotAuthenticated
from zapdb.service.principals import EVERY_TENANT, Grant

FIELD = "add_field: {table: items, field: {name: %s, type: string, optional: true}}"
UNIQUE = "create_index: {table: items, index: one, unique: true, fields: [{field: title}]}"


@pytest.fixture
def service(workspace: Workspace, tmp_path: Path) -> Iterator[Served]:
    workspace.write(1, ITEMS)
    for number, name in enumerate("abc", 2):
        workspace.write(number, FIELD % name)
    db = workspace.open()
    db.admin.create_tenant("acme")
    db.close()
    with served(workspace.address, make_keys(tmp_path)) as one:
        yield one


def connect(service: Served, tmp_path: Path, *grants: Grant) -> Any:
    token = token_for(tmp_path / "keys.json", "ci", *grants)
    return zapdb.connect(f"grpc://{service.address}", token=token)


def position(workspace: Workspace) -> int:
    with zapdb.open(workspace.address) as db:
        return db.position


def test_a_grant_for_one_tenant_changes_the_chain_of_none(
    service: Served, workspace: Workspace, tmp_path: Path
) -> None:
    apply = frozenset({"migrate:apply"})
    for grant in (Grant("default", apply), Grant("acme", apply)):
        with connect(service, tmp_path, grant) as client:
            one = client.for_tenant(grant.tenant)
            for call in (
                one.migrations.rollback,
                lambda one=one: one.migrations.up(workspace.directory),
            ):
                with pytest.raises(NotAllowed):
                    list(call())
    assert position(workspace) == 4
    with connect(service, tmp_path, Grant(EVERY_TENANT, apply)) as client:
        with pytest.raises(NotAllowed, match="scope"):
            list(client.migrations.rollback(evict=True))
        list(client.migrations.rollback())
    assert position(workspace) == 3


def test_a_rollback_that_was_broken_off_is_not_done_again_with_its_key(
    service: Served, workspace: Workspace, tmp_path: Path
) -> None:
    with connect(service, tmp_path) as client:
        lost = client.with_key("lost")
        begun = lost.migrations.rollback()
        next(begun)
        begun.close()
        ends = time.monotonic() + 30
        while True:  # the service notices a moment later that nobody listens any more
            try:
                list(lost.migrations.rollback())
            except CommitUnknown:
                break
            except ConcurrencyError:
                assert time.monotonic() < ends
        assert position(workspace) in (3, 4)


def test_a_rollback_with_a_key_is_done_once(
    service: Served, workspace: Workspace, tmp_path: Path
) -> None:
    with connect(service, tmp_path) as client:
        with ThreadPoolExecutor(3) as pool:
            key = client.with_key("k")
            tried = [pool.submit(lambda: list(key.migrations.rollback())) for _ in range(3)]
        answers = {repr(one.result()[-1]) for one in tried if one.exception() is None}
        refused = [one.exception() for one in tried if one.exception() is not None]
        assert len(answers) == 1, refused
        assert all("under way" in str(error) for error in refused)
        assert repr(list(key.migrations.rollback())[-1]) in answers
        assert position(workspace) == 3


def test_a_rollback_whose_token_ends_meanwhile_is_not_done_again(
    service: Served, workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_over(*_: Any) -> None:
        raise NotAuthenticated("the token is over")

    with connect(service, tmp_path) as client:
        with monkeypatch.context() as during:
            during.setattr(service.server._guard, "check_again", is_over)
            with pytest.raises(NotAuthenticated):
                list(client.with_key("k").migrations.rollback())
        before = position(workspace)
        with pytest.raises(CommitUnknown):
            list(client.with_key("k").migrations.rollback())
        assert position(workspace) == before


def test_what_blocks_an_index_is_told_without_values_to_those_who_may_see_none(
    service: Served, workspace: Workspace, tmp_path: Path
) -> None:
    with zapdb.open(workspace.address) as db:
        for key in (100, 101):
            db.table("items").insert(id=key, title="secret value")
    workspace.write(5, UNIQUE)
    with connect(service, tmp_path, Grant(EVERY_TENANT, frozenset({"migrate:apply"}))) as client:
        told = list(client.with_key("u").migrations.up(workspace.directory))
        again = list(client.with_key("u").migrations.up(workspace.directory))
    assert told[-1].built[0].findings
    assert "secret value" not in repr(told) + repr(again)
