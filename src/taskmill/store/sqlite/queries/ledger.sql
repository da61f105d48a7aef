-- name: held_tokens
-- Return those of the given [id, attempt] rows that still hold their token, as [id, stop request, has live children,
-- links to other tasks].
SELECT json_group_array(json_array(t.id, t.stop, t.children > t.children_ended,
    json_array(t.stop IS NOT NULL OR t.gave_key, t.awaited, t.parent_id IS NOT NULL, t.series_id IS NOT NULL,
        t.cron IS NOT NULL)))
FROM json_each(?1) AS given
JOIN taskmill_task AS t ON t.id = given.value ->> 0
WHERE t.attempt = given.value ->> 1 AND t.status = 'running';

-- name: return_to_queue
-- Put tasks whose attempts ended at ?2 back, for rows of [id, status, retries, crashes, due_at, last_error,
-- interrupted, preempted].
UPDATE taskmill_task SET
    status = CASE
        WHEN series_id IS NOT NULL AND stop IS NULL AND given.value ->> 1 IN ('pending', 'scheduled')
            AND (SELECT paused FROM taskmill_series WHERE id = series_id) THEN 'paused'
        ELSE given.value ->> 1 END,
    retries = given.value ->> 2,
    crashes = given.value ->> 3,
    due_at = given.value ->> 4,
    due_is_relative = cron IS NULL, -- a cron task retries at a fixed instant
    last_error = coalesce(given.value ->> 5, last_error),
    interrupted = coalesce(given.value ->> 6, interrupted),
    preempted = given.value ->> 7,
    paused_at = ?2
FROM json_each(?1) AS given
WHERE taskmill_task.id = given.value ->> 0;

-- name: unclaim
-- Return tasks that were claimed but not started, for rows of [id, attempt].
UPDATE taskmill_task SET status = 'pending'
WHERE (id, attempt) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?1)) AND status = 'running';

-- name: unclaim_others
-- Nothing to do: a claim in a file never succeeds without the dispatcher knowing it.
;

-- name: save
UPDATE taskmill_task SET saved = ?3 WHERE id = ?1 AND attempt = ?2 AND status = 'running';

-- name: report_progress
-- Store progress, for rows of [id, attempt, progress].
UPDATE taskmill_task SET progress = given.value ->> 2
FROM json_each(?1) AS given
WHERE taskmill_task.id = given.value ->> 0 AND taskmill_task.attempt = given.value ->> 1
    AND taskmill_task.status = 'running';

-- name: orphans
-- Return the tasks that were running when their dispatcher died.
SELECT json_group_array(json_array(
    id, retries, crashes, stop, finalizing, children > children_ended, children > 0, false))
FROM taskmill_task WHERE status = 'running';

-- name: at_work
-- Return the tasks whose handlers may be running. With ?1, no handler of this process is running.
SELECT json_group_array(id) FROM taskmill_task WHERE status = 'running' AND NOT ?1;
