"""The registry of functions: pure, total, and dependent on their arguments' bytes alone (rule 18).

A function gets arguments that are not null. One that can fail for some arguments is marked
`partial`: its call must say `else=`, and it returns `FAILED` then. No function consults Unicode
tables, locale, the clock, tz data or ICU, so a conversion gives the same bytes on every machine and
for ever. What a name means never changes: the texts of expressions enter digests.
"""

from __future__ import annotations

import decimal
from typing import Final

from zapdb.expressions import arithmetic, value_functions
from zapdb.expressions.signatures import (
    BOOLEAN,
    INTEGER,
    STRING,
    Function,
    Kinds,
    choosing,
    resolve_absolute,
    resolve_contains,
    to_scale,
)
from zapdb.limits import DECIMAL_SCALE_MAX
from zapdb.values import (
    Binary,
    Boolean,
    Date,
    Decimal,
    Enum,
    Float,
    Integer,
    List,
    String,
    Timestamp,
    Uuid,
    ValueType,
    ZonedTimestamp,
)

_TEXT: Final[Kinds] = (String,)
NUMBER: Final[Kinds] = (Integer, Decimal, Float)
EXACT_NUMBER: Final[Kinds] = (Integer, Decimal)
_ANY: Final[Kinds] = (ValueType,)


TEXTABLE: Final[Kinds] = (
    Integer,
    Decimal,
    Boolean,
    Date,
    Uuid,
    String,
    Timestamp,
    Float,
    Binary,
    Enum,
)

