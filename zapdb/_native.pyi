from collections.abc import Callable, Iterator, Mapping
from typing import Any

INTERFACE: int
LIMITS: tuple[int, int, int, int]

class Plan:
    def __new__(
        cls,
        record: type,
        key: tuple[Any, ...],
        body: tuple[Any, ...],
        optional: int,
        reach: int,
        functions: tuple[Callable[..., Any] | None, ...],
        /,
    ) -> Plan: ...
    def decode(self, key: bytes, data: bytes, start: int, attachments: Any, /) -> Any: ...
    def encode(self, prefix: bytes, values: Mapping[str, Any], attachments: Any, /) -> bytes: ...
    def skip(self, data: bytes, start: int, /) -> int: ...
    def encode_key(self, values: Mapping[str, Any], /) -> bytes: ...
    def key_of(self, /, *values: Any) -> bytes: ...
    def decode_key(self, key: bytes, /) -> tuple[Any, ...]: ...
    def build(self, record: Any, /) -> bytes: ...
    def iterate(
        self,
        rows: list[tuple[bytes, bytes, bytes]],
        prefix: bytes,
        attachments: Any,
        otherwise: Callable[[bytes, bytes], Any],
        /,
    ) -> Iterator[tuple[bytes, Any]]: ...

def __getattr__(name: str) -> int: ...  # the numbers of the kinds
