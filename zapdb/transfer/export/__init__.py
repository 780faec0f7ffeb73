"""Data out: whole tenants as directories of files, and as plain tables of other databases."""
