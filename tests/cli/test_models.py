"""`zapdb codegen models`: the module that is written, and what type checkers make of it."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.program import Project
from zapdb.aio import AsyncTable
from zapdb.database import Table
from zapdb.tables.queries.fields import FieldExpression
from zapdb.tables.queries.typed_fields import TypedStringField
from zapdb.typed.model_names import to_singular

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "models.md"
FIRST = """\
zapdb: 1
summary: 'People, ''and'' "what" they have \\ do'
changes:
  - create_type: {type: state, enum: [open, done]}
  - create_type:
      type: address
      struct: [{name: street, type: string}, {name: zip, type: string, optional: true}]
  - create_table:
      table: people
      key: [id]
      fields:
        - {name: id, type: uuid, generated: true}
        - {name: nick, type: string}
        - {name: home, type: address, optional: true}
        - {name: photo, type: binary, optional: true}
  - create_table:
      table: items
      key: [id]
      fields:
        - {name: id, type: integer}
        - {name: title, type: string}
        - {name: state, type: state, default: open}
        - {name: done, type: boolean, default: false}
        - {name: due, type: zoned_timestamp, optional: true}
        - {name: price, type: decimal, scale: 2, default: "0.00"}
        - {name: tags, type: list, of: string, default: []}
        - {name: owner, type: reference, to: people, optional: true}
        - {name: count, type: integer, default: 0}
  - create_table:
      table: lines
      key: [item, number]
      fields:
        - {name: item, type: reference, to: items}
        - {name: number, type: integer}
rollback: inferred
"""
SECOND = """\
zapdb: 1
summary: Notes
changes:
  - add_field: {table: items, field: {name: note, type: string, optional: true}}
rollback: inferred
"""
LONG = "a" * 62
AWKWARD = f"""\
zapdb: 1
summary: "Names that are in the way, said at some length and so in more than a line:
  NotRequired, BinaryIO \\"\\"\\" \\\\"
changes:
  - create_type: {{type: literal, enum: [any, "{LONG}_", b]}}
  - create_type: {{type: none, enum: [x]}}
  - create_type: {{type: item_values, struct: [{{name: class, type: string}}]}}
  - create_type:
      type: {LONG}
      struct: [{{name: {LONG}, type: item_values}}, {{name: float, type: float, optional: true}}]
  - create_table:
      table: items
      key: [if_unchanged, field, self, class, changes]
      fields:
        - {{name: self, type: integer}}
        - {{name: field, type: literal}}
        - {{name: if_unchanged, type: integer}}
        - {{name: class, type: none}}
        - {{name: changes, type: integer}}
        - {{name: decimal, type: integer}}
        - {{name: overload, type: json}}
        - {{name: object, type: json}}
  - create_table:
      table: item
      key: [datetime]
      fields:
        - {{name: datetime, type: timestamp}}
        - {{name: date, type: date}}
        - {{name: str, type: string}}
        - {{name: int, type: integer}}
        - {{name: list, type: list, of: {{type: list, of: {LONG}}}}}
        - {{name: asdict, type: string, optional: true}}
        - {{name: follow, type: reference, to: items}}
        - {{name: count, type: integer}}
        - {{name: get, type: binary}}
        - {{name: items, type: json}}
        - {{name: lambda, type: item_values, optional: true}}
        - {{name: if_unchanged, type: string, default: "x"}}
  - create_table:
      table: {LONG}s
      key: [{LONG}]
      fields:
        - {{name: {LONG}, type: integer}}
        - {{name: {LONG}_, type: reference, to: {LONG}s}}
        - {{name: b{LONG}, type: list, of: {LONG}}}
  - create_table: {{table: models, key: [from], fields: [{{name: from, type: integer}}]}}
  - create_table:
      table: table_models
      key: [count]
      fields: [{{name: count, type: integer}}]
  - create_table: {{table: protocols, key: [id], fields: [{{name: id, type: integer}}]}}
