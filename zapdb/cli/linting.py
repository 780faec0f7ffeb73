"""`zapdb migrate lint`: reporting changes that are valid but risky."""

from __future__ import annotations

import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from zapdb.cli.configuration import MigrationsOption, find_migrations
from zapdb.cli.output import Output, format_count
from zapdb.errors import EXIT_ERROR, UsageError
from zapdb.migrations import list_files, resolve_files
from zapdb.migrations.lint import LintFinding, Severity, lint

_STYLES: Final[dict[Severity, str]] = {"error": "bold red", "warning": "yellow", "note": "cyan"}


def migrate_lint_command(
    output: Output,
    migrations: MigrationsOption = None,
    base: Annotated[
        str | None,
        typer.Option(
            metavar="REV", help="Only files that are new or changed since this git revision."
        ),
    ] = None,
    form: Annotated[
        Literal["text", "json"], typer.Option("--format", help="Text, or JSON as with --json.")
    ] = "text",
) -> int:
    """Report changes that are valid but risky.

    Every finding has a code, and is an error, a warning or a note. A comment suppresses one: `#
    zapdb: allow ZL003 because …`, on the line of the operation or before it. Exit status 1 if there
    is an error.

    With `--json`: `{files, findings: [{code, severity, file, line, column, migration, message,
    description, fix, suppressed_because}]}`. `files` is the number of checked files;
    `suppressed_because` is the reason of the comment, or null.
    """
    output = Output(output.as_json or form == "json")
    directory = find_migrations(migrations)
    files = list_files(directory)
    changed = None if base is None else find_changed(directory, base)
    chosen = [file for file in files if changed is None or file.path.name in changed]
    sources = {file.number: file.read() for file in chosen}
    findings = lint(resolve_files(files), sources, sources.__contains__)
    shown = [finding for finding in findings if not finding.allowed]
    for finding in shown:
        _write(finding, output)
    counts = Counter(finding.level for finding in shown)
    parts = [format_count(counts[level], level) for level in _STYLES if counts[level]]
    if len(findings) > len(shown):
        parts.append(f"{len(findings) - len(shown)} suppressed")
    output.write(f"{format_count(len(sources), 'file')}: {', '.join(parts) or 'no findings'}")
    output.document({"files": len(sources), "findings": [_to_json(f) for f in findings]})
    return EXIT_ERROR if counts["error"] else 0


def _write(finding: LintFinding, output: Output) -> None:
    rule = finding.rule
    output.write(
        f"{finding.place}: ",
        (f"{rule.level} {rule.code}", _STYLES[rule.level]),
        f": {rule.title}: {finding.message}",
    )
    output.write(("  why: ", "dim"), rule.description)
    output.write(("  hint: ", "bold green"), rule.fix)


def _to_json(finding: LintFinding) -> dict[str, Any]:
    rule = finding.rule
    return {
        "code": rule.code,
        "severity": rule.level,
        "file": finding.place.file,
        "line": finding.place.line,
        "column": finding.place.column,
        "migration": finding.migration,
        "message": f"{rule.title}: {finding.message}",
        "description": rule.description,
        "fix": rule.fix,
        "suppressed_because": finding.allowed or None,
    }


def find_changed(directory: Path, base: str) -> set[str]:
    """Return the names of the directory's files that differ from a git revision, or are not in it.

    Raises `UsageError` if git, the repository or the revision is missing.
    """
    git = shutil.which("git")
    if git is None:
        raise UsageError("git is not installed", hint="install it, or lint without --base")
    inside = _run_git(git, directory, "rev-parse", "--is-inside-work-tree")
    if inside is None:
        raise UsageError(
            "the migrations are not in a git repository",
            directory=directory,
            hint="lint without --base",
        )
    verify = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{base}^{{commit}}")
    found = _run_git(git, directory, *verify)
    if found is None:
        raise UsageError(
            "git does not know this revision",
            revision=base,
            hint="give a branch, tag or commit; in a shallow clone, fetch it first",
        )
    revision = found.strip()
    known = _run_git(git, directory, "ls-tree", "--name-only", "-z", revision, "./")
    other = _run_git(git, directory, "diff", "--name-only", "--relative", "-z", revision, "--", ".")
    assert known is not None
    assert other is not None
    unchanged = set(known.split("\0")) - set(other.split("\0"))
    return {path.name for path in directory.iterdir()} - unchanged


def _run_git(git: str, directory: Path, *arguments: str) -> str | None:
    """Run git; returns its output, or None if it failed."""
    done = subprocess.run(
        [git, *arguments], cwd=directory, capture_output=True, text=True, check=False
    )
    return done.stdout if done.returncode == 0 else None
