"""No way in which an address of a database comes out shows what may be secret in it."""

from __future__ import annotations

import io
import json
import logging
import os
import pickle
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import zapdb
from tests import processes
from tests.contract.tables import ITEMS
from tests.support import GUARD_SECONDS, ROOT, PostgresServer, Workspace
from zapdb.cli.program import run_program
from zapdb.errors import EXIT_ERROR, EXIT_USAGE, UsageError, ZapdbError
from zapdb.logs import JsonFormatter
from zapdb.storage import connect

SECRET = "Xk9qMarker7"
NOWHERE = "127.0.0.1:1"

MALFORMED = {
    "leading blank": f" postgresql://ada:{SECRET}@{NOWHERE}/db",
    "leading line end": f"\npostgresql://ada:{SECRET}@{NOWHERE}/db",
    "trailing line end": f"postgresql://ada:{SECRET}@{NOWHERE}/db\n",
    "dsn": f"host=127.0.0.1 port=1 user=ada password={SECRET} dbname=db",
    "dsn with quotes": f"host=127.0.0.1 password='{SECRET} x' dbname=db",
    "dsn as database": f"postgresql:///host=127.0.0.1 password={SECRET}",
    "dsn as database, quoted": f"postgresql:///host=127.0.0.1%20password={SECRET}",
    "dsn as host": f"postgresql://host=127.0.0.1 password={SECRET}",
    "no colon": f"postgresql//ada:{SECRET}@{NOWHERE}/db",
    "no scheme": f"ada:{SECRET}@{NOWHERE}/db",
    "one slash": f"postgresql:/ada:{SECRET}@{NOWHERE}/db",
    "three slashes": f"postgresql:///ada:{SECRET}@{NOWHERE}/db",
    "@ in the password": f"postgresql://ada:x@{SECRET}@{NOWHERE}/db",
    "two @ in the password": f"postgresql://ada:x@y@{SECRET}@{NOWHERE}/db",
    "@ and ? in the password": f"postgresql://ada:x@{SECRET}?y@{NOWHERE}/db",
    "@ and & in the password": f"postgresql://ada:x@h?y=1&{SECRET}@{NOWHERE}/db",
    "@ in the user": f"postgresql://ada@{SECRET}:x@{NOWHERE}/db",
    "no colon before the password": f"postgresql://ada/{SECRET}@{NOWHERE}/db",
    "& in a password": f"postgresql://ada@{NOWHERE}/db?password=x&{SECRET}=1",
    "no = in the query": f"postgresql://ada@{NOWHERE}/db?{SECRET}",
    "unknown option": f"postgresql://ada@{NOWHERE}/db?passwrd={SECRET}",
    "plugin": f"postgresql://ada@{NOWHERE}/db?plugin={SECRET}",
    "driver's own option": f"postgresql://ada@{NOWHERE}/db?cursor_factory={SECRET}",
    "autocommit": f"postgresql://ada@{NOWHERE}/db?autocommit={SECRET}",
    "port": f"postgresql://ada:x@127.0.0.1:{SECRET}/db",
    "wrong driver": f"postgresql+psycopg2://ada:{SECRET}@{NOWHERE}/db",
    "another database": f"mysql://ada:{SECRET}@{NOWHERE}/db?password={SECRET}",
    "file with a user": f"sqlite://ada:{SECRET}@host/db.sqlite",
    "file with a password": f"sqlite:///db.sqlite?password={SECRET}",
    "file that is a URI": f"sqlite:///file:db.sqlite?uri=true&key={SECRET}",
    "file that is no URI": f"sqlite:///db.sqlite?uri={SECRET}",
    "memory": f"sqlite://:{SECRET}@/:memory:",
    "control character": f"postgresql://ada:{SECRET}\x1b[2J@{NOWHERE}/db",
    "null": f"postgresql://ada:{SECRET}\0@{NOWHERE}/db",
}
"""Refused before anything is asked of a driver."""

