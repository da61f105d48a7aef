"""The PostgreSQL store: one database, any number of nodes, all of which dispatch (docs/decisions/0020).

**Nodes.** A node is one running scheduler. It is a row of ``taskmill_node``, and the tasks that it claims carry the id
of that row. Liveness is judged by the clock of the server, so the clocks of nodes need not agree.

**States of a node**::

    alive ---------------> dead ---> recovered
     | ^                   ^  ^
     | +---> cut off ------+  |
     v                        | if tasks are still marked as running there
    stopped ------> left -----+

*Alive.* A thread with its own connection sends a heartbeat about once a second, whatever the event loop and the writer
are doing. Each heartbeat renews the node's lease of 30 seconds.

*Cut off.* The node could not renew its lease for two thirds of it (20 seconds), measured with a local clock that also
runs while the machine is suspended. Other nodes may soon declare it dead and run its tasks. So it stops its handlers
and starts nothing more, to keep tasks from running on two nodes at once. The stopped attempts do not use a retry. The
next successful heartbeat makes the node alive again.

*Stopped.* The node was shut down gracefully, but a handler did not stop in time. It starts nothing more, and sends
heartbeats until the last handler has ended.

*Left.* Nothing runs on the node any longer, and its row is deleted. If tasks are still marked as running there, the row
stays with ``seen_at = '-infinity'`` instead, which makes the node dead at once.

*Dead.* The node was not seen for a whole lease in which the server was up: its process was killed, suspended or cut
off. Other nodes check this with each heartbeat. A node that had lost the server itself declares no other dead
for a whole lease after it reconnects: the others may have lost the server too.

*Recovered.* A live node deletes the row of the dead one and returns its tasks to the queue, in one exclusive
transaction. The tasks do not use a retry, but each counts one crash; a task with three crashes becomes a dead letter.
Tasks of a node that had stopped, or left, count none.

**Fencing.** Each claim increments the attempt number of the task. Results, progress and saved state name their attempt,
so a node that was declared dead but is still running cannot change tasks that it has lost. A node without a row cannot
claim either. Its next heartbeat finds that the row is gone; the node then registers again, under a new id.

The node's own view of its lease is in ``lease.py``, heartbeats and notifications in ``heartbeat.py``, the content of
notifications in ``news.py``, and the statements in ``cluster.sql``.
"""
