"""The processes in which statements run: one keeper for each process that asks, and a process for
each statement, forked by the keeper.

They import DuckDB, Arrow and the standard library, nothing of zapdb: they have no database, no
address and no password. The modules are loaded by path, as a package of another name, and import
each other relatively.
"""
