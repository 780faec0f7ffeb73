"""Values whose containers change while they are written: a collection, which any allocation may
begin, calls a finalizer that clears them.

What is refused allocates, as a lone surrogate does. So some texts have one, and each container has
a finalizer in a cycle that waits for the next collection.
"""

from __future__ import annotations

import gc
import random
import time
from collections import Counter
from typing import Any, Final

from tests.blobs import MemoryBlobs
from tests.native.codecs import pair_of
from tests.strategies import PLACE
from tests.zoned import ZONES
from zapdb.errors import ZapdbError
from zapdb.records.codec import bind_zones
from zapdb.schema import Field, TableSchema
from zapdb.values import Integer, Json, List, Reference, String

DEPTH_MAX: Final = 4
KEY: Final = (Integer(), String())
TABLE: Final = TableSchema(
    1,
    "changing",
    (1,),
    (
        Field(1, "id", Integer()),
        Field(2, "data", Json(), optional=True),
        Field(3, "tags", List(String()), optional=True),
        Field(4, "nested", List(List(Json())), optional=True),
        Field(5, "place", PLACE, optional=True),
        Field(6, "places", List(PLACE), optional=True),
        Field(7, "other", Reference("others", 2, KEY), optional=True),
        Field(8, "text", String(), optional=True),
    ),
)


class Clearing:
    """Changes containers when it is collected."""

    def __init__(self, containers: list[Any], how: int) -> None:
        self.containers = containers
        self.how = how
        self.itself = self  # a cycle: only a collection ends it

    def __del__(self) -> None:
        for container in self.containers:
            if self.how == 0:
                container.clear()
            elif isinstance(container, dict):
                for at in range(self.how):
                    container[f"added {at}"] = f"{at}" * 40
            elif self.how == 1:
                del container[1:]
            else:
                container[:] = [f"{at}" * 40 for at in range(self.how)]


class Maker:
    """Random values, fresh objects all, so that nobody else keeps what they hold."""

    def __init__(self, rnd: random.Random) -> None:
        self.rnd = rnd
        self.containers = list[Any]()

    def text(self) -> str:
        kind = self.rnd.randrange(6)
        body = "".join(self.rnd.choices("abcdefgh", k=self.rnd.randrange(1, 60)))
        return body + ("", "", "ä", "東", "\ud800", "")[kind]

    def json(self, depth: int) -> Any:
        kind = self.rnd.randrange(6 if depth else 3)
        if kind == 0:
            return self.rnd.randrange(-(10**6), 10**12)
        if kind < 3:
            return self.text()
        return self.container({} if kind == 3 else [], depth)

    def container(self, made: Any, depth: int) -> Any:
        count = self.rnd.choice((0, 1, 2, 3, 8, 30))
        if isinstance(made, dict):
            made.update((self.text(), self.json(depth - 1)) for _ in range(count))
        else:
            made.extend(self.json(depth - 1) for _ in range(count))
        self.containers.append(made)
        return made

    def texts(self) -> list[str]:
        made = [self.text() for _ in range(self.rnd.choice((0, 1, 3, 9)))]
        self.containers.append(made)
        return made

    def place(self) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for member in PLACE.members:
            if isinstance(member.type, String):
                made[member.name] = self.text()
            elif isinstance(member.type, List):
                made[member.name] = self.texts()
            else:
                made[member.name] = member.type.neutral()
        self.containers.append(made)
        return made

    def record(self) -> dict[str, Any]:
        chosen = {
            "data": lambda: self.json(DEPTH_MAX),
            "tags": self.texts,
            "nested": lambda: [[self.json(2)] for _ in range(self.rnd.randrange(4))],
            "place": self.place,
            "places": lambda: [self.place() for _ in range(self.rnd.randrange(3))],
            "other": lambda: (1, self.text()),
            "text": self.text,
        }
        values: dict[str, Any] = {"id": 1}
        for name, make in chosen.items():
            if self.rnd.random() < 0.6:
                values[name] = make()
                if isinstance(values[name], list):
                    self.containers.append(values[name])
        self.containers.append(values)
        return values


def write_changing(seed: int, tries: int, seconds: float) -> Counter[str]:
    """Write records by both codecs while their containers change; what is written can be read.
    Returns how often which outcome was there."""
    rnd, found, until = random.Random(seed), Counter[str](), time.monotonic() + seconds
    table = bind_zones(TABLE, ZONES)
    pair = pair_of(table)
    thresholds = gc.get_threshold()
    try:
        for _ in range(tries):
            if time.monotonic() > until:
                break
            found[_write_one(rnd.choice((pair.plan, pair.python)), rnd)] += 1
    finally:
        gc.set_threshold(*thresholds)
        gc.enable()
    return found


def _write_one(codec: Any, rnd: random.Random) -> str:
    maker = Maker(rnd)
    values = maker.record()
    blobs = MemoryBlobs().attachments()
    chosen = rnd.sample(maker.containers, rnd.randint(1, len(maker.containers)))
    maker.containers.clear()
    gc.disable()
    gc.set_threshold(rnd.randint(1, 40))
    Clearing(chosen, rnd.choice((0, 0, 1, 2, 50)))
    del chosen
    gc.enable()  # one of the next allocations of a container or an exception collects
    try:
        written = codec.encode(b"\x81", values, blobs)
    except (ZapdbError, RuntimeError):  # that a dict has changed, as Python says it
        return "refused"
    finally:
        gc.disable()
    codec.decode(codec.encode_key({"id": 1}), written, 1, blobs)
    return "written"
