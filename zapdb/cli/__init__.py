"""The command line: one file for each group of commands; nothing else imports it.

Every command ends with 0 (done), 1 (an error), 2 (wrong usage) or 3 (something is pending), and
writes JSON with `--json`. Errors go to standard error, with the place in the file and a hint.
What is written to anything but a terminal is plain text.
"""

from zapdb.cli.program import app, main

__all__ = ["app", "main"]
