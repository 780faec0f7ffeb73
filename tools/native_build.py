"""Compiles the accelerator, native/*.c, to the extension module `zapdb._native`.

As a hook of hatchling it puts the module into the wheel, or beside the package for an editable
installation. Where there is no compiler, and for Pythons that the accelerator does not know, the
wheel is a pure one; `ZAPDB_NATIVE=yes` makes that an error. `ZAPDB_NATIVE=no` leaves it out.

`python -m tools.native_build` compiles it beside the package, for this interpreter.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from setuptools import Distribution, Extension
from setuptools.command.build_ext import build_ext

MODULE = "zapdb._native"
SOURCES = "native"
WINDOWS = os.name == "nt"
FLAGS = ["/std:c11"] if WINDOWS else ["-std=c11", "-fvisibility=hidden"]


def is_known() -> bool:
    """Whether the accelerator can be compiled for this interpreter."""
    return sys.implementation.name == "cpython" and not sysconfig.get_config_var("Py_GIL_DISABLED")


def build(sources: Path, target: Path, *, must: bool, flags: Sequence[str] = ()) -> Path | None:
    """Compile the module into the directory `target`.

    Returns its path; None if that fails, unless it `must` not.
    """
    extension = Extension(
        MODULE,
        sorted(map(str, sources.glob("*.c"))),
        depends=sorted(map(str, sources.glob("*.h"))),
        extra_compile_args=[*FLAGS, *flags],
        extra_link_args=list(flags),
        optional=not must,
    )
    command = build_ext(Distribution({"ext_modules": [extension]}))
    with tempfile.TemporaryDirectory() as temporary:
        command.build_lib = command.build_temp = temporary
        command.ensure_finalized()
        command.run()
        made = Path(command.get_ext_fullpath(MODULE))
        if not made.exists():
            return None
        # Replaced, not written over: processes that have it loaded would end.
        part = shutil.copy(made, target / f"{made.name}.part")
        return Path(part).replace(target / made.name)


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]  # of no configuration
    """What hatchling calls, by this name."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        wanted, root = os.environ.get("ZAPDB_NATIVE", ""), Path(self.root)
        self._temporary = tempfile.TemporaryDirectory()
        if self.target_name != "wheel":
            return
        is_editable = version == "editable"
        target = root / "zapdb" if is_editable else Path(self._temporary.name)
        # What is there was made of other sources.
        (target / f"_native{sysconfig.get_config_var('EXT_SUFFIX')}").unlink(missing_ok=True)
        if wanted == "no" or not is_known():
            return
        made = build(root / SOURCES, target, must=wanted == "yes")
        if made is not None and not is_editable:
            build_data["force_include"][str(made)] = f"zapdb/{made.name}"
            build_data["pure_python"], build_data["infer_tag"] = False, True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        self._temporary.cleanup()


if __name__ == "__main__":
    here = Path(__file__).parents[1]
    print(build(here / SOURCES, here / "zapdb", must=True))
