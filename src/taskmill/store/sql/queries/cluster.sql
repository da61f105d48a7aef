-- name: elsewhere
-- Return the load of other nodes.
-- sqlite:
SELECT {others_at_work};
-- postgres: and store the number of slots here, $1, for them.
WITH {own_slots}
SELECT {others_at_work};

-- name: other_nodes
-- True if there are other nodes.
-- sqlite:
SELECT false;
-- postgres:
SELECT EXISTS (
    SELECT 1 FROM taskmill_node WHERE id IS DISTINCT FROM {this_node});

-- name: preemption
-- Return [[id, urgency, started_at, aged from, node, is stopping, has children] of all running tasks, [id, slots, types]
-- of nodes that start tasks, this node, those of the given tasks that still wait].
-- sqlite: nothing to do; only nodes that dispatch together need it.
-- postgres:
SELECT json_row(
    (
        SELECT json_list(json_row(
            id, urgency, started_at, coalesce(renewed_at, queued_at), coalesce(node_id, 0),
            stop IS NOT NULL OR preempted > 0, children > 0) ORDER BY id)
        FROM taskmill_task WHERE status = 'running' AND started_at IS NOT NULL
    ),
    (
        SELECT json_list(json_row(id, slots, types::json) ORDER BY id)
        FROM taskmill_node WHERE NOT stopped
    ),
    {this_node},
    (
        SELECT json_list(id ORDER BY id) FROM taskmill_task
        WHERE id IN ids($1) AND status = 'pending' AND stop IS NULL
    )
);

-- name: ask_to_make_way
-- Mark running tasks for preemption, on whichever node they run.
-- sqlite: nothing to do; only nodes that dispatch together need it.
-- postgres:
UPDATE taskmill_task SET preempted = 1 WHERE id IN ids($1) AND status = 'running';
