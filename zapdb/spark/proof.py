"""What tasks that read and write prove before they begin, as those of jobs do (rule 32).

A task opens the database by its address, which on another machine may lead to another one, and it
opens it later than the driver, when migrations may have been rolled back.
"""

from __future__ import annotations

from dataclasses import dataclass

from zapdb.activation import TenantCatalog
from zapdb.errors import ExecutorMismatch
from zapdb.migrations.chain import digest_chain
from zapdb.spark.kept_open import read_database_id
from zapdb.storage import Connection


@dataclass(frozen=True, slots=True)
class SameDatabase:
    """The database of the driver, and the digest of its migrations up to the tenant's position."""

    database: str
    position: int
    chain: str

    @classmethod
    def of(cls, connection: Connection, catalog: TenantCatalog) -> SameDatabase:
        chain = digest_chain(catalog.chain, catalog.position)
        return cls(read_database_id(connection), catalog.position, chain)

    def check(self, connection: Connection, catalog: TenantCatalog) -> None:
        """Raise `ExecutorMismatch` for another database, or one with other migrations. Those that
        were applied since are no reason: who reads or writes looks at the columns."""
        number = read_database_id(connection)
        if number != self.database:
            raise ExecutorMismatch(
                "the address leads this process to another database than the driver",
                here=number,
                driver=self.database,
                hint="give an address that all machines of the cluster understand: with the host "
                "of the database, not localhost",
            )
        chain = digest_chain(catalog.chain, self.position)
        if catalog.position < self.position or chain != self.chain:
            raise ExecutorMismatch(
                "this process has another chain of migrations than the driver had",
                position=catalog.position,
                expected=self.position,
                chain=chain,
                driver=self.chain,
                hint="a migration was rolled back meanwhile: load the table again",
            )
