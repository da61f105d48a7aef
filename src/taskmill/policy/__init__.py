"""Decisions: pure functions of values. ``now`` and randomness are parameters; nothing here touches the world."""
