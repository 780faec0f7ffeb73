"""What zapdb is compared with in `tests.bench.operations`: the same table, elsewhere."""

from tests.bench.contestants.base import Contestant, Reader
from tests.bench.contestants.of_django import OfDjango
from tests.bench.contestants.of_drivers import OfDriver, OfMsgspec
from tests.bench.contestants.of_peewee import OfPeewee
from tests.bench.contestants.of_sqlalchemy import OfCore, OfOrm
from tests.bench.contestants.of_zapdb import OfZapdb

__all__ = [
    "Contestant",
    "OfCore",
    "OfDjango",
    "OfDriver",
    "OfMsgspec",
    "OfOrm",
    "OfPeewee",
    "OfZapdb",
    "Reader",
]
