"""A grant that is narrowed to tables: of a table that was renamed, dropped or made again, it shows
what stands under a name that it covers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.contract.stored_pasts import flush
from tests.services import ALL, bearer, make_keys, served, token_for
from tests.support import Workspace
from zapdb.control import pace_of
from zapdb.database import Database
from zapdb.errors import CorruptRecord
from zapdb.service.client import connect
from zapdb.service.methods import METHODS, Method
from zapdb.service.principals import Grant

HIDDEN = "hiddenmark"
OPEN = "openmark"
COVERED = ("a", "d")
"""The tables of the grant."""
NAMES = "{name: id, type: string}, {name: note, type: string}"


def table(name: str) -> str:
    return f"create_table: {{table: {name}, key: [id], fields: [{NAMES}]}}"


def rename(name: str, to: str) -> str:
    return f"rename_table: {{table: {name}, to: {to}}}"


def fill(db: Database, name: str, mark: str, turn: str) -> None:
    """Every kind of change, of which a record is left that says nothing."""
    found = db.table(name)
    found.insert(id=f"{mark}-{turn}", note=f"{mark} inserted")
    found.update(f"{mark}-{turn}", note=f"{mark} updated")
    found.delete(f"{mark}-{turn}")
    found.insert(id=f"left-{turn}", note=f"{mark} of one that stays")
    found.update(f"left-{turn}", note="-")


@pytest.fixture
def world(workspace: Workspace, tmp_path: Path) -> Database:
    """Tables `a` and `b` that have changed names, `c` that became `d` and was dropped, another `d`,
    and `e` that is `d` no more; with `b`, `c` and `e` on what they hold."""
    workspace.write(1, table("a"), table("b"), table("c"))
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    for name, mark in (("a", OPEN), ("b", HIDDEN), ("c", HIDDEN)):
        fill(db, name, mark, "first")
    list(db.change_log.read())
    db.history.start(tmp_path / "past")
    flush(db)
    db.close()
    workspace.write(2, rename("a", "x"), rename("b", "a"), rename("x", "b"), rename("c", "d"))
    db = workspace.open()
    for name, mark in (("a", OPEN), ("b", HIDDEN), ("d", OPEN)):
        fill(db, name, mark, "second")
    list(db.change_log.read())
    db.close()
    workspace.write(3, "drop_table: {table: d, records: archive}")
    workspace.open().close()
    workspace.write(4, table("d"))
    db = workspace.open()
    fill(db, "d", OPEN, "third")
    db.close()
    workspace.write(5, rename("d", "e"))
    db = workspace.open()
    fill(db, "e", HIDDEN, "fourth")
    db.close()
    workspace.write(6, table("d"))
    db = workspace.open()
    fill(db, "d", OPEN, "fifth")
    db.table("b").insert(id=f"{HIDDEN}-now", note=f"{HIDDEN} now")
    db.table("e").insert(id=f"{HIDDEN}-now", note=f"{HIDDEN} now")
    flush(db)
    follower = db.change_log.follower("reader")
    of_hidden = [one for one in follower.changes() if HIDDEN.encode() in one.bookmark.key]
    follower.advance(of_hidden[-1].bookmark)
    return db


def list_requests(method: Method, db: Database) -> Iterator[Mapping[str, Any]]:
    """What may show values: of each table that is covered, at each moment, with each key."""
    moments = [f"#{one.number}" for one in db.moments()]
    moments = [moments[0], *moments[1:-1:5], moments[-1]]
    keys = [f"{OPEN}-first", f"{HIDDEN}-first", f"{HIDDEN}-second", "left-first", "left-second"]
    for name in COVERED:
        match method.name:
            case "ListKeyRanges":
                yield {"table": name}
            case "Audit" | "ListChanges":
                yield {"table": name}
                yield {"table": name, "for_text": True}
                yield {"table": name, "limit": 3}
                if method.name == "ListChanges":
                    yield {"table": name, "newest": True}
            case "FetchRow":
                yield from ({"table": name, "key": [k], "at": at} for at in moments for k in keys)
            case "GetVersions":
                yield from ({"table": name, "key": [key]} for key in [*keys, f"{HIDDEN}-now"])
            case "ListRecords" | "LoadTable":
                yield from ({"table": name, "at": at, "limit": 20} for at in moments)
            case "DiffMoments":
                for at in moments:
                    yield {"first": moments[-1], "second": at, "tables": [name]}
                    yield {"first": at, "second": moments[0], "tables": COVERED}
            case _:
                assert not method.shows_data, f"{method.name} needs requests here"
                yield {} if method.scope == "data:read" else {"table": name}


def ask(channel: grpc.Channel, method: Method, fields: Mapping[str, Any], token: str) -> bytes:
    """All bytes of an answer, also of one that is an error; not what the request has."""
    known = method.request_class.DESCRIPTOR.fields_by_name
    request: Any = method.request_class(**{key: v for key, v in fields.items() if key in known})
    kinds = "stream" if method.sent else "unary", "stream" if method.is_stream else "unary"
    call = getattr(channel, "_".join(kinds))(
        method.path, request_serializer=method.request_class.SerializeToString
    )
    found = list[bytes]()
    try:
        answer = call(
            iter([request]) if method.sent else request, metadata=bearer(token), timeout=60
        )
        if not method.is_stream:
            return bytes(answer)
        for part in answer:
            found.append(part)
            if pace_of(method.function):  # a watch may have no end
                answer.cancel()
                break
    except grpc.RpcError as error:
        found += [part for _, part in error.trailing_metadata() or () if isinstance(part, bytes)]
        found.append(str(error.details()).encode())
    whole = b"\0".join(found)
    for key in fields.get("key", ()):
        whole = whole.replace(key.encode(), b"(asked)")
    return whole


def is_marked(answer: bytes, mark: str) -> bool:
    return mark.encode() in answer or mark.encode().hex().encode() in answer


def test_values_of_tables_that_a_grant_does_not_cover_are_in_no_answer(
    world: Database, workspace: Workspace, tmp_path: Path
) -> None:
    keys = make_keys(tmp_path)
    token = token_for(keys, "narrow", Grant("default", ALL, frozenset(COVERED)))
    shown = set[str]()
    with served(workspace.address, keys) as one, grpc.insecure_channel(one.address) as channel:
        for method in METHODS:
            if method.changes:
                continue
            for fields in list_requests(method, world):
                answer = ask(channel, method, fields, token)
                assert not is_marked(answer, HIDDEN), (method.name, fields, answer)
                if is_marked(answer, OPEN):
                    shown.add(method.name)
    nothing_of_it = {"ListKeyRanges"}  # no conversion was ever begun
    assert shown == {method.name for method in METHODS if method.shows_data} - nothing_of_it
    assert not any(HIDDEN in str(row) for row in workspace.execute("SELECT * FROM zapdb_calls"))


def test_one_whose_grant_covers_all_names_is_told_all(
    world: Database, workspace: Workspace, tmp_path: Path
) -> None:
    keys = make_keys(tmp_path)
    scopes = frozenset({"data:read"})
    tokens = [
        token_for(keys, "narrow", Grant("default", scopes, frozenset("abcde"))),
        token_for(keys, "wide", Grant("default", scopes)),
    ]
    with served(workspace.address, keys) as one, grpc.insecure_channel(one.address) as channel:
        for method in (one for one in METHODS if one.shows_data):
            for fields in list_requests(method, world):
                narrow, wide = (ask(channel, method, fields, token) for token in tokens)
                assert narrow == wide, (method.name, fields)


def test_findings_are_for_those_who_may_see_both_names(
    workspace: Workspace, tmp_path: Path
) -> None:
    """That of the time when the job was planned, and the present one; and keys of what can't be
    read."""
    workspace.write(1, table("a"))
    db = workspace.open()
    for at in range(2):
        db.table("a").insert(id=str(at), note=HIDDEN)
    db.close()
    unique = "create_index: {table: a, index: by_note, fields: [{field: note}], unique: true}"
    workspace.write(2, unique)
    db = workspace.open()
    (report,) = db.admin.run_jobs()
    assert report.job.state == "blocked"
    db.close()
    workspace.write(3, rename("a", "b"))
    workspace.open().close()
    keys, found = make_keys(tmp_path), dict[str, list[bool]]()
    with served(workspace.address, keys) as one:
        for names in ("a", "b", "ab"):
            grant = Grant("default", frozenset({"jobs:read", "data:read"}), frozenset(names))
            with connect(f"grpc://{one.address}", token=token_for(keys, "x", grant)) as client:
                answers: list[Any] = [
                    client.jobs.list_jobs().jobs,
                    client.jobs.get_job(report.job.id).findings,
                    client.jobs.get_conversion_status().blocked,
                ]
            assert all(answers)
            found[names] = [HIDDEN in str(answer) for answer in answers]
    assert found == {"a": [False] * 3, "b": [False] * 3, "ab": [True] * 3}


def test_an_error_of_a_record_tells_of_it_to_those_who_may_see_it(
    workspace: Workspace, tmp_path: Path
) -> None:
    workspace.write(1, table("a"))
    db = workspace.open()
    db.admin.set_setting("change_log", "on")
    db.table("a").insert(id=HIDDEN, note="-")
    db.close()
    workspace.write(2, rename("a", "b"))
    db = workspace.open()
    list(db.change_log.read())
    cut = "substr(after, 1, length(after) - 1)"
    workspace.execute(f"UPDATE zapdb_changes SET after = {cut} WHERE event IS NULL")
    keys, told = make_keys(tmp_path), dict[bool, set[str]]()
    with served(workspace.address, keys) as one:
        for is_narrow in (True, False):
            tables = frozenset("b") if is_narrow else None
            grant = Grant("default", frozenset({"data:read"}), tables)
            with (
                connect(f"grpc://{one.address}", token=token_for(keys, "x", grant)) as client,
                pytest.raises(CorruptRecord) as caught,
            ):
                list(client.changes.list_changes(table="b"))
            told[is_narrow] = {*caught.value.context}
    assert told[True] <= {"table"}
    assert told[False] > {"what", "offset"}
