"""Record batches of Arrow as bytes, with their schema."""

from __future__ import annotations

from typing import Any

import pyarrow


def pack_batches(schema: Any, *batches: Any) -> memoryview:
    """Record batches with their schema and dictionaries."""
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return memoryview(sink.getvalue())


def pack_schema(schema: Any) -> bytes:
    return bytes(schema.serialize())


def unpack_schema(data: bytes) -> Any:
    return pyarrow.ipc.read_schema(pyarrow.py_buffer(data))


def unpack_batches(data: bytes | bytearray) -> tuple[Any, list[Any]]:
    """The schema and the batches that `pack_batches` packed."""
    with pyarrow.ipc.open_stream(pyarrow.py_buffer(data)) as reader:
        return reader.schema, list(reader)
