"""The SQL store code that both engines share: which statements run, in which order, and what their results mean."""
