"""Domains, task types and handler signatures, and how their options become the settings of one task."""
