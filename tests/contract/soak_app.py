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
        yield


app = FastAPI(lifespan=lifespan)


def database(request: Request) -> Any:
    return request.app.state.db


def transaction(db: Annotated[Any, Depends(database)]) -> Iterator[Any]:
    with db.transaction() as tx:
        yield tx


def change(tx: Transaction, write: Write) -> dict[str, int]:
    items = tx.table("items")
    for key in (write.key, write.key + TWIN):
        note = f"note {write.size} " * (1 + write.key % 3 * 500)
        items.upsert(id=key, title=f"title {key}", note=note, **{SIZE: write.size})
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
