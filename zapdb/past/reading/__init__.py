"""The past of a database: `db.at(moment)` reads its tables as they were.

A past is read by rewinding: the present records, and for each key that was changed since, what its
first change had before it (see `zapdb.log.rewinding`). That needs the change log alone. It is
exact within a table's span, which begins with the last schema change that made other bytes of
records: their revisions say so by their layout (rule 1). Beyond the span it is refused.
"""
