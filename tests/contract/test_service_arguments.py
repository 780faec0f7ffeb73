"""No argument of a method is a fault of the service, or holds it: each is answered, or refused with
an error that is documented. Numbers at their edges, lists of thousands, texts of a megabyte."""

from __future__ import annotations

import ast
import importlib
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.contract.tables import ITEMS
from tests.services import Served, bearer, make_keys, served, token_for
from tests.sources import PACKAGE
from tests.support import GUARD_SECONDS, Workspace
from zapdb.control import pace_of
from zapdb.control.bounds import call_method, checks_of
from zapdb.control.migrations.rolling_back import rollback
from zapdb.errors import InvalidValue, ZapdbError
from zapdb.limits import (
    ARGUMENT_ENTRIES_MAX,
    ARGUMENT_LENGTH_CHARS_MAX,
    FIELDS_PER_TABLE_MAX,
)
from zapdb.service import server as server_module
from zapdb.service.methods import METHODS, Method
from zapdb.service.status import DETAILS

NUMBERS = (-1, 0, 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1, math.nan, math.inf, -math.inf)
MANY = 10_000
LONG = "x" * 1024 * 1024
MOST = ARGUMENT_LENGTH_CHARS_MAX
TEXTS = (LONG, *(one * MOST for one in "([9é-"), "id=1 and " * (MOST // 9))
"""One that is too long, and some that are as long as can be."""
DOCUMENTED = {
    *("OK", "INVALID_ARGUMENT", "NOT_FOUND", "FAILED_PRECONDITION", "OUT_OF_RANGE", "ABORTED"),
    *("ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED"),
}
FINE: dict[str, Any] = {
    "table": "items",
    "at": "#1",
    "first": "#1",
    "second": "#1",
    "key": ["1"],
    "name": "convert",
    "value": "on_access",
    "fingerprint": "0x1",
    "before": 1,
    "after": 1,
    "limit": 3,
    "host": "here",
    "release": "0.1.0",
    "level": 1,
    "dry_run": True,
}
"""Fields of requests that do no harm, and lead far into their methods."""


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture
def service(workspace: Workspace, key_file: Path) -> Iterator[Served]:
    workspace.write(1, ITEMS)
    with workspace.open() as db:
        db.admin.set_setting("change_log", "on")
        db.table("items").insert(id=1, title="Milk")
    with served(workspace.address, key_file) as one:
        yield one


class Asker:
    """Asks a method, and tells with which status it ends."""

    def __init__(self, channel: grpc.Channel, method: Method, key_file: Path) -> None:
        kinds = "stream" if method.sent else "unary", "stream" if method.is_stream else "unary"
        self._ask = getattr(channel, "_".join(kinds))(method.path)
        self._metadata = bearer(token_for(key_file))
        self._method = method

    def ask(self, request: Any) -> str:
        sent, method = request.SerializeToString(), self._method
        given = iter([sent]) if method.sent else sent
        try:
            answer = self._ask(given, metadata=self._metadata, timeout=GUARD_SECONDS)
            if method.is_stream:
                for _, _ in zip(answer, range(1 if pace_of(method.function) else 50), strict=False):
                    pass
                answer.cancel()
        except grpc.RpcError as error:
            is_told = any(key == DETAILS for key, _ in error.trailing_metadata() or ())
            return error.code().name if is_told else f"{error.code().name}, without details"
        return "OK"


def fine_request(method: Method) -> Any:
    """A request whose fields are fine, those of its parts included."""
    request = method.request_class()
    for name in request.DESCRIPTOR.fields_by_name:
        if name not in FINE:
            continue
        if isinstance(FINE[name], list):
            getattr(request, name).extend(FINE[name])
        else:
            setattr(request, name, FINE[name])
    return request


def places_of(request: Any, way: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The fields of a request and of its parts, each with the names that lead to it."""
    for field in request.DESCRIPTOR.fields:
        if field.message_type is None:
            yield (*way, field.name), field
        elif not field.is_repeated:
            yield from places_of(getattr(request, field.name), (*way, field.name))


def put(request: Any, way: tuple[str, ...], value: Any) -> bool:
    """Whether a value can be put there."""
    *parts, name = way
    for part in parts:
        request = getattr(request, part)
    try:
        if isinstance(value, list):
            del getattr(request, name)[:]
            getattr(request, name).extend(value)
        else:
            setattr(request, name, value)
    except (ValueError, TypeError):  # the field has no place for it
        return False
    return True


def variants(method: Method) -> Iterator[tuple[str, Any]]:
    for way, field in places_of(fine_request(method)):
        shown = ".".join(way)
        if field.cpp_type == field.CPPTYPE_STRING:
            texts = field.type == field.TYPE_STRING
            values: list[Any] = list(TEXTS) if texts else [LONG.encode()]
            if field.is_repeated:
                values = [[text] for text in TEXTS]
                for count in (MANY, ARGUMENT_ENTRIES_MAX, FIELDS_PER_TABLE_MAX):
                    values += [["items"] * count, [f"-a{n}" for n in range(count)], ["id"] * count]
        elif field.cpp_type in (field.CPPTYPE_BOOL, field.CPPTYPE_ENUM):
            continue
        else:
            values = [NUMBERS] * MANY if field.is_repeated else list(NUMBERS)
        for value in values:
            request = fine_request(method)
            if put(request, way, value):
                yield f"{shown}: {str(value)[:20]}… {len(str(value))}", request


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.path)
def test_each_argument_is_answered_or_refused(
    service: Served, key_file: Path, method: Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "CATALOG_WAIT_SECONDS", 0.01)
    with grpc.insecure_channel(service.address) as channel:
        asker = Asker(channel, method, key_file)
        found = {shown: asker.ask(request) for shown, request in variants(method)}
    assert found
    wrong = {shown: status for shown, status in found.items() if status not in DOCUMENTED}
    assert not wrong


def test_bounds_are_checked_before_a_method_runs() -> None:
    from zapdb.control.jobs.showing import get_job

    nobody: Any = None
    for wrong in (-0.1, 60.1, math.nan, math.inf):
        with pytest.raises(InvalidValue, match="out of its range") as caught:
            call_method(get_job, nobody, "x", wrong)
        assert caught.value.context["parameter"] == "measure_seconds"
        assert caught.value.hint == "give 0.0 to 60.0"
    with pytest.raises(InvalidValue, match="out of its range"):
        call_method(rollback, nobody, to=-1)
    with pytest.raises(ZapdbError, match="the text is too long"):
        call_method(get_job, nobody, LONG)


def test_a_number_without_bounds_is_no_parameter() -> None:
    def wait(of: None, seconds: float = 0.0) -> None:
        raise AssertionError

    with pytest.raises(TypeError, match="no bounds"):
        call_method(wait, None, 1.0)


def test_what_only_commands_call_has_bounds_too() -> None:
    """No service has it, so that the test of all methods does not meet it."""
    found = set()
    for path in sorted((PACKAGE / "cli").glob("*.py")):
        names = vars(importlib.import_module(f"zapdb.cli.{path.stem}"))
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("control.call"):
                called = ast.unparse(node.args[0])
                if called.partition(".")[0] in names:  # and no parameter of a helper
                    found.add(eval(called, names))
    assert rollback in found
    for method in found:
        checks_of(method)
