-- name: enter_node
-- $2 are the types of tasks that it can run, $3 is what it has last seen of its machine.
INSERT INTO taskmill_node (name, types, machine) VALUES ($1, $2, $3) RETURNING id;

-- name: stop_node
-- It begins nothing any longer, and is alive until the handlers have ended that would not stop.
UPDATE taskmill_node SET
    stopped = true, types = '[]',
    slots = (SELECT count(*) FROM taskmill_task WHERE status = 'running' AND node_id = $1::bigint)
WHERE id = $1::bigint;

-- name: leave_node
-- Nothing runs there any longer. If tasks are still marked as running there, the others return them: it is dead at once.
WITH unsettled AS (
    UPDATE taskmill_node SET stopped = true, seen_at = '-infinity'
    WHERE id = $1::bigint
        AND EXISTS (SELECT 1 FROM taskmill_task WHERE status = 'running' AND node_id = $1::bigint)
)
DELETE FROM taskmill_node
WHERE id = $1::bigint
    AND NOT EXISTS (SELECT 1 FROM taskmill_task WHERE status = 'running' AND node_id = $1::bigint);

-- name: heartbeat
-- The node is alive: [whether that was noted, whether it is known]. One that is not was taken for dead, and its tasks were
-- given to others. One whose row is locked has a transaction under way, and others who would bury it wait for that.
WITH own AS (
    SELECT id FROM taskmill_node WHERE id = $1::bigint FOR UPDATE SKIP LOCKED
), noted AS (
    UPDATE taskmill_node AS node SET seen_at = clock_timestamp() FROM own WHERE node.id = own.id RETURNING node.id
)
SELECT EXISTS (SELECT 1 FROM noted), EXISTS (SELECT 1 FROM taskmill_node WHERE id = $1::bigint);

-- name: last_mark
-- Of a writer. None: it has never committed.
SELECT mark FROM taskmill_commit WHERE writer = $1;

-- name: forget_marks
-- Of writers that are gone. One that was silent for so long and is not makes its row anew.
DELETE FROM taskmill_commit WHERE made_at < clock_timestamp() - interval '1 day';

-- name: fold_tally
-- Sessions come and go, and each counts in rows of its own: what they have counted becomes one row again. Nobody else
-- counts meanwhile.
WITH counted AS (
    DELETE FROM taskmill_tally WHERE shard <> 0 RETURNING type, group_name, ending, ended, kept, duration_ms
)
INSERT INTO taskmill_tally AS tally (type, group_name, ending, ended, kept, duration_ms, shard)
SELECT type, group_name, ending, sum(ended), sum(kept), sum(duration_ms), 0
FROM counted GROUP BY type, group_name, ending
ON CONFLICT (type, group_name, ending, shard) DO UPDATE SET
    ended = tally.ended + excluded.ended, kept = tally.kept + excluded.kept,
    duration_ms = tally.duration_ms + excluded.duration_ms;

-- name: transaction_states
-- What became of the transactions whose numbers are given: [number, state] pairs.
SELECT coalesce(json_agg(json_build_array(value, pg_xact_status(value::xid8))), '[]')
FROM jsonb_array_elements_text($1::jsonb) AS given (value);

-- name: works_for_nobody
-- Whether the session of that number, or of that name behind a pooler, is gone, has done nothing for $3 seconds, or cannot
-- get rid of its answer. If the server does not say what it is at, it is at work.
SELECT NOT EXISTS (
    SELECT 1 FROM pg_stat_activity
    WHERE (pid = $1::bigint OR application_name = $2::text)
        AND (state LIKE 'idle%' AND state_change < clock_timestamp() - make_interval(secs => $3::float8)) IS NOT TRUE
        AND wait_event IS DISTINCT FROM 'ClientWrite');

-- name: bury_nodes
-- Forget the nodes that have left, or were not seen for $1 seconds. Whoever does so is alive. What ran on those that had
-- stopped in order is marked, since no crash has ended it. Answers with the names of the others.
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
SELECT coalesce(json_agg(name ORDER BY id) FILTER (WHERE NOT stopped AND seen_at <> '-infinity'), '[]') FROM dead;