rollback: inferred
"""


@pytest.fixture
def items(project: Project) -> Project:
    """Two migrations, and no database."""
    project.file("0001_items").write_text(FIRST, encoding="utf-8")
    project.file("0002_notes").write_text(SECOND, encoding="utf-8")
    return project


def check_well(project: Project, *arguments: str) -> str:
    result = project.run("codegen", "models", *arguments)
    assert (result.status, result.err) == (0, "")
    return result.out


def test_the_module_is_printed_and_written(items: Project) -> None:
    text = check_well(items)
    assert text.startswith('"""Models of the tables as of 0002_notes.\n')
    assert "Made by 0001_items: People, 'and' \\\"what\\\" they have \\\\ do\n" in text
    assert "    Changed last by 0002_notes: Notes\n" in text
    assert "    due: zoned_timestamp, optional\n" in text
    assert items.run("codegen", "models", "--json").json == {"module": text, "migration": 2}
    assert check_well(items, "--output", "models.py") == "written: models.py\n"
    assert Path("models.py").read_bytes() == text.encode()
    again = items.run("codegen", "models", "-o", "models.py", "--json")
    assert again.json == {"path": "models.py", "state": "unchanged", "migration": 2}
    assert not Path("test.db").exists()


def test_a_file_that_is_not_up_to_date_is_pending(items: Project) -> None:
    missing = items.run("codegen", "models", "-o", "models.py", "--check")
    assert (missing.status, missing.err) == (3, "")
    assert missing.out == ("missing: models.py\n  hint: zapdb codegen models --output models.py\n")
    assert not Path("models.py").exists()
    check_well(items, "-o", "models.py")
    assert check_well(items, "-o", "models.py", "--check") == "current: models.py\n"

    items.file("0003_more").write_text(SECOND.replace("note,", "remark,"), encoding="utf-8")
    before = Path("models.py").read_bytes()
    outdated = items.run("codegen", "models", "-o", "models.py", "--check", "--json")
    assert outdated.status == 3
    assert outdated.json == {"path": "models.py", "state": "outdated", "migration": 3}
    assert Path("models.py").read_bytes() == before
    check_well(items, "-o", "models.py")
    assert b"remark: string, optional" in Path("models.py").read_bytes()

    no_file = items.run("codegen", "models", "--check")
    assert (no_file.status, no_file.err.splitlines()[0]) == (
        2,
        "error: --check compares with a file",
    )


def test_any_other_file_is_left_alone(items: Project) -> None:
    for content in (b"", b"mine = 1\n", b"\xff"):
        Path("mine.py").write_bytes(content)
        for more in ((), ("--check",)):
            result = items.run("codegen", "models", "-o", "mine.py", *more)
            assert (result.status, result.out) == (2, "")
            assert "zapdb did not write it" in result.err
        assert Path("mine.py").read_bytes() == content
    assert items.run("codegen", "models", "-o", ".").status == 2
    assert items.run("codegen", "models", "-o", "nowhere/models.py").status == 1


def test_a_database_gives_the_same_module(items: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    text = check_well(items)
    assert items.run("migrate", "up").status == 0
    monkeypatch.delenv("ZAPDB_MIGRATIONS")
    assert check_well(items, "--database", "sqlite:///test.db") == text
    monkeypatch.delenv("ZAPDB_DATABASE")
    nothing = items.run("codegen", "models")
    assert (nothing.status, "no migration directory was given" in nothing.err) == (2, True)
    Path("pyproject.toml").write_text('[tool.zapdb]\ndatabase = "sqlite:///test.db"\n')
    assert check_well(items) == text


def test_names_that_are_given_stay(items: Project) -> None:
    text = check_well(items, "-o", "models.py", "--name", "people=Human", "--name", "state=State2")
    assert text == "written: models.py\n"
    text = Path("models.py").read_text()
    assert "class Human(Model[" in text
    assert "class HumanValues(TypedDict)" in text
    assert "State2: TypeAlias" in text
    assert check_well(items, "-o", "models.py", "--check") == "current: models.py\n"
    check_well(items, "-o", "models.py", "--name", "people=", "--name", "state=")
    assert Path("models.py").read_text() == check_well(items)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("peple=Human", "there is no such table or type"),
        ("people", "give a name as NAME=CLASS"),
        ("=Human", "give a name as NAME=CLASS"),
        ("people=human", "the name of a class must be in CamelCase"),
        ("people=None", "the name of a class must be in CamelCase"),
        ("people=Hu man", "the name of a class must be in CamelCase"),
        ("people=AsyncTable", "two classes would have the same name"),
    ],
)
def test_names_that_can_not_be_given(items: Project, given: str, message: str) -> None:
    result = items.run("codegen", "models", "--name", given)
    assert result.status in (1, 2)
    assert result.err.startswith(f"error: {message}\n")


