"""Measure the machine: samplers, and the watch that polls them and the pressure sources.

Classes that need psutil (the extra ``monitor``) import it when they are created, and raise an error if it is missing.
"""
