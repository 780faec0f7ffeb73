"""A web service for the soak: `uvicorn tests.contract.soak_app:app`, with its files in SOAK_FILES.

Each write changes two records, and may be told to raise after it has.
"""

# No `from __future__ import annotations`: FastAPI looks at those of functions inside functions.

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

import zapdb
import zapdb.aio
from zapdb.database import Transaction
from zapdb.errors import ConnectionsBusy, TransactionConflict

SIZE = os.environ.get("SOAK_SIZE", "size")
"""What the size is called in this version of the service."""
TWIN = 1_000_000


class Failed(Exception):
    """What a request ends with that was told to."""


class Write(BaseModel):
    key: int
    size: int
    fails: bool


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    address, files = os.environ["SOAK_DATABASE"], os.environ["SOAK_FILES"]
    with zapdb.open(address, migrations=files) as app.state.db:
        async with zapdb.aio.open(address, migrations=files) as app.state.aio:
            yield


app = FastAPI(lifespan=lifespan)


def database(request: Request) -> Any:
    return request.app.state.db


def transaction(db: Annotated[Any, Depends(database)]) -> Iterator[Any]:
    with db.transaction() as tx:
        yield tx


def records_of(write: Write) -> list[dict[str, Any]]:
    note = f"note {write.size} " * (1 + write.key % 3 * 500)
    return [
        {"id": key, "title": f"title {key}", "note": note, SIZE: write.size}
        for key in (write.key, write.key + TWIN)
    ]


def change(tx: Transaction, write: Write) -> dict[str, int]:
    items = tx.table("items")
    for values in records_of(write):
        items.upsert(**values)
    if write.fails:
        raise Failed
    return {"size": getattr(items.get(write.key + TWIN), SIZE)}


@app.post("/run")
def run(write: Write, db: Annotated[Any, Depends(database)]) -> Any:
    return db.run(lambda tx: change(tx, write))


@app.post("/token")
def run_with_token(write: Write, db: Annotated[Any, Depends(database)]) -> Any:
    return db.run(lambda tx: change(tx, write), token=True)


@app.post("/dependency")
def run_in(write: Write, tx: Annotated[Any, Depends(transaction, scope="function")]) -> Any:
    return change(tx, write)


def database_of_loop(request: Request) -> Any:
    return request.app.state.aio


async def begin(db: Annotated[Any, Depends(database_of_loop)]) -> AsyncIterator[Any]:
    async with db.transaction() as tx:
        yield tx


async def change_async(tx: zapdb.aio.AsyncTransaction, write: Write) -> dict[str, int]:
    items = tx.table("items")
    for values in records_of(write):
        await items.upsert(**values)
    if write.fails:
        raise Failed
    return {"size": getattr(await items.get(write.key + TWIN), SIZE)}


@app.post("/async")
async def run_async(write: Write, db: Annotated[Any, Depends(database_of_loop)]) -> Any:
    return await db.run(lambda tx: change_async(tx, write))


@app.post("/async-dependency")
async def run_async_in(write: Write, tx: Annotated[Any, Depends(begin, scope="function")]) -> Any:
    return await change_async(tx, write)


@app.exception_handler(Failed)
async def refuse(_: Request, error: Failed) -> JSONResponse:
    return JSONResponse({"error": "failed"}, 402)


@app.exception_handler(TransactionConflict)
@app.exception_handler(ConnectionsBusy)
async def ask_to_repeat(_: Request, error: zapdb.ZapdbError) -> JSONResponse:
    return JSONResponse({"error": error.code}, 503, {"Retry-After": "1"})


@app.exception_handler(zapdb.ZapdbError)
async def say(_: Request, error: zapdb.ZapdbError) -> JSONResponse:
    return JSONResponse(error.to_json(), 500)
