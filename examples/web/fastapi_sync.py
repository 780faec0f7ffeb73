"""FastAPI with sync endpoints: uvicorn fastapi_sync:app"""

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from shop import CardDeclined, answer, find_order, open_database, place_order

import zapdb
from zapdb.database import Snapshot, Transaction


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    with open_database() as app.state.db:  # once in each process, before the first request
        yield


app = FastAPI(lifespan=lifespan)


def database(request: Request) -> zapdb.Database:
    return request.app.state.db


Db = Annotated[zapdb.Database, Depends(database)]


def transaction(db: Db) -> Iterator[Transaction]:
    with db.transaction() as tx:
        yield tx


def snapshot(db: Db) -> Iterator[Snapshot]:
    with db.snapshot() as snap:
        yield snap


# Left before the response is sent: without the scope, a COMMIT that fails is answered 200.
Tx = Annotated[Transaction, Depends(transaction, scope="function")]
Snap = Annotated[Snapshot, Depends(snapshot, scope="function")]


class Order(BaseModel):
    number: int
    article: str
    quantity: int = 1


@app.post("/orders")
def create(order: Order, db: Db, card: str = "") -> zapdb.Record:
    """Runs in one thread, and again if the transaction conflicts with another one."""
    return db.run(lambda tx: place_order(tx, order.model_dump(), card))


@app.post("/by-dependency/orders")
def create_in(tx: Tx, order: Order, card: str = "") -> zapdb.Record:
    """Several functions of a request may share the transaction of the dependency."""
    return place_order(tx, order.model_dump(), card)


@app.get("/orders/{number}")
def read(number: int, snap: Snap) -> zapdb.Record:
    return find_order(snap, number)


@app.get("/health")
def health(db: Db) -> dict[str, int]:
    """Whether the database answers; it costs one statement."""
    return {"position": db.position, "seen": db.admin.catalog_seq()}


@app.exception_handler(CardDeclined)
@app.exception_handler(zapdb.ZapdbError)
async def refuse(request: Request, error: Exception) -> JSONResponse:
    body, status, headers = answer(error)
    if status == 500:
        logging.getLogger("shop").error("%s failed", request.url.path, exc_info=error)
    return JSONResponse(body, status, headers)
