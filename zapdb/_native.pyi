from collections.abc import Callable
from typing import Any

INTERFACE: int
KEY_MAX: int
DEPTH_MAX: int

def make(
    method: int,
    python: Callable[..., Any] | None,
    made: type,
    key: Callable[..., Any] | None,
    optional: int,
    is_whole: bool,
    fields: tuple[Any, ...],
    /,
) -> Callable[..., Any]: ...
def __getattr__(name: str) -> int: ...  # the numbers of the kinds
