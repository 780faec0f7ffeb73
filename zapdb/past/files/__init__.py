"""The history store: a tenant's past in Parquet files, written behind the change log.

A table's history is a row of *eras*: a checkpoint, which is the table at the era's beginning, and
the changes since, in segments. `history_manifest` has the rows that say which files hold what;
`file_columns` what is in a file, `history_file` how one is written; `follower` reads the change log
and writes segments, `baseline` writes the checkpoints of tables that were there before. Whatever
makes new files of old ones does it by `rewriting`: `merging`, `cutting`, `erased_files`.
"""
