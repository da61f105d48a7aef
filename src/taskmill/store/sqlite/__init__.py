"""The SQLite store: one file, any number of processes, one of which dispatches."""
