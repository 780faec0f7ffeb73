"""Generates zapdb/aio/faces.py from the synchronous classes; with --check, only compares.

Names, parameters, types and docstrings are those of the synchronous methods. What becomes of each
is said in `FACES`: whether it only builds something, reads, writes, gives an iterator, or differs
so much that it is written by hand in `zapdb.aio.face`. A method that has no word there is an error.
"""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Literal

from zapdb.database import (
    access,
    admin,
    change_log,
    changes,
    database,
    history_store,
    job_control,
    opening,
    past,
    query,
    table,
    table_reading,
    transactions,
)
from zapdb.database.history import past_table

TARGET = Path(__file__).parent.parent / "zapdb" / "aio" / "faces.py"

Kind = Literal["build", "block", "read", "write", "sql", "task", "rows", "task rows", "own", "none"]


@dataclass(frozen=True)
class Method:
    """What becomes of a method or property.

    `build` stays as it is; of `block`, a transaction's block is made; `read`, `write`, `sql` and
    `task` are done by a worker of that kind; `rows` and `task rows` become asynchronous iterators;
    `own` is written by hand; `none` has no counterpart, because of `why`.
    """

    kind: Kind
    why: str = ""
    held: tuple[str, ...] = ()
    """Parameters that the application may iterate: that is done on its own event loop."""
    then: str = ""
    """What is asked of the result, in the worker."""
    words: Mapping[str, str] = field(default_factory=dict)
    """What the docstring says in the place of other words."""


BUILD, READ, WRITE, TASK = (Method(k) for k in ("build", "read", "write", "task"))
ROWS, OWN = Method("rows"), Method("own")
ARROW = Method(
    "read",
    then=".read_all()",
    words={
        "as a `pyarrow.RecordBatchReader`, read page by page as `scan`\n        does": "as a "
        "`pyarrow.Table`, in memory",
        "as a `pyarrow.RecordBatchReader`, read as iterating reads them;": "as a `pyarrow.Table`, "
        "in memory;",
    },
)
ASYNC_WITH = {"`with db.": "`async with db."}
SQL = Method("sql", words={"this thread is in": "the task is in"})


@dataclass(frozen=True)
class Source:
    """A synchronous class: the modules that have it and what it inherits, and its methods."""

    parts: tuple[tuple[ModuleType, str], ...]
    base: str
    methods: Mapping[str, Method]
    words: Mapping[str, str] = field(default_factory=dict)
    base_module: str = "zapdb.aio.face"
    faces: Mapping[str, str] = field(default_factory=dict)
    """The classes that what is written by hand makes, by its names for them."""


