"""Running handlers: on the loop, in threads, in processes. No policy here: whatever happens becomes an outcome."""
