"""Flask: waitress-serve --call flask_app:create_app"""

import atexit
from typing import Any

from flask import Flask, request
from shop import CardDeclined, answer, find_order, open_database, place_order

import zapdb


def create_app() -> Flask:
    app = Flask(__name__)
    db = open_database()  # by the process that serves: after a fork, not before
    atexit.register(db.close)

    @app.post("/orders")
    def create() -> dict[str, Any]:
        order, card = request.get_json(), request.args.get("card", "")
        return zapdb.to_json(db.run(lambda tx: place_order(tx, order, card)))

    @app.get("/orders/<int:number>")
    def read(number: int) -> dict[str, Any]:
        with db.snapshot() as snap:
            return zapdb.to_json(find_order(snap, number))

    @app.get("/health")
    def health() -> dict[str, int]:
        return {"position": db.position, "seen": db.admin.catalog_seq()}

    @app.errorhandler(CardDeclined)
    @app.errorhandler(zapdb.ZapdbError)
    def refuse(error: Exception) -> tuple[dict[str, str], int, dict[str, str]]:
        refused = answer(error)
        if refused[1] == 500:
            app.logger.error("%s failed", request.path, exc_info=error)
        return refused

    return app