READABLE = {
    "name": OWN,
    "field_names": BUILD,
    "__repr__": OWN,
    "get": READ,
    "find": READ,
    "get_many": Method("read", held=("keys",)),
    "exists": READ,
    "open": OWN,
    "__iter__": ROWS,
    "scan": ROWS,
    "to_arrow": ARROW,
    "to_pandas": READ,
    "history": READ,
    "count": READ,
    "where": BUILD,
    "order_by": BUILD,
    "f": OWN,
    "__getitem__": OWN,
    "all": READ,
    "first": READ,
    "one": READ,
    "limit": BUILD,
    "include": BUILD,
    "page": READ,
    "min": READ,
    "max": READ,
    "sum": READ,
    "using": BUILD,
    "readable_indexes": READ,
}
ACCESS = ((access, "ReadAccess"), (access, "Access"))
HANDLE = {
    "table": OWN,
    "tables": BUILD,
    "sql": SQL,
    "for_tenant": OWN,
    "__repr__": OWN,
}
HANDLE_FACES = {"_table_face": "Table"}
FACES = {
    "Table": Source(
        ((table_reading, "ReadableTable"), (table, "Table")),
        "TableFace",
        {
            **READABLE,
            "insert": WRITE,
            "upsert": WRITE,
            "insert_many": OWN,
            "import_from": TASK,
            "import_file": TASK,
            "update": WRITE,
            "delete": WRITE,
            "delete_many": OWN,
            "delete_where": WRITE,
            "discard_unreadable": WRITE,
            "update_where": WRITE,
        },
    ),
    "PastTable": Source(
        ((table_reading, "ReadableTable"), (past_table, "PastTable")), "ReadableTableFace", READABLE
    ),
    "Query": Source(
        ((query, "Query"),),
        "QueryFace",
        {
            "__repr__": OWN,
            "where": BUILD,
            "order_by": BUILD,
            "using": BUILD,
            "reverse": BUILD,
            "limit": BUILD,
            "include": BUILD,
            "__iter__": ROWS,
            "all": READ,
            "first": READ,
            "one": READ,
            "exists": READ,
            "count": READ,
            "min": READ,
            "max": READ,
            "sum": READ,
            "page": READ,
            "explain": READ,
            "to_arrow": ARROW,
            "to_pandas": READ,
            "update": WRITE,
            "delete": WRITE,
        },
    ),
    "ChangeFollower": Source(
        ((changes, "ChangeFollower"),),
        "ChangeFollowerFace",
        {
            "name": BUILD,
            "__repr__": OWN,
            "bookmark": READ,
            "changes": Method("task rows"),
            "advance": WRITE,
            "measure_lag": READ,
            "remove": WRITE,
        },
    ),
    "DatabaseAdmin": Source(
        ((admin, "DatabaseAdmin"),),
        "DatabaseAdminFace",
        {
            "__repr__": OWN,
            "run_jobs": TASK,
            "reindex": TASK,
            "count_by_revision": READ,
            "repair": TASK,
            "verify": TASK,
            "sweep": TASK,
            "setting": READ,
            "settings": READ,
            "set_setting": WRITE,
            "tenants": READ,
            "create_tenant": WRITE,
            "remove_tenant": TASK,
            "cluster_level": READ,
            "nodes": READ,
            "catalog": TASK,
            "catalog_seq": READ,
            "wait_for_catalog": TASK,
            "schema_history": READ,
            "find_fingerprint": READ,
            "metrics": TASK,
        },
    ),
    "DatabaseJobs": Source(
        ((job_control, "DatabaseJobs"),),
        "DatabaseJobsFace",
        {
            "__repr__": OWN,
            "list": READ,
            "get": READ,
            "pause": WRITE,
            "resume": WRITE,
            "cancel": WRITE,
            "set_priority": WRITE,
            "throttle": WRITE,
        },
    ),
    "DatabaseChangeLog": Source(
        ((change_log, "DatabaseChangeLog"),),
        "DatabaseChangeLogFace",
        {
            "__repr__": OWN,
            "read": Method("task rows"),
            "read_back": Method("task rows"),
            "read_moment": TASK,
            "begin": READ,
            "end": TASK,
            "prune": TASK,
            "follower": TASK,
            "followers": READ,
            "status": TASK,
        },
    ),
    "DatabaseHistory": Source(
        ((history_store, "DatabaseHistory"),),
        "DatabaseHistoryFace",
        {
            "__repr__": OWN,
            "start": TASK,
            "run": Method("none", "it is for a thread or a process of its own"),
            "flush": TASK,
            "follow": TASK,
            "move": TASK,
            "purge": TASK,
            "repair": TASK,
            "rebuild_manifest": TASK,
            "verify": TASK,
            "wait": TASK,
            "erase": TASK,
            "erase_fields": TASK,
            "stop": TASK,
            "status": READ,
        },
    ),
    "Transaction": Source(
        (
            (access, "ReadAccess"),
            (access, "Access"),
            (transactions, "Handle"),
            (transactions, "Transaction"),
        ),
        "TransactionFace",
        {
            **HANDLE,
            "savepoint": Method("block", words={"        with tx.": "        async with tx."}),
        },
        words={"`with db.": "`async with db."},
        faces=HANDLE_FACES,
    ),
    "Snapshot": Source(
        (
            (access, "ReadAccess"),
            (access, "Access"),
            (transactions, "Handle"),
            (transactions, "Snapshot"),
        ),
        "SnapshotFace",
        HANDLE,
        words={"`with db.": "`async with db."},
        faces=HANDLE_FACES,
    ),
    "Past": Source(
        ((access, "ReadAccess"), (past, "Past")),
        "PastFace",
        {
            "tables": READ,
            "sql": SQL,
            "__enter__": Method("none", "asynchronously: `__aenter__`"),
            "__exit__": Method("none", "the same: `__aexit__`"),
            "__repr__": OWN,
            "moment": BUILD,
            "position": READ,
            "exact": READ,
            "doubts": READ,
            "schema": READ,
            "table": OWN,
        },
        faces={"_table_face": "PastTable"},
        base_module="zapdb.aio.past_face",
    ),
    "Database": Source(
        (*ACCESS, (database, "Database")),
        "DatabaseFace",
        {
            "table": OWN,
            "tables": BUILD,
            "sql": SQL,
            "applied": OWN,
            "__enter__": Method("none", "a database is left asynchronously: `__aenter__`"),
            "__exit__": Method("none", "the same: `__aexit__`"),
            "__repr__": OWN,
            "for_tenant": TASK,
            "position": BUILD,
            "admin": BUILD,
            "jobs": BUILD,
            "change_log": BUILD,
            "history": BUILD,
            "at": TASK,
            "before": TASK,
            "audit": Method("task rows"),
            "moments": Method("task rows"),
            "versions": TASK,
            "diff": Method("task rows"),
            "diff_schemas": TASK,
            "transaction": Method("block", words=ASYNC_WITH),
            "snapshot": Method("block", words=ASYNC_WITH),
            "run": OWN,
            "on_schema_change": OWN,
            "close": OWN,
        },
        words={
            "a context manager; safe to share between threads": "an asynchronous context manager",
            "`zapdb.open` makes": "`zapdb.aio.open` makes",
        },
        faces={**HANDLE_FACES, "_transaction_face": "Transaction"},
    ),
}
"""The order is that of the file."""

