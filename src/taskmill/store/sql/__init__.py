"""A store in SQL, whichever engine runs it: what is asked, in which order, and what the answers mean."""
