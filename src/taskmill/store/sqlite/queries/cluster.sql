-- name: elsewhere
-- Return the load of other nodes.
SELECT {others_at_work};

-- name: other_nodes
-- True if there are other nodes.
SELECT false;

-- name: preemption
-- Nothing to do: only nodes that dispatch together need it.
;

-- name: ask_to_make_way
-- Nothing to do: only nodes that dispatch together need it.
;
