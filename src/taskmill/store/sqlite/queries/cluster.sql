-- name: elsewhere
-- What others are at.
SELECT {others_at_work};

-- name: other_nodes
-- Whether other nodes dispatch.
SELECT false;

-- name: claim_fronts
-- Only nodes that claim from the same lanes need it.
;

-- name: preemption
-- Only nodes that dispatch together need it.
;

-- name: ask_to_make_way
-- Only nodes that dispatch together need it.
;
