"""Behaviour on other operating systems, simulated on this one (docs/explanation/platforms.md)."""
