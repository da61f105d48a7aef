"""Readings, pressure and limits of real and of imagined machines."""
