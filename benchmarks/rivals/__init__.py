"""taskmill beside other queues, on the same workloads (``python -m benchmarks.rivals``).

Each contestant runs in a fresh process: ``python -m benchmarks.rivals.program huey_queue drain FILE 2000 8`` prints one
number. Three workloads:

* ``drain``: a full queue of tasks that do nothing is emptied; tasks per second.
* ``submit``: one caller adds tasks one after the other, each stored before the next; tasks per second.
* ``latency``: from the call that adds a task to the start of its handler, while the queue is idle; median milliseconds.
"""
