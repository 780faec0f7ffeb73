"""Plants bugs in a copy of the package, one at a time, and says which of them the tests find.

    python -m tools.planted choose --seed 7 --count 200 > bugs.json
    python -m tools.planted reach bugs.json [CHECKOUT] -- [PYTEST ARGUMENTS]
    python -m tools.planted run bugs.json [CHECKOUT]

`tests/planted_bugs.json` has two hundred of the package as it was before its rooms were laid out
anew.

A bug is a place in a function and what stands there instead: `<=` for `<`, `or` for `and`, a
statement that is left out. It is looked for by its function and its text, so one list says the same
of two checkouts, however much was moved between them; a bug whose text is gone counts for neither.

`reach` runs the tests once, with a mark at each place, and keeps which tests come by (in
`bugs.json.reach`, with the time of each). `run` then runs those alone, the short ones first, until
one fails. What it finds out is added to `bugs.json.found`, so it can be ended and go on.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

COMPARISONS: Final[dict[type[ast.cmpop], ast.cmpop]] = {
    ast.Lt: ast.LtE(),
    ast.LtE: ast.Lt(),
    ast.Gt: ast.GtE(),
    ast.GtE: ast.Gt(),
    ast.Eq: ast.NotEq(),
    ast.NotEq: ast.Eq(),
    ast.Is: ast.IsNot(),
    ast.IsNot: ast.Is(),
    ast.In: ast.NotIn(),
    ast.NotIn: ast.In(),
}
UNTESTED: Final = frozenset({"debug", "info", "warning", "exception", "assert_never", "cast"})
"""Calls without which nothing else happens."""
TESTS_AT_ONCE: Final = 40
TESTS_OF_A_FILE: Final = 8
SECONDS_MAX: Final = 600.0
"""How long the tests of one bug may take; one that takes longer is not found."""
HANGS_SECONDS: Final = 240.0
"""Tests that take longer than this are taken to hang, which is a find."""

MARKS: Final = """
import os
_told = set()
def reach(number):
    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
    if test and (number, test) not in _told:
        _told.add((number, test))
        try:
            with open(os.environ["PLANTED_REACH"], "a") as file:
                file.write(f"{number}\\t{test}\\n")
        except (OSError, KeyError):
            pass
"""


@dataclass(frozen=True, slots=True)
class Bug:
    """A text in a function, and another one: the how-manieth of its kind there, from 0."""

    module: str
    function: str
    at: int
    was: str
    planted: str


@dataclass(frozen=True, slots=True)
class Place:
    """Where a bug can be planted: a span of characters, and the statement that it is in."""

    bug: Bug
    line: int
    start: int
    end: int


# What can be planted


def find_places(module: str, text: str) -> list[Place]:
    """Return all places of a module."""
    tree, lines = ast.parse(text), text.split("\n")
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()) + 1)
    seen, found = dict[tuple[str, str], int](), list[Place]()
    for function, statement, node in _list_nodes(tree):
        planted = _plant(node) if isinstance(node, ast.expr | ast.stmt) else None
        if planted is None or node.end_lineno is None or node.end_col_offset is None:
            continue
        was = ast.unparse(node)
        at = seen[function, was] = seen.get((function, was), -1) + 1
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        found.append(Place(Bug(module, function, at, was, planted), statement, start, end))
    return found


def _list_nodes(tree: ast.AST) -> Iterator[tuple[str, int, Any]]:
    """Yield the nodes inside of functions, with the name of the function, and the line of the
    statement in front of which one can write another."""

    def walk(node: ast.AST, function: str, line: int, *, is_in: bool) -> Iterator[Any]:
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "args", "type_params"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if not isinstance(child, ast.AST) or isinstance(child, ast.Raise | ast.Assert):
                    continue
                inner, at, is_inside = function, line, is_in
                if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    inner = f"{function}.{child.name}".lstrip(".")
                    is_inside = not isinstance(child, ast.ClassDef)
                elif isinstance(child, ast.stmt):
                    is_elif = name == "orelse" and isinstance(node, ast.If) and len(value) == 1
                    at = line if is_elif and isinstance(child, ast.If) else child.lineno
                if is_in:
                    yield function, at, child
                yield from walk(child, inner, at, is_in=is_inside)

    yield from walk(tree, "", 1, is_in=False)


def _plant(node: ast.AST) -> str | None:
    """Return what stands in a node's place; None if nothing does."""
    match node:
        case ast.Compare(ops=[one, *_]) if type(one) in COMPARISONS:
            other: ast.AST = ast.Compare(
                node.left, [COMPARISONS[type(one)], *node.ops[1:]], node.comparators
            )
        case ast.BoolOp():
            op: ast.boolop = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            other = ast.BoolOp(op, node.values)
        case ast.UnaryOp(op=ast.Not()):
            other = node.operand
        case ast.BinOp(op=ast.Add(), right=ast.Constant(value=int())):
            other = ast.BinOp(node.left, ast.Sub(), node.right)
        case ast.BinOp(op=ast.Sub(), right=ast.Constant(value=int())):
            other = ast.BinOp(node.left, ast.Add(), node.right)
        case ast.Constant(value=bool()):
            other = ast.Constant(not node.value)
        case ast.If(test=(ast.Name() | ast.Attribute() | ast.Call())):
            return None  # its condition is planted where it compares
        case ast.Expr(value=ast.Call(func=func)):
            name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
            return None if name in UNTESTED else "pass"
        case ast.AugAssign():
            return "pass"
        case _:
            return None
    return f"({ast.unparse(other)})"


