"""Flights to work on: airports and flights in a database at the first migration.

python examples/spark/flights.py postgresql://localhost/flights
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import zapdb

MIGRATIONS = Path(__file__).parent / "migrations"
AIRPORTS = {"BRN": "Bern", "VIE": "Wien", "HND": "Tokyo Haneda"}
FLIGHTS = 40_000


def load_flights(url: str, count: int = FLIGHTS) -> None:
    """Fill an empty database, whose records are to be converted later."""
    with tempfile.TemporaryDirectory() as first:
        shutil.copy(MIGRATIONS / "0001_flights.yaml", first)
        with zapdb.open(url, migrations=first, apply="auto") as db:
            db.admin.set_setting("change_log", "on")
            db.table("airports").insert_many(
                {"code": code, "name": name} for code, name in AIRPORTS.items()
            )
            codes = list(AIRPORTS)
            db.table("flights").insert_many(
                {"id": at, "origin": codes[at % len(codes)], "distance": at % 9_000}
                for at in range(count)
            )


if __name__ == "__main__":
    load_flights(sys.argv[1])
