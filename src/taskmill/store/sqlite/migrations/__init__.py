"""Numbered migration scripts. A released script is never edited; later changes go into a new one."""
