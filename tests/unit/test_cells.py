"""Cells that come from a database are read by type, in one of the ways of `zapdb.storage.cells`.

SQLite has values of any type in any cell, and anyone can write to either engine. So a cell that is
used as it came raises errors of Python's own, or is wrong without one. The rule looks at each
function by itself: what it fetches, what is unpacked or taken out of that, and what becomes of it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.sources import Function, Module, modules, parsed

FETCHING = {"fetch_one", "fetch_all"}
READING = {
    *("as_bytes", "as_number", "as_text", "as_time", "as_word", "checked", "require_bytes"),
    "from_row",
    *("optional_bytes", "stored", "as_place", "_as_texts", "_require_drawn", "_place_of"),
}
"""Calls that read what they are given by type, or raise."""

COUNTS = ("'SELECT count(*)", "f'SELECT count(*)", 'f"SELECT count(*)')
BLOBS = "its `_check` looks at the types, and at the checksum"
DATA = "rows of records and entries: their bytes are looked at by those who ask for them"
HANDED_ON = "hands rows on to what reads them"
PARAMETERS = "cells become parameters of a DELETE alone"
SERVER = "the server's clock, counts, and what it says of itself"
SUMS = "sums of its own, which SQL makes"

RAW: dict[str, str] = {
    "zapdb/catalog/zone_numbers.py:_read_names": "the types of all names are looked at together",
    "zapdb/tables/changes.py:fetch_logged": HANDED_ON,
    "zapdb/past/reading/listing.py:_count_changes": SUMS,
    "zapdb/tables/table_reading.py:ReadableTable.find": DATA,
    "zapdb/tables/discarding.py:Discarding._delete": "a damaged record is kept as it is",
    "zapdb/past/files/log_batches.py:open_batches": HANDED_ON,
    "zapdb/jobs/rehearsal.py:_Scan.fetch": "a damaged record is told by its key",
    "zapdb/jobs/repair.py:_find_missing": DATA,
    "zapdb/jobs/sampling.py:read_places": HANDED_ON,
    "zapdb/transfer/mirror/source_rows.py:read_log_snapshot": SERVER,
    "zapdb/storage/archives.py:delete_archives": PARAMETERS,
    "zapdb/storage/storage.py:Storage.now_us": SERVER,
    "zapdb/storage/blobs.py:BlobStatements.check": BLOBS,
    "zapdb/storage/blobs.py:BlobStatements.load": BLOBS,
    "zapdb/storage/blobs.py:BlobStatements.read_chunk": BLOBS,
    "zapdb/log/change_log.py:ChangeLog.measure_lag": SERVER,
    "zapdb/storage/connection.py:Connection.fetch_later": HANDED_ON,
    "zapdb/storage/data_tables.py:delete_index_entries": PARAMETERS,
    "zapdb/storage/database_place.py:read_place": SERVER,
    "zapdb/storage/entry_statements.py:EntryStatements.fetch_page": DATA,
    "zapdb/storage/gate.py:find_holders": SERVER,
    "zapdb/storage/database_place.py:read_server": SERVER,
    "zapdb/storage/loop_deadlocks.py:LoopWatch._find_blocking": SERVER,
    "zapdb/log/moments.py:NumberedMoments._read_last": HANDED_ON,
    "zapdb/storage/own_lease.py:OwnLease.rise": "asks whether the row is there",
    "zapdb/storage/postgresql.py:PostgreSQL.export_snapshot": SERVER,
    "zapdb/storage/postgresql.py:PostgreSQL.prepare": SERVER,
    "zapdb/storage/postgresql_dialect.py:PostgreSQLDialect.fetch_entries": DATA,
    "zapdb/storage/postgresql_dialect.py:PostgreSQLDialect.fetch_joined": DATA,
    "zapdb/storage/postgresql_dialect.py:PostgreSQLDialect.fetch_records": DATA,
    "zapdb/storage/postgresql_dialect.py:PostgreSQLDialect.find_entries": DATA,
    "zapdb/storage/postgresql_dialect.py:PostgreSQLDialect.lock_records": DATA,
    "zapdb/storage/postgresql_dialect.py:PostgreSQLDialect.sample_keys": DATA,
    "zapdb/storage/postgresql_dialect.py:PostgreSQLDialect.table_names": SERVER,
    "zapdb/storage/record_statements.py:RecordStatements.count_by_prefix": DATA,
    "zapdb/storage/record_statements.py:RecordStatements.find": DATA,
    "zapdb/storage/record_statements.py:RecordStatements.has": DATA,
    "zapdb/storage/record_statements.py:RecordStatements.page": DATA,
    "zapdb/storage/record_statements.py:RecordStatements.scan_page": DATA,
    "zapdb/log/rewound_records.py:RewoundStatements._read_stored": DATA,
    "zapdb/log/rewound_records.py:RewoundStatements._count_net": SUMS,
    "zapdb/log/logged_before.py:LoggedBefore._read_part": "`_hold` looks at the types",
    "zapdb/storage/sqlite_dialect.py:SQLiteDialect.fetch_joined": DATA,
    "zapdb/storage/sqlite_dialect.py:SQLiteDialect.find_entries": DATA,
    "zapdb/storage/sqlite_dialect.py:SQLiteDialect.table_names": SERVER,
    "zapdb/storage/sqlite_dialect.py:_fetch_in_ranges": DATA,
    "zapdb/log/stamps.py:add_stamp": SERVER,
    "zapdb/storage/statements.py:fetch_in": HANDED_ON,
    "zapdb/storage/statements.py:find_middle": HANDED_ON,
    "zapdb/storage/storage_version.py:read_storage_version": "compared as text, whatever it is",
}
"""Functions that use cells as they came, and why they may."""


def uses_of_raw_cells(found: Module) -> list[str]:
    return [
        f"{found.path}:{name}" for name, function in found.functions if _Cells(function).are_used
    ]


PLAIN = ast.Name | ast.Call | ast.Subscript | ast.NamedExpr | ast.Tuple
Comprehension = ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp


class _Cells:
    """What a function has of rows that are not read by type yet, by the names of variables."""

    def __init__(self, function: Function) -> None:
        self._raw: set[str] = set()
        self._used = False
        nodes = list(_own(function))
        while True:
            before = len(self._raw)
            for node in nodes:
                self._bind(node)
            if len(self._raw) == before:
                break
        self.are_used = any(self._uses(part) for part in function.body)

    def _is_raw(self, node: ast.AST | None) -> bool:
        """Whether a value is rows, a row or a cell as it came."""
        match node:
            case ast.Name():
                return node.id in self._raw
            case ast.Call(func=ast.Attribute(attr=name), args=[sql, *_]) if name in FETCHING:
                return not _is_count(sql)
            case ast.Call(func=ast.Name(id=name), args=given):
                into = (
                    "int",
                    "str",
                    "bytes",
                    "list",
                    "iter",
                    "next",
                    "enumerate",
                    "reversed",
                    "dict",
                )
                return name in into and any(map(self._is_raw, given))
            case ast.Subscript() | ast.Starred() | ast.NamedExpr():
                return self._is_raw(node.value)
            case ast.IfExp():
                return self._is_raw(node.body) or self._is_raw(node.orelse)
            case ast.BoolOp():
                return any(map(self._is_raw, node.values))
            case ast.Tuple() | ast.List():
                return any(map(self._is_raw, node.elts))
        return False

    def _bind(self, node: ast.AST) -> None:
        match node:
            case ast.Assign():
                pairs = [(target, node.value) for target in node.targets]
            case ast.AnnAssign() | ast.NamedExpr():
                pairs = [(node.target, node.value)]
            case ast.For():
                pairs = [(node.target, node.iter)]
            case _:
                return
        for target, value in pairs:
            if self._is_raw(value):
                self._raw |= _names(target)

    def _uses(self, node: ast.AST) -> bool:
        """Whether a raw value is used below a node but to be read, bound or asked for."""
        match node:
            case ast.With() if any(_is_call(one.context_expr, {"reading"}) for one in node.items):
                return False
            case ast.Call() if _is_call(node, READING):
                return False
            case ast.Call(func=ast.Name(id="map"), args=[ast.Name(id=by), *_]) if by in READING:
                return False
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return False
            case ast.Compare(
                ops=[ast.Is() | ast.IsNot() | ast.Eq() | ast.NotEq() | ast.In() | ast.NotIn()]
            ):
                return False
            case ast.Call() if _is_call(node, {"len", "type", "bool"}):
                return False
            case ast.BoolOp():
                return any(self._uses(one) for one in node.values if not self._is_plain(one))
            case ast.Expr() if self._is_plain(node.value):
                return False
            case ast.Name(ctx=ast.Load()) | ast.Subscript() | ast.Call() if self._is_raw(node):
                return True
            case ast.If() | ast.While() | ast.IfExp() if self._is_plain(node.test):
                parts = [one for one in ast.iter_child_nodes(node) if one is not node.test]
                return any(map(self._uses, parts))
            case ast.UnaryOp(op=ast.Not()) if self._is_plain(node.operand):
                return False
            case ast.Assign() | ast.AnnAssign() | ast.NamedExpr() if self._is_plain(node.value):
                return False
            case ast.For() if self._is_plain(node.iter):
                return any(map(self._uses, [*node.body, *node.orelse]))
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return self._uses_in_comprehension(node)
            case ast.Return() if node.value is not None and self._is_raw(node.value):
                return True
        return any(map(self._uses, ast.iter_child_nodes(node)))

    def _uses_in_comprehension(self, node: Comprehension) -> bool:
        """The same where names are those of a comprehension."""
        outside = self._raw
        try:
            for part in node.generators:
                is_raw = self._is_raw(part.iter)
                if not is_raw and self._uses(part.iter):
                    return True
                self._raw = (
                    self._raw | _names(part.target) if is_raw else self._raw - _names(part.target)
                )
                if any(map(self._uses, part.ifs)):
                    return True
            made = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
            return any(map(self._uses, made))
        finally:
            self._raw = outside

    def _is_plain(self, node: ast.AST | None) -> bool:
        return isinstance(node, PLAIN) and self._is_raw(node)


def _names(target: ast.AST) -> set[str]:
    return {
        one.id
        for one in ast.walk(target)
        if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)
    }


def _own(function: Function) -> Iterator[ast.AST]:
    parts: list[ast.AST] = list(function.body)
    while parts:
        part = parts.pop()
        yield part
        if not isinstance(part, Function | ast.ClassDef):
            parts += ast.iter_child_nodes(part)


def _is_count(sql: ast.AST) -> bool:
    """Whether a statement asks for one count, which SQL makes whatever is in the cells."""
    text = ast.unparse(sql)
    is_one = text.startswith(COUNTS) and "," not in text.partition(" FROM ")[0]
    return is_one or ".count_sql" in text


def _is_call(node: ast.AST, names: set[str]) -> bool:
    if not isinstance(node, ast.Call):
        return False
    called = node.func
    return (
        called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    ) in names


@pytest.mark.parametrize(
    ("body", "is_raw"),
    [
        ("return c.fetch_one('SELECT a')[0]", True),
        ("return as_number(c.fetch_one('SELECT a')[0])", False),
        ("(a,) = c.fetch_one('SELECT a')\nreturn a + 1", True),
        ("(a,) = c.fetch_one('SELECT a')\nreturn None if a is None else as_text(a)", False),
        ("rows = c.fetch_all('SELECT a, b')\nreturn {as_text(a): b for a, b in rows}", True),
        (
            "rows = c.fetch_all('SELECT a, b')\nreturn {as_text(a): as_text(b) for a, b in rows}",
            False,
        ),
        ("for row in c.fetch_all('SELECT a'):\n  print(int(row[0]))", True),
        ("for row in c.fetch_all('SELECT a'):\n  with reading('t'):\n   print(int(row[0]))", False),
        ("while page := c.fetch_all('SELECT a'):\n  after = page[-1]\n  use(after)", True),
        (
            "while page := c.fetch_all('SELECT a'):\n  at = as_number(page[-1][0])\n  use(at)",
            False,
        ),
        ("rows = checked(t.c, c.fetch_all('SELECT a'))\nreturn [a for (a,) in rows]", False),
        ("a, b = map(as_number, c.fetch_one('SELECT a, b'))\nreturn a + b", False),
        ("(count,) = c.fetch_one('SELECT count(*) FROM t')\nreturn count", False),
        ("count, a = c.fetch_one('SELECT count(*), max(a) FROM t')\nreturn a", True),
        ("return Pair(*c.fetch_one('SELECT a, b'))", True),
        ("return c.fetch_one('SELECT 1') is not None", False),
    ],
)
def test_the_rule_tells_raw_cells(body: str, is_raw: bool) -> None:
    lines = "\n".join(f" {line}" for line in body.splitlines())
    found = uses_of_raw_cells(parsed(f"def f(c):\n{lines}"))
    assert found == (["zapdb/example.py:f"] if is_raw else [])


def test_cells_are_read_by_type() -> None:
    found = [where for module in modules() for where in uses_of_raw_cells(module)]
    assert sorted({*found} - {*RAW}) == []
    assert sorted({*RAW} - {*found}) == []
