"""`zapdb changes`: reading the change log, its followers, and pruning."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import islice
from typing import Annotated, Final

import typer

from zapdb.cli.configuration import LimitOption
from zapdb.cli.connecting import ServedTenantOptions, TenantOptions
from zapdb.cli.output import Confirmation, Output, Part, format_count, print_note
from zapdb.cli.record_changes import note_waiting, show_archived, show_change, show_key_values
from zapdb.control.changes import (
    ListedChange,
    ListedEvent,
    ListedFollower,
    describe_follower,
    get_followers,
    get_status,
    list_changes,
)
from zapdb.control.durations import read_ago_us
from zapdb.database import Database
from zapdb.errors import EXIT_ERROR, UnknownName, UsageError, suggest
from zapdb.limits import CHANGES_COUNTED_MAX
from zapdb.log.change_log import BOOKMARK_TEXT, Bookmark
from zapdb.storage.cells import as_time

LIST_CHANGES: Final = 100


# Reading it


def changes_list_command(
    options: ServedTenantOptions,
    output: Output,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="BOOKMARK", help="Only changes after this bookmark; by default from the oldest."
        ),
    ] = None,
    table: Annotated[
        str | None, typer.Option(help="Only changes of the table that has this name, or had it.")
    ] = None,
    newest: Annotated[
        bool, typer.Option("--newest", help="The newest first, from the log's end on.")
    ] = False,
    limit: LimitOption = LIST_CHANGES,
) -> None:
    """Show changes of records and events of schemas, the oldest first; times are UTC.

    For an update, the changed fields are shown. If there are more changes, standard error has the
    bookmark to continue from. Changes of transactions that have not ended yet are not shown.

    With `--json`: one object per line, `{table, operation, key, before, after, archived_before,
    archived_after, replaced, unreadable, revision, principal, made_at, transaction, stamp,
    stamped_at, bookmark}`. `before` and `after` are objects of the fields, or null.
    `archived_before` and `archived_after` are objects of the archived values of dropped fields, if
    one of them was changed; else null. `unreadable` are the bytes, in hex, of a record
    that could not be read when it was discarded, in place of `before`; else null. An event of a
    schema has `event`, `field` and `position` instead of `operation`, `key`, `before`, `after`,
    `archived_before`, `archived_after`, `replaced` and `unreadable`.
    """
    with options.control() as control:
        found = control.call(
            list_changes,
            since=since,
            table=table,
            newest=newest,
            limit=limit + 1,
            for_text=not output.as_json,
        )
        shown, last = islice(found, limit), None
        if output.as_json:
            for made in shown:
                output.lines([made])
                last = made
        else:
            listed = list(shown)
            last = listed[-1] if listed else None
            columns = ("made at", "principal", "operation", "table", "key", "change")
            rows = [_to_row(made) for made in listed]
            output.table(columns, rows, solid=("made at",), empty="no changes")
        has_more = last is not None and next(found, None) is not None
        status = control.call(get_status)
    if last is None and not status.records:
        print_note("the change log is off: `zapdb settings set change_log on` switches it on")
    if last is not None and has_more:
        more = "a higher --limit shows them" if newest else f"--since {last.bookmark}"
        print_note(f"there are more changes: {more}")
    note_waiting(status)


def _to_row(made: ListedChange | ListedEvent) -> Sequence[Part]:
    begin = (f"{made.made_at:%Y-%m-%d %H:%M:%S}", made.principal)
    if isinstance(made, ListedEvent):
        numbers = {"revision": made.revision, "migration": made.position}
        told = ", ".join(f"{what} {number}" for what, number in numbers.items() if number)
        table = ".".join(name for name in (made.table, made.field) if name)
        return (*begin, (made.event, "yellow"), table, "", told)
    return (
        *begin,
        (made.operation, "bold"),
        made.table,
        show_key_values(made.shape_after or made.shape_before, made.key),
        ", ".join(filter(None, (_show_record(made), show_archived(made)))),
    )


def _show_record(made: ListedChange) -> str:
    if made.unreadable is not None:
        return f"{len(made.unreadable):,} bytes that could not be read"
    return show_change(made)


# Followers


def changes_followers_command(options: ServedTenantOptions, output: Output) -> None:
    """Show the followers, their bookmarks, and how far each is behind; times are UTC.

    `changes behind` counts up to 100,000; `lag` is the age of the oldest change that the follower
    has not read.

    With `--json`: `{followers: [{name, bookmark, advanced_at, changes_behind, seconds_behind}],
    begins_at, ends_at, watermark, changes_waiting}`; `begins_at` and `ends_at` are the bookmarks at
    which the log begins and ends, for a process that may only read. Nothing comes before
    `watermark` any more, which is null for an empty log; `changes_waiting` are behind `ends_at`
    until a process that writes has given them their place.
    """
    with options.control() as control:
        answer = control.call(get_followers)
    output.table(
        ("follower", "advanced at", "changes behind", "lag", "bookmark"),
        [_follower_to_row(one) for one in answer.followers],
        right=("changes behind", "lag"),
        solid=("advanced at",),
        empty="no followers",
    )
    output.document(answer)


def _follower_to_row(one: ListedFollower) -> Sequence[Part]:
    behind = one.changes_behind
    return (
        (one.name, "bold"),
        f"{one.advanced_at:%Y-%m-%d %H:%M:%S}",
        _format_number(behind) if behind else "-",
        _format_age(one.seconds_behind) if behind else "-",
        one.bookmark,
    )


def _format_number(changes: int) -> str:
    """Return the text of a count of changes, with `+` if counting stopped at the limit."""
    return f"{changes:,}" + ("+" if changes == CHANGES_COUNTED_MAX else "")


def _format_counted(changes: int) -> str:
    return f"{_format_number(changes)} change" + ("" if changes == 1 else "s")


def _format_age(seconds: float) -> str:
    """Return an age in its largest whole unit: `40s`, `12m`, `3d`."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= size:
            return f"{seconds / size:,.0f}{unit}"
    return f"{seconds:.0f}s"


