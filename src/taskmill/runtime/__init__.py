"""Run tasks: the dispatch loop, attempts, upkeep, recovery, shutdown. It uses the ports of ``core``, and no adapter."""
