"""The programs of examples/spark, and what a cluster needs to run them."""

from __future__ import annotations

import socket
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

import zapdb
from examples.spark.flights import AIRPORTS, MIGRATIONS, load_flights
from examples.spark.join import join
from examples.spark.stream import stream
from tests import forms
from tests.spark.cluster import Cluster, running_cluster
from tests.support import ROOT
from zapdb.cli.program import run_program
from zapdb.errors import JobError, UsageError
from zapdb.spark.spark_session import explain_start, require_java, require_master

COUNT = 40_000 if forms.is_long else 10_000
ONE_EXECUTOR = ("--conf", "spark.cores.max=1")
"""For programs that show what they show on one, since each executor is a JVM to start."""


@pytest.mark.parametrize("engine", ["postgresql"])
def test_a_standalone_cluster_converts_with_the_packaged_code(workspace, tmp_path, capsys):
    load_flights(workspace.address, COUNT)
    archive = tmp_path / "zapdb.zip"
    assert run_program(["spark", "package", str(archive)]) == 0
    with running_cluster(tmp_path) as cluster:
        program = str(ROOT / "examples" / "spark" / "convert.py")
        ran = cluster.submit("--py-files", str(archive), program, workspace.address)
        assert ran.returncode == 0, ran.stderr
        assert f"flights by revision: {{2: {COUNT}}}" in ran.stdout
        assert "0 processes" not in ran.stdout
        # The entry module is the command line; with nothing to do it needs no executor.
        entry = tmp_path / "zapdb_main.py"
        where = ONE_EXECUTOR if forms.is_long else ("--master", "local[1]")
        ran = cluster.submit(
            *where, "--py-files", str(archive), str(entry),
            "convert", "run", "--engine", "spark",
            "--database", workspace.address,
        )  # fmt: skip
        assert "nothing to do" in ran.stdout, ran.stderr
        if forms.is_long:
            ran = read_without_zapdb(cluster, workspace.address, tmp_path)
            assert ran.returncode != 0
            missing = "ModuleNotFoundError: No module named 'zapdb': this process of Spark"
            assert missing in ran.stdout
            assert f"host {socket.gethostname()}" in ran.stdout
            assert "give the file to spark-submit with --py-files zapdb.zip" in ran.stdout
    with zapdb.open(workspace.address, migrations=MIGRATIONS) as db:
        assert db.admin.count_by_revision("flights") == {2: COUNT}
        assert all(report.problems == () for report in db.admin.verify())


def read_without_zapdb(
    cluster: Cluster, address: str, directory: Path
) -> subprocess.CompletedProcess[str]:
    """Read a table where executors have all packages but zapdb, which this Python finds by a file
    of its site-packages, or as the driver does, by the directory that it works in."""
    python = directory / "python"
    packages = f"{sysconfig.get_path('platlib')}:{sysconfig.get_path('purelib')}"
    line = f'PYTHONPATH="{packages}:$PYTHONPATH" exec {sys.executable} -S "$@"'
    python.write_text(f"#!/bin/sh\n{line}\n")
    python.chmod(0o755)
    program = directory / "read.py"
    program.write_text(
        "import zapdb.spark\n"
        "spark = zapdb.spark.start_session()\n"
        "reader = spark.read.format('zapdb').option('table', 'flights')\n"
        f"print(reader.option('database', {address!r}).load().count())\n"
    )
    own = ("--conf", f"spark.pyspark.driver.python={sys.executable}")
    theirs = ("--conf", f"spark.pyspark.python={python}", "--conf", "spark.task.maxFailures=1")
    return cluster.submit(*ONE_EXECUTOR, *own, *theirs, str(program))


@pytest.mark.parametrize("engine", ["postgresql"])
def test_two_tables_are_joined_and_changes_are_streamed(workspace, spark, tmp_path):
    load_flights(workspace.address, 9_000)
    join(workspace.address, str(tmp_path / "far"))
    far = spark.read.parquet(str(tmp_path / "far")).collect()
    assert sorted(row.id for row in far) == list(range(6_000, 9_000))
    assert {row.name for row in far} == set(AIRPORTS.values())

    stream(workspace.address, str(tmp_path / "log"))
    with zapdb.open(workspace.address) as db:
        db.table("flights").update(7, distance=1)
    stream(workspace.address, str(tmp_path / "log"))
    changes = spark.read.parquet(str(tmp_path / "log" / "changes")).collect()
    assert sorted(row.id for row in changes if row.operation == "insert") == list(range(9_000))
    (updated,) = [row for row in changes if row.operation != "insert"]
    assert (updated.operation, updated.id, updated.distance) == ("update", 7, 1)


def test_the_archive_holds_the_code_and_nothing_else(tmp_path: Path) -> None:
    first, second = tmp_path / "a.zip", tmp_path / "b.zip"
    for archive in (first, second):
        assert run_program(["spark", "package", str(archive)]) == 0
    assert first.read_bytes() == second.read_bytes()
    names = zipfile.ZipFile(first).namelist()
    assert len(names) == len(set(names))
    assert {"zapdb/__init__.py", "zapdb/spark/task.py", "zapdb/py.typed"} <= set(names)
    found_by_spark = {"pyspark_zapdb.py", "pyspark_zapdb_changes.py"}
    assert found_by_spark <= set(names)
    assert "zapdb/storage/storage_upgrades/versions/first_layout.py" in names
    own = [name for name in names if name not in found_by_spark]
    assert not [name for name in own if "__pycache__" in name or not name.startswith("zapdb/")]
    assert run_program(["spark", "package", str(tmp_path / "a.tar")]) == UsageError.exit_status


def test_a_java_that_is_missing_or_too_old_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    with pytest.raises(JobError, match="there is no Java"):
        require_java()
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JobError, match="this Java is too old") as refused:
        require_java()
    assert refused.value.context["version"] == "11"


def test_a_master_that_cannot_be_reached_is_named() -> None:
    over = "java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext."
    assert "did not answer" in explain_start("spark://host:7077", over).message
    assert explain_start("local[*]", over).context["cause"] == over
    with pytest.raises(JobError, match="the Spark master can't be reached"):
        require_master("spark://127.0.0.1:9")
    with pytest.raises(UsageError, match="not the address of a Spark master"):
        require_master("spark://somewhere")
    for wrong in ("nonsense", "http://host:7077", "local[", ""):
        with pytest.raises(UsageError, match="not the address of a Spark master"):
            require_master(wrong)
    for right in ("local", "local[2]", "local[*,4]", "yarn", "k8s://https://host:6443"):
        require_master(right)