def changes_remove_follower_command(
    name: Annotated[str, typer.Argument(help="The follower's name.")],
    options: TenantOptions,
    confirmation: Confirmation,
    output: Output,
) -> int:
    """Remove a follower that is no longer used: its bookmark is deleted, and no changes are kept
    for it.

    If the follower is still in use, it starts again, and gets `ChangesPruned` if changes are
    missing by then.

    With `--json`, which needs `--yes`: the follower as `followers` writes it.
    """
    with options.open() as db:
        there = {status.name: status for status in db.change_log.followers()}
        if name not in there:
            raise UnknownName(
                "there is no follower of this name",
                follower=name,
                followers=", ".join(there) or "(none)",
                hint=suggest(name, there),
            )
        status = there[name]
        counted = _format_counted(status.lag.changes)
        question = f"remove {name}, which is {counted} behind?"
        if not confirmation.is_given("this", question, output):
            return EXIT_ERROR
        db.change_log.follower(name).remove()
    output.write(("removed ", "green"), name)
    output.document(describe_follower(status))
    return 0


# Pruning


def changes_prune_command(
    options: TenantOptions,
    confirmation: Confirmation,
    output: Output,
    before: Annotated[
        str | None,
        typer.Option(
            metavar="MOMENT|BOOKMARK",
            help="Delete changes before a time, such as 2026-01-31T00:00Z, or before a bookmark.",
        ),
    ] = None,
    older_than: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Delete changes that are older, such as 90d."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be deleted, and delete nothing.")
    ] = False,
) -> int:
    """Delete the oldest changes from the change log for good.

    Changes are deleted by whole transactions, in short transactions that don't block writers; a
    pruning that was interrupted is finished by the next. Nothing is deleted while a follower has
    not read all of it. Reading from a bookmark before the deleted changes raises `ChangesPruned`.

    With `--json`, which needs `--yes` or `--dry-run`: `{changes, begins_at, behind: [FOLLOWER],
    done}`. `changes` is how many changes were deleted, or would be (then counted up to 100,000);
    `begins_at` is the bookmark at which the log begins then; `behind` names the followers that have
    not read all of these changes. With `--dry-run`, the exit status is 1 if there are such
    followers.
    """
    with options.open() as db:
        limit = _read_limit(db, before, older_than)
        planned = db.change_log.prune(limit, dry_run=True)
        what = _format_counted(planned.changes)
        if not planned.changes:
            output.write("nothing to prune")
        elif dry_run:
            output.write(f"{what} would be deleted")
        for name in planned.behind:
            output.write((f"{name} has not read all of these changes", "yellow"))
        done, changes = False, planned.changes
        if planned.changes and not dry_run:
            question = f"delete {what} for good?"
            if not planned.behind and not confirmation.is_given("this", question, output):
                return EXIT_ERROR
            changes = db.change_log.prune(planned.beginning).changes
            done = True
            output.write(("pruned ", "green"), format_count(changes, "change"))
    output.document(
        {
            "changes": changes,
            "begins_at": str(planned.beginning),
            "behind": planned.behind,
            "done": done,
        }
    )
    return EXIT_ERROR if planned.behind else 0


def _read_limit(db: Database, before: str | None, older_than: str | None) -> datetime | Bookmark:
    if (before is None) == (older_than is None):
        raise UsageError(
            "give exactly one of --before and --older-than",
            hint="for example: --older-than 90d",
        )
    if older_than is not None:
        return as_time(read_ago_us(db._storage.connection(), older_than))
    assert before is not None
    if BOOKMARK_TEXT.fullmatch(before):
        return Bookmark.parse(before)
    try:
        moment = datetime.fromisoformat(before)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise UsageError(
            "--before is neither a time with its UTC offset nor a bookmark",
            given=before,
            hint="give for example 2026-01-31T00:00Z, or a bookmark that "
            "`zapdb changes list --json` prints",
        )
    return moment