@pytest.mark.parametrize(
    ("plural", "singular"),
    [
        ("items", "item"),
        ("todo_lists", "todo_list"),
        ("people", "person"),
        ("cities", "city"),
        ("boxes", "box"),
        ("matches", "match"),
        ("classes", "class"),
        ("addresses", "address"),
        ("movies", "movie"),
        ("status", "status"),
        ("analysis", "analysis"),
        ("sheep", "sheep"),
        ("is", "is"),
        ("s", "s"),
        ("a_s", "a_s"),
    ],
)
def test_singulars(plural: str, singular: str) -> None:
    assert to_singular(plural) == singular


# What tools make of it

GOOD = """\
from __future__ import annotations

import datetime
import io
import uuid

import models
import zapdb
from models import Item, ItemsTable, Line, Person
from zapdb.records import asdict, replace


def overdue(items: ItemsTable, now: datetime.datetime) -> list[Item]:
    query = items.where(items.f.done == False, ~(items.f.due < now) | items.f.due.is_null())
    return list(query.order_by("due", -Item.price).limit(10))


with zapdb.open("sqlite:///good.db", migrations="migrations", apply="auto", models=models) as db:
    people, items, lines = db.table(Person), db.table(Item), db.table(Line)
    ada = people.insert(nick="Ada", home={"street": "Rue"}, photo=io.BytesIO(b"x" * 10))
    key: uuid.UUID = ada.id
    milk = items.insert(id=1, title="Milk", tags=["a", "b"], price=3, owner=ada.id, state="done")
    items.insert_many([{"id": 2, "title": "Tea"}, {"id": 3, "title": "Oil", "due": None}])
    items.upsert(id=2, done=True)
    items.update(1, due=datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC), if_unchanged=milk)
    oil = items.get(3)
    seen: str = zapdb.etag(oil)
    items.update(3, title="Oil", if_unchanged=seen)
    items.update(3, title="Oil", if_unchanged=replace(oil, title="Oil"))
    assert [item.id for item in items.order_by(items.f.due.nulls_last()).limit(1)] == [1]
    lines.insert(item=1, number=2)
    line = lines.get(1, 2)
    assert lines.get_many([(1, 2), (1, 3)]) == [line, None]
    title: str = items.get(2).title
    found = items.find(3)
    assert found is not None and found.tags == []
    first = items.where(items.f.title.startswith("M"), items.f.count == 0).first()
    street = None if ada.home is None else ada.home.street
    assert [item.id for item in overdue(items, datetime.datetime.now(datetime.UTC))] == [3]
    for item in items.where(items.f.owner == ada.id).include("owner"):
        owner = item.follow("owner")
        assert owner is not None and owner.nick.upper() == "ADA"
    total: int = sum(item.count for item in items.scan())
    assert items.where(items.f.state.in_(["open"])).page(1).records[0].id == 2
    people.update(ada.id, home=models.Address("Rue", zip="1"))
    assert people.open(ada.id, field="photo").read() == b"x" * 10
    match milk:
        case Item(id=1, title=shown):
            assert shown == "Milk"
    untyped = db.table("items")
    assert asdict(untyped.get(1))["title"] == "Milk"
    assert items.where(Item.done == True, Item.due == None).count() == 1
    assert items.delete_where(Item.done == True) == 1
print("done")
"""
GOOD_IN_TASKS = """\
from __future__ import annotations

import asyncio
import datetime

import models
import zapdb.aio
from models import AsyncItemsTable, Item, Line, Person


async def overdue(items: AsyncItemsTable, now: datetime.datetime) -> list[Item]:
    return await items.where(items.f.done == False, Item.due < now).order_by(-Item.price).all()


async def main() -> None:
    async with zapdb.aio.open(
        "sqlite:///aio.db", migrations="migrations", apply="auto", models=models
    ) as db:
        people, items, lines = db.table(Person), db.table(Item), db.table(Line)
        ada: Person = await people.insert(nick="Ada", photo=b"x" * 10)
        milk = await items.insert(id=1, title="Milk", tags=["a"], owner=ada.id)
        await items.insert_many([{"id": 2, "title": "Tea"}])
        now = datetime.datetime.now(datetime.UTC)
        changed: Item = await items.update(1, due=now, if_unchanged=milk)
        assert (await items.get(id=1)).title == changed.title
        await lines.insert(item=1, number=2)
        assert await lines.get_many([(1, 3)]) == [None]
        async for item in items.where(title="Tea"):
            assert item.id == 2
        async for each in items.scan():
            shown: str = each.title
        page = await items.order_by(Item.id).page(1)
        first: Item = page.records[0]
        async with people.open(ada.id, field="photo") as file:
            assert await file.read() == b"x" * 10
        assert await items.delete_many([1, 2]) == 2
        assert await overdue(items, datetime.datetime.now(datetime.UTC)) == []
    print("done")


asyncio.run(main())
"""
BAD = """\
import models
import zapdb
from models import AsyncItemsTable, Item, Person

db = zapdb.open("sqlite:///good.db", migrations="migrations", models=models)
items = db.table(Item)
items.get(1).titel  # attr-defined
items.get("1")  # arg-type
items.find(1).title  # union-attr
items.get(1).title = "x"  # misc
items.insert(id=1, titel="x")  # call-arg
items.insert(id=1)  # call-arg
items.insert(id=1, title=3)  # arg-type
items.insert(id=1, title="x", owner=3)  # arg-type
items.insert(id=1, title="x", tags="urgent")  # arg-type
items.update(1, state="opne")  # arg-type
items.update(1, title=None)  # arg-type
items.where(items.f.dune == True)  # attr-defined
items.where(items.f.done == "x")  # arg-type
items.where(items.f.count == "3")  # arg-type
items.where(items.f.due < 3)  # operator
items.where(Item.due < 3)  # operator
items.where(items.f.title.between("a", 3))  # arg-type
items["titel"]  # index
items.order_by(3)  # arg-type
items.order_by(Item.tags)  # arg-type
items.where().min(items.f.tags)  # arg-type
items.include(1)  # arg-type
items.insert_many([{"id": 1, "titel": "x"}])  # typeddict-item
items.update(1, if_unchanged=db.table(Person).get(items.get(1).owner))  # arg-type
db.table(Person).insert(nick="x", home={"stret": "x"})  # arg-type
db.table(Person).open(items.get(1).id, field="nick")  # arg-type
Item(1)  # call-arg
zapdb.open("sqlite:///good.db", models="models")  # arg-type


async def main(tasks: AsyncItemsTable) -> None:
    await tasks.get("1")  # arg-type
    (await tasks.find(1)).title  # union-attr
    await tasks.insert(id=1, titel="x")  # call-arg
    await tasks.update(1, state="opne")  # arg-type
    await tasks.insert_many([{"id": 1, "titel": "x"}])  # typeddict-item
    tasks.where(tasks.f.dune == True)  # attr-defined
    tasks.order_by(3)  # arg-type
    (await tasks.all())[0].titel  # attr-defined
"""


