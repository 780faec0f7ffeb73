"""What the web programs of this directory have in common: orders, and what errors become."""

import os
from pathlib import Path
from typing import Any

import zapdb
from zapdb import errors
from zapdb.database import Snapshot, Transaction

DATABASE = os.environ.get("SHOP_DATABASE", "sqlite:///shop.db")
MIGRATIONS = Path(__file__).parent / "migrations"


def open_database() -> zapdb.Database:
    return zapdb.open(DATABASE, migrations=MIGRATIONS)


class CardDeclined(Exception):
    """The bank does not pay for an order."""


def place_order(tx: Transaction, order: dict[str, Any], card: str) -> zapdb.Record:
    """Part of a transaction: where it raises, the order is not there."""
    placed = tx.table("orders").insert(**order)
    if card == "declined":
        raise CardDeclined
    return placed


def find_order(snap: Snapshot, number: int) -> zapdb.Record:
    orders = snap.table("orders")
    return orders.where(orders.f.number == number).one()


STATUSES = {
    CardDeclined: 402,
    errors.RecordNotFound: 404,
    errors.RecordExists: 409,
    errors.UniqueViolation: 409,
    errors.ReferenceViolation: 409,
    errors.UpdateConflict: 409,
    errors.CheckViolation: 422,
    errors.InvalidValue: 422,
    errors.UnknownField: 422,
    errors.TransactionConflict: 503,
    errors.ConnectionsBusy: 503,
}


def answer(error: Exception) -> tuple[dict[str, str], int, dict[str, str]]:
    """The body, status and headers for an error; 500 is for all that are not expected.

    The message of an error is a fixed sentence: values are in its context alone.
    """
    status = next((STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES), 500)
    code = error.code if isinstance(error, zapdb.ZapdbError) else type(error).__name__
    message = str(getattr(error, "message", "")) if status < 500 else "try it again later"
    headers = {"Retry-After": "1"} if status == 503 else {}
    return {"error": code, "message": message}, status, headers
