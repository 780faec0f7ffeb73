"""Write the vectors: values, keys and records with the bytes that the format documents give them.

    python -m tests.vectors.write            add the vectors that are new
    python -m tests.vectors.write --check    only say whether the files are what would be written

The law: vectors come from the format documents, by way of `formats`, a second implementation that
shares nothing with zapdb. They are never refreshed from the code under test. Where zapdb differs,
zapdb is wrong, or the document is, and then the document is put right before the vector is made.
Stored vectors are append-only: bytes once written are read for ever. A vector that would have to
change needs a new format number, and vectors of its own beside the old ones. So this script adds,
and refuses to change or drop what is there.

Keys under a collation depend on the collation data, and say with which they were made; with other
data, here and in the tests, they are left alone.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.vectors import accepted
from tests.vectors.formats import (
    collation_data,
    cut,
    index_key,
    record,
    record_key,
    unique_key,
    value,
)
from tests.vectors.refused import refused

HERE = Path(__file__).parent
COLLATION_DATA = "ICU 77.1, CLDR 47"
RUN = re.compile(rb"(.)\1{127,}", re.DOTALL)

Vector = dict[str, Any]
Hex = str | list[str | dict[str, Any]]


def hex_of(raw: bytes) -> Hex:
    """Hex digits, or where one byte is repeated 128 times or more, parts with {"repeat": …}."""
    parts: list[str | dict[str, Any]] = []
    at = 0
    for run in RUN.finditer(raw):
        parts.append(raw[at : run.start()].hex())
        parts.append({"repeat": run[1].hex(), "times": len(run[0])})
        at = run.end()
    parts.append(raw[at:].hex())
    return raw.hex() if len(parts) == 1 else [part for part in parts if part]


def vectors_by_file() -> dict[str, list[Vector]]:
    return {
        "values.json": list(_values()),
        "record_keys.json": list(_record_keys()),
        "index_keys.json": list(_index_keys()),
        "unique_keys.json": list(_unique_keys()),
        "records.json": list(_records()),
        "refused.json": list(_refused()),
    }


def _values() -> Iterator[Vector]:
    for name, kind, plain in accepted.values():
        yield {"name": name, "type": kind, "value": plain, "hex": hex_of(value(kind, plain))}


def _record_keys() -> Iterator[Vector]:
    for name, kinds, plains in accepted.record_keys():
        raw = record_key(kinds, plains)
        yield {"name": name, "type": kinds, "value": plains, "hex": hex_of(raw)}


def _index_keys() -> Iterator[Vector]:
    for name, kinds, plains in accepted.index_keys():
        raw = cut(index_key(kinds, plains))
        yield {"name": name, "type": kinds, "value": plains, "hex": hex_of(raw)}
    if collation_data() == COLLATION_DATA:
        for name, kinds, plains in accepted.collated_keys():
            raw = cut(index_key(kinds, plains))
            yield {
                "name": f"{name} ({COLLATION_DATA})",
                "made_with": COLLATION_DATA,
                "type": kinds,
                "value": plains,
                "hex": hex_of(raw),
            }


def _unique_keys() -> Iterator[Vector]:
    for case in accepted.unique_keys():
        yield _unique_key(*case)
    if collation_data() == COLLATION_DATA:
        for name, *case in accepted.collated_unique_keys():
            vector = _unique_key(f"{name} ({COLLATION_DATA})", *case)
            yield {"name": vector["name"], "made_with": COLLATION_DATA} | vector


def _unique_key(name: str, kinds: Any, plains: Any, key: tuple[Any, Any]) -> Vector:
    key_of_record = record_key(*key)
    return {
        "name": name,
        "type": kinds,
        "value": plains,
        "record_key": hex_of(key_of_record),
        "hex": hex_of(unique_key(kinds, plains, key_of_record)),
    }


def _records() -> Iterator[Vector]:
    for name, table, plain, revision, blob_ids in accepted.records():
        yield {
            "name": name,
            "type": table,
            "value": plain,
            "revision": revision,
            "blob_ids": blob_ids,
            "key": hex_of(_key_of(table, plain)),
            "hex": hex_of(record(table, plain, revision, blob_ids)),
        }


def _key_of(table: dict[str, Any], plain: dict[str, Any]) -> bytes:
    fields = {field["name"]: field for field in table["fields"]}
    return record_key(
        [fields[name] for name in table["key"]], [plain[name] for name in table["key"]]
    )


def _refused() -> Iterator[Vector]:
    for form, name, kind, raw, reason in refused():
        whole = name if form in ("value", "field") else f"{form}: {name}"
        # A damaged record has a sound key.
        key = {"key": hex_of(_key_of(kind, accepted.ADA))} if form == "record" else {}
        rest = {"hex": hex_of(raw), "reason": reason}
        yield {"name": whole, "form": form, "type": kind, **key, **rest}


# --- the files -----------------------------------------------------------------------------------


class Changed(Exception):
    """A stored vector is not what the documents give now."""


def merge(stored: list[Vector], made: list[Vector]) -> list[Vector]:
    """The stored vectors and behind them the new ones; raises `Changed`."""
    names = [vector["name"] for vector in made]
    assert len(set(names)) == len(names), {name for name in names if names.count(name) > 1}
    by_name = dict(zip(names, made, strict=True))
    for vector in stored:
        name = vector["name"]
        if "made_with" in vector and name not in by_name:
            continue  # of other collation data than those in use
        if by_name.pop(name, None) != vector:
            raise Changed(name)
    return [*stored, *by_name.values()]


def text_of(vectors: list[Vector]) -> str:
    """A vector to a line."""
    return "[\n" + ",\n".join(json.dumps(vector) for vector in vectors) + "\n]\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if anything is new"
    )
    is_check = parser.parse_args().check
    for name, made in vectors_by_file().items():
        file = HERE / name
        before = file.read_text(encoding="ascii") if file.exists() else "[]"
        try:
            after = text_of(merge(json.loads(before), made))
        except Changed as error:
            message = f"{error!s} would change or go: that needs a new format number"
            print(f"{name}: {message}", file=sys.stderr)
            return 1
        if after != before:
            if is_check:
                print(f"{name} lacks vectors, or is laid out otherwise", file=sys.stderr)
                return 1
            file.write_text(after, encoding="ascii")
    return 0


if __name__ == "__main__":
    sys.exit(main())
