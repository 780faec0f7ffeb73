"""Lines of Python as `ruff format` would leave them.

What does not fit is broken once per part, with a comma behind the last: so it stays at any width.
Where names are so long that a line can't be kept within the width, `is_wide` says so.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

WIDTH: Final = 88
"""That of formatters that were told nothing else."""
_TEXT: Final = re.compile(r' *(""".*"""|"[^"]*",|"[^"]*": "[^"]*",)')


def quote_literal(name: str) -> str:
    """A name, or words about one, as a literal: no quote or backslash is in them."""
    return f'"{name}"'


def is_wide(lines: Iterable[str]) -> bool:
    """Whether a formatter would break any of the lines: texts and comments it leaves alone."""
    is_text = False
    for line in lines:
        begins_or_ends = line.count('"""') == 1
        is_code = not (is_text or begins_or_ends or _TEXT.fullmatch(line))
        if is_code and len(line.partition("  # ")[0]) > WIDTH:
            return True
        is_text ^= begins_or_ends
    return False


def head(*lines: str) -> Iterator[str]:
    """The beginning of a class or what follows one, behind two empty lines."""
    yield from ("", "", *lines)


def docstring(summary: str, more: Sequence[str] = (), indent: str = "    ") -> Iterator[str]:
    """Lines that are too long go on below, further in; a word that is too long stays whole."""
    first, *rest = wrap(f'{indent}"""{summary}', indent)
    if not more and not rest and len(first) + len('"""') <= WIDTH:
        yield f'{first}"""'
        return
    yield from (first, *rest)
    if more:
        yield ""
    for line in more:
        yield from wrap(f"{indent}{line}", indent) if line else [""]
    yield f'{indent}"""'


def wrap(line: str, indent: str = "") -> list[str]:
    """Return a line of a docstring as several lines; continuation lines are indented further."""
    return textwrap.wrap(
        line,
        WIDTH,
        subsequent_indent=f"{indent}    ",
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
    )


def on_one_line(text: str) -> str:
    """Return a text as a docstring may contain it: on one line, with nothing that ends the
    string."""
    shown = "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode()
        for one in " ".join(text.split())
    )
    return shown.replace("\\", "\\\\").replace('"', '\\"')


def subscript(before: str, parts: Sequence[str]) -> Iterator[str]:
    """`before[part, …]`."""
    line = f"{before}[{', '.join(parts)}]"
    if len(line) <= WIDTH or len(parts) == 1:
        yield line
        return
    indent = " " * (len(before) - len(before.lstrip()))
    yield f"{before}["
    yield from (f"{indent}    {part}," for part in parts)
    yield f"{indent}]"


def tuple_of(before: str, names: Sequence[str]) -> Iterator[str]:
    """`before("name", …),`."""
    line = f"{before}({', '.join(map(quote_literal, names))}{',' * (len(names) == 1)}),"
    if len(line) <= WIDTH:
        yield line
        return
    indent = " " * (len(before) - len(before.lstrip()))
    yield f"{before}("
    yield from (f"{indent}    {quote_literal(name)}," for name in names)
    yield f"{indent}),"


def dict_of(before: str, words: Mapping[str, str]) -> Iterator[str]:
    """`before{"name": "words", …},`, each on a line of its own."""
    if not words:
        yield f"{before}{{}},"
        return
    indent = " " * (len(before) - len(before.lstrip()))
    yield f"{before}{{"
    yield from (
        f"{indent}    {quote_literal(name)}: {quote_literal(said)}," for name, said in words.items()
    )
    yield f"{indent}}},"


Method = tuple[str, Sequence[str], str, str]
"""Name, parameters, result, and what it does."""


def method(
    declared: Method, decorator: str = "", *, is_async: bool = False, indent: str = "    "
) -> Iterator[str]:
    """The signature of a method that type checkers see."""
    name, parameters, result, about = declared
    end = ":" if about else ": ..."
    yield ""
    if decorator:
        yield f"{indent}@{decorator}"
    define = "async def" if is_async else "def"
    line = f"{indent}{define} {name}({', '.join(['self', *parameters])}) -> {result}{end}"
    if len(line) <= WIDTH:
        yield line
    else:
        yield f"{indent}{define} {name}("
        yield from (f"{indent}    {one}," for one in ("self", *parameters))
        yield f"{indent}) -> {result}{end}"
    if about:
        yield f'{indent}    """{about}"""'