NOTE = '"""The asynchronous faces. Generated by `make docs`: edit `tools/aio.py` instead."""'
LATE = "late:"
"""Before the module of a name that is there for type checkers alone: it needs an extra."""
OF_RECORDS = frozenset(("Table", "Query"))
"""Those that are of the records of one table: a model's, if the table is asked for by its class."""
CLOSED = frozenset(("Database", "Past"))
"""Those that a block closes: `async with db.at(…) as past`."""
NAMES = frozenset({*FACES, "Block"})
"""Those that mean another class in the asynchronous face."""


def generate() -> str:
    """The text of zapdb/aio/faces.py."""
    modules = {part[0] for source in FACES.values() for part in source.parts} | {opening}
    known = {module: imported_names(module) for module in modules}
    needed = dict[str, str]()
    bodies = [write_face(name, source, known, needed) for name, source in FACES.items()]
    bodies.append(write_open(known[opening], needed))
    bases = {("R", "zapdb.aio.face"), ("open_database", "zapdb.aio.face")}
    bases |= {(source.base, source.base_module) for source in FACES.values()}
    names = sorted(needed.items())
    now = [(name, module) for name, module in names if not module.startswith(LATE)]
    late = [(n, module.removeprefix(LATE)) for n, module in names if module.startswith(LATE)]
    text = "\n\n".join(
        (
            NOTE,
            "from __future__ import annotations",
            "\n".join(
                [
                    "from typing import TYPE_CHECKING",
                    *(f"from {module} import {name}" for name, module in now),
                    "from collections.abc import AsyncIterator",
                    "from zapdb.aio.block import Block",
                    "from zapdb.aio.opening import opens",
                    *(f"from {module} import {name}" for name, module in sorted(bases)),
                    "from zapdb.database.opening import open as open_sync",
                    "if TYPE_CHECKING:",
                    *(f"    from {module} import {name}" for name, module in late),
                ]
            ),
            *bodies,
        )
    )
    return formatted(text)


def formatted(text: str) -> str:
    for command in (("check", "--select", "I,F401", "--fix", "--quiet"), ("format",)):
        name = ("--stdin-filename", str(TARGET))
        run = [sys.executable, "-m", "ruff", *command, *name, "-"]
        text = subprocess.run(run, input=text, capture_output=True, text=True, check=True).stdout
    return text


def parse(module: ModuleType) -> ast.Module:
    return ast.parse(inspect.getsource(module))


