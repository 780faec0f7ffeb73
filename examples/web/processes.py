"""multiprocessing: python processes.py fork < orders.jsonl

Reads one order a line, and prints the number, status and answer of each.
"""

import json
import multiprocessing
import sys
from typing import Any

from shop import CardDeclined, answer, open_database, place_order

import zapdb

db: zapdb.Database


def open_here() -> None:
    """In each process of the pool, whether it was forked or spawned."""
    global db
    db = open_database()


def create_order(line: str) -> tuple[int, int, Any]:
    order = json.loads(line)
    number, card = order["number"], order.pop("card", "")
    try:
        placed = db.run(lambda tx: place_order(tx, order, card))
        return number, 200, zapdb.to_json(placed)
    except (CardDeclined, zapdb.ZapdbError) as error:
        body, status, _ = answer(error)
        return number, status, body


def main(start_method: str) -> None:
    context = multiprocessing.get_context(start_method)
    with context.Pool(8, initializer=open_here) as pool:
        for number, status, body in pool.imap_unordered(create_order, sys.stdin):
            print(number, status, json.dumps(body))


if __name__ == "__main__":
    main(sys.argv[1])
