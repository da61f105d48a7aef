"""The PostgreSQL store: one database, any number of nodes, all of which dispatch (docs/decisions/0020)."""
