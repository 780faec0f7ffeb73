"""What a reader of the package has to take in: lines, modules, names and words.

`python -m tools.house` prints the figures, `--json` as JSON, `--names` the names behind them, and
`--times` in addition how long programs take to begin. The package is read, not run; another
checkout is measured with its path as the last argument.
"""

from __future__ import annotations

import ast
import io
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUNS = 10
SMALL_LINES = 100

OPEN_ZAPDB = """
import zapdb
zapdb.open("sqlite:///{path}", migrations="{migrations}", apply="auto").close()
"""
OPEN_SQLALCHEMY = """
from sqlalchemy import create_engine, String
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
class Base(DeclarativeBase):
    pass
class Item(Base):
    __tablename__ = "items"
    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str] = mapped_column(String(50))
engine = create_engine("sqlite:///{path}")
Base.metadata.create_all(engine)
with Session(engine) as session:
    session.get(Item, 1)
"""


class House:
    """The package of a checkout, parsed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.texts = {
            path.relative_to(root).as_posix(): path.read_text()
            for path in sorted((root / "zapdb").rglob("*.py"))
        }
        self.trees = {path: ast.parse(text) for path, text in self.texts.items()}

    @cached_property
    def classes(self) -> list[ast.ClassDef]:
        return [n for tree in self.trees.values() for n in tree.body if isinstance(n, ast.ClassDef)]

    def code_lines(self) -> int:
        """Lines with something else than comments and docstrings."""
        return sum(len(_lines_of_code(text, self.trees[path])) for path, text in self.texts.items())

    def import_lines(self) -> int:
        """Lines of code that belong to imports."""
        found = 0
        for path, text in self.texts.items():
            code = _lines_of_code(text, self.trees[path])
            for node in ast.walk(self.trees[path]):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    found += len(code & set(range(node.lineno, (node.end_lineno or 0) + 1)))
        return found

    @cached_property
    def importers(self) -> dict[str, set[str]]:
        """By each module, the modules that import it; names that a package hands on count."""
        known = {_module(path): path for path in self.trees}
        handed = {
            (_module(path), alias.asname or alias.name): (node.module, alias.name)
            for path, tree in self.trees.items()
            if path.endswith("__init__.py")
            for node in tree.body
            if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
        }
        found: dict[str, set[str]] = defaultdict(set)
        for path, tree in self.trees.items():
            for module, name in _imported(tree):
                for _ in range(5):
                    if f"{module}.{name}" in known or (module, name) not in handed:
                        break
                    module, name = handed[module, name]
                target = f"{module}.{name}" if f"{module}.{name}" in known else module
                if target in known and not path.endswith("__init__.py"):
                    found[target].add(path)
        return found

    def with_one_importer(self) -> list[str]:
        """Modules under 100 lines that one module imports."""
        return [
            path
            for path, text in self.texts.items()
            if not path.endswith("__init__.py")
            and len(self.importers[_module(path)]) == 1
            and text.count("\n") < SMALL_LINES
        ]

    def bases_with_one_subclass(self) -> list[str]:
        names = {node.name for node in self.classes}
        subclasses = Counter(
            base
            for tree in self.trees.values()
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef)
            for base in {_base_name(base) for base in node.bases}
        )
        return sorted(name for name in names if subclasses[name] == 1)

    def public_names(self) -> list[str]:
        return [
            node.name
            for tree in self.trees.values()
            for node in tree.body
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and not node.name.startswith("_")
        ]

    def names_twice(self) -> list[str]:
        """Public functions and classes of the same name in several modules."""
        return sorted(name for name, times in Counter(self.public_names()).items() if times > 1)

    def files_twice(self) -> list[str]:
        """File names that stand in several packages."""
        times = Counter(Path(path).name for path in self.texts)
        return sorted(n for n, count in times.items() if count > 1 and n != "__init__.py")

    def words(self, title: str) -> list[str]:
        """The words that a section of the vocabulary explains, a row of its table each."""
        text = (self.root / "docs/vocabulary.md").read_text()
        section = text.partition(f"## {title}")[2].partition("\n## ")[0]
        return re.findall(r"^\| ([^|]+?) \|", section, re.MULTILINE)[1:]

    def figures(self) -> dict[str, int | float]:
        lines = sum(text.count("\n") for text in self.texts.values())
        code = self.code_lines()
        named_table = [node.name for node in self.classes if "Table" in node.name]
        return {
            "lines": lines,
            "lines of code": code,
            "modules": len(self.texts),
            "imports, % of the code": round(100 * self.import_lines() / code, 1),
            "modules under 100 lines with one importer": len(self.with_one_importer()),
            "bases with one subclass": len(self.bases_with_one_subclass()),
            "public functions and classes": len(self.public_names()),
            "names that stand twice": len(self.names_twice()),
            "file names that stand twice": len(self.files_twice()),
            "classes with Table in their name": len(named_table),
            "words for users": len(self.words("Words for users")),
            "words inside": len(self.words("Words inside")),
        }


def _module(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _imported(tree: ast.Module) -> Iterable[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)


def _base_name(base: ast.expr) -> str:
    if isinstance(base, ast.Subscript):
        return _base_name(base.value)
    return base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")


def _lines_of_code(text: str, tree: ast.Module) -> set[int]:
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in skipped and token.type != tokenize.ENDMARKER:
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str):
            lines -= set(range(node.lineno, (node.end_lineno or 0) + 1))
    return lines


def measure_times(root: Path) -> dict[str, float]:
    """Medians of seconds until programs have begun and ended; files are compiled already."""
    migrations = root / "examples/todo_app/migrations"
    python = str(root / ".venv/bin/python")
    with tempfile.TemporaryDirectory() as place:
        made = Path(place) / "made.db"
        names = {"path": made, "migrations": migrations}
        subprocess.run([python, "-c", OPEN_ZAPDB.format(**names)], check=True, cwd=root)
        address = f"sqlite:///{made}"
        commands = {
            "zapdb --help": ["-m", "zapdb", "--help"],
            "zapdb jobs list": ["-m", "zapdb", "jobs", "list", "-d", address],
            "zapdb migrate status": ["-m", "zapdb", "migrate", "status", "-d", address],
            "open an existing database": ["-c", OPEN_ZAPDB.format(**names)],
            "open a new database": [OPEN_ZAPDB],
            "SQLAlchemy opens a new database": [OPEN_SQLALCHEMY],
        }
        times: dict[str, list[float]] = defaultdict(list)
        for turn in range(RUNS):
            for what, command in commands.items():
                path = Path(place) / f"{turn}.{len(what)}.db"
                arguments = command
                if len(command) == 1:
                    arguments = ["-c", command[0].format(path=path, migrations=migrations)]
                begun = time.perf_counter()
                subprocess.run(
                    [python, *arguments],
                    check=True,
                    cwd=root,
                    env={**os.environ, "ZAPDB_MIGRATIONS": str(migrations)},
                    stdout=subprocess.DEVNULL,
                )
                times[what].append(time.perf_counter() - begun)
    return {what: round(statistics.median(each), 3) for what, each in times.items()}


def main(arguments: list[str]) -> None:
    given = [Path(argument) for argument in arguments if not argument.startswith("--")]
    house = House(given[0].resolve() if given else ROOT)
    figures = house.figures()
    if "--times" in arguments:
        figures |= measure_times(house.root)
    if "--json" in arguments:
        print(json.dumps(figures))
        return
    for what, figure in figures.items():
        print(f"{what:45}{figure:>10,}")
    if "--names" in arguments:
        for title, names in {
            "modules under 100 lines with one importer": house.with_one_importer(),
            "bases with one subclass": house.bases_with_one_subclass(),
            "names that stand twice": house.names_twice(),
            "file names that stand twice": house.files_twice(),
            "words inside": house.words("Words inside"),
        }.items():
            print(f"\n{title}: {', '.join(names)}")


if __name__ == "__main__":
    main(sys.argv[1:])
