-- name: held_tokens
-- Which of the given [id, attempt] rows still hold their token, what they were asked meanwhile, whether they have
-- children that have not ended, and which other tasks its ending concerns.
SELECT json_group_array(json_array(t.id, t.stop, t.children > t.children_ended,
    json_array(t.stop IS NOT NULL OR t.gave_key, t.awaited, t.parent_id IS NOT NULL, t.series_id IS NOT NULL,
        t.cron IS NOT NULL)))
FROM json_each(?1) AS given
JOIN taskmill_task AS t ON t.id = given.value ->> 0
WHERE t.attempt = given.value ->> 1 AND t.status = 'running';

-- name: return_to_queue
-- Rows of [id, status, retries, crashes, due_at, last_error, interrupted, preempted]: an attempt ended at ?2, the task did
-- not.
UPDATE taskmill_task SET
    status = CASE
        WHEN series_id IS NOT NULL AND stop IS NULL AND given.value ->> 1 IN ('pending', 'scheduled')
            AND (SELECT paused FROM taskmill_series WHERE id = series_id) THEN 'paused'
        ELSE given.value ->> 1 END,
    retries = given.value ->> 2,
    crashes = given.value ->> 3,
    due_at = given.value ->> 4,
    due_is_relative = cron IS NULL, -- a cron task is tried again at an instant
    last_error = coalesce(given.value ->> 5, last_error),
    interrupted = coalesce(given.value ->> 6, interrupted),
    preempted = given.value ->> 7,
    paused_at = ?2
FROM json_each(?1) AS given
WHERE taskmill_task.id = given.value ->> 0;

-- name: unclaim
-- Rows of [id, attempt]: claimed and not started.
UPDATE taskmill_task SET status = 'pending'
WHERE (id, attempt) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?1)) AND status = 'running';

-- name: unclaim_others
-- Only nodes that are not told of what they claimed need it.
;

-- name: save
UPDATE taskmill_task SET saved = ?3 WHERE id = ?1 AND attempt = ?2 AND status = 'running';

-- name: report_progress
-- Rows of [id, attempt, progress].
UPDATE taskmill_task SET progress = given.value ->> 2
FROM json_each(?1) AS given
WHERE taskmill_task.id = given.value ->> 0 AND taskmill_task.attempt = given.value ->> 1
    AND taskmill_task.status = 'running';

-- name: orphans
-- Tasks that were running when their dispatcher died.
SELECT json_group_array(json_array(
    id, retries, crashes, stop, finalizing, children > children_ended, children > 0, false))
FROM taskmill_task WHERE status = 'running';

-- name: at_work
-- Tasks whose handlers may be at work. ?1: those of this process are not.
SELECT json_group_array(id) FROM taskmill_task WHERE status = 'running' AND NOT ?1;
