"""Decisions as pure functions of values. ``now`` and randomness are parameters; nothing here does I/O."""