def imported_names(module: ModuleType) -> dict[str, str]:
    """The names that a module has, and the modules that they are from."""
    found = dict[str, str]()
    tree = parse(module)
    late = {id(one) for node in tree.body if isinstance(node, ast.If) for one in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            mark = LATE if id(node) in late else ""
            found |= {alias.asname or alias.name: mark + node.module for alias in node.names}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = module.__name__
    return found


def members(source: Source) -> Iterator[tuple[ModuleType, str, ast.FunctionDef | None]]:
    """The public members of a class and of what it inherits, as written; None for an attribute."""
    seen = set[str]()
    for module, name in source.parts:
        (found,) = (n for n in parse(module).body if isinstance(n, ast.ClassDef) and n.name == name)
        for node in found.body:
            if isinstance(node, ast.FunctionDef) and node.name not in seen:
                if is_shown(node.name):
                    seen.add(node.name)
                    yield module, node.name, node
                if node.name == "__init__":
                    for one in attributes(node):
                        yield module, one, None
            elif isinstance(node, ast.AnnAssign) and is_shown(ast.unparse(node.target)):
                yield module, ast.unparse(node.target), None


def attributes(node: ast.FunctionDef) -> Iterator[str]:
    """The public attributes that a constructor sets."""
    for one in ast.walk(node):
        target = one.targets[0] if isinstance(one, ast.Assign) else None
        is_own = isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self"
        if isinstance(target, ast.Attribute) and is_own and is_shown(target.attr):
            yield target.attr


def is_shown(name: str) -> bool:
    return not name.startswith("_") or name in SPECIAL


SPECIAL = {"__iter__", "__enter__", "__exit__", "__getattr__", "__getitem__", "__repr__"}


def write_face(
    name: str,
    source: Source,
    known: Mapping[ModuleType, Mapping[str, str]],
    needed: dict[str, str],
) -> str:
    module, class_name = source.parts[-1]
    (node,) = (
        n for n in parse(module).body if isinstance(n, ast.ClassDef) and n.name == class_name
    )
    base = f"{source.base}[R]" if name in OF_RECORDS else source.base
    lines = [f"class {name}({base}):", docstring(node, source.words)]
    if source.faces:
        lines.append("\n".join(f"    {own} = {face}" for own, face in source.faces.items()))
    left = dict(source.methods)
    for part, member, written in members(source):
        method = left.pop(member, None)
        if method is None and member not in source.methods:
            raise SystemExit(f"tools/aio.py says nothing of {name}.{member}")
        if method is None or method.kind in ("own", "none"):
            continue
        if written is None:
            lines.append(attribute(module, class_name, member))
            continue
        note_names(written, known[part], needed)
        lines.append(write_method(member, written, method))
    if name in OF_RECORDS:
        lines[2:] = map(with_records, lines[2:])
        needed["TypedPage"] = "zapdb.database.typing_protocols"
    if left:
        raise SystemExit(f"tools/aio.py has what {name} has not: {', '.join(left)}")
    return "\n\n".join(lines)


def with_records(method: str) -> str:
    """The text of a method whose signature has the records of a model in the place of any."""
    end = re.search(r"\) -> .*:\n", method)
    assert end is not None
    signature = re.sub(r"\bRecord\b", "R", method[: end.end()])
    signature = re.sub(r"-> Query\b", "-> Query[R]", signature)
    signature = re.sub(r"-> Page\b", "-> TypedPage[R]", signature)
    return signature + method[end.end() :]


def attribute(module: ModuleType, class_name: str, member: str) -> str:
    init = getattr(module, class_name).__init__
    kind = init.__annotations__.get(member, "Any")
    return f"    @property\n    def {member}(self) -> {kind}:\n        return self._sync.{member}"


def note_names(written: ast.FunctionDef, known: Mapping[str, str], needed: dict[str, str]) -> None:
    """Remember where the names of a signature are from."""
    for node in (written.args, written.returns):
        for one in ast.walk(node) if node is not None else ():
            if isinstance(one, ast.Name) and one.id in known and one.id not in NAMES:
                needed[one.id] = known[one.id]
            if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name):
                needed.setdefault("PathLike", "os")