UNREACHABLE = {
    "password": f"postgresql://ada:{SECRET}@{NOWHERE}/db",
    "quoted password": f"postgresql://ada:%20{SECRET}%40@{NOWHERE}/db",
    "password in the query": f"postgresql://ada@{NOWHERE}/db?password={SECRET}",
    "two passwords": f"postgresql://ada:x@{NOWHERE}/db?password={SECRET}",
    "sslpassword": f"postgresql://ada@{NOWHERE}/db?sslpassword={SECRET}",
    "client secret": f"postgresql://ada@{NOWHERE}/db?oauth_client_secret={SECRET}",
    "blank instead of &": f"postgresql://{NOWHERE}/db?user=ada%20password={SECRET}",
    "+ instead of &": f"postgresql://{NOWHERE}/db?user=ada+password={SECRET}",
    "quoted colon": f"postgresql://ada%3A{SECRET}@{NOWHERE}/db",
    "address as database": f"postgresql://{NOWHERE}/?dbname=postgresql://ada:{SECRET}@h/db",
    "number": f"postgresql://ada@{NOWHERE}/db?connect_timeout=1%20{SECRET}",
    "mode": f"postgresql://ada@{NOWHERE}/db?channel_binding={SECRET}",
    "keepalives": f"postgresql://ada@{NOWHERE}/db?keepalives={SECRET}",
    "wrong host": f"postgresql://ada:{SECRET}@no..such.host/db?password={SECRET}",
    "port of several": f"postgresql://ada@/db?host=127.0.0.1:{SECRET}&host=b:1",
    "passfile": f"postgresql://ada@/db?passfile=/nowhere/{SECRET}&host=127.0.0.1&port=1",
}
"""Right as far as can be told; the driver refuses, or there is no server."""


@contextmanager
def logged() -> Iterator[io.StringIO]:
    """What zapdb and SQLAlchemy log, at every level, as text and as JSON."""
    written = io.StringIO()
    handlers = [logging.StreamHandler(written), logging.StreamHandler(written)]
    handlers[1].setFormatter(JsonFormatter())
    loggers = [logging.getLogger(name) for name in ("zapdb", "sqlalchemy")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.DEBUG)
        for handler in handlers:
            logger.addHandler(handler)
    try:
        yield written
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
            for handler in handlers:
                logger.removeHandler(handler)


def texts_of(error: BaseException) -> Iterator[str]:
    """An error and all that it was raised from, in every form."""
    yield "".join(traceback.format_exception(error))
    known: BaseException | None = error
    seen = list[BaseException]()
    while known is not None and known not in seen:
        seen.append(known)
        yield from (str(known), repr(known), repr(known.args), repr(vars(known)))
        yield from getattr(known, "__notes__", [])
        known = known.__cause__ or known.__context__
    if isinstance(error, ZapdbError):
        again = pickle.loads(pickle.dumps(error))
        yield from (str(again), repr(vars(again)), json.dumps(error.to_json()))


def refused(address: str, **options: bool) -> ZapdbError:
    with pytest.raises(ZapdbError) as caught, logged() as log:
        zapdb.open(address, **options)  # type: ignore[arg-type]  # `read_only` alone is given
    for text in (*texts_of(caught.value), log.getvalue()):
        assert SECRET not in text
    return caught.value


def commands(address: str) -> Iterator[tuple[str, ...]]:
    """The address where it belongs, and where people put it by mistake."""
    yield "verify", "-d", address
    yield "verify", f"--database={address}"
    yield "migrate", "up", "-d", address, "-m", "."
    yield "verify", address
    yield "verify", "--databse", address
    yield "verify", f"--databse={address}"
    yield "migrate", "status", "-d", "sqlite:///none.db", "-m", address
    yield "migrate", "status", "-d", "sqlite:///none.db", "--tenant", address
    yield "data", "get", address, "1", "-d", "sqlite:///none.db"


MISPLACED = (
    "leading blank",
    "dsn",
    "no colon",
    "@ in the password",
    "file that is a URI",
    "control character",
    "password in the query",
    "quoted colon",
)
"""The addresses that are also given where none belongs."""


