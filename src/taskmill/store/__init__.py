"""Stores: they look, claim and commit. They decide nothing."""
