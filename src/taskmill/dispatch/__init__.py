"""Which waiting task starts next: pure and incremental, without a clock, a store or a thread."""
