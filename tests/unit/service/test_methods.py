"""The methods, the protos and the functions of the control plane say the same."""

from __future__ import annotations

import importlib
import itertools
from pathlib import Path

import pytest

from tests.sources import PACKAGE
from tools import protos
from zapdb.service.methods import METHODS, Method

PROTOS = sorted((PACKAGE / "service/proto").glob("*.proto"))


def described_paths() -> set[str]:
    """The paths of all methods of all protos."""
    found = set()
    for path in PROTOS:
        module = importlib.import_module(f"zapdb.service.proto.{path.stem}_pb2")
        for service in module.DESCRIPTOR.services_by_name.values():
            found |= {f"/{service.full_name}/{method.name}" for method in service.methods}
    return found


def test_generated_modules_are_those_of_the_protos() -> None:
    assert protos.list_differences() == []


def test_every_method_of_the_protos_has_a_function_and_a_scope() -> None:
    assert described_paths() == {method.path for method in METHODS}


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.path)
def test_the_messages_have_the_fields_of_the_function(method: Method) -> None:
    assert method.request is not None  # they raise `Mismatch`
    assert method.answer is not None
    assert method.descriptor.server_streaming == method.is_stream
    assert method.descriptor.client_streaming == (method.sent is not None)


@pytest.mark.parametrize("path", PROTOS, ids=lambda path: path.stem)
def test_every_message_of_the_protos_is_described(path: Path) -> None:
    """A comment stands above each message and method, but requests, which their method explains."""
    lines = [line.strip() for line in path.read_text().splitlines()]
    bare = [
        line
        for before, line in itertools.pairwise(lines)
        if line.startswith(("message ", "rpc ", "service "))
        and "Request {" not in line
        and not before.startswith("//")
        and not line.startswith("service ")
    ]
    assert bare == []
