"""Interpreters, packages and workflows: what a release is made of."""
