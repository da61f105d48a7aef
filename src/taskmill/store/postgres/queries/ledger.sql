-- name: held_tokens
-- Return those of the given [id, attempt] rows that still hold their token, as [id, stop request, has live children,
-- links to other tasks].
SELECT coalesce(json_agg(json_build_array(t.id, t.stop, t.children > t.children_ended,
    json_build_array(t.stop IS NOT NULL OR t.gave_key, t.awaited, t.parent_id IS NOT NULL, t.series_id IS NOT NULL,
        t.cron IS NOT NULL))), '[]')
FROM jsonb_array_elements($1::jsonb) AS given (value)
JOIN taskmill_task AS t ON t.id = (given.value ->> 0)::bigint
WHERE t.attempt = (given.value ->> 1)::integer AND t.status = 'running';

-- name: return_to_queue
-- Put tasks whose attempts ended at $2 back, for rows of [id, status, retries, crashes, due_at, last_error,
-- interrupted, preempted].
UPDATE taskmill_task AS t SET
    status = CASE
        WHEN t.series_id IS NOT NULL AND t.stop IS NULL AND given.value ->> 1 IN ('pending', 'scheduled')
            AND (SELECT paused FROM taskmill_series AS s WHERE s.id = t.series_id) THEN 'paused'
        ELSE given.value ->> 1 END,
    retries = (given.value ->> 2)::integer,
    crashes = (given.value ->> 3)::integer,
    due_at = (given.value ->> 4)::bigint,
    due_is_relative = t.cron IS NULL, -- a cron task retries at a fixed instant
    last_error = coalesce(given.value ->> 5, t.last_error),
    interrupted = coalesce((given.value ->> 6)::boolean, t.interrupted),
    preempted = (given.value ->> 7)::smallint,
    paused_at = $2::bigint,
    node_id = NULL
FROM jsonb_array_elements($1::jsonb) AS given (value)
WHERE t.id = (given.value ->> 0)::bigint;

-- name: unclaim
-- Return tasks that were claimed but not started, for rows of [id, attempt].
UPDATE taskmill_task AS t SET status = 'pending', node_id = NULL
FROM jsonb_array_elements($1::jsonb) AS given (value)
WHERE t.id = (given.value ->> 0)::bigint AND t.attempt = (given.value ->> 1)::integer AND t.status = 'running';

-- name: unclaim_others
-- Return every task claimed by this node except the given ones. The answer to a claim was lost, so the node does not
-- know which tasks it claimed.
UPDATE taskmill_task SET status = 'pending', node_id = NULL
WHERE status = 'running' AND node_id = {this_node} AND id <> ALL (taskmill_ids($1));

-- name: save
UPDATE taskmill_task SET saved = $3 WHERE id = $1::bigint AND attempt = $2::bigint AND status = 'running';

-- name: report_progress
-- Store progress, for rows of [id, attempt, progress].
UPDATE taskmill_task AS t SET progress = given.value ->> 2
FROM jsonb_array_elements($1::jsonb) AS given (value)
WHERE t.id = (given.value ->> 0)::bigint AND t.attempt = (given.value ->> 1)::integer AND t.status = 'running';

-- name: orphans
-- Return the tasks whose node has died or left: they are marked as running, but the node's row is gone.
SELECT coalesce(json_agg(json_build_array(
    id, retries, crashes, stop, finalizing, children > children_ended, children > 0,
    node_id IS NOT DISTINCT FROM 0) ORDER BY id), '[]')
FROM taskmill_task AS t
WHERE status = 'running' AND NOT EXISTS (SELECT 1 FROM taskmill_node AS node WHERE node.id = t.node_id);

-- name: at_work
-- Return the tasks whose handlers may be running. With $1, no handler of this process is running, but other nodes' may
-- be.
SELECT coalesce(json_agg(id), '[]') FROM taskmill_task AS t
WHERE status = 'running' AND (NOT $1::boolean OR EXISTS (SELECT 1 FROM taskmill_node AS node WHERE node.id = t.node_id));
