"""The wheels work where nothing but the wheel is: no checkout, no tests, no development tools."""

import functools
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.cli.program import run_here
from tests.services import serving_process
from tests.support import PostgresServer

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


ASKED = (
    ("catalog", "list"),
    ("catalog", "show", "people"),
    ("catalog", "fingerprint", "people"),
    ("catalog", "revisions", "--table", "people"),
    ("catalog", "show", "nobody"),
    ("settings", "list"),
    ("settings", "get", "change_log"),
    ("jobs", "list"),
    ("convert", "status"),
    ("reindex", "status"),
    ("changes", "followers"),
    ("history", "status"),
    ("migrate", "status", "-m", "people_migrations"),
    ("migrate", "plan", "-m", "people_migrations"),
)


def test_an_installed_client_asks_a_service(
    pure_wheel: Path, postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an environment without a driver of the database: it says what the database says."""
    environment = create_environment(sys.executable, tmp_path)
    zapdb = environment / BIN / "zapdb"
    install(environment, pure_wheel, cwd=tmp_path)
    asking = [zapdb, "catalog", "list", "-d", "grpc://localhost:1"]
    without = subprocess.run(asking, cwd=tmp_path, capture_output=True, text=True)
    assert without.returncode == 1
    assert "pip install 'zapdb[service]'" in without.stderr
    install(environment, Path(f"{pure_wheel}[service]"), cwd=tmp_path)
    migrations = tmp_path / "people_migrations"
    migrations.mkdir()
    (migrations / "0001_people.yaml").write_text(MIGRATION, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with postgres.fresh_database(postgres.prepared) as address:
        up = run_here(["migrate", "up", "-d", address, "-m", migrations.name])
        assert up.status == 0, up
        with serving_process(address) as (service, _):
            for command in ASKED:
                for form in ([], ["--json"]):
                    given = [*command, *form, "-d"]
                    here = run_here([*given, address])
                    there = subprocess.run(
                        [zapdb, *given, f"grpc://{service}"],
                        cwd=tmp_path,
                        capture_output=True,
                        text=True,
                    )
                    assert settle(there.stdout + there.stderr) == settle(here.out + here.err)
                    assert there.returncode == here.status, command


def settle(text: str) -> str:
    """Without what takes another time each time."""
    return re.sub(r"\b[0-9.]+ (ms|s)\b|\"[a-z_]*seconds\": [0-9.e-]+", "…", text)


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
