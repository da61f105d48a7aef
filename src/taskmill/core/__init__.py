"""Ports and the adapters that every room may use: the system clock, the time zone of the host, loggers."""
