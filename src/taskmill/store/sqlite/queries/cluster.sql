-- name: elsewhere
-- [[group, type, count] of what other nodes run, how many slots they have]; ?1 are ours. One process dispatches a file.
SELECT json_array(json_array(), 0 * ?1);

-- name: other_nodes
-- Whether other nodes dispatch.
SELECT false;

-- name: claim_fronts
-- Only nodes that claim from the same lanes need it.
;
