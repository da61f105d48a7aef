"""Simulating a queue: the planner of the dispatcher on a virtual clock, with tasks in memory (docs/decisions/0037)."""
