-- name: note_io
-- Store the IO of attempts with their tasks, for rows of [id, attempt, io].
UPDATE taskmill_task SET actual_io = given.value ->> 2
FROM json_each(?1) AS given
WHERE taskmill_task.id = given.value ->> 0 AND taskmill_task.attempt = given.value ->> 1
    AND taskmill_task.status = 'running';

-- name: learn_io
-- Add the IO of successful runs to the totals of their types, for rows of [type, io]. Totals stop at 2^62 instead of
-- overflowing.
INSERT INTO taskmill_io (type, runs, disk_read, disk_write, net_rx, net_tx)
SELECT
    value ->> 0, 1, coalesce(value ->> '$[1].disk_read', 0), coalesce(value ->> '$[1].disk_write', 0),
    coalesce(value ->> '$[1].net_rx', 0), coalesce(value ->> '$[1].net_tx', 0)
FROM json_each(?1) WHERE true
ON CONFLICT (type) DO UPDATE SET
    runs = min(runs + 1, 1 << 62), disk_read = min(disk_read + excluded.disk_read, 1 << 62),
    disk_write = min(disk_write + excluded.disk_write, 1 << 62),
    net_rx = min(net_rx + excluded.net_rx, 1 << 62), net_tx = min(net_tx + excluded.net_tx, 1 << 62);

-- name: moved
-- Return [type, runs, disk_read, disk_write, net_rx, net_tx] of every task type with recorded IO.
SELECT json_group_array(json_array(type, runs, disk_read, disk_write, net_rx, net_tx)) FROM taskmill_io WHERE runs > 0;

-- name: moved_by_type
SELECT json_array(type, runs, disk_read, disk_write, net_rx, net_tx) FROM taskmill_io WHERE type = ?1 AND runs > 0;

-- name: running_budgets
-- Return [type, io, node] of running tasks that have an IO budget. The node is NULL: only one process dispatches a
-- file.
SELECT json_group_array(json_array(type, {budget}, NULL)) FROM taskmill_task WHERE status = 'running' AND {budget} IS NOT NULL;

-- name: machine
-- Return the last reading of the machine stored under the name ?1.
SELECT value FROM taskmill_setting WHERE name = ?1;

-- name: note_machine
-- Store the dispatcher's last reading of its machine, ?1, under the name ?2.
INSERT INTO taskmill_setting (name, value) VALUES (?2, ?1)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;
