"""Life: the loop, running attempts, finishing, upkeep, recovery, shutdown. It knows sockets, not adapters."""