def check_commands(name: str, status: int, capsys: pytest.CaptureFixture[str]) -> None:
    given = list(commands((MALFORMED | UNREACHABLE)[name]))
    for arguments in given if name in MISPLACED else given[:1]:
        for more in ((), ("--json",)):
            ended = run_program([*arguments, *more])
            shown = capsys.readouterr()
            assert ended in (EXIT_ERROR, EXIT_USAGE, 3), arguments
            assert SECRET not in shown.out + shown.err, arguments
            assert "Traceback" not in shown.err
            if more and arguments[0] != "data":
                assert json.loads(shown.err)["code"]
            if arguments[:2] == ("verify", "-d"):
                assert ended == status


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_address_is_an_error_that_shows_nothing_of_it(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    address = MALFORMED[name]
    error = refused(address)
    assert type(error) is UsageError
    assert error.hint
    assert type(refused(address, read_only=True)) is UsageError
    check_commands(name, EXIT_USAGE, capsys)
    monkeypatch.setenv("ZAPDB_DATABASE", address.replace("\0", "\x01"))
    assert run_program(["verify"]) == EXIT_USAGE
    assert SECRET not in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", UNREACHABLE)
def test_an_address_that_leads_nowhere_shows_nothing_secret(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    address = UNREACHABLE[name]
    error = refused(address)
    assert error.exit_status == EXIT_ERROR
    storage = connect(address)
    for shown in (
        storage.shown_url,
        repr(storage.engine.core),
        repr(storage.engine.url),
        repr(storage),
    ):
        assert SECRET not in shown
    assert SECRET in storage.engine.full_address()  # for executors: what is hidden is not lost
    storage.close()
    check_commands(name, EXIT_ERROR, capsys)


@pytest.mark.parametrize("value", [None, 1, b"sqlite:///x", ["sqlite:///x"], Path("x.db"), ""])
def test_what_is_no_text_is_no_address(value: object) -> None:
    with pytest.raises(UsageError, match="this is not a database address"):
        zapdb.open(value)  # type: ignore[arg-type]  # it is what is tested


@pytest.mark.parametrize(
    "extra", ["password", "sslpassword", "oauth_client_secret"], ids=lambda name: str(name)
)
def test_an_open_database_shows_nothing_secret(extra: str, postgres: PostgresServer) -> None:
    """It works with the secret in its address, and says where it is without it."""
    with postgres.fresh_database() as address:
        place = Workspace("postgresql", f"{address}&{extra}={SECRET}", Path("unused"))
        with place, logged() as log:
            storage = place.connect()
            with storage.transaction(zapdb.storage.TransactionMode.READ) as connection:
                assert connection.fetch_one("SELECT 1") == (1,)
            shown = [
                repr(storage),
                storage.shown_url,
                repr(storage.engine.core),
                str(storage.engine.url),
            ]
            with pytest.raises(ZapdbError) as caught:
                zapdb.open(place.address)  # it is empty
            shown += texts_of(caught.value)
            shown += [log.getvalue()]
        assert not [text for text in shown if SECRET in text]
        assert address.rpartition("/")[0].partition("@")[0] in storage.shown_url


def test_a_wrong_password_is_not_in_what_a_process_writes(tmp_path: Path) -> None:
    """An error that nobody catches: its traceback, with all that it was raised from."""
    code = "import sys, zapdb; zapdb.open(sys.argv[1])"
    for address in (UNREACHABLE["password in the query"], UNREACHABLE["number"]):
        ended = processes.run(
            [sys.executable, "-c", code, address],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=GUARD_SECONDS,
        )
        assert "StorageError" in ended.stderr
        assert SECRET not in ended.stdout + ended.stderr


@pytest.mark.parametrize("engine", ["sqlite"])
def test_a_path_is_shown_as_it_is(workspace: Workspace) -> None:
    workspace.write(1, ITEMS)
    db = workspace.open()
    assert db._storage.shown_url == workspace.address
    assert re.fullmatch(r"<zapdb database sqlite:///\S+, tenant 'default', position 1>", repr(db))
