"""The data source, against Spark's JDBC source on a plain table with the same columns.

Both read over TCP into Spark's sink that keeps nothing, in as many partitions. The driver is
Debian's `libpostgresql-jdbc-java`, or the jar that `ZAPDB_JDBC_JAR` names; without one, nothing is
measured. Processor time is that of Spark, of its processes of Python and of PostgreSQL.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from tests.bench.databases import Bench, opened
from tests.bench.measure import Row, time_turns
from tests.bench.people import CREATE, make_people
from tests.support import PostgresServer

PARTITIONS = 4
ROUNDS = 5
PACKAGE = "libpostgresql-jdbc-java"
INSTALLED = Path("/usr/share/java/postgresql.jar")
PLAIN = """CREATE TABLE plain (id bigint PRIMARY KEY, number bigint NOT NULL, name text NOT NULL,
  city text NOT NULL, active boolean NOT NULL, balance numeric(38, 2) NOT NULL,
  met timestamptz NOT NULL, extra text NOT NULL, token uuid NOT NULL)"""
COLUMNS = "id, number, name, city, active, balance, met, extra, token"


def run(bench: Bench) -> list[Row]:
    jar = find_driver(bench.directory)
    if jar is None:
        print(
            f"source: skipped, there is no JDBC driver: install Debian's {PACKAGE}, or set "
            "ZAPDB_JDBC_JAR to the path of PostgreSQL's jar",
            file=sys.stderr,
        )
        return []
    from pyspark.sql import SparkSession

    from tests.bench import spark
    from zapdb.spark import register

    with PostgresServer.start() as server:
        server.execute("CREATE DATABASE bench")
        address = f"postgresql+psycopg://postgres@127.0.0.1:{listen(server)}/bench"
        fill(bench, address)
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        session = (
            SparkSession.builder.master("local[2]")
            .config("spark.jars", str(jar))
            .config("spark.ui.enabled", "false")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.host", "127.0.0.1")
            .getOrCreate()
        )
        try:
            register(session)
            return compare(bench, session, address, server)
        finally:
            spark.end(session)


def find_driver(directory: Path) -> Path | None:
    """PostgreSQL's driver for Java: named, installed, or from Debian's package."""
    named = os.environ.get("ZAPDB_JDBC_JAR")
    if named:
        return Path(named)
    if INSTALLED.exists():
        return INSTALLED
    if shutil.which("apt-get") is None:
        return None
    command = ["apt-get", "download", "-q", PACKAGE]
    subprocess.run(command, cwd=directory, capture_output=True, check=False)
    for package in directory.glob(f"{PACKAGE}_*.deb"):
        subprocess.run(["dpkg-deb", "-x", package, directory / "jdbc"], check=True)
        return (directory / "jdbc" / INSTALLED.relative_to("/")).resolve()
    return None


def listen(server: PostgresServer) -> int:
    """Let the server take connections by TCP, which Java knows; returns the port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    options = f"-h 127.0.0.1 -p {port} -k {server.directory}"
    log = str(server.directory.parent / "log")
    server.run("pg_ctl", "-w", "-D", str(server.directory), "-l", log, "-o", options, "restart")
    server.process = int((server.directory / "postmaster.pid").read_text().split()[0])
    return port


def fill(bench: Bench, address: str) -> None:
    """The same records as a table of zapdb and as a plain one."""
    import psycopg
    from psycopg.types.json import Json

    with opened(address, bench.migrations("source", CREATE)) as db:
        db.table("people").insert_many(make_people(0, bench.many))
    with psycopg.connect(address.replace("+psycopg", "")) as connection:
        connection.execute(PLAIN)
        with connection.cursor().copy(f"COPY plain ({COLUMNS}) FROM STDIN") as copy:
            for person in make_people(0, bench.many):
                values = {**person, "extra": Json(person["extra"])}
                copy.write_row([values[name] for name in COLUMNS.split(", ")])
        connection.execute("ANALYZE")


def compare(bench: Bench, session: Any, address: str, server: PostgresServer) -> list[Row]:
    url = address.replace("postgresql+psycopg://postgres@", "jdbc:postgresql://")

    def ours(columns: str) -> Any:
        reader = session.read.format("zapdb").options(database=address, table="people")
        reader.option("partitions", str(PARTITIONS)).option("fields", columns)
        return reader.load()

    def theirs(columns: str) -> Any:
        reader = session.read.format("jdbc").options(url=url, dbtable="plain", user="postgres")
        reader.options(driver="org.postgresql.Driver", fetchsize="10000")
        reader.options(partitionColumn="id", lowerBound="0", upperBound=str(bench.many))
        return reader.option("numPartitions", str(PARTITIONS)).load().select(*columns.split(","))

    rows = []
    for what, columns in (("all columns", COLUMNS), ("two columns", "id, city")):
        names = columns.replace(" ", "")
        assert ours(names).count() == theirs(names).count() == bench.many
        spent: dict[str, list[float]] = {}
        actions = [
            measured(spent, "ours", server, partial(ours, names)),
            measured(spent, "theirs", server, partial(theirs, names)),
        ]
        wall = time_turns(ROUNDS, *actions)
        title = f"data source, {what}, {bench.many:,} records"
        cpu = [sorted(spent[name])[len(spent[name]) // 2] for name in ("ours", "theirs")]
        for kind, (our, their) in (("processor time", cpu), ("time", wall)):
            reach = ("≥", 1.0) if what == "all columns" else None
            against = "Spark's JDBC source"
            figures = (bench.many / our, bench.many / their)
            rows.append(Row(f"{title}, {kind}", against, *figures, reach, "/s"))
    return rows


def measured(
    spent: dict[str, list[float]], name: str, server: PostgresServer, load: Callable[[], Any]
) -> Callable[[], float]:
    def read() -> float:
        before, started = processor_seconds(server), time.perf_counter()
        load().write.format("noop").mode("overwrite").save()
        seconds = time.perf_counter() - started
        spent.setdefault(name, []).append(processor_seconds(server) - before)
        return seconds

    return read


def processor_seconds(server: PostgresServer) -> float:
    """Of this process, of all that it started, and of the server, those that ended included."""
    total = 0.0
    for root in (psutil.Process(), psutil.Process(server.process)):
        for process in [root, *root.children(recursive=True)]:
            try:
                total += sum(process.cpu_times()[:4])
            except psutil.NoSuchProcess:
                continue
    return total
