"""Declarative cron: which minutes an expression matches, and when a declared cron task runs.

``syntax`` parses expressions, ``matching`` finds matching minutes on the calendar, ``instants`` maps them to instants
in a time zone, and ``expression`` is the public class, which also describes itself in English. ``registrations``
checks the cron tasks that a program declares and reconciles them with the stored state. ``decisions`` computes what is
due and the state after a run, and keeps the cron tasks in the order of their next instants.
"""
