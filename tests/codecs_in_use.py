"""Tests over both codecs: the accelerator where it is built, and the generated Python."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

from tests.zoned import ZONES
from zapdb.accelerator import NATIVE_VARIABLE
from zapdb.limits import COMPILED_MAX
from zapdb.memo import Memo
from zapdb.records import codec, native

CODECS: Final = ["pure"] if native.accelerator is None else ["native", "pure"]


@contextmanager
def using_codec(name: str) -> Iterator[None]:
    """In the block, codecs are made anew, of this sort: here, and in processes that are started."""
    with pytest.MonkeyPatch.context() as patch:
        if name == "pure":
            patch.setattr(native, "accelerator", None)
            patch.setenv(NATIVE_VARIABLE, "no")
        patch.setattr(codec, "_compiled", Memo[Any, Any](COMPILED_MAX))
        patch.setattr(ZONES, "compiled", Memo[Any, Any](COMPILED_MAX))
        yield
