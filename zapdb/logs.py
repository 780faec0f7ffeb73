"""What zapdb logs, and as what: events with fields, under loggers that are named `zapdb.*`.

Every record of an operator's interest has an event's name and its fields besides the text for
people. `JsonFormatter` writes both as one JSON object a line; with any other formatter the text
says it all. zapdb sets up no handlers: that is the application's, or `zapdb --log-json`.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final, TextIO

from zapdb.printing import one_line

ROOT: Final = "zapdb"
EVENT, FIELDS = "zapdb_event", "zapdb_fields"

EVENTS: Final = {
    "migration.applied": "A migration was activated for a tenant.",
    "tenant.followed": "A tenant followed a rollback.",
    "migration.rolled_back": "A migration was rolled back.",
    "migration.forgotten": "A migration that was rolled back is not kept any more.",
    "migration.amended": "The edited text of the newest migration took the stored one's place.",
    "node.serves_rolled_back": "A process was opened whose files end at a migration that was "
    "rolled back: it is served the schema of that one.",
    "node.evicted": "A process was evicted: its writes are refused from now on.",
    "lease.taken_over": "A lease was taken over from a dead process.",
    "job.done": "A job was run to its end: said once, by the process that ended it.",
    "job.quarantined": "A job can't read records, and leaves them as they are.",
    "job.blocked": "A job ended, and records are in its way: said once, as `job.done` is.",
    "spark.write_failed": "A write of Spark's failed: what was committed stays, and how to go on.",
    "gate.waited": "A transaction waited long for the gate.",
    "transaction.dropped": "A transaction or snapshot was left by nobody: it was undone.",
    "transaction.lost": "A COMMIT failed where the application may not be told: nothing was "
    "written, or it is not known.",
    "transaction.cancelled": "A task was cancelled while its COMMIT was on its way: what became of "
    "it.",
    "service.called": "A call of `zapdb serve` ended: who called what, and how that ended.",
    "query.scanned": "A query scanned, since its index is being rewritten for other data.",
}
"""Events by name; names keep their meaning, and what they say may get more fields."""


def log_event(
    logger: logging.Logger, event: str, message: str, *, level: int = logging.INFO, **fields: Any
) -> None:
    """Log an event of `EVENTS` with its fields; the message is for people."""
    assert event in EVENTS, event
    if logger.isEnabledFor(level):
        shown = ", ".join(f"{name}={one_line(str(value))}" for name, value in fields.items())
        extra = {EVENT: event, FIELDS: fields}
        logger.log(level, "%s (%s)", message, shown, extra=extra, stacklevel=2)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and an event with its fields."""

    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            "process": record.process,
            "thread": record.threadName,
        }
        event = getattr(record, EVENT, None)
        if event is not None:
            said["event"] = event
            said["fields"] = getattr(record, FIELDS)
        if record.exc_info:
            said["error"] = self.formatException(record.exc_info)
        return json.dumps(said, default=str)


def log_as_json(stream: TextIO | None = None, level: int = logging.INFO) -> Callable[[], None]:
    """Write what zapdb logs as JSON lines, to standard error by default; returns what ends it."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter())
    logger = logging.getLogger(ROOT)
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(level)
    logger.propagate = False

    def end() -> None:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]

    return end
