-- name: held_tokens
-- Which of the given [id, attempt] rows still hold their token, what they were asked meanwhile, whether they have
-- children that have not ended, and which other tasks its ending concerns.
SELECT coalesce(json_agg(json_build_array(t.id, t.stop, t.children > t.children_ended,
    json_build_array(t.stop IS NOT NULL OR t.gave_key, t.awaited, t.parent_id IS NOT NULL, t.series_id IS NOT NULL,
        t.cron IS NOT NULL))), '[]')
FROM jsonb_array_elements($1::jsonb) AS given (value)
JOIN taskmill_task AS t ON t.id = (given.value ->> 0)::bigint
WHERE t.attempt = (given.value ->> 1)::integer AND t.status = 'running';

-- name: return_to_queue
-- Rows of [id, status, retries, crashes, due_at, last_error, interrupted, preempted]: an attempt ended at $2, the task did
-- not.
UPDATE taskmill_task AS t SET
    status = CASE
        WHEN t.series_id IS NOT NULL AND t.stop IS NULL AND given.value ->> 1 IN ('pending', 'scheduled')
            AND (SELECT paused FROM taskmill_series AS s WHERE s.id = t.series_id) THEN 'paused'
        ELSE given.value ->> 1 END,
    retries = (given.value ->> 2)::integer,
    crashes = (given.value ->> 3)::integer,
    due_at = (given.value ->> 4)::bigint,
    due_is_relative = t.cron IS NULL, -- a cron task is tried again at an instant
    last_error = coalesce(given.value ->> 5, t.last_error),
    interrupted = coalesce((given.value ->> 6)::boolean, t.interrupted),
    preempted = (given.value ->> 7)::smallint,
    paused_at = $2::bigint,
    node_id = NULL
FROM jsonb_array_elements($1::jsonb) AS given (value)
WHERE t.id = (given.value ->> 0)::bigint;

-- name: unclaim
-- Rows of [id, attempt]: claimed and not started.
UPDATE taskmill_task AS t SET status = 'pending', node_id = NULL
FROM jsonb_array_elements($1::jsonb) AS given (value)
WHERE t.id = (given.value ->> 0)::bigint AND t.attempt = (given.value ->> 1)::integer AND t.status = 'running';

-- name: unclaim_others
-- Of what this node has claimed only the given tasks were started: a claim of which it was not told has taken place.
UPDATE taskmill_task SET status = 'pending', node_id = NULL
WHERE status = 'running' AND node_id = {this_node} AND id <> ALL (taskmill_ids($1));

-- name: save
UPDATE taskmill_task SET saved = $3 WHERE id = $1::bigint AND attempt = $2::bigint AND status = 'running';

-- name: report_progress
-- Rows of [id, attempt, progress].
UPDATE taskmill_task AS t SET progress = given.value ->> 2
FROM jsonb_array_elements($1::jsonb) AS given (value)
WHERE t.id = (given.value ->> 0)::bigint AND t.attempt = (given.value ->> 1)::integer AND t.status = 'running';

-- name: orphans
-- Tasks that were running when their node died or left; the rows of such nodes are gone.
SELECT coalesce(json_agg(json_build_array(
    id, retries, crashes, stop, finalizing, children > children_ended, children > 0,
    node_id IS NOT DISTINCT FROM 0) ORDER BY id), '[]')
FROM taskmill_task AS t
WHERE status = 'running' AND NOT EXISTS (SELECT 1 FROM taskmill_node AS node WHERE node.id = t.node_id);

-- name: at_work
-- Tasks whose handlers may be at work. $1: those of this process are not, but those of other nodes may be.
SELECT coalesce(json_agg(id), '[]') FROM taskmill_task AS t
WHERE status = 'running' AND (NOT $1::boolean OR EXISTS (SELECT 1 FROM taskmill_node AS node WHERE node.id = t.node_id));
