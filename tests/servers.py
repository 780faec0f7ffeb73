"""Web servers for tests: programs in processes or threads, on the loopback, and their clients."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Self

from tests import processes
from tests.support import GUARD_SECONDS, ROOT, wait_until

COMMANDS = {
    "uvicorn": ["-m", "uvicorn", "--host", "127.0.0.1", "--port", "0"],
    "waitress": ["-m", "waitress", "--listen", "127.0.0.1:0", "--threads", "8"],
}
LISTENS = re.compile(r"(?:running|Serving) on http://127\.0\.0\.1:(\d+)")


def start(*arguments: str, path: Path, environment: Mapping[str, str], **named: Any) -> Any:
    """A process of Python that finds the modules of `path`, and this zapdb."""
    given = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(path), str(ROOT)]),
        "PYTHONUNBUFFERED": "1",
        **environment,
    }
    return processes.Popen([sys.executable, *arguments], env=given, **named)


class Server:
    """A program in a server that is a process of its own, on a free port."""

    def __init__(self, kind: str, *program: str, log: Path, **named: Any) -> None:
        self._log = log
        with log.open("wb") as file:
            self.process = start(*COMMANDS[kind], *program, stdout=file, stderr=file, **named)
        self.port = 0

    def wait(self) -> Self:
        """Until it takes requests."""
        wait_until(lambda: self._find_port() or self.process.poll() is not None, "it listens")
        found = self._find_port()
        assert found, self.log
        self.port = int(found[1])
        # A server with workers has a port before any of them listens to it.
        wait_until(self._takes_connections, "it takes connections")
        return self

    def _takes_connections(self) -> bool:
        with Client(self.port) as client:
            return client.connect()

    @property
    def log(self) -> str:
        return self._log.read_text()

    def _find_port(self) -> re.Match[str] | None:
        return LISTENS.search(self.log)

    def stop(self) -> None:
        """As who runs it would, by a signal: it closes its database."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(GUARD_SECONDS)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextmanager
def serving(kind: str, *program: str, **named: Any) -> Iterator[Server]:
    server = Server(kind, *program, **named)
    try:
        yield server.wait()
        server.stop()
    finally:
        server.kill()


@contextmanager
def serving_asgi(app: Any) -> Iterator[int]:
    """The port of an application in uvicorn, in a thread of this process."""
    import uvicorn

    options = {"port": 0, "log_config": None, "ws": "none", "timeout_graceful_shutdown": 10}
    server = uvicorn.Server(uvicorn.Config(app, **options))
    thread = threading.Thread(target=server.run, name="test-server")
    thread.start()
    try:
        wait_until(lambda: server.started or not thread.is_alive(), "it listens")
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()


@contextmanager
def serving_wsgi(app: Any) -> Iterator[int]:
    """The port of an application in waitress, in a thread of this process."""
    import waitress.server

    server = waitress.server.create_server(app, listen="127.0.0.1:0", threads=4)
    thread = threading.Thread(target=server.run, name="test-server")
    thread.start()
    try:
        yield server.effective_port
    finally:
        # Its loop ends when nothing is left that it listens to. Where a request that has just ended
        # wakes it, it may have closed before it is woken from here.
        with suppress(OSError):
            server.trigger.pull_trigger(server.close)
        server.task_dispatcher.shutdown()
        thread.join()


class Client:
    """A client that keeps its connection."""

    def __init__(self, port: int) -> None:
        self._connection = HTTPConnection("127.0.0.1", port, timeout=GUARD_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def connect(self) -> bool:
        """Whether the server takes the connection."""
        try:
            self._connection.connect()
        except OSError:
            return False
        return True

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """The status, and what the JSON of the answer says."""
        headers = {"Content-Type": "application/json"}
        self._connection.request(method, path, json.dumps(body) if body else None, headers)
        answer = self._connection.getresponse()
        self.headers = answer.headers
        text = answer.read()
        is_json = answer.headers.get_content_type() == "application/json"
        return answer.status, json.loads(text) if is_json else text


def ask(port: int, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """One request, by a client of its own."""
    with Client(port) as client:
        return client.ask(method, path, body)


Work = Callable[[Client, int], Any]


def ask_together(port: int, clients: int, count: int, work: Work) -> list[Any]:
    """What `work` gives for each number below `count`, shared by so many clients."""

    def run(first: int) -> list[Any]:
        with Client(port) as client:
            return [work(client, number) for number in range(first, count, clients)]

    with ThreadPoolExecutor(clients) as threads:
        return [one for found in threads.map(run, range(clients)) for one in found]
