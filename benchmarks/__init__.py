"""Ratios against raw SQLite and other queues, and a few absolute targets, measured in one run."""
