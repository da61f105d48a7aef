"""Telling: events and logging. Nothing here may slow the loop."""