-- name: pulse
-- [change counter, ids of the nodes that are alive, whether one is dead, whether one has left]: what nodes ask all the time.
-- $1 as in bury_nodes.
SELECT
    (SELECT last_value FROM taskmill_change),
    coalesce(json_agg(id) FILTER (WHERE NOT {is_dead}), '[]')::text,
    coalesce(bool_or({is_dead}), false),
    coalesce(bool_or(seen_at = '-infinity'), false)
FROM taskmill_node;

-- name: has_orphans
-- Whether tasks are marked as running under a node that nobody knows, or none: no node leaves them like that, but they may
-- come from a backup.
SELECT EXISTS (
    SELECT 1 FROM taskmill_task AS t
    WHERE status = 'running' AND NOT EXISTS (SELECT 1 FROM taskmill_node AS node WHERE node.id = t.node_id));

-- name: names_of_nodes
-- Of those that are alive, for people. $1 as in bury_nodes.
SELECT string_agg(name, ', ' ORDER BY id) FROM taskmill_node WHERE NOT {is_dead};

-- name: nodes_at_work
-- [id, name, since, seen, whether alive, slots, ids of what it runs] of every node that is known. $1 as in bury_nodes. When
-- one was seen that has left is not known any longer.
SELECT coalesce(json_agg(json_build_array(
    id, name,
    (extract(epoch FROM entered_at) * 1000)::bigint,
    (extract(epoch FROM CASE WHEN seen_at = '-infinity' THEN entered_at ELSE seen_at END) * 1000)::bigint,
    NOT {is_dead}, slots,
    (
        SELECT coalesce(json_agg(task.id ORDER BY task.id), '[]') FROM taskmill_task AS task
        WHERE task.status = 'running' AND task.node_id = node.id)
    ) ORDER BY id), '[]')
FROM taskmill_node AS node;

-- name: health_of_nodes
-- {alive, dead: names, without_node: how many tasks run under no node}. $1 as in bury_nodes.
SELECT json_build_object(
    'alive', (SELECT coalesce(json_agg(name ORDER BY id), '[]') FROM taskmill_node WHERE NOT {is_dead}),
    'dead', (SELECT coalesce(json_agg(name ORDER BY id), '[]') FROM taskmill_node WHERE {is_dead}),
    'without_node', (
        SELECT count(*) FROM taskmill_task
        WHERE status = 'running' AND NOT EXISTS (SELECT 1 FROM taskmill_node WHERE id = node_id)));

-- name: elsewhere
-- What others are at; $1 are our slots, which they are to know.
WITH {own_slots}
SELECT {others_at_work};

-- name: other_nodes
-- Whether other nodes dispatch.
SELECT EXISTS (
    SELECT 1 FROM taskmill_node WHERE id IS DISTINCT FROM {this_node});

-- name: preemption
-- [[id, urgency, started_at, aged from, node, asked to stop] of all that runs, [id, slots, types] of nodes that begin tasks,
-- this node, those of the given tasks that wait].
SELECT json_build_array(
    (
        SELECT coalesce(json_agg(json_build_array(
            id, urgency, started_at, coalesce(renewed_at, queued_at), coalesce(node_id, 0),
            stop IS NOT NULL OR preempted > 0) ORDER BY id), '[]')
        FROM taskmill_task WHERE status = 'running'
    ),
    (
        SELECT coalesce(json_agg(json_build_array(id, slots, types::json) ORDER BY id), '[]')
        FROM taskmill_node WHERE NOT stopped
    ),
    {this_node},
    (
        SELECT coalesce(json_agg(id ORDER BY id), '[]') FROM taskmill_task
        WHERE id = ANY (taskmill_ids($1)) AND status = 'pending' AND stop IS NULL
    )
);

-- name: ask_to_make_way
-- Mark running tasks that are to be preempted, on whichever node they run.
UPDATE taskmill_task SET preempted = 1 WHERE id = ANY (taskmill_ids($1)) AND status = 'running';
