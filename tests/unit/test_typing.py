"""A program of an application, typed models and all: mypy and pyright infer the same of it."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents import document
from zapdb.migrations import load_directory
from zapdb.typed.model_text import write_module

ROOT = Path(__file__).parents[2]

ITEMS = """create_table: {table: items, key: [id], fields: [
  {name: id, type: uuid, generated: true}, {name: title, type: string},
  {name: size, type: integer, optional: true}]}"""

PROGRAM = """\
import uuid
import zapdb
import zapdb.aio
import models
from models import Item

db = zapdb.open("sqlite:///shop.db", migrations="migrations", models=models)
reveal_type(db)
reveal_type(db.tables)
reveal_type(db.position)
reveal_type(db.admin.tenants())
reveal_type(db.admin.settings())
reveal_type(db.admin.metrics())
reveal_type(db.change_log.followers())
reveal_type(db.table("items").get(1))
reveal_type(db.table("items").where().first())

items = db.table(Item)
milk = items.insert(title="Milk", size=3)
reveal_type(milk)
reveal_type(milk.title)
reveal_type(milk.size)
reveal_type(items.get(milk.id).id)
reveal_type(items.find(milk.id))
reveal_type(items.get(id=milk.id))
reveal_type(items.exists(id=milk.id))
reveal_type(items.where().order_by("title").limit(3).first())
reveal_type(items.where().page(20).records)
reveal_type(items.where().count())

with db.transaction() as tx:
    reveal_type(tx)
    reveal_type(tx.table(Item).update(milk.id, title="Tea"))
    with tx.savepoint() as inner:
        reveal_type(inner)
with db.snapshot() as snap:
    reveal_type(snap.table(Item).count())

def count(tx: zapdb.Transaction) -> int:
    return tx.table(Item).count()

reveal_type(db.run(count))
try:
    pass
except zapdb.errors.RecordNotFound as error:
    reveal_type(error.message)

async def main(key: uuid.UUID) -> None:
    async with zapdb.aio.open("sqlite:///shop.db", migrations="migrations") as db:
        items = db.table(Item)
        reveal_type(await items.get(key))
        reveal_type(await items.find(key))
        reveal_type(await items.get(id=key))
        reveal_type(await items.exists(id=key))
        reveal_type(await items.get_many([key]))
        reveal_type((await items.update(key, title="Tea", size=None)).size)
        reveal_type(await items.upsert(id=key, title="Tea"))
        reveal_type(await items.insert_many([{"title": "Milk"}, {"title": "Tea", "size": 1}]))
        reveal_type(await items.delete(key))
        async with items.open(key, field="title") as file:
            reveal_type(await file.read(10))
        reveal_type(items.f.title)
        reveal_type(await items.first())
        reveal_type(await items.all())
        reveal_type((await items.insert(title="Milk")).title)
        reveal_type(await items.where().order_by("title").first())
        reveal_type((await items.where().page(20)).records)
        async for item in items.where():
            reveal_type(item)
        reveal_type(await db.table("items").get(1))
        reveal_type(await db.admin.tenants())
        async with db.transaction() as tx:
            reveal_type(await tx.table(Item).count())
"""

WRONG = """\
import zapdb
import zapdb.aio
from models import Item

