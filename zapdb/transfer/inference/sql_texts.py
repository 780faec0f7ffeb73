"""Defaults and checks of a source, which are SQL texts, in the words of migrations.

Only what surely means the same is translated; everything else stays a note.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from zapdb.values import ValueType

_CAST: Final = re.compile(
    r"::(?:character varying|double precision|timestamp with(?:out)? time zone|\w+)"
    r"(?:\(\d+(?:,\s*\d+)?\))?(?:\[\])?"
)
_CAST_NUMBER: Final = re.compile(
    r"'(-?\d+(?:\.\d+)?)'::(?:smallint|integer|bigint|numeric|real|double precision)\b"
)
"""How PostgreSQL writes a number below zero."""
_TEXT: Final = re.compile(r"'((?:[^']|'')*)'")
_NUMBER: Final = re.compile(r"[+-]?\d+(?:\.\d+)?")
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<introduced>_\w+'[^'\\]*')|(?P<text>'(?:[^']|'')*')|(?P<number>\d+(?:\.\d+)?)|(?P<quoted>\"(?:[^\"]|\"\")+\"|`[^`]+`|\[\w+\])"
    r"|(?P<word>[A-Za-z_]\w*)|(?P<sign><>|!=|<=|>=|==|[=<>(),+\-*\[\]]))"
)
"""MySQL introduces texts by their character set: `_utf8mb4'AT'`. There a backslash escapes."""
_GENERATORS: Final = re.compile(r"nextval|gen_random_uuid|uuid_generate|autoincrement", re.I)
_NOW: Final = re.compile(
    r"now\(\)|current_timestamp(?:\(\d*\))?|statement_timestamp\(\)|transaction_timestamp\(\)"
    r"|clock_timestamp\(\)|timezone\('utc', now\(\)\)|datetime\('now'\)",
    re.I,
)


def strip_casts(text: str) -> str:
    return _CAST.sub("", text).strip()


def _without_parentheses(text: str) -> str:
    while text.startswith("(") and text.endswith(")"):
        text = text[1:-1].strip()
    return text


def read_default_text(text: str, kind: ValueType | None) -> Any:
    """The plain value of a default; raises `ValueError` for one that is no constant."""
    bare = _without_parentheses(strip_casts(_without_parentheses(text.strip())))
    name = "" if kind is None else kind.name
    match = _TEXT.fullmatch(bare)
    plain: Any
    if match is not None:
        plain = match[1].replace("''", "'")
    elif _NUMBER.fullmatch(bare):
        plain = bare
    elif bare.lower() in ("true", "false"):
        plain = bare.lower()
    else:
        raise ValueError(text)
    if name == "boolean":
        if str(plain).lower() not in ("true", "false", "0", "1", "t", "f"):
            raise ValueError(text)
        return str(plain).lower() in ("true", "1", "t")
    if name == "integer":
        return int(plain)
    if name in ("json", "list", "timestamp", "binary"):
        raise ValueError(text)
    return plain


def is_generator(text: str) -> bool:
    """Whether a default makes a new value each time."""
    return bool(_GENERATORS.search(text))


def is_null(text: str) -> bool:
    """Whether a default is the null that there is without one."""
    return _without_parentheses(strip_casts(text)).upper() in ("", "NULL")


def is_now(text: str) -> bool:
    return bool(_NOW.fullmatch(_without_parentheses(strip_casts(text))))


def translate_check(text: str, fields: Mapping[str, tuple[str, bool]]) -> str | None:
    """The expression of a check; `fields` are names here, and whether they are optional, by the
    columns' names. None if it has no translation."""
    try:
        reader = _CheckReader(_tokenize(_CAST.sub("", _CAST_NUMBER.sub(r"\1", text))), fields)
        made = reader.read_or()
        if reader.at < len(reader.tokens):
            return None
    except (ValueError, IndexError):
        return None
    # A check of SQL holds where it is unknown: a null passes.
    for name in sorted(reader.optional):
        made = f"{name} is None or ({made})"
    return made


