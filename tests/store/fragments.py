"""Names of statements that are assembled when they are used, and of the fragments they are made of.

None of them can be planned by itself. They are the same on both engines.
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
    "tag_values_unexpired",
    "with_expired",
}
