"""What a partial function returns where it has no result: no value that a field could have."""

from __future__ import annotations

from typing import Final


class _Failed:
    def __repr__(self) -> str:
        return "FAILED"


FAILED: Final = _Failed()
