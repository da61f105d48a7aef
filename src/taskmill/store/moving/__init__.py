"""A queue moves from one store to another: copied, compared, and never alive in both."""