FUNCTIONS: Final[dict[str, Function]] = {
    function.name: function
    for function in (
        # texts
        Function(
            "before",
            (_TEXT, _TEXT),
            STRING,
            value_functions.before,
            "The text before the first separator; all of it where there is none.",
        ),
        Function(
            "after",
            (_TEXT, _TEXT),
            STRING,
            value_functions.after,
            "The text after the first separator; empty where there is none.",
        ),
        Function(
            "part",
            (_TEXT, _TEXT, (Integer,)),
            STRING,
            value_functions.part,
            "The part of that number, from 1, of the text split at the separator; empty where "
            "there is none. An empty separator splits nothing.",
        ),
        Function(
            "substring",
            (_TEXT, (Integer,), (Integer,)),
            STRING,
            value_functions.substring,
            "The characters from that position, the first being 1, as many as that; those that "
            "there are.",
        ),
        Function(
            "join",
            (_TEXT, _TEXT),
            STRING,
            value_functions.join_text,
            "The texts, with the first argument between them.",
            variadic=True,
        ),
        Function(
            "replace",
            (_TEXT, _TEXT, _TEXT),
            STRING,
            value_functions.replace_text,
            "The text with the third in place of the second, everywhere; as it is where the second "
            "is empty.",
        ),
        Function(
            "lower",
            (_TEXT,),
            STRING,
            value_functions.lower,
            "A to Z as a to z; all else as it is.",
        ),
        Function(
            "upper",
            (_TEXT,),
            STRING,
            value_functions.upper,
            "a to z as A to Z; all else as it is.",
        ),
        Function(
            "strip",
            (_TEXT,),
            STRING,
            value_functions.strip,
            "Without ASCII white space at both ends.",
        ),
        Function(
            "length",
            ((String, Binary, List),),
            INTEGER,
            len,
            "The number of code points, bytes or items.",
        ),
        Function(
            "contains",
            ((String, List), _ANY),
            (Boolean,),
            resolve_contains,
            "Whether the second text occurs in the first, or the value among the list's items.",
        ),
        Function(
            "starts_with",
            (_TEXT, _TEXT),
            BOOLEAN,
            str.startswith,
            "Whether the first text begins with the second.",
        ),
        Function(
            "ends_with",
            (_TEXT, _TEXT),
            BOOLEAN,
            str.endswith,
            "Whether the first text ends with the second.",
        ),
        # numbers
        Function("abs", (NUMBER,), NUMBER, resolve_absolute, "The number without its sign."),
        Function(
            "min",
            (NUMBER, NUMBER),
            NUMBER,
            choosing(min, arithmetic.least_float),
            "The least of numbers of one type. NaN comes after all others.",
            variadic=True,
        ),
        Function(
            "max",
            (NUMBER, NUMBER),
            NUMBER,
            choosing(max, arithmetic.greatest_float),
            "The greatest of numbers of one type. NaN comes after all others.",
            variadic=True,
        ),
        Function(
            "round",
            ((Decimal,), (Integer,)),
            (Decimal,),
            to_scale(lambda scale: arithmetic.round_to(scale, decimal.ROUND_HALF_EVEN), 1),
            "The nearest decimal of the literal scale; of two, the one with an even last digit.",
        ),
        Function(
            "truncate",
            ((Decimal,), (Integer,)),
            (Decimal,),
            to_scale(lambda scale: arithmetic.round_to(scale, decimal.ROUND_DOWN), 1),
            "The decimal cut to the literal scale, towards 0.",
        ),
        Function(
            "quotient",
            ((Integer,), (Integer,)),
            INTEGER,
            arithmetic.quotient,
            "The integer below or equal to the first divided by the second; fails for 0.",
            partial=True,
        ),
        Function(
            "remainder",
            ((Integer,), (Integer,)),
            INTEGER,
            arithmetic.remainder,
            "What `quotient` leaves, with the sign of the second; fails for 0.",
            partial=True,
        ),
        Function(
            "divide",
            (EXACT_NUMBER, EXACT_NUMBER, (Integer,)),
            (Decimal,),
            to_scale(lambda scale: arithmetic.divide, 2),
            "The first divided by the second, rounded as by `round` to the literal scale; fails "
            "for 0.",
            partial=True,
        ),
        # dates and times
        Function("year", ((Date,),), INTEGER, value_functions.year, "The year of the date."),
        Function(
            "month", ((Date,),), INTEGER, value_functions.month, "The month of the date, 1 to 12."
        ),
        Function("day", ((Date,),), INTEGER, value_functions.day, "The day of the month, from 1."),
        Function(
            "add_days",
            ((Date,), (Integer,)),
            Date(),
            value_functions.add_days,
            "So many days later, or earlier; fails outside the years 1 to 9999.",
            partial=True,
        ),
        Function(
            "days_between",
            ((Date,), (Date,)),
            INTEGER,
            value_functions.days_between,
            "The days from the first date to the second; below 0 where that is earlier.",
        ),
        Function(
            "date_of",
            ((Timestamp,),),
            Date(),
            value_functions.date_of,
            "The date in UTC.",
        ),
        Function(
            "timestamp_of",
            ((Date,),),
            Timestamp(),
            value_functions.timestamp_of,
            "Midnight UTC at the beginning of the date.",
        ),
        Function(
            "local_date",
            ((ZonedTimestamp,),),
            Date(),
            value_functions.local_date,
            "The date of the local time, as it is stored.",
        ),
        Function(
            "zone_name",
            ((ZonedTimestamp,),),
            STRING,
            value_functions.zone_name,
            "The name of the time zone, as it is stored.",
        ),
        # from type to type
        Function(
            "text",
            (TEXTABLE,),
            STRING,
            value_functions.to_text,
            "The value as text: digits, `true` or `false`, an ISO date, an RFC 3339 instant with "
            "`Z`, lower-case hexadecimal digits, the name of an enum's member.",
        ),
        Function(
            "integer",
            ((String, Decimal),),
            INTEGER,
            value_functions.to_integer,
            "The integer that the text spells in ASCII digits, or that the decimal equals.",
            partial=True,
        ),
        Function(
            "decimal",
            ((String, Integer, Decimal), (Integer,)),
            (Decimal,),
            to_scale(lambda scale: value_functions.to_decimal, 1),
            f"The decimal of that value, exactly, with the literal scale 0 to {DECIMAL_SCALE_MAX}.",
            partial=True,
        ),
        Function(
            "float",
            ((Integer, Decimal, String),),
            Float(),
            value_functions.to_float,
            "The float nearest to that value; fails beyond the largest. A text has ASCII digits, "
            "maybe an exponent after `e`, or is `nan`, `inf` or `-inf`.",
            partial=True,
        ),
        Function(
            "date",
            (_TEXT,),
            Date(),
            value_functions.to_date,
            "The date that the text spells as `YYYY-MM-DD`.",
            partial=True,
        ),
        Function(
            "timestamp",
            (_TEXT,),
            Timestamp(),
            value_functions.to_timestamp,
            "The instant that the text spells as `YYYY-MM-DDThh:mm:ssZ`, with a point and 1 to 6 "
            "digits before the `Z` maybe.",
            partial=True,
        ),
        Function(
            "uuid",
            (_TEXT,),
            Uuid(),
            value_functions.to_uuid,
            "The UUID that the text spells in 36 characters, in lower or upper case.",
            partial=True,
        ),
        Function(
            "hex",
            ((Binary,),),
            STRING,
            value_functions.to_hex,
            "The bytes as lower-case hexadecimal digits.",
        ),
        Function(
            "unhex",
            (_TEXT,),
            Binary(),
            value_functions.from_hex,
            "The bytes that the text spells in pairs of hexadecimal digits.",
            partial=True,
        ),
        Function(
            "utf8",
            ((Binary,),),
            STRING,
            value_functions.from_utf8,
            "The text that the bytes are in UTF-8; fails for what a string can't hold.",
            partial=True,
        ),
        Function(
            "bytes_of", (_TEXT,), Binary(), value_functions.to_bytes, "The text as bytes in UTF-8."
        ),
    )
}
