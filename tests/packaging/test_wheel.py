"""The wheels work where nothing but the wheel is: no checkout, no tests, no development tools."""

import functools
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

import zapdb
from tests.cli.program import Result, run_here
from tests.documents import document
from tests.services import serving_process
from tests.support import PostgresServer, wait_until
from zapdb.catalog.calls import LoggedCall, write_calls
from zapdb.cli.served_commands import list_served_commands
from zapdb.errors import EXIT_PENDING
from zapdb.storage import TransactionMode

REPOSITORY = Path(__file__).parents[2]
BIN = "Scripts" if os.name == "nt" else "bin"
HAS_COMPILER = shutil.which("cc") is not None

COMPILE = """\
import sys
from pathlib import Path

sys.path.insert(0, sys.argv[1])
from tools.native_build import build

print(build(Path(sys.argv[1], "native"), Path(sys.argv[2]), must=bool(sys.argv[3])))
"""

CAN_BUILD = """\
import ensurepip, os, sys, sysconfig

here = "%d.%d" % sys.version_info[:2], sysconfig.get_config_var("Py_GIL_DISABLED") or 0
header = os.path.join(sysconfig.get_path("include"), "Python.h")
sys.exit(here != (sys.argv[1], 0) or not os.path.exists(header))
"""

MIGRATION = """\
zapdb: 1
summary: People
changes:
  - create_table:
      table: people
      key: [id]
      fields:
        - {name: id, type: integer}
        - {name: name, type: string}
rollback: inferred
"""

APPLICATION = """\
import sys
from pathlib import Path

import zapdb

assert Path(zapdb.__file__).is_relative_to(sys.prefix), zapdb.__file__

db = zapdb.open("sqlite:///x.db", migrations="people_migrations", apply="auto")
people = db.table("people")
people.insert(id=1, name="Ada")
assert people.get(1).name == "Ada"
db.close()
"""


def run(*command: str | Path, cwd: Path, **more: str) -> str:
    """Run a command in an environment that doesn't lead back to the checkout; return its output."""
    environment = more | {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "ZAPDB_")) and name != "VIRTUAL_ENV"
    }
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def build_wheel(directory: Path, native: str) -> Path:
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", directory]
    run(*build, cwd=REPOSITORY, ZAPDB_NATIVE=native)
    (wheel,) = directory.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def pure_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("pure"), "no")


@pytest.fixture(scope="module")
def native_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not HAS_COMPILER:
        pytest.skip("there is no compiler for the accelerator")
    return build_wheel(tmp_path_factory.mktemp("native"), "yes")


@pytest.fixture(scope="module", params=["native", "pure"])
def wheel(request: pytest.FixtureRequest) -> Path:
    """Each of both."""
    found: Path = request.getfixturevalue(f"{request.param}_wheel")
    return found


def list_versions() -> list[str]:
    """Return the versions of Python that pyproject.toml has wheels built for."""
    configuration = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    names = configuration["tool"]["cibuildwheel"]["build"].split()
    return [re.sub(r"cp(\d)(\d+)-\*", r"\1.\2", name) for name in names]


@functools.cache
def find_python(version: str) -> str | None:
    """Return an interpreter of this version that extension modules can be compiled for: of the
    search path, or pyenv's."""
    found = [shutil.which(f"python{version}")]
    if root := os.environ.get("PYENV_ROOT"):
        found += map(str, Path(root).glob(f"versions/{version}.*/{BIN}/python"))
    for python in filter(None, found):  # pyenv's on the search path may name a version that is off
        probe = [python, "-c", CAN_BUILD, version]
        if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
            return python
    return None


def modules_in(wheel: Path) -> list[str]:
    names = zipfile.ZipFile(wheel).namelist()
    return [name for name in names if name.endswith((".so", ".pyd", ".c"))]


def test_a_pure_wheel_is_for_every_python(pure_wheel: Path) -> None:
    assert pure_wheel.name.endswith("-py3-none-any.whl")
    assert modules_in(pure_wheel) == []


def test_a_native_wheel_is_for_this_python(native_wheel: Path) -> None:
    assert f"-cp{sys.version_info[0]}{sys.version_info[1]}-" in native_wheel.name
    (module,) = modules_in(native_wheel)
    assert module.startswith("zapdb/_native.")


def test_a_missing_compiler_is_an_error_only_if_the_accelerator_must_be_built(
    tmp_path: Path,
) -> None:
    script = [sys.executable, "-c", COMPILE, REPOSITORY, tmp_path]
    assert "None" in run(*script, "", cwd=REPOSITORY, CC="/nonexistent")
    with pytest.raises(AssertionError, match=r"CompileError|distutils\.errors"):
        run(*script, "must", cwd=REPOSITORY, CC="/nonexistent")


