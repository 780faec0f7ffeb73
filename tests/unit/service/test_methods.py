"""The methods, the protos and the functions of the control plane say the same."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Mapping
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


BOUNDED_BY: Mapping[str, str] = {
    "Catalog/ListTables": "a schema: some names for each table",
    "Catalog/GetTable": "a schema: one table",
    "Catalog/ListKeyRanges": "RANGES_PER_JOB_MAX: ranges that are alike are joined",
    "Catalog/GetFingerprint": "one revision",
    "Catalog/CheckPin": "a schema: one table, and the revisions that had one fingerprint",
    "Catalog/CompareRevisions": "a schema: one table",
    "Catalog/PruneFingerprintHistory": "a schema history: some words for each entry",
    "Cluster/GetStatus": "processes, and open jobs of all tenants: some words for each",
    "Cluster/ListNodes": "processes",
    "Cluster/ListLeases": "kinds of work that one process does",
    "Cluster/FindNodes": "processes",
    "Cluster/EvictNodes": "the request",
    "Cluster/Upgrade": "processes",
    "Cluster/Register": "one process",
    "Cluster/SendHeartbeat": "one process",
    "Cluster/Deregister": "one process",
    "Settings/ListSettings": "the settings of a release",
    "Settings/GetSetting": "one setting",
    "Settings/SetSetting": "one setting, and the tenants whose store did not begin",
    "Settings/UnsetSetting": "one setting",
    "Migrations/Check": "MIGRATIONS_MAX",
    "Migrations/Status": "MIGRATIONS_MAX, and the tenants that are behind",
    "Migrations/Diff": "MIGRATIONS_MAX, and VIOLATIONS_SHOWN_MAX of each",
    "Migrations/Plan": "MIGRATIONS_MAX",
    "Migrations/Forget": "what was rolled back, and is kept",
    "Jobs/ListJobs": "jobs, rows of the catalog that every process caches",
    "Jobs/GetJob": "RANGES_PER_JOB_MAX, and the first of the records that can't be read",
    "Jobs/PauseJob": "one job",
    "Jobs/ResumeJob": "one job",
    "Jobs/CancelJob": "one job",
    "Jobs/SetJobPriority": "one job",
    "Jobs/ThrottleJob": "one job",
    "Jobs/GetConversionStatus": "a schema, and its open jobs",
    "Jobs/GetReindexStatus": "a schema: its indexes",
    "History/GetCatalog": "a schema",
    "History/ListStores": "tenants: some words for each",
    "History/FetchRow": "one record",
    "History/ListRecords": "PAST_PAGE_SIZE_BYTES_MAX",
    "Changes/GetStatus": "two values",
    "Changes/GetFollowers": "followers",
}
"""What bounds the one message of a method that does not answer with a stream. What grows with
records, changes or calls has a limit or pages; nothing may be beyond SERVICE_ANSWER_SIZE_BYTES_MAX,
which is told (`AnswerTooLarge`)."""


def test_every_answer_that_is_one_message_is_bounded_by_something() -> None:
    """A method whose answer grows with records or changes answers with a stream, or has pages."""
    names = {method.path.rpartition(".")[2] for method in METHODS if not method.is_stream}
    assert names == set(BOUNDED_BY)


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


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.path)
def test_arguments_are_bound_as_the_function_takes_them(method: Method) -> None:
    names = list(method.signature.parameters)
    values = {name: f"the {name}" for name in names}
    for count in range(len(names) + 1):
        args = tuple(values[name] for name in names[:count])
        try:
            expected = method.signature.bind(*args)
        except TypeError:
            with pytest.raises(TypeError, match=method.function.__name__):
                method.bind(*args)
            continue
        expected.apply_defaults()
        assert method.bind(*args) == expected.arguments
    assert method.bind(**values) == values
    for wrong in ((*values.values(), "more"), *([()] if names else [])):
        with pytest.raises(TypeError):
            method.bind(*wrong, **({} if wrong else {"no_such": 1}))
