"""Simulations and forecasts, compared with what really happens."""
