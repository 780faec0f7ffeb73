"""PgBouncer in front of a test's server: a session of the server for each transaction."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import make_url

from tests import processes
from tests.support import GUARD_SECONDS, PostgresServer, wait_until

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
QUERY_WAIT_SECONDS = 10
CONFIGURATION = """\
[databases]
* = host={server} user=postgres pool_size={pool_size}

[pgbouncer]
pool_mode = transaction
auth_type = any
listen_addr =
unix_socket_dir = {directory}
listen_port = 5432
logfile = {directory}/log
pidfile = {directory}/pid
max_client_conn = 200
query_wait_timeout = {wait}
"""


@contextmanager
def pooling(server: PostgresServer, address: str, pool_size: int) -> Iterator[str]:
    """The address of a database behind a pooler that has so many sessions for all its clients. Who
    waits longer for one than `QUERY_WAIT_SECONDS` is refused."""
    if PROGRAM is None:
        pytest.skip("pgbouncer is missing: apt-get install pgbouncer (tools/setup.sh does it)")
    owner = server.directory.stat()
    directory = Path(tempfile.mkdtemp(prefix="zapdb-pool-"))
    file = directory / "pgbouncer.ini"
    file.write_text(
        CONFIGURATION.format(
            server=server.directory,
            pool_size=pool_size,
            directory=directory,
            wait=QUERY_WAIT_SECONDS,
        )
    )
    os.chown(directory, owner.st_uid, owner.st_gid)
    # It refuses to run as root.
    user = {"user": owner.st_uid, "group": owner.st_gid} if os.getuid() == 0 else {}
    pooler = processes.Popen([PROGRAM, "-q", str(file)], extra_groups=[] if user else None, **user)
    try:
        socket = directory / ".s.PGSQL.5432"
        wait_until(lambda: socket.exists() or pooler.poll() is not None, "the pooler listens")
        assert pooler.poll() is None, (directory / "log").read_text()
        url = make_url(address).update_query_dict(
            {"host": str(directory), "prepared_statements": "off"}
        )
        yield url.render_as_string(hide_password=False)
    finally:
        pooler.terminate()
        pooler.wait(GUARD_SECONDS)
        shutil.rmtree(directory)
