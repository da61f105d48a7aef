-- name: note_io
-- Rows of [id, attempt, io]: what attempts have moved.
UPDATE taskmill_task SET actual_io = given.value ->> 2
FROM json_each(?1) AS given
WHERE taskmill_task.id = given.value ->> 0 AND taskmill_task.attempt = given.value ->> 1
    AND taskmill_task.status = 'running';

-- name: learn_io
-- Rows of [type, io]: what runs that succeeded have moved. More than fits into a number is not added.
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
-- [type, runs, disk_read, disk_write, net_rx, net_tx] of every task type that has moved anything.
SELECT json_group_array(json_array(type, runs, disk_read, disk_write, net_rx, net_tx)) FROM taskmill_io WHERE runs > 0;

-- name: moved_by_type
SELECT json_array(type, runs, disk_read, disk_write, net_rx, net_tx) FROM taskmill_io WHERE type = ?1 AND runs > 0;

-- name: running_budgets
-- [type, io, node] of running tasks that have a budget. One process dispatches a file.
SELECT json_group_array(json_array(type, {budget}, NULL)) FROM taskmill_task WHERE status = 'running' AND {budget} IS NOT NULL;

-- name: machine
-- What is remembered under the name ?1.
SELECT value FROM taskmill_setting WHERE name = ?1;

-- name: note_machine
-- The dispatcher has seen ?1, which is remembered under the name ?2.
INSERT INTO taskmill_setting (name, value) VALUES (?2, ?1)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;
