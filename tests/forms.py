"""The two forms of the tests: a short one for every change, a long one (`make test-long`)."""

from __future__ import annotations

is_long = False
"""Set by conftest.py before any test is looked at."""


def cases(count: int) -> int:
    """How many cases of a property to try: all in the long form, a twentieth in the short one."""
    return count if is_long else -(-count // 20)
