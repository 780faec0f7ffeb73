from collections.abc import Callable
from typing import Any

INTERFACE: int
KEY_MAX: int
DEPTH_MAX: int

def make(
    method: int,
    python: Callable[..., Any] | None,
    made: type,
    fields: tuple[Any, ...],
    optional: int,
    key: Callable[..., Any] | None,
    is_whole: bool,
    /,
) -> Callable[..., Any]: ...
def __getattr__(name: str) -> int: ...  # the numbers of the kinds
