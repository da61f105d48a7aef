"""Declarative cron, decided: which minutes an expression means, and when a declared task is to run.

``syntax`` reads expressions, ``matching`` finds matching minutes on the calendar, ``instants`` places them on the
line of time in a zone, ``expression`` offers that to users and ``words`` says it in English. ``registrations``
judges what a program declares, ``reconciling`` compares it with what is stored, ``decisions`` says what is due and
what a run leaves behind, and ``agenda`` remembers who is next.
"""
