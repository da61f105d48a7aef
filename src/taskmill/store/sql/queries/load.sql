-- name: load
-- Return [group, type, status, count] of active tasks that do not run.
SELECT json_list(json_row(group_name, type, status, n)) FROM (
    SELECT group_name, type, status, sum(tasks)::bigint AS n FROM taskmill_load
    GROUP BY group_name, type, status HAVING sum(tasks) <> 0
) AS counted;

-- name: add_to_load
-- Add to the number of tasks of a [group, type, status].
-- sqlite:
INSERT INTO taskmill_load (group_name, type, status, tasks)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3 FROM json_each($1) WHERE true
ON CONFLICT DO UPDATE SET tasks = tasks + excluded.tasks;
-- postgres: nothing to do; the statements that insert and claim tasks count them.

-- name: add_revived_to_load
-- Add a dead letter that was brought back.
-- sqlite:
INSERT INTO taskmill_load (group_name, type, status, tasks) VALUES ($1, $2, 'blocked', 1)
ON CONFLICT DO UPDATE SET tasks = tasks + 1;
-- postgres:
INSERT INTO taskmill_load (group_name, type, status, tasks) VALUES ($1, $2, 'blocked', 1);

-- name: take_from_load
-- Subtract the given tasks, which are about to leave the table; those that run are not counted. The caller is the only
-- writer.
-- sqlite:
UPDATE taskmill_load SET tasks = tasks - gone.n
FROM (
    SELECT group_name, type, status, count(*) AS n FROM taskmill_task
    WHERE id IN ids($1) AND status <> 'running' GROUP BY group_name, type, status
) AS gone
WHERE taskmill_load.group_name = gone.group_name AND taskmill_load.type = gone.type
    AND taskmill_load.status = gone.status;
-- postgres:
INSERT INTO taskmill_load (group_name, type, status, tasks)
SELECT group_name, type, status, -count(*) FROM taskmill_task
WHERE id IN ids($1) AND status <> 'running' GROUP BY group_name, type, status;

-- name: forget_load
-- sqlite:
DELETE FROM taskmill_load;
-- postgres: nothing to do; count_load does both at once.

-- name: count_load
-- Count all tasks again, after forget_load.
-- sqlite:
INSERT INTO taskmill_load (group_name, type, status, tasks)
SELECT group_name, type, status, count(*) FROM taskmill_task WHERE status <> 'running' GROUP BY group_name, type, status;
-- postgres: one statement, because a caller's own transaction may commit new tasks between two. The caller holds the
-- exclusive lock, so that nothing is merged at the same time.
WITH gone AS (DELETE FROM taskmill_load)
INSERT INTO taskmill_load (group_name, type, status, tasks)
SELECT group_name, type, status, count(*) FROM taskmill_task WHERE status <> 'running' GROUP BY group_name, type, status;

-- name: waiting
-- Return [group, type, count] of tasks that may start, with one or more rows for each pair.
SELECT json_list(json_row(group_name, type, n)) FROM (
    {queued_in_groups}
    UNION ALL
    {prefetched_in_groups}
) AS counted;

-- name: queued
-- Return [group, type, count] of the tasks in lanes, with one or more rows for each pair.
SELECT json_list(json_row(group_name, type, n)) FROM ({queued_in_groups}) AS counted;

-- name: running
-- Return [group, type, count] of running tasks.
SELECT json_list(json_row(group_name, type, n)) FROM (
    SELECT group_name, type, count(*) AS n FROM taskmill_task
    WHERE status = 'running' AND started_at IS NOT NULL GROUP BY group_name, type
) AS counted;

-- name: prefetched
-- Return [group, type, 1] for each prefetched task that has not begun.
SELECT json_list(json_row(group_name, type, n)) FROM ({prefetched_in_groups}) AS counted;

-- name: expired_load
-- Return [group, type, status, count] of the tasks that have expired and are not in history yet.
SELECT json_list(json_row(group_name, type, status, n)) FROM (
    SELECT group_name, type, status, count(*) AS n FROM taskmill_task AS t WHERE {is_expired}
    GROUP BY group_name, type, status
) AS counted;
