from collections.abc import Callable, Mapping
from typing import Any

INTERFACE: int
KEY_MAX: int
DEPTH_MAX: int

class Plan:
    def __new__(
        cls,
        made: type | None,
        fields: tuple[Any, ...],
        keys: int,
        reach: int,
        optional: int,
        functions: tuple[Callable[..., Any] | None, ...],
        /,
    ) -> Plan: ...
    def decode(self, key: bytes, data: bytes, start: int, attachments: Any, /) -> Any: ...
    def encode(self, prefix: bytes, values: Mapping[str, Any], attachments: Any, /) -> bytes: ...
    def skip(self, data: bytes, start: int, /) -> int: ...
    def encode_key(self, values: Mapping[str, Any], /) -> bytes: ...
    def key_of(self, /, *values: Any) -> bytes: ...
    def build(self, record: Any, /) -> bytes: ...
    def read_row(
        self,
        prefix: bytes,
        attachments: Any,
        otherwise: Callable[[bytes, bytes], Any],
        row: tuple[bytes, bytes, bytes],
        /,
    ) -> tuple[bytes, Any]: ...

def __getattr__(name: str) -> int: ...  # the numbers of the kinds
