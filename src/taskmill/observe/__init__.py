"""Events, logging and counters. Nothing here may slow down the event loop."""
