"""Measure the machine: samplers, pressure sources, and the watch that polls them.

Classes that need psutil (the extra ``monitor``) import it when they are created, and raise an error if it is missing.
"""
