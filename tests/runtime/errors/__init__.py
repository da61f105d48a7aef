"""The stored errors of attempts."""
