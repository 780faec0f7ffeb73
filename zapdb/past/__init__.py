"""The past: `files` is the history store, `reading` is what `db.at(moment)` reads, and how."""
