"""The two forms of the tests: a short one for every change, a long one (`make test-long`)."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
ROUNDS_MAX = 10

is_long = False
"""Set by conftest.py before any test is looked at."""


def cases(count: int) -> int:
    """How many cases of a property to try: all in the long form, a twentieth in the short one."""
    return count if is_long else -(-count // 20)


def try_enough(run: Callable[[], object], is_enough: Callable[[], bool]) -> None:
    """Run a property until it has tried enough: how much is in one of its examples is drawn."""
    for _ in range(ROUNDS_MAX):
        run()
        if is_enough():
            return
    raise AssertionError(f"{ROUNDS_MAX} runs of the property have not tried enough")


def some(given: Sequence[T], step: int) -> list[T]:
    """All of what is given in the long form, and each `step`-th in the short one."""
    return [*given] if is_long else [*given[::step]]


ENGINES = ("sqlite", "postgresql")

ON_ONE_ENGINE = frozenset(
    [
        "aio",
        "amended",
        "api_operations",
        "applying",
        "archives",
        "arrow",
        "audit",
        "backups",
        "bad_calls",
        "bad_transfers",
        "blob_faults",
        "blobs",
        "calls_of_queries",
        "changes",
        "changes_pruning",
        "changes_under_way",
        "checks",
        "cluster",
        "conversion",
        "dataset_policies",
        "dataset_rebuilds",
        "datasets",
        "delete_where",
        "endpoints",
        "estimates",
        "export",
        "export_past",
        "feed",
        "following",
        "formats",
        "handles",
        "history",
        "history_erased",
        "history_erased_fields",
        "history_erased_moments",
        "history_files",
        "history_half_erased",
        "history_missing",
        "history_pins",
        "history_pruning",
        "history_rebuilt",
        "history_repaired",
        "history_store",
        "history_unflushed",
        "history_upkeep",
        "history_verified",
        "import_columns",
        "import_databases",
        "import_files",
        "import_frames",
        "import_upserts",
        "in_memory",
        "include",
        "index_builds",
        "jobs",
        "jobs_begun_in_python",
        "key_ranges",
        "kept_life",
        "kept_migrations",
        "kept_tables",
        "kept_tables_life",
        "leases",
        "lookups",
        "metrics",
        "mirror",
        "mirror_schemas",
        "mistakes",
        "models",
        "opening",
        "operations",
        "past",
        "past_eras",
        "past_pruned",
        "past_shape",
        "past_sql_attacks",
        "past_sql_versions",
        "past_stored",
        "past_types",
        "quarantine",
        "queries",
        "range_revisions",
        "read_only",
        "records",
        "reapplied",
        "references",
        "repair",
        "replaced_file",
        "reprs",
        "rollback",
        "sequences",
        "served",
        "served_operations",
        "settings",
        "splitting",
        "sql",
        "sql_catalog",
        "sql_input",
        "sql_refused",
        "sql_script",
        "sql_types",
        "squash",
        "storage_version",
        "sweep",
        "tampering",
        "tenants",
        "tenants_together",
        "testing",
        "todo_app",
        "transactions",
        "types",
        "unique",
        "verification",
        "watch",
        "ways_in",
        "zones",
    ]
)
"""Test files whose subject is not an engine: in the short form each of their tests runs on one,
half of them on either, but for those marked `on_each_engine`, of what happens at once, is killed or
fails. In the long form all run on both."""


def engine_of(test: str) -> str:
    """The engine on which a test of such a file runs in the short form: the same one each
    time."""
    return ENGINES[zlib.crc32(test.encode()) % 2]
