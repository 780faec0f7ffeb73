"""The past and the change log through a service: commands print the same, and methods answer what
the database does."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

import zapdb
from tests.cli.program import Result, run_here
from tests.contract.every_type import INDEXES, LATER, TABLES, TYPES, fill
from tests.contract.test_service_commands import WIDTHS
from tests.services import Served, bearer, make_keys, served, token_for
from tests.support import Workspace
from zapdb.catalog import principal
from zapdb.control import history
from zapdb.database import Database
from zapdb.errors import (
    HistoryGap,
    HistoryPurged,
    MomentInFuture,
    NotAllowed,
    RecordNotFound,
    UnknownName,
    UsageError,
)
from zapdb.limits import ARROW_PART_SIZE_BYTES
from zapdb.schema import read_canonical_bytes
from zapdb.service.methods import METHODS
from zapdb.service.principals import Grant

PASSING = re.compile(r'"seconds_behind": [0-9.e-]+|now: [^ ]+|"now": "[^"]+"|-?\b[0-9.]+ m?s\b')
"""What differs from moment to moment."""

COMMANDS = (
    "history moments",
    "history moments -n 3",
    "history moments --since #3 --table orders",
    "history moments --principal ada",
    "history moments --table nothing",
    "history audit -n 500",
    "history audit -n 3",
    "history audit --table orders --field note",
    "history row orders 3",
    "history row orders 5",
    "history row orders 3 --at {last}",
    "history row orders 3 --at 0s",
    "history row customers at",
    "history row orders 999",
    "history row orders 999 --at {last}",
    "history table orders --at 0s -n 100",
    "history table orders --at {first}",
    "history table orders --at {last} --where id>4 --order-by=-id -n 5",
    "history table orders --at {last} --order-by=idd",
    "history table customers --at 2026-01-01",
    "history table customers --at 2020-01-01T00:00Z",
    "history table customers --at 2920-01-01T00:00Z",
    "history table customers --at #4000",
    "history diff {first} {filled}",
    "history diff {filled} {first}",
    "history diff {first} {last} --table orders --table customers",
    "history diff {first} {last} --table nothing",
    "history status",
    "history status --all-tenants",
    "history status --tenant acme",
    "history status --tenant nobody",
    "changes list",
    "changes list -n 500",
    "changes list --newest -n 10",
    "changes list --table orders -n 5",
    "changes list --newest --since 1",
    "changes list --since 1.1.1.1",
    "changes list --tenant acme",
    "changes followers",
)


@pytest.fixture
def shop(workspace: Workspace, tmp_path: Path) -> Database:
    """Orders with a value of every type, large ones, before and after a migration; a history store,
    a follower, and another tenant, which records nothing."""
    workspace.write(1, *TYPES, *TABLES, name="shop")
    workspace.write(2, *INDEXES, name="indexes")
    db = workspace.open()
    db.admin.set_setting("change_log", "on", tenant="default")
    customers, orders = db.table("customers"), db.table("orders")
    for number in range(10):
        home = {"lines": [f"Street {number}", "Häuser\n"], "country": None, "since": None}
        customers.insert(country="at" if number % 2 else "b\\e", number=number, home=home)
    fill(db, range(12))
    with principal.acting_as("ada"):
        orders.update(3, note="\\x", extra={"a": [1, 2.5, None]}, photo=b"\0" * 20_000)
        orders.update(3, photo=b"\1" * 20_000)
        orders.delete(11)
    list(db.change_log.read())
    db.close()
    workspace.write(3, *LATER, name="later")
    db = workspace.open()
    fill(db, range(20, 30))
    db.table("orders").update(5, color="blue", amount=12)
    db.table("orders").delete(5)
    db.history.start(tmp_path / "past")
    db.history.flush()
    follower = db.change_log.follower("billing")
    follower.advance(list(follower.changes())[10].bookmark)
    db.admin.create_tenant("acme")
    return db


@pytest.fixture
def service(shop: Database, workspace: Workspace) -> Iterator[Served]:
    with served(workspace.address) as one:
        yield one


def settle(result: Result) -> Result:
    out = PASSING.sub("…", result.out)
    if out != result.out:  # from 9 s to 10 s, a column is wider
        out = WIDTHS.sub(" ", out)
    return Result(result.status, out, PASSING.sub("…", result.err))


def test_commands_say_the_same(shop: Database, service: Served, workspace: Workspace) -> None:
    numbers = sorted(made.number for made in shop.moments(table="orders"))
    named = {"first": f"#{numbers[1]}", "filled": f"#{numbers[5]}", "last": f"#{numbers[-2]}"}
    seen = list[Result]()
    for command in COMMANDS:
        for form in ((), ("--json",)):
            given = [part.format(**named) for part in command.split()]
            here = settle(run_here([*given, *form, "-d", workspace.address]))
            there = settle(run_here([*given, *form, "-d", f"grpc://{service.address}"]))
            assert there == here, (command, form)
            seen.append(here)
    assert {one.status for one in seen} >= {0, 1, 2}
    assert sum(len(one.out.splitlines()) for one in seen) > 500
    shown = run_here(["history", "audit", "-n", "500", "-d", workspace.address]).out
    assert "<binary of 20,000 bytes> → <binary of 20,000 bytes>" in shown
    assert "nan → nan" not in shown


def test_methods_answer_what_the_database_has(
    shop: Database, service: Served, workspace: Workspace
) -> None:
    last = next(iter(shop.moments())).number
    past = shop.at(last)
    with zapdb.connect(f"grpc://{service.address}") as found:
        row = found.history.fetch_row("orders", ("3",), f"#{last}")
        assert (row.moment, row.record["photo"]) == (last, "01" * 20_000)
        assert row.record["extra"] == {"a": [1, 2.5, None]}
        first = found.history.get_catalog("#2").tables
        assert [one.table for one in first] == list(shop.at(2)._session.then.tables)
        tables = {one.table: one for one in found.history.get_catalog(f"#{last}").tables}
        assert read_canonical_bytes(tables["orders"].schema) == past.schema("orders")
        assert "amount" in [one.name for one in tables["orders"].fields]
        made = list(found.history.get_moments(limit=2))
        assert [one.moment for one in made] == [last, last - 1]
        with pytest.raises(RecordNotFound):
            found.history.fetch_row("orders", ("999",), f"#{last}")
        with pytest.raises(UnknownName, match="no such table"):
            found.history.fetch_row("items", ("1",), f"#{last}")
        with pytest.raises(UsageError, match="no moment"):
            found.history.fetch_row("orders", ("1",), "yesterday")


def test_a_table_in_arrow(shop: Database, service: Served) -> None:
    last = next(iter(shop.moments())).number
    table = shop.at(last).table("customers")
    with zapdb.connect(f"grpc://{service.address}") as found:
        for of in ("customers", "orders"):
            wanted = shop.at(last).table(of)
            fields = [name for name in wanted.field_names if name not in NOT_COMPARED]
            read = found.history.to_arrow(of, f"#{last}", tuple(fields))
            assert read.read_all().equals(wanted.to_arrow(fields).read_all())
        some = found.history.to_arrow("customers", f"#{last}", ("number",), "number > 7")
        chosen = table.where(table.f.number > 7).to_arrow(["number"])
        assert some.read_all().equals(chosen.read_all())
        none = found.history.to_arrow("customers", f"#{last}", where="number > 99").read_all()
        assert (none.num_rows, none.column_names) == (0, list(table.field_names))
        with pytest.raises(MomentInFuture):
            found.history.to_arrow("customers", "#9999")


NOT_COMPARED = ("amount", "price", "prices", "weight")
"""Fields with numbers that no column of Arrow holds, or that differ from themselves."""


@pytest.mark.parametrize("order_by", [(), ("-id",), ("note",)])
def test_a_page_ends_before_it_is_too_large(
    shop: Database, service: Served, monkeypatch: pytest.MonkeyPatch, order_by: tuple[str, ...]
) -> None:
    """All pages together have each record once, and each has one at least."""
    with zapdb.connect(f"grpc://{service.address}") as found:
        listing = found.history.list_records
        whole = listing("orders", "0s", order_by=order_by, limit=100)
        assert whole.cursor is None
        monkeypatch.setattr(history, "PAST_PAGE_SIZE_BYTES_MAX", 60_000)
        for for_text in (False, True):
            pages = [listing("orders", "0s", order_by=order_by, limit=100, for_text=for_text)]
            while pages[-1].cursor is not None:
                cursor = pages[-1].cursor
                pages.append(
                    listing(
                        *("orders", "0s"),
                        order_by=order_by,
                        limit=100,
                        cursor=cursor,
                        for_text=for_text,
                    )
                )
            records = [record for page in pages for record in page.records]
            assert [one["id"] for one in records] == [one["id"] for one in whole.records]
            if not for_text:
                assert len(pages) > 1
                assert records == list(whole.records)
            for page in pages:
                assert len(json.dumps(page.records)) < 70_000 or len(page.records) == 1
                assert len(page.large) == (len(page.records) if for_text else 0)


def test_moments_that_cannot_be_read_have_their_statuses(
    shop: Database, service: Served, workspace: Workspace
) -> None:
    with zapdb.connect(f"grpc://{service.address}") as found:
        with pytest.raises(MomentInFuture):
            found.history.get_catalog("2999-01-01T00:00Z")
        last, *_, first = shop.moments(table="customers")
        then = f"#{first.number + 1}"
        assert found.history.list_records("customers", then).records  # so this past is kept
        kept = shop.at(first.number + 1)
        shop.change_log.follower("billing").remove()
        shop.change_log.prune(last.bookmark)
        shop.history.purge(last, exact=True)
        with pytest.raises(HistoryPurged) as caught:
            found.history.list_records("customers", then)
        assert {"history_store_begins", "log_begins_behind"} <= set(caught.value.context)
        with pytest.raises(HistoryPurged) as wanted:
            kept.table("customers")
        assert str(wanted.value) == str(caught.value)
        with pytest.raises(HistoryGap):
            list(found.for_tenant("acme").history.audit())
    assert [one.rpc_status for one in (MomentInFuture, HistoryPurged, HistoryGap)] == [
        *("OUT_OF_RANGE", "NOT_FOUND", "FAILED_PRECONDITION")
    ]


def test_what_shows_values_is_for_those_who_may_read_data(
    shop: Database, workspace: Workspace, tmp_path: Path
) -> None:
    """The rest of the history is not; and tables narrow it."""
    keys = make_keys(tmp_path)
    of_history = token_for(keys, "ops", Grant("default", frozenset({"history:read"})))
    of_customers = token_for(
        keys, "crm", Grant("default", frozenset({"data:read"}), frozenset({"customers"}))
    )
    with served(workspace.address, keys) as service:
        address = f"grpc://{service.address}"
        with zapdb.connect(address, token=of_history) as found:
            assert list(found.history.get_moments(limit=1))
            found.changes.get_followers()
            with pytest.raises(NotAllowed):
                found.history.fetch_row("customers", ("at", "1"), "0s")
            with pytest.raises(NotAllowed):
                found.history.list_stores(all_tenants=True)
        with zapdb.connect(address, token=of_customers) as found:
            found.history.fetch_row("customers", ("at", "1"), "0s")
            assert list(found.history.audit(table="customers", limit=1))
            with pytest.raises(NotAllowed):
                found.history.fetch_row("orders", ("1",), "0s")
            for ask in (found.history.audit, found.changes.list_changes):
                with pytest.raises(NotAllowed):
                    list(ask())
            with pytest.raises(NotAllowed):
                list(found.history.diff_moments("#2", "0s", ("customers", "orders")))


def test_a_slow_reader_holds_no_transaction(
    shop: Database, service: Served, workspace: Workspace
) -> None:
    """Nor one that goes away."""
    shop.table("customers").insert_many(
        {"country": "xx", "number": number, "home": {"lines": ["x" * 3_000]} | REST}
        for number in range(6_000)
    )
    last = next(iter(shop.moments())).number
    with zapdb.connect(f"grpc://{service.address}") as found:
        parts = found.history.load_table("customers", f"#{last}")
        first = next(parts)
        assert (first.moment, len(first.data)) == (last, ARROW_PART_SIZE_BYTES)
        entries = found.changes.list_changes()
        next(entries)
        time.sleep(1)  # the server has filled what the connection holds
        assert list_open_transactions(shop, workspace) == 0
        shop.table("customers").delete("xx", 5)
        rest = sum(len(part.data) for part in parts)
        assert rest > 15 * ARROW_PART_SIZE_BYTES
        entries.close()
        parts = found.history.load_table("customers", f"#{last}")
        next(parts)
        parts.close()
        assert found.history.fetch_row("customers", ("at", "1"), "0s").record["number"] == 1


REST = {"country": None, "since": None}


def list_open_transactions(shop: Database, workspace: Workspace) -> int:
    """How many transactions wait for their process."""
    if workspace.engine == "sqlite":
        ((is_busy, *_),) = shop._storage.connection().fetch_all("PRAGMA wal_checkpoint(TRUNCATE)")
        return int(is_busy)
    ((count,),) = shop._storage.connection().fetch_all(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND state IN ('idle in transaction', 'idle in transaction (aborted)')"
        " AND xact_start < now() - interval '0.5 s'"  # a heartbeat's takes milliseconds
    )
    return int(count)


def test_a_call_that_ends_stops_what_it_does(
    shop: Database, service: Served, workspace: Workspace
) -> None:
    method = next(one for one in METHODS if one.name == "DiffMoments")
    request: Any = method.request_class(first="#2", second="0s")
    with grpc.insecure_channel(service.address) as channel:
        call = channel.unary_stream(
            method.path,
            request_serializer=method.request_class.SerializeToString,
            response_deserializer=method.answer_class.FromString,
        )
        with pytest.raises(grpc.RpcError) as caught:
            list(call(request, timeout=0.001, metadata=bearer("x")))
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    ends = time.monotonic() + 10
    while service.server._runtime.under_way and time.monotonic() < ends:
        time.sleep(0.02)
    assert not service.server._runtime.under_way
