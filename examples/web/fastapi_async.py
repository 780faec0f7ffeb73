"""FastAPI with async endpoints: uvicorn fastapi_async:app"""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from shop import DATABASE, MIGRATIONS, CardDeclined, answer

import zapdb
import zapdb.aio


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with zapdb.aio.open(DATABASE, migrations=MIGRATIONS) as app.state.db:
        yield


app = FastAPI(lifespan=lifespan)


def database(request: Request) -> zapdb.aio.AsyncDatabase:
    return request.app.state.db


Db = Annotated[zapdb.aio.AsyncDatabase, Depends(database)]


async def transaction(db: Db) -> AsyncIterator[zapdb.aio.AsyncTransaction]:
    async with db.transaction() as tx:
        yield tx


async def snapshot(db: Db) -> AsyncIterator[zapdb.aio.AsyncSnapshot]:
    async with db.snapshot() as snap:
        yield snap


Tx = Annotated[zapdb.aio.AsyncTransaction, Depends(transaction, scope="function")]
Snap = Annotated[zapdb.aio.AsyncSnapshot, Depends(snapshot, scope="function")]


class Order(BaseModel):
    number: int
    article: str
    quantity: int = 1


async def place_order(
    tx: zapdb.aio.AsyncTransaction, order: dict[str, Any], card: str
) -> zapdb.Record:
    placed = await tx.table("orders").insert(**order)
    if card == "declined":
        raise CardDeclined
    return placed


@app.post("/orders")
async def create(order: Order, db: Db, card: str = "") -> zapdb.Record:
    return await db.run(lambda tx: place_order(tx, order.model_dump(), card))


@app.post("/by-dependency/orders")
async def create_in(tx: Tx, order: Order, card: str = "") -> zapdb.Record:
    return await place_order(tx, order.model_dump(), card)


@app.get("/orders/{number}")
async def read(number: int, snap: Snap) -> zapdb.Record:
    orders = snap.table("orders")
    return await orders.where(orders.f.number == number).one()


@app.get("/health")
async def health(db: Db) -> dict[str, int]:
    return {"position": db.position, "seen": await db.admin.catalog_seq()}


@app.exception_handler(CardDeclined)
@app.exception_handler(zapdb.ZapdbError)
async def refuse(request: Request, error: Exception) -> JSONResponse:
    body, status, headers = answer(error)
    if status == 500:
        logging.getLogger("shop").error("%s failed", request.url.path, exc_info=error)
    return JSONResponse(body, status, headers)
