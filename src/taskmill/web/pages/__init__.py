"""The parts of the page, one module each: functions that take the backend and a checked request."""
