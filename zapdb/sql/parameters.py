"""Parameter values of a statement: only values that DuckDB takes exactly are accepted."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from zapdb.errors import InvalidValue
from zapdb.limits import JSON_DEPTH_MAX

_INTEGER_MIN: Final = -(1 << 127)
INTEGER_END: Final = 1 << 128
_DIGITS: Final = 38
AS_THEY_ARE: Final = (bool, float, bytes, datetime.date, datetime.timedelta, UUID)

Parameters = Sequence[Any] | Mapping[str, Any] | None


def check_parameters(parameters: Any) -> list[Any] | dict[str, Any] | None:
    """They, as plain values; raises `InvalidValue`, which names the first that is none."""
    if parameters is None:
        return None
    if isinstance(parameters, Mapping):
        return {
            check_text(name, "params"): _check(value, f"params.{name!s:.40}", 1)
            for name, value in parameters.items()
        }
    if isinstance(parameters, str | bytes) or not isinstance(parameters, Sequence):
        raise InvalidValue.of("params", "a list of values, or a mapping of names", parameters)
    return [_check(value, f"params[{at}]", 1) for at, value in enumerate(parameters)]


def check_text(text: Any, path: str) -> str:
    """Text that UTF-8 has."""
    if not isinstance(text, str):
        raise InvalidValue.of(path, "text", text)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidValue.of(path, "text without lone surrogates", text) from None
    return str(text)


def _check(value: Any, path: str, depth: int) -> Any:
    if depth > JSON_DEPTH_MAX:
        raise InvalidValue.of(path, f"a value of no more than {JSON_DEPTH_MAX} levels", "deeper")
    kind = type(value)
    if value is None or kind in AS_THEY_ARE:
        return value
    if isinstance(value, str):
        return check_text(value, path)
    if kind in _CHECKS:
        return _CHECKS[kind](value, path)
    if isinstance(value, Mapping):
        return {
            check_text(name, path): _check(part, f"{path}.{name!s:.40}", depth + 1)
            for name, part in value.items()
        }
    if kind in (list, tuple):
        return [_check(part, f"{path}[{at}]", depth + 1) for at, part in enumerate(value)]
    raise InvalidValue.of(
        path,
        "None, or a bool, int, float, Decimal, str, bytes, date, datetime, UUID, list or dict",
        value,
    )


def _check_integer(value: int, path: str) -> int:
    if _INTEGER_MIN <= value < INTEGER_END:
        return value
    raise InvalidValue.of(path, "an integer of up to 128 bits", value)


def _check_time_of_day(value: datetime.time, path: str) -> datetime.time:
    if value.tzinfo is None:
        return value
    raise InvalidValue.of(path, "a time without a zone", value)


def _check_time(value: datetime.datetime, path: str) -> datetime.datetime:
    """One with a zone goes as an instant: the process of the statement has no zones."""
    if value.tzinfo is None:
        return value
    try:
        return value.astimezone(datetime.UTC)
    except OverflowError:
        raise InvalidValue.of(path, "a time in the years 1 to 9999 of UTC", value) from None


def _check_decimal(value: Decimal, path: str) -> Decimal:
    _, digits, exponent = value.as_tuple()
    if (
        isinstance(exponent, int)
        and exponent >= -_DIGITS
        and len(digits) + max(exponent, 0) <= _DIGITS
    ):
        return value
    raise InvalidValue.of(path, "a decimal of up to 38 digits", value)


_CHECKS: Final[Mapping[type, Callable[[Any, str], Any]]] = {
    int: _check_integer,
    Decimal: _check_decimal,
    datetime.datetime: _check_time,
    datetime.time: _check_time_of_day,
}
"""What checks a value of exactly this type, whose place is given as a path."""
