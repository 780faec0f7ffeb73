"""One Spark session for all tests of a process: starting one takes seconds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from zapdb.spark import start_session

TASK_FAILURES_MAX = 4


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    session = start_session(f"local[2,{TASK_FAILURES_MAX}]")
    yield session
    session.stop()
