-- name: enter_node
-- Register a node and return its id. $2 are the task types that it can run, $3 is the last reading of its machine.
INSERT INTO taskmill_node (name, types, machine) VALUES ($1, $2, $3) RETURNING id;

-- name: stop_node
-- Mark a node as stopped. It starts nothing more, and stays alive until the handlers that did not stop in time have
-- ended.
UPDATE taskmill_node SET
    stopped = true, types = '[]',
    slots = (SELECT count(*) FROM taskmill_task WHERE status = 'running' AND node_id = $1::bigint)
WHERE id = $1::bigint;

-- name: leave_node
-- Remove a node on which nothing runs any longer. If tasks are still marked as running there, mark it as dead at once
-- instead, so that other nodes return them to the queue.
WITH unsettled AS (
    UPDATE taskmill_node SET stopped = true, seen_at = '-infinity'
    WHERE id = $1::bigint
        AND EXISTS (SELECT 1 FROM taskmill_task WHERE status = 'running' AND node_id = $1::bigint)
)
DELETE FROM taskmill_node
WHERE id = $1::bigint
    AND NOT EXISTS (SELECT 1 FROM taskmill_task WHERE status = 'running' AND node_id = $1::bigint);

-- name: heartbeat
-- Renew the lease of a node and return [was renewed, is known]. A node that is not known was declared dead, and other
-- nodes run its tasks. A node whose row is locked has a transaction in progress, and nodes that want to declare it dead
-- wait for that.
WITH own AS (
    SELECT id FROM taskmill_node WHERE id = $1::bigint FOR UPDATE SKIP LOCKED
), noted AS (
    UPDATE taskmill_node AS node SET seen_at = clock_timestamp() FROM own WHERE node.id = own.id RETURNING node.id
)
SELECT EXISTS (SELECT 1 FROM noted), EXISTS (SELECT 1 FROM taskmill_node WHERE id = $1::bigint);

-- name: last_mark
-- Return the last mark of a writer; no row if it has never committed.
SELECT mark FROM taskmill_commit WHERE writer = $1;

-- name: forget_marks
-- Delete the marks of writers that are gone. A writer that is idle for a day but alive inserts its row again.
DELETE FROM taskmill_commit WHERE made_at < clock_timestamp() - interval '1 day';

-- name: fold_tally
-- Merge the shards of the tally into shard 0. Sessions come and go, and each counts in the shard of its process id. The
-- caller holds the exclusive lock.
WITH counted AS (
    DELETE FROM taskmill_tally WHERE shard <> 0 RETURNING type, group_name, ending, ended, kept, duration_ms
)
INSERT INTO taskmill_tally AS tally (type, group_name, ending, ended, kept, duration_ms, shard)
SELECT type, group_name, ending, sum(ended), sum(kept), sum(duration_ms), 0
FROM counted GROUP BY type, group_name, ending
ON CONFLICT (type, group_name, ending, shard) DO UPDATE SET
    ended = tally.ended + excluded.ended, kept = tally.kept + excluded.kept,
    duration_ms = tally.duration_ms + excluded.duration_ms;

-- name: rows_of_load
-- Return the number of rows of the load, and true if the role of this session may merge them.
SELECT count(*), has_table_privilege('taskmill_load', 'DELETE') FROM taskmill_load;

-- name: fold_load
-- Merge the rows of the load into one for each group, type and status, and return how many these are. Do nothing if
-- another node is merging. Rows that other transactions append meanwhile are not visible here, and stay.
WITH counted AS (
    DELETE FROM taskmill_load
    WHERE (SELECT pg_try_advisory_xact_lock((1952541547::bigint << 32) | 'taskmill_load'::regclass::oid::bigint))
    RETURNING group_name, type, status, tasks
), folded AS (
    INSERT INTO taskmill_load (group_name, type, status, tasks)
    SELECT group_name, type, status, sum(tasks) FROM counted
    GROUP BY group_name, type, status HAVING sum(tasks) <> 0
    RETURNING 1
)
SELECT count(*) FROM folded;

-- name: transaction_states
-- Return [number, state] of the transactions with the given numbers.
SELECT json_list(json_row(value, pg_xact_status(value::xid8)))
FROM jsonb_array_elements_text($1::jsonb) AS given (value);

