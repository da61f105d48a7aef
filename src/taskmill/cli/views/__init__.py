"""Views of the command line: tables of groups and tasks, live views on a terminal, lines for pipes."""
