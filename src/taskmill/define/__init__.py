"""The front door: domains, task types, handler signatures, and how their options become one task's settings."""
