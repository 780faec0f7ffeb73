"""Adds the digests of documents that are new here; `python -m tests.unit.migrations.kept.write`.

Documents of version 1 and the digest algorithm z1 freeze (docs/format/migration.md): this is
for adding, never for refreshing. A file whose digest is kept and differs is refused; what has to
change then is the code. A document is added at the end, since the files are a chain.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from zapdb.migrations import Chain, load_directory

KEPT = Path(__file__).parent
DIGESTS = KEPT / "digests.json"


def read_digests() -> dict[str, str]:
    """The kept digests by label."""
    if not DIGESTS.exists():
        return {}
    digests: dict[str, str] = json.loads(DIGESTS.read_text(encoding="utf-8"))
    return digests


def digests_of(chain: Chain) -> dict[str, str]:
    return {migration.label: migration.digest for migration in chain.migrations}


def main() -> int:
    chain = load_directory(KEPT)
    kept, found = read_digests(), digests_of(chain)
    changed = [label for label, digest in kept.items() if found.get(label, digest) != digest]
    if changed:
        print(f"refused: the digest is another one now: {', '.join(changed)}", file=sys.stderr)
        return 1
    DIGESTS.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    for label in found:
        if label not in kept:
            print(f"added: {label}")
    for label in kept:
        if label not in found:
            print(f"removed, its file is gone: {label}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