def _tokenize(text: str) -> list[tuple[str, str]]:
    tokens, at = [], 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(text)
        assert match.lastgroup is not None
        kind, token = match.lastgroup, match[match.lastgroup]
        if kind == "introduced":
            kind, token = "text", token[token.index("'") :]
        tokens.append((kind, token))
        at = match.end()
    return tokens


class _CheckReader:
    """Reads comparisons of columns with literals, `BETWEEN`, `IN`, nulls, and what joins them."""

    def __init__(
        self, tokens: list[tuple[str, str]], fields: Mapping[str, tuple[str, bool]]
    ) -> None:
        self.tokens = tokens
        self.fields = fields
        self.at = 0
        self.optional = set[str]()

    def _word(self) -> str:
        kind, text = self.tokens[self.at] if self.at < len(self.tokens) else ("", "")
        return text.upper() if kind in ("word", "sign") else ""

    def _take(self, *wanted: str) -> bool:
        if self._word() in wanted:
            self.at += 1
            return True
        return False

    def _need(self, wanted: str) -> None:
        if not self._take(wanted):
            raise ValueError(wanted)

    def read_or(self) -> str:
        parts = [self._read_and()]
        while self._take("OR"):
            parts.append(self._read_and())
        return " or ".join(parts)

    def _read_and(self) -> str:
        parts = [self._read_not()]
        while self._take("AND"):
            parts.append(self._read_not())
        if len(parts) == 1:
            return parts[0]
        return " and ".join(f"({part})" if " or " in part else part for part in parts)

    def _read_not(self) -> str:
        if self._take("NOT"):
            return f"not ({self._read_not()})"
        begin = self.at
        try:
            return self._read_comparison()
        except ValueError:
            self.at = begin
            self._need("(")
            made = self.read_or()
            self._need(")")
            return f"({made})"

    def _read_comparison(self) -> str:
        left = self._read_operand()
        if self._take("IS"):
            is_not = self._take("NOT")
            self._need("NULL")
            self.optional.discard(left)
            return f"{left} is {'not ' if is_not else ''}None"
        if self._take("BETWEEN"):
            low = self._read_operand()
            self._need("AND")
            return f"{left} >= {low} and {left} <= {self._read_operand()}"
        if self._take("IN"):
            return self._one_of(left, "(", ")")
        sign = self._word()
        if sign not in ("=", "==", "<>", "!=", "<", "<=", ">", ">="):
            raise ValueError(sign)
        self.at += 1
        if sign == "=" and self._take("ANY"):
            depth = 0
            while self._take("("):
                depth += 1
            self._need("ARRAY")
            made = self._one_of(left, "[", "]")
            for _ in range(depth):
                self._need(")")
            return made
        sign = {"=": "==", "<>": "!="}.get(sign, sign)
        return f"{left} {sign} {self._read_operand()}"

    def _one_of(self, left: str, begin: str, end: str) -> str:
        self._need(begin)
        values = [self._read_operand()]
        while self._take(","):
            values.append(self._read_operand())
        self._need(end)
        return "(" + " or ".join(f"{left} == {value}" for value in values) + ")"

    def _read_operand(self) -> str:
        if self._take("("):
            made = self._read_operand()
            self._need(")")
            return made
        sign = "-" if self._take("-") else ""
        kind, text = self.tokens[self.at]
        self.at += 1
        if kind == "number":
            return sign + text
        if kind == "text" and not sign:
            return repr(text[1:-1].replace("''", "'"))
        if kind == "word" and text.upper() in ("LENGTH", "CHAR_LENGTH") and self._take("("):
            inner = self._read_operand()
            self._need(")")
            return f"length({inner})"
        name = text[1:-1].replace('""', '"') if kind == "quoted" else text
        found = self.fields.get(name) or self.fields.get(name.lower())
        if kind not in ("word", "quoted") or found is None or sign:
            raise ValueError(text)
        if found[1]:
            self.optional.add(found[0])
        return found[0]
