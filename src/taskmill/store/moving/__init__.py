"""Moving a queue from one store to another: it is copied and compared, and never usable in both."""
