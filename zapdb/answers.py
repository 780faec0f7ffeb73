"""What an answer is in JSON.

An answer's fields, in their order, are the keys of its JSON, and the fields of its message. Where
Python has a keyword of a key's name, the field ends with an underscore. A field that is `hidden` is
in the message alone: the text of a command needs it, or other programs do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, fields
from typing import Any, Final

_HIDDEN: Final = "zapdb-hidden"


def hidden(when: Callable[[Any], bool] = lambda answer: True) -> Any:
    """A field that JSON leaves out, of those answers for which `when` holds."""
    return field(metadata={_HIDDEN: when})


def public_name(name: str) -> str:
    """The name of a field in JSON and in messages."""
    return name.removesuffix("_")


def to_json_object(answer: Any) -> dict[str, Any]:
    """The keys of a dataclass in JSON, with the values of its fields as they are."""
    return {
        public_name(one.name): getattr(answer, one.name)
        for one in fields(answer)
        if not (_HIDDEN in one.metadata and one.metadata[_HIDDEN](answer))
    }
