"""What the machine is doing: samplers and sources of pressure, and the watch that asks them.

Everything that needs psutil (the extra ``monitor``) loads it when it is made, and says so where it is missing.
"""
