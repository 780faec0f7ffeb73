"""Records that FastAPI's endpoints return: as they are, and as response models."""

from __future__ import annotations

import asyncio
import datetime
import decimal
from typing import Any

import httpx
from fastapi import FastAPI

import zapdb
from tests.support import Workspace
from zapdb.datasets import zone

ITEMS = """\
create_table: {table: items, key: [id], fields: [
      {name: id, type: integer}, {name: price, type: decimal, scale: 2},
      {name: state, type: state}, {name: place, type: place, optional: true},
      {name: made, type: timestamp}, {name: local, type: zoned_timestamp},
      {name: raw, type: binary}, {name: next, type: reference, to: items, optional: true}]}"""
TYPES = (
    "create_type: {type: state, enum: [open, done]}",
    "create_type: {type: place, struct: [{name: city, type: string}]}",
)


def test_endpoints_return_records_with_and_without_models(workspace: Workspace) -> None:
    workspace.write(1, *TYPES, ITEMS)
    db = workspace.open()
    items = db.table("items")
    raw = b"\xff" * 5_000  # kept apart, and read when it is looked at
    noon = datetime.datetime(2024, 5, 31, 12, tzinfo=datetime.UTC)
    for number in (1, 2):
        items.insert(
            id=number,
            price=decimal.Decimal("1.20"),
            state="open",
            place={"city": "Bern"},
            made=noon,
            local=noon.replace(tzinfo=zone("Europe/Vienna")),
            raw=raw,
            next=None if number == 1 else 1,
        )
    Item: Any = type(items.get(1))
    app = FastAPI()

    @app.get("/plain/{key}")
    def plain(key: int) -> Any:
        return items.get(key)

    @app.get("/unsaid/{key}")
    async def unsaid(key: int):  # type: ignore[no-untyped-def]  # as people write it
        return {"found": [items.get(key)]}

    app.get("/model/{key}", response_model=Item)(plain)
    app.get("/record/{key}", response_model=zapdb.Record)(plain)
    app.get("/maybe/{key}", response_model=Item | None)(lambda key: items.find(int(key)))
    app.get("/all", response_model=list[Item])(lambda: list(items.scan()))
    app.get("/page", response_model=list[Item])(lambda: list(items.order_by("-id").page(1)))
    wanted = {
        "id": 2,
        "price": "1.20",
        "state": "open",
        "place": {"city": "Bern"},
        "made": "2024-05-31T12:00:00+00:00",
        "local": "2024-05-31T12:00:00+02:00[Europe/Vienna]",
        "raw": zapdb.to_json(raw),
        "next": 1,
    }

    async def ask() -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://zapdb") as client:

            async def get(path: str) -> Any:
                answer = await client.get(path)
                assert answer.status_code == 200, answer.text
                return answer.json()

            for name in ("plain", "model", "record", "maybe"):
                assert await get(f"/{name}/2") == wanted, name
            assert await get("/unsaid/2") == {"found": [wanted]}
            assert await get("/maybe/7") is None
            first = wanted | {"id": 1, "next": None}
            assert await get("/all") == [first, wanted]
            assert await get("/page") == [wanted]
            described = (await get("/openapi.json"))["paths"]["/model/{key}"]["get"]
            schema = described["responses"]["200"]["content"]["application/json"]["schema"]
            assert list(schema["properties"]) == list(wanted)

    asyncio.run(ask())
