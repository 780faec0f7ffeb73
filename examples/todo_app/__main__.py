"""`python -m examples.todo_app`: opens the database, fills it if it is new, and serves."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from pathlib import Path

from waitress.server import create_server

from examples.todo_app import sample
from examples.todo_app.todo import Todo, open_database
from examples.todo_app.web import FORM_BYTES_MAX, create_app
from zapdb import ZapdbError

DATABASE = "sqlite:///build/todo.db"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.todo_app", description="A to-do list")
    parser.add_argument(
        "--database", default=DATABASE, metavar="URL", help=f"SQLite or PostgreSQL; {DATABASE}"
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000, help="8000; 0 for any that is free")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--no-sample", action="store_true", help="begin without sample data")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)  # that one waits is no trouble
    if arguments.database == DATABASE:
        Path("build").mkdir(exist_ok=True)
    try:
        db = open_database(arguments.database)
    except ZapdbError as error:
        raise SystemExit(f"error: {error}") from error
    with db:
        todo = Todo(db)
        if not arguments.no_sample:
            sample.load(todo)
        # Threads of one process, and never a fork: they share the database.
        is_https = bool(os.environ.get("TODO_APP_HTTPS"))
        app = create_app(todo, os.environ.get("TODO_APP_SECRET"), https=is_https)
        try:
            server = create_server(
                app,
                host=arguments.host,
                port=arguments.port,
                threads=arguments.threads,
                max_request_body_size=2 * FORM_BYTES_MAX,  # else it keeps up to 1 GiB on disk
            )
        except OSError as error:
            raise SystemExit(f"error: port {arguments.port}: {error.strerror}") from error
        signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # end as Ctrl-C does: `db` is closed
        print(f"http://{arguments.host}:{server.effective_port}/", flush=True)
        try:
            server.run()  # until it is interrupted
        finally:
            server.close()


if __name__ == "__main__":
    main()
