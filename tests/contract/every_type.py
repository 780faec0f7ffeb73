"""Tables with a field of every type, references in circles, large values and stale records."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from tests.support import Workspace
from zapdb.database import Database
from zapdb.migrations.boundary_values import field_values
from zapdb.schema import Field

TYPES = (
    "create_type: {type: state, enum: [waiting, paid, sent]}",
    """create_type:
      type: address
      struct:
        - {name: lines, type: list, of: string}
        - {name: country, type: string, optional: true}
        - {name: since, type: zoned_timestamp, optional: true}""",
)
TABLES = (
    """create_table:
      table: customers
      key: [country, number]
      fields:
        - {name: country, type: string}
        - {name: number, type: integer}
        - {name: home, type: address}""",
    """create_table:
      table: orders
      key: [id]
      fields:
        - {name: id, type: integer}
        - {name: customer, type: reference, to: customers}
        - {name: parent, type: reference, to: orders, optional: true}
        - {name: count, type: integer}
        - {name: price, type: decimal, scale: 2}
        - {name: paid, type: boolean}
        - {name: weight, type: float}
        - {name: day, type: date}
        - {name: at, type: timestamp}
        - {name: pickup, type: zoned_timestamp, optional: true}
        - {name: note, type: string, optional: true}
        - {name: photo, type: binary}
        - {name: extra, type: json}
        - {name: token, type: uuid}
        - {name: state, type: state, default: waiting}
        - {name: prices, type: list, of: {type: decimal, scale: 2}}
        - {name: fax, type: string, default: none}""",
    """add_field:
      table: customers
      field: {name: latest, type: reference, to: orders, optional: true}""",
)
INDEXES = (
    "create_index: {table: orders, index: by_state, fields: [{field: state}, {field: day}]}",
    """create_index:
      {table: orders, index: by_token, fields: [{field: token}, {field: id}], unique: true}""",
    """create_index:
      {table: orders, index: by_note, fields: [{field: note, collation: {locale: und}}]}""",
    "create_index: {table: orders, index: by_customer, fields: [{field: customer}]}",
    "create_index: {table: orders, index: by_parent, fields: [{field: parent}]}",
    "create_index: {table: customers, index: by_latest, fields: [{field: latest}]}",
    "add_reference: {table: orders, field: customer, on_delete: restrict}",
    "add_reference: {table: orders, field: parent, on_delete: set_null}",
    "add_reference: {table: customers, field: latest, on_delete: set_null}",
)
LATER = (
    "rename_field: {table: orders, field: count, to: amount}",
    "drop_field: {table: orders, field: fax, restore: {archive: true, otherwise: {value: none}}}",
    "add_field: {table: orders, field: {name: color, type: string, default: red}}",
)


def make_shop(workspace: Workspace, *, orders: int = 120, long: bool = True) -> Database:
    """A database with such tables; half of the orders were written before the last migration.

    With `long`, some numbers exceed 64 bits and 38 digits.
    """
    workspace.write(1, *TYPES, *TABLES, name="shop")
    workspace.write(2, *INDEXES, name="indexes")
    db = workspace.open()
    customers = db.table("customers")
    for number in range(10):
        home = {"lines": [f"Street {number}", "Häuser\n"], "country": None, "since": None}
        customers.insert(country="at" if number % 2 else "b\\e", number=number, home=home)
    fill(db, range(orders // 2), long=long)
    workspace.write(3, *LATER, name="later")
    db.close()
    db = workspace.open()
    fill(db, range(orders // 2, orders), long=long)
    for number in range(10):
        key = ("at" if number % 2 else "b\\e", number)
        db.table("customers").update(*key, latest=orders - 1 - number)
    db.admin.run_jobs(kinds=("index", "validate"))
    return db


def fill(db: Database, numbers: range, *, long: bool = True) -> None:
    """Orders of these numbers, with the boundary values of each type in turn; each refers to the
    one after it, if that is there."""
    orders = db.table("orders")
    fields = db._catalog.table("orders").schema.fields
    choices = {f.name: list(_choices(f, long=long)) for f in fields if f.name not in REFERENCES}
    rows = list[dict[str, Any]]()
    for number in numbers:
        values = {name: found[number % len(found)] for name, found in choices.items()}
        customer = number % 10
        country = "at" if customer % 2 else "b\\e"
        rows.append(values | {"id": number, "customer": (country, customer)})
    orders.insert_many(rows)
    with db.transaction() as tx:
        for number in numbers[:-1]:
            tx.table("orders").update(number, parent=number + 1)


REFERENCES = ("id", "customer", "parent")


def _choices(field: Field, *, long: bool) -> Iterator[Any]:
    for value in field_values(field):
        numbers = value if isinstance(value, list) else [value]
        is_long = any(isinstance(n, int | Decimal) and abs(n) >= 2**63 for n in numbers)
        if long or not is_long:
            yield value
