"""Statements that are put together when they are asked for, and the fragments they are made of.

None of them can be planned by itself. Both engines have the same.
"""

FRAGMENTS = {
    "active_rows",
    "history_rows",
    "active_counts",
    "shown_status",
    "among_ids",
    "expired_among",
    "expired_waiting",
    "has_expired",
    "with_expired",
}
