"""The change log: what each transaction did to which records, in an order that never changes.

pending_changes   what an open transaction has changed, written at its end
stamps, moments   the order of transactions that every reader sees, and their times
change_log        reading in that order, from a bookmark on
rewinding         records as they were, by what the log has before each change
"""
