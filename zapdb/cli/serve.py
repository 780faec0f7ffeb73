"""`zapdb serve`: the methods of the control plane, for other hosts and languages."""

from __future__ import annotations

import asyncio
import signal
from typing import Annotated

import typer

from zapdb import aio
from zapdb.cli.connecting import DatabaseOptions
from zapdb.cli.output import Output


def serve_command(
    options: DatabaseOptions,
    output: Output,
    listen: Annotated[
        str, typer.Option("--listen", metavar="HOST:PORT", help="Where to listen.")
    ] = "127.0.0.1:7427",
) -> None:
    """Serve the catalog, the cluster, migrations, jobs and the past of a database over gRPC, until
    interrupted.

    With `--json`: `{address}`, when it listens.
    """
    asyncio.run(_serve(options.address, listen, output))


async def _serve(address: str, listen: str, output: Output) -> None:
    from zapdb.service.server import Server

    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    async with aio.open(address) as db:
        server = Server(db)
        port = await server.start(listen)
        at = f"{listen.rpartition(':')[0]}:{port}"
        output.write(f"serving {db!r} at {at}")
        output.document({"address": at})
        await stopped.wait()
        await server.grpc.stop(grace=10)