-- name: is_abandoned
-- True if the session with the given process id, or the given name behind a pooler, is gone, has been idle for $3
-- seconds, or is blocked sending its answer. If the server does not show the session's state, it counts as working.
SELECT NOT EXISTS (
    SELECT 1 FROM pg_stat_activity
    WHERE (pid = $1::bigint OR application_name = $2::text)
        AND (state LIKE 'idle%' AND state_change < clock_timestamp() - make_interval(secs => $3::float8)) IS NOT TRUE
        AND wait_event IS DISTINCT FROM 'ClientWrite');

-- name: bury_nodes
-- Delete the nodes that have left, or were not seen for $1 seconds, except this node. Mark the tasks of nodes that had
-- stopped gracefully with node 0, because no crash ended them. Return [id, name, has died] of each.
WITH dead AS (
    DELETE FROM taskmill_node
    WHERE {is_dead}
        AND id IS DISTINCT FROM {this_node}
    RETURNING id, name, stopped, seen_at
), marked AS (
    UPDATE taskmill_task AS t SET node_id = 0
    FROM dead
    WHERE dead.stopped AND t.status = 'running' AND t.node_id = dead.id
)
SELECT json_list(json_row(id, name, NOT stopped AND seen_at <> '-infinity') ORDER BY id) FROM dead;

-- name: news
-- Return [change counter, ids of live nodes, is any node dead, has any node left]. Every node runs this once per
-- heartbeat. $1 as in bury_nodes.
SELECT
    (SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM taskmill_change),
    coalesce(json_agg(id) FILTER (WHERE NOT {is_dead}), '[]')::text,
    coalesce(bool_or({is_dead}), false),
    coalesce(bool_or(seen_at = '-infinity'), false)
FROM taskmill_node;

-- name: has_orphans
-- True if a task is marked as running without a known node. No node leaves such tasks behind, but a restored backup
-- can.
SELECT EXISTS (
    SELECT 1 FROM taskmill_task AS t
    WHERE status = 'running' AND NOT EXISTS (SELECT 1 FROM taskmill_node AS node WHERE node.id = t.node_id));

-- name: names_of_nodes
-- Return the names of the live nodes, for messages. $1 as in bury_nodes.
SELECT string_agg(name, ', ' ORDER BY id) FROM taskmill_node WHERE NOT {is_dead};

-- name: any_node_is_alive
-- True if some node is alive. $1 as in bury_nodes.
SELECT EXISTS (SELECT 1 FROM taskmill_node WHERE NOT {is_dead});

-- name: nodes_at_work
-- Return [id, name, entered at, last seen, is alive, slots, ids of its running tasks] of every known node. $1 as in
-- bury_nodes. For a node that has left, the last heartbeat is lost; entered_at takes its place.
SELECT json_list(json_row(
    id, name,
    (extract(epoch FROM entered_at) * 1000)::bigint,
    (extract(epoch FROM CASE WHEN seen_at = '-infinity' THEN entered_at ELSE seen_at END) * 1000)::bigint,
    NOT {is_dead}, slots,
    (
        SELECT json_list(task.id ORDER BY task.id) FROM taskmill_task AS task
        WHERE task.status = 'running' AND task.node_id = node.id)
    ) ORDER BY id)
FROM taskmill_node AS node;

-- name: health_of_nodes
-- Return {alive: names, dead: names, without_node: number of running tasks without a known node}. $1 as in bury_nodes.
SELECT json_build_object(
    'alive', (SELECT json_list(name ORDER BY id) FROM taskmill_node WHERE NOT {is_dead}),
    'dead', (SELECT json_list(name ORDER BY id) FROM taskmill_node WHERE {is_dead}),
    'without_node', (
        SELECT count(*) FROM taskmill_task
        WHERE status = 'running' AND NOT EXISTS (SELECT 1 FROM taskmill_node WHERE id = node_id)));

-- name: machines
-- Return [node, last reading of its machine] of every node that is not dead; $1 as in bury_nodes.
SELECT json_list(json_row(id, machine) ORDER BY id) FROM taskmill_node WHERE NOT {is_dead};

-- name: last_given_id
SELECT {last_id};
