"""Tables rewound to a past moment, and the session that all that reads them works in.

The session binds tables to their schemas of then, and to a source of records that is rewound. Above
it, queries, SQL and Arrow are those of the present. It reads the catalog of now, and looks at the
obstacles again whenever that changes: what could be rewound yesterday may be out of reach today.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from zapdb import release
from zapdb.activation import TableDescriptor, TenantCatalog
from zapdb.activation.descriptors import IndexDescriptor
from zapdb.database.changes import reading_log
from zapdb.database.history.moment import open_moments, require_kept
from zapdb.database.history.schema_then import SchemaThen, TableThen, read_schema_then
from zapdb.database.session import Session, TableRead
from zapdb.errors import HistoryBehind, UsageError
from zapdb.formats import newest
from zapdb.indexes import BoundTable, make_reader
from zapdb.indexes.bound_table import NOT_STORED
from zapdb.indexes.maintenance import open_maintainer
from zapdb.indexes.schema_adapter import SchemaAdapter
from zapdb.records import codec_for
from zapdb.schema import TableSchema
from zapdb.storage import Connection, RecordStatements, Storage
from zapdb.storage.moments import LoggedMoment
from zapdb.storage.rewinding import rewound_sql

T = TypeVar("T")


class RewoundAdapter(SchemaAdapter):
    """Reads by the schema of a past moment, whose records have the bytes of the present schema."""

    is_current = False

    def __init__(self, bound: BoundTable, schema: TableSchema) -> None:
        catalog = bound.catalog
        self.bound = bound
        self.position = catalog.position
        self.schema = schema
        self.codec = codec_for(schema, catalog.zones)
        self.reader = make_reader(
            bound.storage,
            catalog,
            bound.descriptor,
            catalog.position,
            NOT_STORED,
            self.codec.decode,
        )
        # No index has the entries of then, so what is read by one is scanned.
        self.indexes = tuple(
            open_maintainer(
                schema,
                IndexDescriptor(
                    index,
                    schema.datasets_of(index),
                    "building",
                    0,
                    0,
                    newest("key", release.LEVEL),
                    {},
                ),
                bound.records,
            )
            for index in schema.indexes
        )
        self._name_fields()


class RewoundTable(BoundTable):
    """A table at a past moment: its schema of then, and its records, rewound."""

    def __init__(
        self,
        storage: Storage,
        catalog: TenantCatalog,
        descriptor: TableDescriptor,
        schema: TableSchema,
        source: str,
    ) -> None:
        super().__init__(storage, catalog, replace(descriptor, indexes=()))
        number = descriptor.schema.number
        self.records = RecordStatements(storage, number, catalog.tenant, source)
        self.adapter = RewoundAdapter(self, schema)


class PastSession(Session):
    """A session that reads a past moment, each time in a snapshot of its own, and writes nothing.

    It has a tenant catalog of its own. In a snapshot it reads as of that, and refuses a moment that
    is later.
    """

    shows_catalog = False

    def __init__(self, session: Session, moment: LoggedMoment) -> None:
        super().__init__(session.storage, session.catalog, session.node)
        self.is_read_only = True
        self.moment = moment
        self._moments = open_moments(session)
        with reading_log(session) as connection:
            require_kept(self._moments, connection, moment)
            self._later = self._moments.find_later(connection, moment)
        self._then: tuple[TenantCatalog, SchemaThen] | None = None
        self._rewound: dict[int, RewoundTable] = {}

    @property
    def then(self) -> SchemaThen:
        """The tables at the moment, by what is known now."""
        catalog, known = self.catalog, self._then
        if known is not None and known[0] is catalog:
            return known[1]
        with reading_log(self) as connection:
            self._require_visible(connection)
            then = read_schema_then(connection, catalog, self.moment.number, self._later)
        self._then = (catalog, then)
        return then

    @property
    def table_names(self) -> tuple[str, ...]:
        return tuple(self.then.tables)

    def bind_served(self, name: str) -> BoundTable:
        return self._rewind(self.then.table(name))

    def bind_numbered(self, number: int, name: str) -> BoundTable:
        return self._rewind(self.then.table_numbered(number, name))

    def _rewind(self, then: TableThen) -> BoundTable:
        catalog, number = self.catalog, then.schema.number
        known = self._rewound.get(number)
        if known is not None and known.catalog is catalog:
            return known
        source = rewound_sql(
            catalog.tenant, number, self._later, is_numbered=self._moments.log.is_numbered
        )
        descriptor = catalog.table_numbered(number, then.schema.name)
        made = RewoundTable(self.storage, catalog, descriptor, then.schema, source)
        self._rewound[number] = made
        return made

    def _read_active(self, bound: BoundTable, read: TableRead[T]) -> tuple[BoundTable, T]:
        found = super()._read_active(bound, read)
        connection = self.storage.connection()
        require_kept(self._moments, connection, self.moment)
        self._require_visible(connection)
        return found

    def _require_visible(self, connection: Connection) -> None:
        """Raise `HistoryBehind` in a snapshot that is earlier than the moment."""
        if self._moments.find_newest(connection).number < self.moment.number:
            raise HistoryBehind(
                "the moment is later than the snapshot in which it is read",
                moment=self.moment.number,
                hint="read it outside of the snapshot",
            )

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        raise UsageError(
            "the past can't be changed",
            moment=self.moment.number,
            hint="write through db.table(…); the change is another moment",
        )
        yield