def test_wheel_holds_the_package_and_its_storage_upgrades_only(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    revisions = REPOSITORY / "migrations" / "versions"
    expected = {f"zapdb/storage/storage_upgrades/versions/{p.name}" for p in revisions.glob("*.py")}

    assert expected
    assert expected <= names
    assert {"zapdb/py.typed", "zapdb/storage/storage_upgrades/env.py"} <= names
    metadata = "-".join(wheel.name.split("-")[:2]) + ".dist-info"
    sources = {"pyspark_zapdb.py", "pyspark_zapdb_changes.py"}
    assert {name.split("/")[0] for name in names} == {"zapdb", metadata} | sources
    assert not {name for name in names if "tests" in name.split("/")}


def test_wheels_are_built_for_this_python() -> None:
    assert f"{sys.version_info[0]}.{sys.version_info[1]}" in list_versions()


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty one; what the first wheel depends on is there for the second."""
    return create_environment(sys.executable, tmp_path_factory.mktemp("installed"))


def test_an_installed_wheel_serves_an_application_and_the_command_line(
    wheel: Path, environment: Path, tmp_path: Path
) -> None:
    check_installed(wheel, environment, tmp_path)
    pip(environment, "uninstall", "--yes", "zapdb", cwd=tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("version", list_versions())
def test_a_wheel_with_the_accelerator_works_on_each_python(version: str, tmp_path: Path) -> None:
    if not HAS_COMPILER:
        pytest.skip("there is no compiler for the accelerator")
    found = find_python(version)
    if found is None:
        pytest.skip(f"there is no python{version}, or it has no headers or no ensurepip")
    environment = create_environment(found, tmp_path)
    constraints = str(REPOSITORY / "constraints.txt")
    pip(
        environment,
        *["wheel", "--no-deps", "--wheel-dir", tmp_path, REPOSITORY],
        cwd=tmp_path,
        ZAPDB_NATIVE="yes",
        PIP_CONSTRAINT=constraints,
        PIP_BUILD_CONSTRAINT=constraints,
    )
    (wheel,) = tmp_path.glob("*.whl")
    tag = f"cp{version.replace('.', '')}"
    assert f"-{tag}-{tag}-" in wheel.name
    check_installed(wheel, environment, tmp_path)


def create_environment(python: str, place: Path) -> Path:
    run(python, "-m", "venv", "--without-pip", place / "environment", cwd=place)
    return place / "environment"


def pip(environment: Path, *arguments: str | Path, cwd: Path, **more: str) -> None:
    """By the pip of this Python, since putting one into an environment takes seconds."""
    command = [sys.executable, "-m", "pip", "--python", environment / BIN / "python", "--quiet"]
    run(*command, "--disable-pip-version-check", *arguments, cwd=cwd, **more)


def install(environment: Path, wheel: Path, cwd: Path) -> None:
    """With what it depends on: by uv, if the set-up has it, which is done in no time."""
    constraints = REPOSITORY / "constraints.txt"
    uv = Path(sys.prefix) / BIN / "uv"
    if not uv.exists():
        pip(environment, "install", "--no-compile", "-c", constraints, wheel, cwd=cwd)
        return
    command = [uv, "pip", "install", "--quiet", "--system-certs"]
    run(*command, "--python", environment / BIN / "python", "-c", constraints, wheel, cwd=cwd)


MORE = {
    "0002_age": "add_field: {table: people, field: {name: age, type: integer, default: 7}}",
    "0003_by_name": "create_index: {table: people, index: by_name, fields: [{field: name}]}",
}
IN_FILES = ("-m", "people_migrations")
CONVERSION = ("jobs", "show", "convert")
ASKED: tuple[tuple[str, ...], ...] = (
    ("catalog", "list"),
    ("catalog", "show", "people"),
    ("catalog", "show", "nobody"),
    ("catalog", "fingerprint", "people"),
    ("catalog", "revisions", "--table", "people", "--since", "7d"),
    ("catalog", "prune", "--table", "people", "--keep-last", "1", "--dry-run"),
    ("catalog", "prune", "--table", "people", "--older-than", "7d", "--yes"),
    ("catalog", "calls", "--principal", "ada"),
    ("changes", "list"),
    ("changes", "followers"),
    ("history", "status"),
    ("history", "moments"),
    ("history", "audit"),
    ("history", "row", "people", "1"),
    ("history", "table", "people", "--at", "0s"),
    ("history", "diff", "{moment}", "0s"),
    ("cluster", "status"),
    ("cluster", "nodes"),
    ("cluster", "leases"),
    ("cluster", "evict", "nobody"),
    ("cluster", "evict", "--expired"),
    ("cluster", "upgrade", "--dry-run"),
    ("cluster", "upgrade"),
    ("settings", "list"),
    ("settings", "get", "change_log"),
    ("settings", "set", "convert", "on_access"),
    ("settings", "unset", "convert"),
    ("settings", "profile", "development"),
    ("convert", "status"),
    ("reindex", "status"),
    ("jobs", "list"),
    ("jobs", "pause", "convert"),
    ("jobs", "resume", "convert"),
    ("jobs", "priority", "convert", "900"),
    ("jobs", "throttle", "convert", "--bytes-per-second", "1000"),
    CONVERSION,
    ("jobs", "cancel", "convert"),
    CONVERSION,
    ("jobs", "watch", "convert"),
    ("migrate", "check", *IN_FILES),
    ("migrate", "check", "--write", *IN_FILES),
    ("migrate", "status", "--all-tenants", *IN_FILES),
    ("migrate", "diff", *IN_FILES),
    ("migrate", "plan", *IN_FILES),
    ("migrate", "rehearse", "--seed", "7", *IN_FILES),
    ("migrate", "up", *IN_FILES),
    ("migrate", "status", *IN_FILES),
    ("migrate", "rollback", "--yes"),
    ("migrate", "forget", "--yes"),
    ("migrate", "status", *IN_FILES),
)
"""Each in text and in JSON, one after another: what some of them change, the later ones see."""

ENDLESS = "catalog watch"
"""It ends with Ctrl-C alone: the tests of commands ask it, in a process of its own."""

RUN_ALL = """\
import contextlib, importlib.util, io, json, sys
from pathlib import Path

import zapdb
from zapdb.cli.program import run_program

assert Path(zapdb.__file__).is_relative_to(sys.prefix), zapdb.__file__
assert importlib.util.find_spec("psycopg") is None
told = []
for command in json.loads(Path(sys.argv[1]).read_text()):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = run_program(command)
    told.append((status, out.getvalue(), err.getvalue()))
print(json.dumps(told))
"""


def test_all_commands_that_a_service_answers_are_asked() -> None:
    asked = {name for name in list_served_commands() for one in ASKED if is_of(one, name)}
    assert asked | {ENDLESS} == {*list_served_commands()}


def is_of(command: tuple[str, ...], name: str) -> bool:
    return " ".join(command).startswith(f"{name} ") or " ".join(command) == name


def test_an_installed_client_asks_a_service(
    pure_wheel: Path, postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an environment without a driver of the database: it says what is said of another database,
    which is alike, where that itself is asked."""
    environment = create_environment(sys.executable, tmp_path)
    program = environment / BIN / "zapdb"
    install(environment, pure_wheel, cwd=tmp_path)
    asking = [program, "catalog", "list", "-d", "grpc://localhost:1"]
    without = subprocess.run(asking, cwd=tmp_path, capture_output=True, text=True)
    assert without.returncode == 1
    assert "pip install 'zapdb[service]'" in without.stderr
    install(environment, Path(f"{pure_wheel}[service]"), cwd=tmp_path)
    asked = [[*one, *form] for one in ASKED for form in ([], ["--json"])]
    with ExitStack() as ended:
        sides = list[Side]()
        for name in ("here", "there"):
            (tmp_path / name).mkdir()
            monkeypatch.chdir(tmp_path / name)
            address = ended.enter_context(postgres.fresh_database(postgres.prepared))
            fill(address)
            service, process = ended.enter_context(serving_process(address))
            wait_until(partial(is_stamping, address), "it numbers moments")
            moments = run_here(["history", "moments", "--json", "-d", address]).lines
            moment = f"#{moments[1]['moment']}"
            sides.append(Side(address, f"grpc://{service}", process.pid, moment))
        monkeypatch.chdir(tmp_path / "here")
        here = [run_here(sides[0].ask(command, sides[0].address)) for command in asked]
        file = tmp_path / "commands.json"
        file.write_text(json.dumps([sides[1].ask(one, sides[1].service) for one in asked]))
        told = run(environment / BIN / "python", "-c", RUN_ALL, file, cwd=tmp_path / "there")
    there = [Result(*one) for one in json.loads(told)]
    both = zip(here, there, strict=True)
    said = [(sides[0].settle(one), sides[1].settle(other)) for one, other in both]
    different = [
        (name, *both) for name, both in zip(asked, said, strict=True) if both[0] != both[1]
    ]
    assert not different, "\n".join(map(str, different))
    well = [
        tuple(command)
        for command, (one, _) in zip(asked, said, strict=True)
        if one.status in (0, EXIT_PENDING) or command[:2] == ["jobs", "watch"]  # of a cancelled one
    ]
    served = [name for name in list_served_commands() if name != ENDLESS]
    assert [name for name in served if not any(is_of(command, name) for command in well)] == []


def is_stamping(address: str) -> bool:
    return "stamps" in run_here(["cluster", "status", "-d", address]).out


def fill(address: str) -> None:
    """Two migrations of three in a directory here, and records that wait for their conversion."""
    directory = Path("people_migrations")
    directory.mkdir()
    (directory / "0001_people.yaml").write_text(MIGRATION, encoding="utf-8")
    up = ["migrate", "up", "-d", address, "-m", directory.name]
    assert run_here(up).status == 0
    assert run_here(["history", "start", "store", "-d", address]).status == 0
    with zapdb.open(address) as db:
        for number in range(3):
            db.table("people").insert(id=number, name=f"Ada {number}")
        storage = db._storage
        with storage.transaction(TransactionMode.CATALOG) as connection:
            called = LoggedCall(
                b"1" * 16, storage.now_us(connection), "ada", "/one", "default", (), "OK", 1
            )
            write_calls(connection, [called])
    for name, operation in MORE.items():
        (directory / f"{name}.yaml").write_text(document(operation), encoding="utf-8")
    assert run_here(["history", "flush", "-d", address]).status == 0
    assert run_here([*up, "--to", "2"]).status == 0
    assert run_here(["convert", "run", "--plan-only", "-d", address]).status == EXIT_PENDING


PASSING = re.compile(
    r"\b[0-9.]+ ?m?s\b|\([0-9,]+/s\)"
    r'|"(?:[a-z_]*seconds?[a-z_]*|size_bytes|seq|pid|[a-z_]*_us|transaction)": ?-?[0-9.e-]+'
    r'|"bookmark": ?"[^"]*"|\b[0-9]+(?:\.[0-9]+){4,}\b'
    r"|\b\d{4}-\d\d-\d\d[T ][0-9:.]+(?:Z|\+00:00)?|\b1[0-9]{15}\b|\b[0-9a-f]{12,32}\b"
)
"""Times, transactions, and names of jobs, nodes and places in the change log."""
WIDTHS = re.compile(r"(?<=\S) {2,}| {2,}(?=\S)|-{2,}")


@dataclass(frozen=True)
class Side:
    """A database with a service over it, its process, and a moment that is recorded."""

    address: str
    service: str
    pid: int
    moment: str

    def ask(self, command: list[str], where: str) -> list[str]:
        return [*(part.format(moment=self.moment) for part in command), "-d", where]

    def settle(self, result: Result) -> Result:
        """What it said, without what is another one each time, and each side."""
        return Result(result.status, self._settle(result.out), self._settle(result.err))

    def _settle(self, text: str) -> str:
        own = rf"\b{self.pid}\b|/(?:here|there)/|{self.moment}\b"
        return WIDTHS.sub(" ", re.sub(own, "(own)", PASSING.sub("…", text)))


def check_installed(wheel: Path, environment: Path, place: Path) -> None:
    """Install a wheel into the environment, and use it in a directory of `place`."""
    is_pure = wheel.name.endswith("-none-any.whl")
    python, zapdb = environment / BIN / "python", environment / BIN / "zapdb"
    install(environment, wheel, cwd=place)

    application = place / "application"
    migrations = application / "people_migrations"
    migrations.mkdir(parents=True)
    (migrations / "0001_people.yaml").write_text(MIGRATION, encoding="utf-8")
    (application / "main.py").write_text(APPLICATION, encoding="utf-8")

    run(python, "main.py", cwd=application)
    assert "migrate" in run(zapdb, "--help", cwd=application)
    codec = "pure Python codec" if is_pure else "native codec"
    assert codec in run(zapdb, "--version", cwd=application)
    assert "pure Python codec" in run(zapdb, "--version", cwd=application, ZAPDB_NATIVE="no")
    database = ["--database", "sqlite:///x.db", "--migrations", migrations.name]
    status = run(zapdb, "migrate", "status", *database, cwd=application).split()
    assert status[-3:] == ["0001", "people", "applied"]