# Where it is


def list_modules(checkout: Path) -> Iterator[tuple[str, str]]:
    for path in sorted((checkout / "zapdb").rglob("*.py")):
        yield str(path.relative_to(checkout)), path.read_text()


class Package:
    """The places of a checkout."""

    def __init__(self, checkout: Path) -> None:
        self.checkout = checkout
        self.places = [p for name, text in list_modules(checkout) for p in find_places(name, text)]

    def find(self, bug: Bug) -> Place | None:
        """Return where a bug is: in its function, or in the only one of that name that has its
        text, or in the only place at all."""
        same = [p for p in self.places if (p.bug.was, p.bug.planted) == (bug.was, bug.planted)]
        last = bug.function.rpartition(".")[2]
        ways = (
            [p for p in same if (p.bug.module, p.bug.function) == (bug.module, bug.function)],
            [p for p in same if p.bug.function == bug.function],
            [p for p in same if p.bug.function.rpartition(".")[2] == last],
            same,
        )
        for found in ways:
            at = [p for p in found if p.bug.at == bug.at]
            if len(at) == 1:
                return at[0]
        return None


def choose(checkout: Path, seed: int, count: int) -> list[Bug]:
    places = Package(checkout).places
    return [place.bug for place in random.Random(seed).sample(places, count)]


# What finds it


@contextmanager
def copying(checkout: Path) -> Iterator[Path]:
    """A copy of what is committed or changed in a checkout, with its virtual environment."""
    with tempfile.TemporaryDirectory(prefix="planted-") as directory:
        copy = Path(directory) / "copy"
        skipped = shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache", "build")
        shutil.copytree(checkout, copy, ignore=skipped, symlinks=True)
        (copy / ".venv").symlink_to((checkout / ".venv").resolve())
        yield copy


