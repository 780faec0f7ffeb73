"""Untrusted manifests and footers of a store, with right digests."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from zapdb.errors import HistoryDamaged
from zapdb.past.files.history_file import FOOTER_KEY, read_footer
from zapdb.past.files.manifest_files import DIGEST_DIGITS, read_manifest_file

DEEP = b'{"format": 1, "a": ' + b"[" * 100_000


@pytest.mark.parametrize("raw", [DEEP, b"", b"[]", b'{"format": 99}', b'{"format": 1}', b"\xff"])
def test_what_is_no_manifest_or_footer_is_named(tmp_path: Path, raw: bytes) -> None:
    digest = hashlib.sha256(raw).hexdigest()[:DIGEST_DIGITS]
    manifest, file = tmp_path / f"manifest-a-1-{digest}.json", tmp_path / "a.parquet"
    manifest.write_bytes(raw)
    with pytest.raises(HistoryDamaged) as caught:
        read_manifest_file(manifest)
    assert caught.value.context["path"] == str(manifest)
    parquet.write_table(pyarrow.table({"a": [1]}).replace_schema_metadata({FOOTER_KEY: raw}), file)
    with pytest.raises(HistoryDamaged) as caught:
        read_footer(file)
    assert caught.value.context["path"] == str(file)
