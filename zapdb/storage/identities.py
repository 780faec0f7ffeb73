"""Numbers that name one state of one history of a database.

A backup that is restored repeats every counter: what is drawn after it gets numbers that were drawn
before, for other things, and processes that stayed open know these. So a number that caches are
compared by has a count in the upper bits and a random part in the lower ones. Such numbers rise as
counters do, and two histories do not meet at one: equal numbers mean the same state.
"""

from __future__ import annotations

import secrets
from typing import Final

RANDOM_BITS: Final = 28
"""Of the random part: of 268 million histories that have counted as far, one meets. 35 bits are
left for the count; up to a count of 2**25, all readers of JSON have the number exactly."""


def next_identity_sql(column: str, mark: str) -> str:
    """Return the expression for the identity behind the one in a column of BIGINT; its parameter is
    `draw_random_part()`."""
    return f"((({column} >> {RANDOM_BITS}) + 1) << {RANDOM_BITS}) + {mark}"


def first_identity() -> int:
    return (1 << RANDOM_BITS) + draw_random_part()


def draw_random_part() -> int:
    """Return what nobody can have drawn before."""
    return secrets.randbits(RANDOM_BITS)


def count_of(identity: int) -> int:
    """Return how many identities were drawn up to this one."""
    return identity >> RANDOM_BITS


def lowest_of(count: int) -> int:
    """Return what no identity with this count, or a higher one, is below."""
    return count << RANDOM_BITS
