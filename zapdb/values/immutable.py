"""Makes objects of immutable classes fast: classes whose `__setattr__` raises an error.

The object is made in a subclass with the same slots, whose attributes can be set. When all are set,
its `__class__` becomes the immutable one. For eight attributes, that takes less than a tenth of the
time of `object.__setattr__`.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

T = TypeVar("T")

set_attribute: Final = object.__setattr__
"""Sets an attribute of an object that no other code has yet, or one outside its value."""
delete_attribute: Final = object.__delattr__

OPEN: Final[dict[str, Any]] = {
    "__slots__": (),
    "__init__": object.__init__,
    "__setattr__": object.__setattr__,
    "__delattr__": object.__delattr__,
}


def open_class(immutable: type[T]) -> type[T]:
    """Return the subclass whose objects are made without arguments and have settable attributes.

    `immutable` must be a Python class with slots only.
    """
    return type(immutable.__name__, (immutable,), OPEN)
