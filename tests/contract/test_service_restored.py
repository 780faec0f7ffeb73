"""A backup is restored under a service and its clients: none of them has to connect anew."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import zapdb
import zapdb.aio
from tests.contract.tables import ITEMS
from tests.contract.test_restored import Backups, backups, engine, way
from tests.services import Served, make_keys, served, token_for
from tests.support import Workspace, wait_until
from zapdb.control.settings import SettingScope
from zapdb.errors import (
    CatalogChangesPurged,
    CatalogRestored,
    LeaseLost,
    ServiceUnreachable,
    StorageError,
)

__all__ = ["backups", "engine", "way"]  # fixtures

EVERYWHERE = SettingScope()


def seen_by(service: Served) -> int:
    known = service.server._known
    return 0 if known is None else known.seq


def test_a_client_goes_on_after_a_restore(
    workspace: Workspace, backups: Backups, tmp_path: Path
) -> None:
    """Told once, at whichever call is next, that what it has changed is gone."""
    workspace.write(1, ITEMS)
    workspace.open().close()
    keys = make_keys(tmp_path)
    token = token_for(keys)
    with served(workspace.address, keys) as service:
        address = f"grpc://{service.address}"
        with zapdb.connect(address, token=token) as client:
            client.settings.set_setting("on_read", "leave", EVERYWHERE)
            backup = backups.make()
            done = client.settings.set_setting("on_read", "write_back", EVERYWHERE)
            assert client.settings.get_setting("on_read", EVERYWHERE).value == "write_back"
            watch = client.catalog.watch_catalog()
            next(watch)
            backups.restore(backup)
            wait_until(lambda: seen_by(service) < done.seq, "the service has seen the backup")
            with pytest.raises(CatalogRestored) as caught:
                client.settings.get_setting("on_read", EVERYWHERE)
            assert caught.value.context["seq"] == str(done.seq)
            assert "ask again" in caught.value.hint
            assert client.settings.get_setting("on_read", EVERYWHERE).value == "leave"
            assert client.catalog.list_tables().position == 1
            with pytest.raises((CatalogChangesPurged, StorageError)):  # its connection may be lost
                list(watch)
            with pytest.raises(CatalogChangesPurged):
                next(client.catalog.watch_catalog(after=done.seq))

        async def ask() -> None:
            async with zapdb.aio.connect(address, token=token) as other:
                other._calls._seen[0] = done.seq
                with pytest.raises(CatalogRestored):
                    await other.catalog.list_tables()
                assert (await other.catalog.list_tables()).position == 1

        asyncio.run(ask())


def test_a_client_goes_on_with_the_service_that_takes_the_place_of_an_ended_one(
    workspace: Workspace, backups: Backups, tmp_path: Path
) -> None:
    """A service that was no node yet when the backup was made ends, and is started again."""
    workspace.write(1, ITEMS)
    workspace.open().close()
    backup, keys = backups.make(), make_keys(tmp_path)
    clients = list[Any]()

    def serve_until_it_ends() -> str:
        with served(workspace.address, keys) as service:
            address = service.address
            client = zapdb.connect(f"grpc://{address}", token=token_for(keys))
            clients.append(client)
            client.settings.set_setting("on_read", "write_back", EVERYWHERE)
            client.settings.set_setting("on_read", "leave", EVERYWHERE)
            wait_until(lambda: service.server._was_node, "the service is a node")
            backups.restore(backup)
            wait_until(service.loop.is_closed, "the service has ended")
        return address

    with pytest.raises(LeaseLost, match="evicted"):
        serve_until_it_ends()
    (client,) = clients
    with pytest.raises(ServiceUnreachable) as unreachable:
        client.settings.unset_setting("on_read", EVERYWHERE)
    assert "`zapdb settings list` shows whether" in unreachable.value.hint
    address = client._calls.address.place
    with served(workspace.address, keys, listen=address):

        def is_reached() -> bool:
            try:
                client.catalog.list_tables()
            except ServiceUnreachable:
                return False
            except CatalogRestored:
                return True
            raise AssertionError("the client was not told")

        wait_until(is_reached, "the service is reached", 0.1)
        assert client.catalog.list_tables().position == 1
        client.close()
