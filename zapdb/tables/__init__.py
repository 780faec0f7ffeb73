"""Tables that are read and written, through one session.

indexes    keys, entries, and the plans of queries
writes     a write is planned as a value, then executed
queries    conditions, pages, aggregates, explanations
"""
