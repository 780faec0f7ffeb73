"""Between records and the texts of forms, both ways.

The form of an item also sends back the etag of what was read, by which the database refuses a
change of what others changed meanwhile; and, as `seen.…`, what it showed: so the page that shows
both versions knows what its user changed. The server keeps nothing for it.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Mapping
from typing import Any, Final
from unicodedata import category
from uuid import UUID
from zoneinfo import ZoneInfo

from examples.todo_app.models import Item, Priority
from examples.todo_app.todo import PRIORITIES
from zapdb import asdict

LINE_CHARS_MAX: Final = 200
NOTES_CHARS_MAX: Final = 10_000
NOT_IN_LINES: Final = ("Cc", "Cs", "Zl", "Zp")
"""Controls and ends of lines; joiners stay, which hold an emoji or a Persian word together."""
YEARS: Final = range(1900, 2200)
FIELDS: Final = ("title", "list", "due", "priority", "reminder", "notes", "done")
"""Of an item, as its form has them."""


class Unreadable(ValueError):
    """A form says what ours can't; the text is for the user."""


def read_line(form: Mapping[str, str], name: str) -> str:
    text = form.get(name, "").strip()
    if len(text) > LINE_CHARS_MAX or any(category(one) in NOT_IN_LINES for one in text):
        raise Unreadable(f"The {name} is one line of at most {LINE_CHARS_MAX} characters.")
    return text


def read_uuid(form: Mapping[str, str], name: str) -> UUID:
    try:
        return UUID(form.get(name, ""))
    except ValueError:
        raise Unreadable(f"The {name} is none that this site knows.") from None


def read_day(form: Mapping[str, str], name: str) -> datetime.date | None:
    """What `<input type="date">` sends."""
    try:
        return datetime.date.fromisoformat(form[name]) if form.get(name) else None
    except ValueError:
        raise Unreadable("A date is a day of the calendar.") from None


def read_time(form: Mapping[str, str], name: str, zone: str) -> datetime.datetime | None:
    """What `<input type="datetime-local">` sends: a time on the clocks of the zone."""
    try:
        if not form.get(name):
            return None
        return datetime.datetime.fromisoformat(form[name]).replace(tzinfo=ZoneInfo(zone))
    except (ValueError, LookupError, OSError):
        raise Unreadable("A reminder is a day and a time.") from None


def check_years(values: Mapping[str, Any]) -> None:
    """Refuse days and times at the ends of the calendar: elsewhere on earth, it is another year."""
    for name in ("due", "reminder"):
        if values[name] is not None and values[name].year not in YEARS:
            raise Unreadable(
                f"Years are {YEARS[0]} to {YEARS[-1]}: change the {name}, or clear it."
            )


def read_priority(form: Mapping[str, str], name: str = "priority") -> Priority:
    for priority in PRIORITIES:
        if form.get(name, "normal") == priority:
            return priority
    raise Unreadable("A priority is one of those that are offered.")


def read_labels(form: Mapping[str, str], name: str = "tags") -> list[str]:
    """Tags, with commas between them: each once, as it is written first."""
    found: dict[str, str] = {}
    for part in read_line(form, name).split(","):
        label = part.strip().lstrip("#").strip()
        if label:
            found.setdefault(label.casefold(), label)
    return list(found.values())


def read_notes(form: Mapping[str, str], name: str) -> str:
    text = form.get(name, "").replace("\r\n", "\n").strip()
    if len(text) > NOTES_CHARS_MAX:
        raise Unreadable(f"Notes have at most {NOTES_CHARS_MAX:,} characters.")
    return text


def read_item(form: Mapping[str, str], prefix: str = "") -> dict[str, Any]:
    """The fields of an item, as `show_item` showed them."""
    return {
        "title": read_line(form, f"{prefix}title"),
        "list": read_uuid(form, f"{prefix}list"),
        "due": read_day(form, f"{prefix}due"),
        "priority": read_priority(form, f"{prefix}priority"),
        "reminder": read_time(form, f"{prefix}reminder", form.get("zone", "")),
        "notes": read_notes(form, f"{prefix}notes"),
        "done": form.get(f"{prefix}done") == "yes",
    }


def show_item(item: Item, labels: Iterable[str]) -> dict[str, str]:
    """The texts of an item's form; a reminder is on the clock that it was meant on."""
    return show_values(asdict(item), labels)


def show_values(values: Mapping[str, Any], labels: Iterable[str]) -> dict[str, str]:
    due, reminder = values["due"], values["reminder"]
    return {
        "title": values["title"],
        "list": str(values["list"]),
        "due": due.isoformat() if due else "",
        "priority": values["priority"],
        "reminder": reminder.replace(tzinfo=None).isoformat("T", "minutes") if reminder else "",
        "notes": values["notes"],
        "done": "yes" if values["done"] else "",
        "tags": ", ".join(labels),
    }
