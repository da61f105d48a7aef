"""Readings, pressure and limits of real and of simulated machines."""
