"""The cluster: the processes that have the database open, their leases, and their level."""

from zapdb.catalog.cluster.bootstrap import ensure_database

__all__ = ["ensure_database"]
