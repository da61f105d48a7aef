"""The SQLite store: one database file, used by any number of processes, of which one dispatches."""
