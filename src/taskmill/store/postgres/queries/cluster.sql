-- name: enter_node
-- $2 are the types of tasks that it can run, $3 is what it has last seen of its machine.
INSERT INTO taskmill_node (name, types, machine) VALUES ($1, $2, $3) RETURNING id;

-- name: leave_node
DELETE FROM taskmill_node WHERE id = $1::bigint;

-- name: heartbeat
-- The node is alive. No row: it was taken for dead, and its tasks were given to others.
UPDATE taskmill_node SET seen_at = clock_timestamp() WHERE id = $1::bigint;

-- name: transaction_states
-- What became of the transactions whose numbers are given: [number, state] pairs.
SELECT coalesce(json_agg(json_build_array(value, pg_xact_status(value::xid8))), '[]')
FROM jsonb_array_elements_text($1::jsonb) AS given (value);

-- name: bury_nodes
-- Forget the nodes that were not seen for $1 seconds. Whoever does so is alive.
DELETE FROM taskmill_node
WHERE {is_dead}
    AND id IS DISTINCT FROM {this_node};

-- name: pulse
-- [change counter, whether a node is alive, whether one is dead]: what nodes ask all the time. $1 as in bury_nodes.
SELECT
    (SELECT last_value FROM taskmill_change),
    coalesce(bool_or(NOT {is_dead}), false),
    coalesce(bool_or({is_dead}), false)
FROM taskmill_node;

-- name: names_of_nodes
-- Of those that are alive, for people. $1 as in bury_nodes.
SELECT string_agg(name, ', ' ORDER BY id) FROM taskmill_node WHERE NOT {is_dead};

-- name: nodes_at_work
-- [id, name, since, seen, whether alive, slots, ids of what it runs] of every node that is known. $1 as in bury_nodes.
SELECT coalesce(json_agg(json_build_array(
    id, name,
    (extract(epoch FROM entered_at) * 1000)::bigint, (extract(epoch FROM seen_at) * 1000)::bigint,
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
