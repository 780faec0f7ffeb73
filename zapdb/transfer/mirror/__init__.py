"""Mirrors: plain tables of the current state in another database, kept by the change log."""
