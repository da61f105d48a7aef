-- name: note_io
-- Rows of [id, attempt, io]: what attempts have moved.
UPDATE taskmill_task AS t SET actual_io = given.value ->> 2
FROM jsonb_array_elements($1::jsonb) AS given (value)
WHERE t.id = (given.value ->> 0)::bigint AND t.attempt = (given.value ->> 1)::integer AND t.status = 'running';

-- name: learn_io
-- Rows of [type, io]: what runs that succeeded have moved. In one order, so that nobody waits for another in a circle.
INSERT INTO taskmill_io AS known (type, runs, disk_read, disk_write, net_rx, net_tx)
SELECT
    value ->> 0, count(*), coalesce(sum((value -> 1 ->> 'disk_read')::bigint), 0),
    coalesce(sum((value -> 1 ->> 'disk_write')::bigint), 0), coalesce(sum((value -> 1 ->> 'net_rx')::bigint), 0),
    coalesce(sum((value -> 1 ->> 'net_tx')::bigint), 0)
FROM jsonb_array_elements($1::jsonb) AS given (value)
GROUP BY 1 ORDER BY 1
ON CONFLICT (type) DO UPDATE SET
    runs = known.runs + excluded.runs, disk_read = known.disk_read + excluded.disk_read,
    disk_write = known.disk_write + excluded.disk_write, net_rx = known.net_rx + excluded.net_rx,
    net_tx = known.net_tx + excluded.net_tx;

-- name: moved
-- [type, runs, disk_read, disk_write, net_rx, net_tx] of every task type that has moved anything.
SELECT coalesce(json_agg(json_build_array(type, runs, disk_read, disk_write, net_rx, net_tx) ORDER BY type), '[]')
FROM taskmill_io;

-- name: moved_by_type
SELECT json_build_array(type, runs, disk_read, disk_write, net_rx, net_tx) FROM taskmill_io WHERE type = $1;

-- name: running_budgets
-- [type, io] of running tasks that have a budget.
SELECT coalesce(json_agg(json_build_array(type, io)), '[]') FROM taskmill_task
WHERE status = 'running' AND io IS NOT NULL;

-- name: machine
SELECT value FROM taskmill_setting WHERE name = 'machine';

-- name: note_machine
INSERT INTO taskmill_setting (name, value) VALUES ('machine', $1)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;
