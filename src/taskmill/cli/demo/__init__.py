"""The workload of ``taskmill demo``: what it submits, how it runs, and how the result is checked."""
