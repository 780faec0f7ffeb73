"""Copies of whole databases: from others (`inference`), as files (`export`), beside (`mirror`)."""
