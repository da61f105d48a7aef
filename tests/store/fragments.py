"""Statements that are put together when they are asked for, and the fragments they are made of.

None of them can be planned by itself. Both engines have the same.
"""

FRAGMENTS = {
    "active_rows",
    "history_rows",
    "shown_status",
    "plain_status",
    "among_ids",
    "expired_active",
    "key_held",
    "key_given_up",
    "key_of_ended",
    "expired_among",
    "expired_load",
    "has_expired",
    "with_expired",
}
