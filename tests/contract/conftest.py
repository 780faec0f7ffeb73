"""The contract of databases holds with both codecs: all of it with the accelerator where it is
built; with the generated Python the modules of `SHARE`, and all of it with `--long`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from tests import forms
from tests.codecs_in_use import CODECS, using_codec

SHARE: Final = {"test_calls_of_queries", "test_types"}
"""Values of all types, and pages of records: what a codec can change."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    module = metafunc.module.__name__.rpartition(".")[2]
    if len(CODECS) > 1 and (forms.is_long or module in SHARE):
        metafunc.parametrize("contract_codec", CODECS, indirect=True, scope="module")


@pytest.fixture(scope="module", autouse=True)
def contract_codec(request: pytest.FixtureRequest) -> Iterator[str]:
    """What reads and writes records in a module's tests, and in the processes that they start."""
    wanted: str = getattr(request, "param", CODECS[0])
    if wanted == CODECS[0]:
        yield wanted
        return
    with using_codec(wanted):
        yield wanted
