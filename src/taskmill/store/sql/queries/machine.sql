-- name: note_io
-- Store the IO of attempts with their tasks.
UPDATE taskmill_task AS t SET actual_io = given.io
FROM rows($1, id bigint, attempt integer, io text) AS given
WHERE {holds_token};

-- name: learn_io
-- Add the IO of successful runs to the totals of their types, for rows of [type, io]. Totals stop at 2^62 instead of
-- overflowing.
-- sqlite:
INSERT INTO taskmill_io (type, runs, disk_read, disk_write, net_rx, net_tx)
SELECT
    value ->> 0, 1, coalesce(value ->> '$[1].disk_read', 0), coalesce(value ->> '$[1].disk_write', 0),
    coalesce(value ->> '$[1].net_rx', 0), coalesce(value ->> '$[1].net_tx', 0)
FROM json_each($1) WHERE true
ON CONFLICT (type) DO UPDATE SET
    runs = min(runs + 1, 1 << 62), disk_read = min(disk_read + excluded.disk_read, 1 << 62),
    disk_write = min(disk_write + excluded.disk_write, 1 << 62),
    net_rx = min(net_rx + excluded.net_rx, 1 << 62), net_tx = min(net_tx + excluded.net_tx, 1 << 62);
-- postgres: in a fixed order, so that transactions cannot deadlock.
INSERT INTO taskmill_io AS known (type, runs, disk_read, disk_write, net_rx, net_tx)
SELECT
    type, count(*),
    least(coalesce(sum((io ->> 'disk_read')::numeric), 0), 1::bigint << 62),
    least(coalesce(sum((io ->> 'disk_write')::numeric), 0), 1::bigint << 62),
    least(coalesce(sum((io ->> 'net_rx')::numeric), 0), 1::bigint << 62),
    least(coalesce(sum((io ->> 'net_tx')::numeric), 0), 1::bigint << 62)
FROM rows($1, type text, io json) AS given
GROUP BY 1 ORDER BY 1
ON CONFLICT (type) DO UPDATE SET
    runs = least(known.runs::numeric + excluded.runs, 1::bigint << 62),
    disk_read = least(known.disk_read::numeric + excluded.disk_read, 1::bigint << 62),
    disk_write = least(known.disk_write::numeric + excluded.disk_write, 1::bigint << 62),
    net_rx = least(known.net_rx::numeric + excluded.net_rx, 1::bigint << 62),
    net_tx = least(known.net_tx::numeric + excluded.net_tx, 1::bigint << 62);

-- name: moved
-- Return [type, runs, disk_read, disk_write, net_rx, net_tx] of every task type with recorded IO.
SELECT json_list(json_row(type, runs, disk_read, disk_write, net_rx, net_tx) ORDER BY type)
FROM taskmill_io WHERE runs > 0;

-- name: moved_by_type
SELECT json_row(type, runs, disk_read, disk_write, net_rx, net_tx) FROM taskmill_io
WHERE type = $1 AND runs > 0;

-- name: running_budgets
-- Return [type, io, node] of running tasks that have an IO budget.
-- sqlite: the node is NULL, because only one process dispatches a file.
SELECT json_list(json_row(type, {budget}, NULL)) FROM taskmill_task WHERE status = 'running' AND {budget} IS NOT NULL;
-- postgres:
SELECT json_list(json_row(type, io, node_id)) FROM taskmill_task
WHERE status = 'running' AND io IS NOT NULL;

-- name: machine
-- Return the last reading of the machine stored under the name $1.
SELECT value FROM taskmill_setting WHERE name = $1;

-- name: note_machine
-- Store the last reading of the machine, $1, under the name $2.
-- sqlite:
INSERT INTO taskmill_setting (name, value) VALUES ($2, $1)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;
-- postgres: also in the row of this node.
WITH own AS (UPDATE taskmill_node SET machine = $1 WHERE id = {this_node})
INSERT INTO taskmill_setting (name, value) VALUES ($2, $1)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;
