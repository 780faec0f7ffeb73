"""The accelerator against the generated Python, which is the definition.

`codecs` makes both of a table, `edges` enumerates bytes at every boundary, `samples` draws tables,
records and damage. `python -m tests.native` runs them over any build of the accelerator.
"""
