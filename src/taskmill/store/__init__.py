"""Stores: they read, claim and commit rows. The rules are in ``policy``."""
