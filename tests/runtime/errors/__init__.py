"""The errors that attempts leave."""
