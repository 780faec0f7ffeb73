"""The processes in which others' work runs: one keeper for each kind of work in each process that
asks, and a process for each piece, forked by the keeper.

They have no database, no address and no password. The modules are loaded by path, as a package of
another name, and import each other relatively: those of a statement import DuckDB, Arrow and the
standard library, and nothing of zapdb.
"""
