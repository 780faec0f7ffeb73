"""Celery: celery --app celery_tasks worker --pool prefork --concurrency 8"""

from typing import Any

from celery import Celery
from celery.signals import worker_process_init, worker_process_shutdown
from shop import open_database, place_order

import zapdb
from zapdb import errors

app = Celery("shop")
app.config_from_envvar("SHOP_CELERY", silent=True)  # the module that names broker and results
db: zapdb.Database


@worker_process_init.connect
def open_here(**_: Any) -> None:
    """In each process of the pool: what the parent opened can't be used after the fork."""
    global db
    db = open_database()


@worker_process_shutdown.connect
def close_here(**_: Any) -> None:
    db.close()


@app.task(
    autoretry_for=(errors.TransactionConflict, errors.ConnectionsBusy),
    retry_backoff=True,
    max_retries=5,
)
def create_order(order: dict[str, Any], card: str = "") -> dict[str, Any]:
    """A task may be run twice: the order's number is unique, so the second time it is refused."""
    return zapdb.to_json(db.run(lambda tx: place_order(tx, order, card)))
