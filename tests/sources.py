"""The modules of the package as tests of its structure read them: each is parsed once."""

from __future__ import annotations

import ast
import gc
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "zapdb"

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """A module of the package, as text and parsed."""

    path: str
    text: str
    tree: ast.Module

    @property
    def name(self) -> str:
        parts = self.path.removesuffix(".py").split("/")
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def functions(self) -> list[tuple[str, Function]]:
        """Every function with its name behind those of what it is in."""
        return self._parts[0]

    @property
    def local_imports(self) -> list[tuple[str, ast.Import | ast.ImportFrom]]:
        """Every import inside functions, with the name of each function that it is in."""
        return self._parts[1]

    @cached_property
    def _parts(
        self,
    ) -> tuple[list[tuple[str, Function]], list[tuple[str, ast.Import | ast.ImportFrom]]]:
        functions: list[tuple[str, Function]] = []
        imports: list[tuple[str, ast.Import | ast.ImportFrom]] = []

        def visit(node: ast.AST, prefix: str, within: tuple[str, ...]) -> None:
            for part in ast.iter_child_nodes(node):
                name = f"{prefix}{getattr(part, 'name', '')}"
                match part:
                    case ast.expr():  # a lambda is no function here, and nothing else is in them
                        continue
                    case ast.FunctionDef() | ast.AsyncFunctionDef():
                        functions.append((name, part))
                        visit(part, f"{name}.", (*within, name))
                        continue
                    case ast.ClassDef():
                        visit(part, f"{name}.", within)
                        continue
                    case ast.Import() | ast.ImportFrom():
                        imports.extend((function, part) for function in within)
                visit(part, prefix, within)

        visit(self.tree, "", ())
        return functions, imports


def parsed(text: str, path: str = "zapdb/example.py") -> Module:
    return Module(path, text, ast.parse(text))


@cache
def modules() -> tuple[Module, ...]:
    parsed_modules = tuple(
        parsed(path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix())
        for path in sorted(PACKAGE.rglob("*.py"))
    )
    gc.collect()
    gc.freeze()  # a million objects, which each full collection would look through from now on
    return parsed_modules
