"""Whatever waits or is tried again goes through `zapdb.storage.retries`, where each wait ends."""

from __future__ import annotations

import ast

import pytest

from tests.sources import modules

SLEEPS = {
    "storage/retries.py": "the pauses of all policies",
    "aio/proxies.py": "the same, awaited",
    "jobs/throttle.py": "a job keeps to its rate",
    "jobs/exclusive.py": "a job keeps to its rate, or waits until an operator resumes it",
    "tables/changes_pruning.py": "a throttle: other processes write in the pauses of a pruning",
    "past/reading/moment.py": "a time that is over within a second is waited for, once",
    "past/files/follower_run.py": "a throttle: other processes write in the pauses of a pruning",
    "cli/sources/databases.py": "the source is read again at the interval that the operator gave",
    "control/target.py": "the pace of a stream that is looked at again and again",
    "service/server.py": "the same on an event loop; a look at the cache, up to a limit",
    "service/call_log.py": "what waits is written together, at an interval",
}
"""The modules that may sleep."""

PAGES = "goes through stored rows page by page, and ends with the last page"
DELETES = "each round deletes some rows, and the last one finds none"
STREAM = "reads a stream of bytes or messages to its end"
WORK = "waits for work, not for success: it ends when it is stopped"
LOOPS = {
    "log/rewound_records.py": PAGES,
    "storage/retries.py": "the loop of all policies, which ends with its tries or its deadline",
    "aio/proxies.py": "the same on an event loop",
    "activation/tenant_removal.py": DELETES,
    "aio/calls.py": "waits for work until it is stopped, and empties a queue",
    "catalog/retired_tables.py": DELETES,
    "typed/model_names.py": "makes names without end: a caller takes the first that is free",
    "transfer/mirror/mirror_run.py": WORK,
    "cli/sources/databases.py": WORK,
    "cli/revisions.py": PAGES,
    "control/catalog.py": PAGES,
    "control/jobs/showing.py": "looks at a job until that ends, or its reader does",
    "service/call_log.py": WORK,
    "imports/json_rows.py": STREAM,
    "tables/arrow.py": PAGES,
    "database/tenant_refresh.py": WORK,
    "tables/changes_pruning.py": DELETES,
    "past/reading/difference.py": PAGES,
    "past/reading/listing.py": PAGES,
    "imports/row_batches.py": "each round writes rows that the last one could not",
    "tables/queries/paging.py": PAGES,
    "tables/queries/arrow_ranges.py": PAGES,
    "tables/on_delete.py": PAGES,
    "activation/sent_files.py": STREAM,
    "sql/sandboxed_statement.py": STREAM,
    "sandbox/inside/keeper.py": WORK,
    "sandbox/inside/spill.py": STREAM,
    "sandbox/inside/statement.py": STREAM,
    "tables/generated_values.py": "draws the block of numbers that each round lacks",
    "tables/writable_table.py": PAGES,
    "past/files/baseline.py": PAGES,
    "past/files/follower_run.py": "takes batches of the change log into files, to the last one",
    "transfer/inference/copying.py": PAGES,
    "transfer/inference/table_rows.py": PAGES,
    "jobs/archive_pruning.py": DELETES,
    "jobs/building.py": DELETES,
    "jobs/rollback_run.py": "waits for the operator who holds the rollback back, and says so",
    "jobs/job_run.py": "an index is built twice at most; a job that is held back is left",
    "jobs/blob_sweep.py": PAGES,
    "jobs/exclusive.py": WORK,
    "jobs/range_work.py": PAGES,
    "jobs/tenant_verification.py": PAGES,
    "records/arrow/record_batches.py": "halves what does not fit",
    "records/arrow/bounded_parquet.py": STREAM,
    "records/arrow/compact_thrift.py": STREAM,
    "records/record_lines.py": STREAM,
    "spark/kept_open.py": WORK,
    "spark/runner.py": "each round but a few in a row reads records of the ranges that are left",
    "values/length_prefixed.py": STREAM,
}
"""The modules that may loop without a condition, and why such a loop ends."""


def find_loops(tree: ast.Module) -> list[str]:
    """`while True` and `sleep`, each with its line."""
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.While(test=ast.Constant(value=value)) if value:
                found.append(f"{node.lineno}: while {value}")
            case ast.Attribute(attr="sleep"):
                found.append(f"{node.lineno}: sleep")
            case ast.ImportFrom(module="time" | "asyncio", names=names) if any(
                alias.name == "sleep" for alias in names
            ):
                found.append(f"{node.lineno}: sleep")
    return found


def test_only_listed_modules_sleep_or_loop_without_a_condition() -> None:
    wrong = []
    for module in modules():
        name = module.path.removeprefix("zapdb/")
        allowed = {word for word, where in (("sleep", SLEEPS), ("while", LOOPS)) if name in where}
        found = find_loops(module.tree)
        wrong += [f"{module.path}:{at}" for at in found if at.split()[1] not in allowed]
    assert wrong == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("while True:\n pass", ["1: while True"]),
        ("while 1: pass", ["1: while 1"]),
        ("import time\ntime.sleep(1)", ["2: sleep"]),
        ("from time import sleep", ["1: sleep"]),
        ("async def f():\n await asyncio.sleep(0)", ["2: sleep"]),
        ("while page := read():\n pass", []),
    ],
)
def test_the_walk_finds_them(text: str, found: list[str]) -> None:
    assert find_loops(ast.parse(text)) == found
