"""Files that are made of stored migrations are these migrations."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings

from tests import forms, strategies
from zapdb.migrations import Chain, read_stored
from zapdb.schema import Schema
from zapdb.transfer.export.directory import write_document

CASES = 1_000 if forms.is_long else 60


@settings(max_examples=CASES, deadline=None, suppress_health_check=list(HealthCheck))
@given(strategies.chains(archives=True))
def test_a_written_file_has_the_digest_of_the_stored_migration(chain: Chain) -> None:
    before = Schema()
    for migration in chain.migrations:
        stored = read_stored(
            migration.structure, migration.name, migration.summary, migration.drawn, before
        )
        assert write_document(stored).startswith("zapdb: 1\n")  # raises if the digest differs
        before = stored.after