def run_mypy(*files: str) -> str:
    """Everything that mypy says; what it knows of zapdb is kept from one run to the next."""
    cache = ROOT / ".mypy_cache"
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--no-pretty"),
            *("--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(cache)),
            *files,
        ],
        capture_output=True,
        text=True,
    )
    assert ran.stderr == ""
    return ran.stdout


def run_ruff(*arguments: str) -> str:
    """`ruff` as it is where nobody told it anything."""
    ran = subprocess.run(
        [sys.executable, "-m", "ruff", *arguments, "--isolated", "--no-cache"],
        capture_output=True,
        text=True,
    )
    return "" if ran.returncode == 0 else ran.stdout + ran.stderr


def assert_docstrings_fit(text: str) -> None:
    """But for a word that is longer than a line."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            for line in (ast.get_docstring(node, clean=False) or "").splitlines():
                assert len(line) <= 100 - 3 or len(line.split()) < 3, line


def test_type_checkers_and_formatters_are_content(items: Project) -> None:
    check_well(items, "-o", "models.py")
    Path("other").mkdir()
    Path("other/0001_awkward.yaml").write_text(AWKWARD, encoding="utf-8")
    check_well(items, "-m", "other", "-o", "awkward.py")
    for name in ("models.py", "awkward.py"):
        assert run_ruff("format", "--diff", name) == ""
        assert run_ruff("format", "--diff", "--line-length", "100", name) == ""
        assert run_ruff("check", "--select", "E4,E7,E9,F,I,UP,RUF", name) == ""
        assert_docstrings_fit(Path(name).read_text(encoding="utf-8"))
    Path("good.py").write_text(GOOD, encoding="utf-8")
    Path("good_in_tasks.py").write_text(GOOD_IN_TASKS, encoding="utf-8")
    Path("bad.py").write_text(BAD, encoding="utf-8")
    said = run_mypy("models.py", "awkward.py", "good.py", "good_in_tasks.py", "bad.py")
    assert [line for line in said.splitlines() if not line.startswith("bad.py:")] == []
    codes = re.findall(r"^bad\.py:(\d+): error: .*\[([a-z-]+)\]$", said, re.MULTILINE)
    expected = [
        (str(number), line.rpartition("  # ")[2])
        for number, line in enumerate(BAD.splitlines(), 1)
        if "  # " in line
    ]
    assert {number for number, _ in codes} == {number for number, _ in expected}, said
    assert set(expected) <= set(codes), said
    # What is good for the type checker is good at run time.
    for program in ("good.py", "good_in_tasks.py"):
        ran = subprocess.run([sys.executable, program], capture_output=True, text=True)
        assert (ran.stderr, ran.stdout) == ("", "done\n")
    ran = subprocess.run([sys.executable, "-c", "import awkward"], capture_output=True, text=True)
    assert ran.stderr == ""


def test_the_guide_says_what_mypy_says(project: Project) -> None:
    """Its programs are run by tests/docs."""
    blocks = re.findall(r"^```([^\n]*)\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    files = {info.partition("file=")[2]: body for info, body in blocks if "file=" in info}
    (said,) = (body for info, body in blocks if info == "text" and "mypy" in body)
    for name in ("migrations/0001_lists.yaml", "app.py", "wrong.py"):
        Path(name).write_text(files[name], encoding="utf-8")
    check_well(project, "-o", "models.py")
    assert run_mypy("app.py") == ""
    assert run_mypy("wrong.py") == said.removeprefix("$ mypy --strict wrong.py\n")


def test_nothing_is_left_out_of_what_type_checkers_see_of_a_field() -> None:
    promised = {name for name in dir(TypedStringField) if not name.startswith("_")}
    assert promised == {name for name in dir(FieldExpression) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("name", "real"), [("PeopleTable", Table), ("AsyncPeopleTable", AsyncTable)]
)
def test_a_generated_table_is_one(
    items: Project, name: str, real: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it declares for type checkers is there at run time, by the same names."""
    check_well(items, "-o", "models.py")
    monkeypatch.syspath_prepend(Path.cwd())
    monkeypatch.delitem(sys.modules, "models", raising=False)
    made = getattr(importlib.import_module("models"), name)
    monkeypatch.delitem(sys.modules, "models")
    assert issubclass(made, real)
    (body,) = re.findall(
        rf"^class {name}\(.*?(?=\n\n\n)", Path("models.py").read_text(), re.DOTALL | re.MULTILINE
    )
    declared = re.findall(
        r"^        (?:async )?def (\w+)\((.*?)\) ->", body, re.DOTALL | re.MULTILINE
    )
    assert {method for method, _ in declared} >= {"f", "get", "insert", "update", "open"}
    for method, parameters in declared:
        there = inspect.getattr_static(made, method)
        assert method not in vars(made)
        if not isinstance(there, property):
            taken = inspect.signature(there).parameters
            optional = re.findall(r"(\w+): [^,=]+ = ", parameters)
            assert {*optional} <= taken.keys(), method
