"""Run benchmarks and print their table; exit status 1 where a ratio is not reached."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from rich.console import Console

from tests.bench import (
    apply_migration,
    arrow,
    codec,
    convert,
    fleet,
    foreground,
    full_scan,
    history,
    insert_many,
    memory,
    mirror,
    open_database,
    operations,
    past,
    past_behind,
    point_get,
    reads,
    retries,
    rollback,
    roundtrips,
    service,
    service_past,
    source,
    splice,
    stale_read,
    transfer,
)
from tests.bench.databases import ENGINES, Bench
from tests.bench.measure import Row, show

BENCHMARKS: dict[str, Callable[[Bench], Iterable[Row]]] = {
    "apply": apply_migration.run,
    "rollback": rollback.run,
    "get": point_get.run,
    "insert": insert_many.run,
    "operations": operations.run,
    "reads": reads.run,
    "roundtrips": roundtrips.run,
    "service": service.run,
    "history": history.run,
    "past": past.run,
    "behind": past_behind.run,
    "service_past": service_past.run,
    "scan": full_scan.run,
    "stale": stale_read.run,
    "codec": codec.run,
    "splice": splice.run,
    "convert": convert.run,
    "spark": convert.run_spark,
    "source": source.run,
    "growth": convert.run_growth,
    "retries": retries.run,
    "arrow": arrow.run,
    "import": transfer.run_import,
    "export": transfer.run_export,
    "mirror": mirror.run,
    "memory": memory.run,
    "open": open_database.run,
    "fleet": fleet.run,
    "foreground": foreground.run,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--quick", action="store_true", help="100 thousand records for 1 million")
    parser.add_argument("--largest", action="store_true", help="3 million records, too")
    parser.add_argument("--engine", choices=ENGINES, help="on this one alone")
    parser.add_argument("--changes", type=int, metavar="N", help="past: of a history")
    parser.add_argument("--records", type=int, metavar="N", help="behind: of a small table")
    parser.add_argument(
        "--behind", type=int, nargs="+", metavar="N", help="behind: changes since the moment"
    )
    parser.add_argument("--queue", action="store_true", help="behind: records come and go")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(BENCHMARKS)
    if unknown:
        parser.error(f"no benchmark is called {', '.join(sorted(unknown))}")

    rows: list[Row] = []
    progress = Console(stderr=True)
    with contextlib.ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="zapdb-bench-"))
        bench = Bench(Path(directory), arguments.quick, stack, arguments.largest)
        bench.changes = arguments.changes or bench.many
        bench.few = arguments.records or bench.few
        bench.behind = tuple(arguments.behind or bench.behind)
        bench.is_queue = arguments.queue
        bench.engines = (arguments.engine,) if arguments.engine else ENGINES
        for name in arguments.names or BENCHMARKS:
            started = time.perf_counter()
            with progress.status(f"{name} …"):
                for row in BENCHMARKS[name](bench):
                    rows.append(row)
                    progress.print(f"{row.work.strip()}: {row.ratio:.3g} ×", style="dim")
            progress.print(f"{name}: {time.perf_counter() - started:.1f} s", style="dim")
    if arguments.json:
        print(json.dumps([_as_json(row) for row in rows], indent=2, ensure_ascii=False))
    else:
        Console(width=None if sys.stdout.isatty() else 140).print(show(rows))
    return any(row.reached is False for row in rows)


def _as_json(row: Row) -> dict[str, object]:
    values = dataclasses.asdict(row) | {"ratio": round(row.ratio, 3), "reached": row.reached}
    return values | {"work": row.work.strip()}


sys.exit(main())
