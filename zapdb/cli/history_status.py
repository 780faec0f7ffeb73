"""`zapdb history status`: apart from what writes the store, which needs an extra that a client of a
service does without."""

from __future__ import annotations

from zapdb.cli.each_tenant import ServedStoreOptions
from zapdb.cli.output import Output, format_count, print_note
from zapdb.control.history import StoreProblem, StoreStatus, list_stores
from zapdb.errors import EXIT_ERROR, EXIT_PENDING
from zapdb.past.files.history_manifest import FOLLOWED


def history_status_command(options: ServedStoreOptions, output: Output) -> int:
    """Show what the history store holds, and how far it is behind; times are UTC.

    Exit status 1 if something is in its way; 3 if changes wait for files, or tables are read for
    the first time.

    With `--json`: `{tenant, directory, state, begins, ends, visible_at, flushed_at,
    changes_behind, seconds_behind, files, size_bytes, unfinished: [TABLE], is_followed,
    purged_before, unfinished_erasures, problem}`; with --all-tenants
    `{tenants: [STORE | {tenant, error}]}`.
    """
    options.require_one_choice()
    with options.control() as control:
        answer = control.call(list_stores, all_tenants=options.all_tenants)
    found = answer.tenants
    output.document(answer if options.all_tenants else found[0])
    stores = [one for one in found if isinstance(one, StoreStatus)]
    problems = [one for one in found if isinstance(one, StoreProblem)]
    for refused in problems:
        print_note(f"{refused.tenant}: {refused.text}")
    output.table(
        ("tenant", "moments", "files", "size", "behind", "state"),
        [
            (
                (one.tenant, "bold"),
                f"#{max(one.begins, one.purged_before)} to #{one.ends}",
                f"{one.files:,}",
                f"{one.size_bytes / 1e6:,.1f} MB",
                format_count(one.changes_behind, "change"),
                _show_state(one),
            )
            for one in stores
        ],
        right=("files", "size"),
        empty="no history store",
    )
    for one in stores:
        if one.problem is not None:
            print_note(f"{one.tenant}: {one.problem}")
        if one.unfinished_erasures:
            what = format_count(one.unfinished_erasures, "erasure")
            print_note(f"{one.tenant}: {what} not finished: `zapdb history flush` goes on with it")
    statuses = {*map(_judge, stores), *(EXIT_ERROR for _ in problems), 0}
    return EXIT_ERROR if EXIT_ERROR in statuses else max(statuses)


def _judge(store: StoreStatus) -> int:
    """The exit status for a store: something is in its way, it is behind, or neither."""
    if store.problem or store.state == "broken":
        return EXIT_ERROR
    is_behind = store.changes_behind or store.unfinished or store.unfinished_erasures
    return EXIT_PENDING if is_behind else 0


def _show_state(status: StoreStatus) -> str:
    if status.state not in FOLLOWED:
        return status.state
    what = "first reads " + ", ".join(status.unfinished) if status.unfinished else "is followed"
    return what if status.is_followed else "no process follows: `zapdb history run`"
