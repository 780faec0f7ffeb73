"""Django, in one file: waitress-serve django_app:application

A project calls `open_database` in `wsgi.py`, since every command of `manage.py` runs its settings
and `AppConfig.ready`.
"""

import atexit
import json
import logging
from collections.abc import Callable

from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import path
from django.views.decorators.http import require_GET, require_POST
from shop import CardDeclined, answer, find_order, open_database, place_order

import zapdb

settings.configure(
    ALLOWED_HOSTS=["127.0.0.1"],
    ROOT_URLCONF=__name__,
    MIDDLEWARE=[f"{__name__}.Refusals"],
)
db = open_database()
atexit.register(db.close)


@require_POST
def create(request: HttpRequest) -> HttpResponse:
    order, card = json.loads(request.body), request.GET.get("card", "")
    placed = db.run(lambda tx: place_order(tx, order, card))
    return JsonResponse(zapdb.to_json(placed))


@require_GET
def read(request: HttpRequest, number: int) -> HttpResponse:
    with db.snapshot() as snap:
        return JsonResponse(zapdb.to_json(find_order(snap, number)))


@require_GET
def health(request: HttpRequest) -> HttpResponse:
    return JsonResponse({"position": db.position, "seen": db.admin.catalog_seq()})


class Refusals:
    """Middleware that answers for the errors of views."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        if not isinstance(error, zapdb.ZapdbError | CardDeclined):
            return None
        body, status, headers = answer(error)
        if status == 500:
            logging.getLogger("shop").error("%s failed", request.path, exc_info=error)
        return JsonResponse(body, status=status, headers=headers)


urlpatterns = [
    path("orders", create),
    path("orders/<int:number>", read),
    path("health", health),
]
application = get_wsgi_application()
