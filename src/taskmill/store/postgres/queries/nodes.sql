-- name: enter_node
INSERT INTO taskmill_node (name) VALUES ($1) RETURNING id;

-- name: leave_node
DELETE FROM taskmill_node WHERE id = $1::bigint;

-- name: heartbeat
-- The node is alive. No row: it was taken for dead, and its tasks were given to others.
UPDATE taskmill_node SET seen_at = clock_timestamp() WHERE id = $1::bigint;

-- name: bury_nodes
-- Forget the nodes that were not seen for $1 seconds.
DELETE FROM taskmill_node WHERE seen_at < clock_timestamp() - make_interval(secs => $1::float8);

-- name: pulse
-- [change counter, whether a node is alive, whether one is dead]: what nodes ask all the time. $1 as in bury_nodes.
SELECT
    (SELECT last_value FROM taskmill_change),
    coalesce(bool_or(seen_at >= clock_timestamp() - make_interval(secs => $1::float8)), false),
    coalesce(bool_or(seen_at < clock_timestamp() - make_interval(secs => $1::float8)), false)
FROM taskmill_node;
