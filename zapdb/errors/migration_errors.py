"""Errors of migrations: in their files, and in the stored migrations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from zapdb.errors.zapdb_error import EXIT_PENDING, Location, ZapdbError
from zapdb.limits import VIOLATIONS_SHOWN_MAX
from zapdb.printing import one_line


class MigrationError(ZapdbError):
    code = "migration"
    rpc_status = "FAILED_PRECONDITION"


@dataclass(frozen=True, slots=True)
class Violation:
    """One error in a document, and its place."""

    location: Location
    message: str
    hint: str = ""
    excerpt: str = ""

    def __str__(self) -> str:
        lines = [one_line(f"{self.location}: {self.message}")]
        lines += [one_line(line) for line in self.excerpt.split("\n") if self.excerpt]
        if self.hint:
            lines.append(one_line(f"  hint: {self.hint}"))
        return "\n".join(lines)


class InvalidMigration(MigrationError, ValueError):
    """A file has errors: the first violations in the order of the file; `hidden` counts the
    rest."""

    code = "migration.invalid"
    rpc_status = "INVALID_ARGUMENT"

    def __init__(self, violations: Iterable[Violation], hidden: int = 0) -> None:
        found = tuple(violations)
        self.violations = found[:VIOLATIONS_SHOWN_MAX]
        self.hidden = hidden + len(found) - len(self.violations)
        first = self.violations[0]
        super().__init__(first.message, hint=first.hint, location=first.location)

    def __str__(self) -> str:
        return "\n".join(self.texts())

    def texts(self) -> list[str]:
        """Return the text of each violation, and how many more there are."""
        rest = [f"… and {self.hidden:,} more"] if self.hidden else []
        return [*map(str, self.violations), *rest]

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {
            "violations": [
                {
                    "file": violation.location.file,
                    "line": violation.location.line,
                    "column": violation.location.column,
                    "message": violation.message,
                    "hint": violation.hint,
                }
                for violation in self.violations
            ],
            "violations_hidden": self.hidden,
        }


class NotExhaustive(InvalidMigration):
    code = "migration.not_exhaustive"


class NotProven(MigrationError):
    """The round-trip test of a migration failed, with generated or stored records."""

    code = "migration.not_proven"


class RollbackNotProven(NotProven):
    """A field whose rollback is claimed to be exact came back changed."""

    code = "migration.rollback_not_proven"


class ExampleNotProven(NotProven):
    code = "migration.example_not_proven"


class MigrationConflict(MigrationError):
    code = "migration.conflict"


class LockfileMismatch(MigrationError):
    code = "migration.lockfile"


class MigrationLimitExceeded(MigrationError):
    """Checking files that were sent to a service exceeds a limit; the context names it."""

    code = "migration.limit"
    rpc_status = "RESOURCE_EXHAUSTED"


class SchemaChangesRefused(MigrationError):
    """The setting `schema_changes` is `refuse`."""

    code = "migration.schema_changes_refused"


class PendingMigrations(MigrationError):
    code = "migration.pending"
    exit_status = EXIT_PENDING


class ActivationPending(MigrationError):
    """A migration is activated only when all running processes have its file (rule 12)."""

    code = "migration.activation_pending"
    exit_status = EXIT_PENDING