def _pytest(copy: Path, *arguments: str, limit: float | None = None, **more: str) -> int:
    command = [".venv/bin/python", "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    env = {**os.environ, "PYTHONPATH": str(copy), **more}
    with subprocess.Popen(
        command, cwd=copy, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as run:
        try:
            return run.wait(limit)
        except subprocess.TimeoutExpired:
            run.terminate()  # pytest ends what its fixtures have started
            return 1


def reach(checkout: Path, bugs: list[Bug], into: Path, arguments: list[str]) -> None:
    """Run the tests with a mark at each bug's place."""
    package = Package(checkout)
    places = {number: package.find(bug) for number, bug in enumerate(bugs)}
    with copying(checkout) as copy:
        (copy / "zapdb" / "planted_marks.py").write_text(MARKS)
        marks = dict[str, dict[int, list[int]]]()
        for number, place in places.items():
            if place is not None:
                marks.setdefault(place.bug.module, {}).setdefault(place.line, []).append(number)
        for module, by_line in marks.items():
            _mark(copy / module, by_line)
        told, report = copy / "reach.txt", copy / "report.xml"
        told.touch()
        _pytest(copy, f"--junitxml={report}", *arguments, PLANTED_REACH=str(told))
        seconds = {
            f"{one.get('file') or _file_of(one.get('classname', ''))}::{one.get('name')}": float(
                one.get("time", 0)
            )
            for one in ElementTree.parse(report).iter("testcase")
        }
        reached: dict[str, dict[str, float]] = {
            str(number): {} for number, place in places.items() if place is not None
        }
        for line in told.read_text().splitlines():
            mark, _, test = line.partition("\t")
            reached[mark][test] = seconds.get(test, 1.0)
    into.write_text(json.dumps(reached, indent=1))


def _file_of(classname: str) -> str:
    return classname.replace(".", "/") + ".py"


def _mark(path: Path, by_line: dict[int, list[int]]) -> None:
    lines = path.read_text().split("\n")
    for line in sorted(by_line, reverse=True):
        before = lines[line - 1]
        indent = before[: len(before) - len(before.lstrip())]
        calls = "; ".join(f"reach({number})" for number in by_line[line])
        lines.insert(line - 1, f"{indent}from zapdb.planted_marks import reach; {calls}")
    path.write_text("\n".join(lines))


def list_rounds(tests: dict[str, float]) -> Iterator[list[str]]:
    """Yield the tests to run together, the short ones first, and not too many of one file."""
    left = sorted(tests, key=lambda test: tests[test])
    while left:
        by_file, now = dict[str, int](), list[str]()
        for test in left:
            file = test.partition("::")[0]
            if by_file.get(file, 0) < TESTS_OF_A_FILE and len(now) < TESTS_AT_ONCE:
                by_file[file] = by_file.get(file, 0) + 1
                now.append(test)
        yield now
        left = [test for test in left if test not in now]


def run_one(copy: Path, place: Place, tests: dict[str, float]) -> str:
    """Plant a bug, run the tests that come by, and take it out; returns `found`, or `missed`."""
    path = copy / place.bug.module
    whole = path.read_bytes()
    path.write_bytes(whole[: place.start] + place.bug.planted.encode() + whole[place.end :])
    began = time.monotonic()
    try:
        for now in list_rounds(tests):
            if _pytest(copy, "-x", *now, limit=HANGS_SECONDS):
                return "found"
            if time.monotonic() - began > SECONDS_MAX:
                return "missed, and not all tests run"
        return "missed"
    finally:
        path.write_bytes(whole)


def run(checkout: Path, bugs: list[Bug], reached: dict[str, Any], into: Path) -> None:
    found: dict[str, str] = json.loads(into.read_text()) if into.exists() else {}
    package = Package(checkout)
    with copying(checkout) as copy:
        for number, bug in enumerate(bugs):
            place = package.find(bug)
            if str(number) in found:
                continue
            if place is None:
                verdict = "gone"
            elif not reached.get(str(number)):
                verdict = "reached by no test"
            else:
                verdict = run_one(copy, place, reached[str(number)])
            found[str(number)] = verdict
            into.write_text(json.dumps(found, indent=1))
            print(f"{number:>4} {verdict}: {bug.module} {bug.function}: {bug.was}", flush=True)
    counts = {verdict: list(found.values()).count(verdict) for verdict in set(found.values())}
    print(json.dumps(counts))


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["choose", "reach", "run"])
    parser.add_argument("bugs", nargs="?", type=Path)
    parser.add_argument("checkout", nargs="?", type=Path, default=Path.cwd())
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200)
    given, after = arguments, list[str]()
    if "--" in arguments:
        at = arguments.index("--")
        given, after = arguments[:at], arguments[at + 1 :]
    options = parser.parse_args(given)
    checkout = options.checkout.resolve()
    if options.what == "choose":
        bugs = choose(checkout, options.seed, options.count)
        lines = (json.dumps(asdict(bug), ensure_ascii=False) for bug in bugs)
        print("[\n" + ",\n".join(lines) + "\n]")
        return
    if options.bugs is None:
        parser.error("which file of bugs?")
    bugs = [Bug(**one) for one in json.loads(options.bugs.read_text())]
    reach_file, found_file = (options.bugs.with_suffix(f".json.{x}") for x in ("reach", "found"))
    if options.what == "reach":
        reach(checkout, bugs, reach_file, after)
    else:
        run(checkout, bugs, json.loads(reach_file.read_text()), found_file)


if __name__ == "__main__":
    main(sys.argv[1:])
