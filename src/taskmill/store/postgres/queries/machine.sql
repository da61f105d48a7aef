-- name: note_io
-- Store the IO of attempts with their tasks, for rows of [id, attempt, io].
UPDATE taskmill_task AS t SET actual_io = given.value ->> 2
FROM jsonb_array_elements($1::jsonb) AS given (value)
WHERE t.id = (given.value ->> 0)::bigint AND t.attempt = (given.value ->> 1)::integer AND t.status = 'running';

-- name: learn_io
-- Add the IO of successful runs to the totals of their types, for rows of [type, io]. Rows are updated in a fixed
-- order, so that transactions cannot deadlock. Totals stop at a maximum instead of overflowing.
INSERT INTO taskmill_io AS known (type, runs, disk_read, disk_write, net_rx, net_tx)
SELECT
    value ->> 0, count(*),
    least(coalesce(sum((value -> 1 ->> 'disk_read')::numeric), 0), 1::bigint << 62),
    least(coalesce(sum((value -> 1 ->> 'disk_write')::numeric), 0), 1::bigint << 62),
    least(coalesce(sum((value -> 1 ->> 'net_rx')::numeric), 0), 1::bigint << 62),
    least(coalesce(sum((value -> 1 ->> 'net_tx')::numeric), 0), 1::bigint << 62)
FROM jsonb_array_elements($1::jsonb) AS given (value)
GROUP BY 1 ORDER BY 1
ON CONFLICT (type) DO UPDATE SET
    runs = least(known.runs::numeric + excluded.runs, 1::bigint << 62),
    disk_read = least(known.disk_read::numeric + excluded.disk_read, 1::bigint << 62),
    disk_write = least(known.disk_write::numeric + excluded.disk_write, 1::bigint << 62),
    net_rx = least(known.net_rx::numeric + excluded.net_rx, 1::bigint << 62),
    net_tx = least(known.net_tx::numeric + excluded.net_tx, 1::bigint << 62);

-- name: moved
-- Return [type, runs, disk_read, disk_write, net_rx, net_tx] of every task type with recorded IO.
SELECT coalesce(json_agg(json_build_array(type, runs, disk_read, disk_write, net_rx, net_tx) ORDER BY type), '[]')
FROM taskmill_io WHERE runs > 0;

-- name: moved_by_type
SELECT json_build_array(type, runs, disk_read, disk_write, net_rx, net_tx) FROM taskmill_io
WHERE type = $1 AND runs > 0;

-- name: running_budgets
-- Return [type, io, node] of running tasks that have an IO budget.
SELECT coalesce(json_agg(json_build_array(type, io, node_id)), '[]') FROM taskmill_task
WHERE status = 'running' AND io IS NOT NULL;

-- name: machine
-- Return the last reading of the machine stored under the name $1.
SELECT value FROM taskmill_setting WHERE name = $1;

-- name: machines
-- Return [node, last reading of its machine] of every node that is not dead; $1 as in bury_nodes.
SELECT coalesce(json_agg(json_build_array(id, machine) ORDER BY id), '[]') FROM taskmill_node WHERE NOT {is_dead};

-- name: note_machine
-- Store this node's last reading of its machine, $1, under the name $2.
WITH own AS (UPDATE taskmill_node SET machine = $1 WHERE id = {this_node})
INSERT INTO taskmill_setting (name, value) VALUES ($2, $1)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;
