"""The optional accelerator: whether this process has it, and uses it.

It is the extension module `zapdb._native`, made from the C in `native/`. Without it, and with
`ZAPDB_NATIVE=no` in the environment, zapdb does the same in Python. This module imports little,
because `zapdb --version` asks it.
"""

from __future__ import annotations

import importlib
import os
import sysconfig
from types import ModuleType
from typing import Final

NATIVE_VARIABLE: Final = "ZAPDB_NATIVE"
INTERFACE: Final = 7
"""What `zapdb.records.native` gives to the module; a module of other sources has another number."""


def load_accelerator() -> ModuleType | None:
    """Return the extension module; None if it is not to be used, or can't be."""
    if os.environ.get(NATIVE_VARIABLE) == "no" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None
    try:
        module = importlib.import_module("zapdb._native")
    except ImportError:  # not built, built for another Python, or in a sub-interpreter
        return None
    return module if module.INTERFACE == INTERFACE else None


def describe_codec() -> str:
    """Return which codec reads and writes records, in words."""
    return "pure Python codec" if load_accelerator() is None else "native codec"