def write_method(name: str, written: ast.FunctionDef, method: Method) -> str:
    returns = "None" if written.returns is None else ast.unparse(written.returns)
    is_property = any(ast.unparse(d) == "property" for d in written.decorator_list)
    given = ast.unparse(written.args).replace("os.PathLike", "PathLike")
    target = "sync" if name == "__iter__" else f"sync.{name}"
    if not is_property and name != "__iter__":
        target += f"({', '.join(arguments(written.args))})"
    act = f"lambda sync: {target}{method.then}"
    doc = docstring(written, method.words)
    held = "".join(f"{one} = list({one})\n        " for one in method.held)
    if method.kind in ("rows", "task rows"):
        kind = "task" if method.kind == "task rows" else "read"
        name = "__aiter__" if name == "__iter__" else name
        returns = returns.replace("Iterator[", "AsyncIterator[")
        body = f"return self._iterated({kind!r}, {act})"
        return signed("def", name, given, returns, doc, body)
    if method.kind == "block":
        face = returns.removeprefix("Block[").removesuffix("]")
        body = f"return Block(self._runtime, self._built({act}), {face})"
        return signed("def", name, given, returns, doc, body)
    if method.kind == "build":
        head = "    @property\n" if is_property else ""
        body = f"return self._built({act})"
        if returns in FACES:
            body = f"return {returns}(self._runtime, self._built({act}))"
        return head + signed("def", name, given, returns, doc, body)
    body = f"return await self._done({method.kind!r}, {act})"
    if returns in FACES:
        made = f"await self._done({method.kind!r}, {act})"
        body = f"return {returns}(self._runtime, {made})"
    how = "@opens\n    async def" if returns in CLOSED else "async def"
    return signed(how, name, given, returns, doc, held + body)


def signed(how: str, name: str, given: str, returns: str, doc: str, body: str) -> str:
    said = f"{doc}\n" if doc else ""
    return f"    {how} {name}({given}) -> {returns}:\n{said}        {body}"


def arguments(given: ast.arguments) -> Iterator[str]:
    """The parameters as they are passed on, without `self`."""
    yield from (one.arg for one in (*given.posonlyargs, *given.args) if one.arg != "self")
    if given.vararg is not None:
        yield f"*{given.vararg.arg}"
    yield from (f"{one.arg}={one.arg}" for one in given.kwonlyargs)
    if given.kwarg is not None:
        yield f"**{given.kwarg.arg}"


def docstring(node: ast.FunctionDef | ast.ClassDef, words: Mapping[str, str]) -> str:
    said = ast.get_docstring(node, clean=False)
    if said is None:
        return ""
    for word, other in words.items():
        said = said.replace(word, other)
    indent = "    " if isinstance(node, ast.ClassDef) else "        "
    parts = (wrapped(part.strip("\n"), indent) for part in f'{indent}"""{said}'.split("\n\n"))
    text = "\n\n".join(parts)
    return f'{text.rstrip()}"""' if said == said.rstrip() else f'{text.rstrip()}\n{indent}"""'


def wrapped(part: str, indent: str) -> str:
    """A paragraph whose lines are too long for other words, wrapped anew."""
    if all(len(line) <= WIDTH for line in part.splitlines()):
        return part
    return textwrap.fill(
        " ".join(part.split()), WIDTH, initial_indent=indent, subsequent_indent=indent
    )


WIDTH = 97
"""Of docstrings, with room for the quotes at their end."""


def write_open(known: Mapping[str, str], needed: dict[str, str]) -> str:
    (node,) = (
        n for n in parse(opening).body if isinstance(n, ast.FunctionDef) and n.name == "open"
    )
    note_names(node, known, needed)
    doc = textwrap.indent(inspect.cleandoc(ast.get_docstring(node) or ""), "    ").strip()
    passed = ", ".join(arguments(node.args))
    return (
        f"@opens\nasync def open({ast.unparse(node.args)}) -> Database:\n"
        f'    """{doc}\n    """\n'
        f"    return await open_database(Database, lambda: open_sync({passed}))\n"
    )


def main() -> None:
    text = generate()
    if "--check" not in sys.argv:
        TARGET.write_text(text, encoding="utf-8")
    elif TARGET.read_text(encoding="utf-8") != text:
        sys.exit("zapdb/aio/faces.py is not what tools/aio.py makes: run `make docs`")


if __name__ == "__main__":
    main()
