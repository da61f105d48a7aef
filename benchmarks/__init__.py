"""Ratios against raw SQLite and a rival, and a few absolute promises, measured in one run."""
