"""Run handlers on the event loop, in threads and in processes. No policy: every result becomes an outcome."""
