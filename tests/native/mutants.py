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
    Mutant("native.h", "(uint64_t)(r->end - taken)", "(uint64_t)(r->end - taken) + 1"),
    Mutant("bytes.c", "number < SHORT_END ||", "number < SHORT_END - 1 ||"),
    Mutant("bytes.c", "number > INT64_MAX", "0"),
    Mutant("bytes.c", "payload_size(number) != size", "0"),
    Mutant("bytes.c", "if (size >= SHORT_END)", "if (size > SHORT_END)"),
    Mutant("bytes.c", "= PyUnicode_CheckExact(string)", "= 1"),
    Mutant("bytes.c", "object == NULL || !PyBytes_CheckExact(object)", "object == NULL"),
    Mutant("bytes.c", "is_short && i < size; i++", "is_short && i < size - 1; i++"),
    Mutant("cbor.c", "r->at - start) <= 0", "r->at - start) < 0"),
    Mutant("cbor.c", "log == 0 ? IN_FIRST_BYTE", "log == 0 ? 0"),
    Mutant("cbor.c", "|| (value == 0.0 && signbit(value))", ""),
    Mutant("cbor.c", "fabs(value) <= FLT_MAX", "fabs(value) < FLT_MAX"),
    Mutant("cbor.c", "pack_float(value, form) == size", "pack_float(value, form)"),
    Mutant("cbor.c", "depth == 0 ? NULL : is_map", "is_map"),
    Mutant("cbor.c", "argument > INT64_MAX ? NULL", "argument == UINT64_MAX ? NULL"),
    Mutant("cbor.c", "l->size < r->size ? -1 : 1", "l->size < r->size ? 1 : -1"),
    Mutant("cbor.c", "if (!is_sorted)", "if (0)"),
    Mutant("cbor.c", "w->is_wrong |= overflow != 0", "(void)overflow"),
    Mutant("cbor.c", "PyDict_CheckExact(value) && depth", "PyDict_Check(value) && depth"),
    Mutant("cbor.c", "PyList_CheckExact(value) && depth", "PyList_Check(value) && depth"),
    Mutant("cbor.c", "if (PyFloat_CheckExact(value))", "if (PyFloat_Check(value))"),
    Mutant("scalars.c", "value += 0.0;", ""),
    Mutant("scalars.c", "form_of(real) == number", "1"),
    Mutant("scalars.c", "isnan(value) ? QUIET_NAN", "0 ? QUIET_NAN"),
    Mutant("scalars.c", "quarters % 146097 | 3", "quarters % 146097"),
    Mutant("scalars.c", "- year / 100 + year / 400", "- year / 100 + year / 401"),
    Mutant("scalars.c", "zone, fold, api->", "zone, 0, api->"),
    Mutant("scalars.c", "number > 1 ? NULL", "number > 2 ? NULL"),
    Mutant("scalars.c", "!PyLong_CheckExact(value) || TO_16", "TO_16"),
    Mutant("scalars.c", "w->is_wrong |= zeros < 0", "zeros += 0"),
    Mutant("scalars.c", "+ zeros > DIGITS_MAX", "+ zeros > DIGITS_MAX + 9"),
    Mutant("scalars.c", "= PyDateTime_DATE_GET_FOLD(value)", "= 0"),
    Mutant("scalars.c", "zone != api->TimeZone_UTC", "0"),
    Mutant("scalars.c", "|= !PyFloat_CheckExact(value)", "|= !PyFloat_Check(value)"),
    Mutant("scalars.c", "PyLong_CheckExact(value) ? PyLong", "PyLong_Check(value) ? PyLong"),
    Mutant("scalars.c", "PyUnicode_CheckExact(value) ? PyDict", "PyUnicode_Check(value) ? PyDict"),
    Mutant("scalars.c", "Py_IS_TYPE(value, Py_TYPE(f", "PyObject_TypeCheck(value, Py_TYPE(f"),
    Mutant("scalars.c", "Py_IS_TYPE(value, is_date", "PyObject_TypeCheck(value, is_date"),
    Mutant("parts.c", "(Py_IS_TYPE(value, parts->type)", "(PyObject_TypeCheck(value, parts->type)"),
    Mutant("parts.c", "|= !PyList_CheckExact(items)", "|= !PyList_Check(items)"),
    Mutant("parts.c", "zap_read_number(r, 2) != ESCAPED_END", "zap_read_number(r, 2) >= 256"),
    Mutant("parts.c", "size > (size_t)f->number ||", "size > (size_t)f->number + 1 ||"),
    Mutant("parts.c", "memchr(w->at - size, 0, size) != NULL", "0"),
    Mutant("parts.c", "size > f->number || size", "size > f->number + 1 || size"),
    Mutant("parts.c", "size > end - r->at", "size > end - r->at + 1"),
    Mutant("parts.c", "r->at - start > ZAP_KEY_MAX", "0"),
    Mutant("parts.c", "has_length && r->at != r->end", "0"),
    Mutant("parts.c", "r->is_wrong |= has_length && r->at != r->end", "r->at = r->end"),
    Mutant("parts.c", "r->has_blob |= f->encode == Py_None", "r->has_blob = 0"),
    Mutant("parts.c", "(size > 0 && used && bits[size - 1] >> used)", "0"),
    Mutant("parts.c", "is_here && f->bit >= 0 && value == Py_None", "0"),
    Mutant("parts.c", "|| PyTuple_GET_SIZE(value) == parts->count", "|| 1"),
    Mutant("parts.c", "is_dict && given != PyDict_GET_SIZE(value)", "0"),
    Mutant("parts.c", "f->kind == ZAP_STRUCT && PyDict", "PyDict"),
    Mutant("parts.c", "- begin > ZAP_KEY_MAX", "- begin > ZAP_KEY_MAX + 1"),
    Mutant("parts.c", "is_present = value != Py_None", "is_present = 1 || value != Py_None"),
    Mutant("parts.c", "f->order < 0 && p < w->at", "f->order < 0 && p < w->at - 1"),
    Mutant("plan.c", "|| at > PyBytes_GET_SIZE(data)", ""),
    Mutant("plan.c", "known == PyDict_GET_SIZE(source)", "known >= 0"),
    Mutant("plan.c", "nargs == plan->nargs", "nargs >= plan->nargs"),
    Mutant("plan.c", "&& r.end - r.start <= ZAP_KEY_MAX", ""),
    Mutant("plan.c", "w.at - w.start <= ZAP_KEY_MAX", "1"),
    Mutant("plan.c", "(!plan->is_whole || r->at == r->end)", "1"),
)
