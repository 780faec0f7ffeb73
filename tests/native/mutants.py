"""Bugs to plant in the C, each of which the comparison with Python has to find."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tools.native_build import build

SOURCES: Final = Path(__file__).parents[2] / "native"


@dataclass(frozen=True)
class Mutant:
    """In a file, `old`, which occurs once there, becomes `new`."""

    file: str
    old: str
    new: str

    def build(self, directory: Path) -> Path:
        """Compile the sources with the bug in a new directory; returns the module's path."""
        sources = directory / "native"
        shutil.copytree(SOURCES, sources)
        text = (sources / self.file).read_text(encoding="utf-8")
        assert text.count(self.old) == 1, f"{self.old!r} occurs {text.count(self.old)} times"
        (sources / self.file).write_text(text.replace(self.old, self.new), encoding="utf-8")
        made = build(sources, directory, must=True, flags=["-O0", "-g0"])
        assert made is not None
        return made

    def __str__(self) -> str:
        return f"{self.file}: {self.old[:40]}"


MUTANTS: Final = (
    Mutant("varint.c", "payload < 64", "payload < 63"),
    Mutant("varint.c", "*value >= -64", "*value >= -63"),
    Mutant("varint.c", "(size > 1 && p[0] == 0xFF)", "0"),
    Mutant("varint.c", "size > size_max", "size > size_max + 1"),
    Mutant("varint.c", "r->end - p < size", "r->end - p < size - 1"),
    Mutant("cbor.c", "(size_t)size) <= 0", "(size_t)size) < 0"),
    Mutant("cbor.c", "size < last_size", "0"),
    Mutant("cbor.c", "size == 1 ? IN_FIRST_BYTE", "size == 1 ? 0"),
    Mutant("cbor.c", "if (is_half(value)) {\n            return NULL;", "if (0) {"),
    Mutant("cbor.c", "|| is_minus_zero(value)) {\n        return NULL;", ") {\n return NULL;"),
    Mutant("cbor.c", "fabs(value) <= FLT_MAX", "fabs(value) < FLT_MAX"),
    Mutant("cbor.c", "depth == 0 || count > (uint64_t)zap_left(r)", "0"),
    Mutant("cbor.c", "if (!is_sorted)", "if (0)"),
    Mutant("text.c", "c <= 0xDFFF", "c <= 0xDFFE"),
    Mutant("text.c", "c >= 0x10000)", "c > 0x10000)"),
    Mutant("writer.c", "size < 1 << 8 ? 2", "size < 1 << 7 ? 2"),
    Mutant("scalars.c", "stored == SIGN - 1 ||", ""),
    Mutant("scalars.c", "(isnan(value) && stored != QUIET_NAN)", "0"),
    Mutant("scalars.c", "of_era - of_era / 1460", "of_era - of_era / 1461"),
    Mutant("scalars.c", "if (*p != '0')", "if (0)"),
    Mutant("scalars.c", "zone, fold, API(state)", "zone, 0, API(state)"),
    Mutant("scalars.c", "= PyDateTime_DATE_GET_FOLD(value)", "= 0"),
    Mutant("values.c", "skip_bytes(r, 9) &&", "skip_bytes(r, 8) &&"),
    Mutant("values.c", "size < 0 || size > v->number", "size < 0 || size > v->number + 1"),
    Mutant("values.c", "(used && (*bits)[size - 1] >> used)", "0"),
    Mutant("values.c", "f->bit >= 0 && value == Py_None", "0"),
    Mutant("values.c", "r->at - start > ZAP_KEY_MAX", "0"),
    Mutant("values.c", "inside.at != inside.end) {\n        Py_CLEAR(value);", "0) {"),
    Mutant("plan.c", "known == PyDict_GET_SIZE(args[1])", "1"),
    Mutant("plan.c", "is_done = nargs == self->key.count", "is_done = nargs <= self->key.count"),
    Mutant("plan.c", "*w->at++ = !is_null", "*w->at++ = 1"),
    Mutant("plan.c", "f->is_inverted && p < w->at", "f->is_inverted && p < w->at - 1"),
    Mutant("plan.c", "of_key.at != of_key.end", "0"),
    Mutant("plan.c", "self->reach == self->body.count && of_data.at != of_data.end", "0"),
)