db = zapdb.open("sqlite:///shop.db")
items = db.table(Item)
adb = zapdb.aio.AsyncDatabase.__new__(zapdb.aio.AsyncDatabase)
# From here on, each line is wrong:
zapdb.open("sqlite:///shop.db", migration="migrations")
zapdb.opne("sqlite:///shop.db")
db.admin.set_setting("convert", 1)
items.insert(titel="Milk")
items.insert(title=3)
items.get("x").nothing
db.storage
db.transaction(tokn=True)
db.tabel("items")
db.table("items").wher(title="Milk")
db.table("items").where().frist()
items.where().frist()
items.get(ident=1)
items.get(id="x")
a = adb.table(Item).get(id="x")
b = adb.table(Item).get(ident=1)
c = adb.table(Item).insert(titel="Milk")
d = adb.table(Item).insert(title=3)
e = adb.table(Item).update("x", title="Milk")
f = adb.table(Item).open(items.one().id, field="size")
adb.table(Item).frist()
"""


FILES = ("program.py", "wrong.py")
DETAIL = re.compile(r"note: (?!Revealed)")
"""What mypy says besides an error or a type."""


Said = dict[str, dict[int, str]]
"""By file, what is said of each of its lines."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tmp_path = tmp_path_factory.mktemp("program")
    migrations = tmp_path / "migrations"
    migrations.mkdir()
    (migrations / "0001_items.yaml").write_text(document(ITEMS))
    module = write_module(load_directory(migrations), 1, {"items": "Item"})
    (tmp_path / "models.py").write_text(module)
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "wrong.py").write_text(WRONG)
    return tmp_path


@pytest.fixture(scope="module")
def mypy(program: Path) -> Said:
    """What mypy says, which takes seconds to begin."""
    cache = ROOT / ".mypy_cache"
    command = [sys.executable, "-m", "mypy", "--strict", "--no-pretty", "--no-error-summary"]
    config = ROOT / "pyproject.toml"
    options = ["--config-file", str(config), "--cache-dir", str(cache), *FILES]
    done = subprocess.run([*command, *options], cwd=program, capture_output=True, text=True)
    found: Said = {file: {} for file in FILES}
    said = re.findall(r"^(\w+\.py):(\d+): (\w+: .*)$", done.stdout, re.MULTILINE)
    for file, line, text in said:
        if not DETAIL.match(text):
            found[file].setdefault(int(line), text)
    return found


@pytest.fixture(scope="module")
def pyright(program: Path) -> Said:
    """What pyright says, as `basedpyright` has it."""
    if importlib.util.find_spec("basedpyright") is None:
        pytest.skip("the package basedpyright is not installed")
    settings = {
        "typeCheckingMode": "strict",
        "extraPaths": [str(ROOT)],
        "reportUnusedExpression": False,
    }
    (program / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run([*command, *FILES], cwd=program, capture_output=True, text=True)
    found: Said = {file: {} for file in FILES}
    for one in json.loads(done.stdout)["generalDiagnostics"]:
        line, text = one["range"]["start"]["line"] + 1, f"{one['severity']}: {one['message']}"
        found[Path(one["file"]).name][line] = text
    return found


def inferred(said: str) -> str:
    """The type that a checker revealed, without the modules that names are from."""
    match = re.search(r'Revealed type is "(.*)"|Type of ".*" is "(.*)"', said, re.DOTALL)
    assert match is not None, said
    text = re.sub(r"(?<!\w)(?:\w+\.)+(?=\w)", "", match[1] or match[2])
    return text.replace("builtins.", "")


def test_mypy_and_pyright_infer_the_same(mypy: Said, pyright: Said) -> None:
    lines = PROGRAM.splitlines()
    one, other = mypy["program.py"], pyright["program.py"]
    wanted = {at for at, line in enumerate(lines, 1) if "reveal_type" in line}
    assert (one.keys(), other.keys()) == (wanted, wanted)
    for at in sorted(wanted):
        assert inferred(one[at]) == inferred(other[at]), lines[at - 1]
        assert "Any" not in inferred(one[at]), lines[at - 1]


def test_mypy_and_pyright_find_the_same_mistakes(mypy: Said, pyright: Said) -> None:
    lines = WRONG.splitlines()
    before = next(at for at, line in enumerate(lines, 1) if line.startswith("# From here"))
    wrong = set(range(before + 1, len(lines) + 1))
    assert {at for at, said in mypy["wrong.py"].items() if said.startswith("error")} == wrong
    assert {at for at, said in pyright["wrong.py"].items() if said.startswith("error")} == wrong
