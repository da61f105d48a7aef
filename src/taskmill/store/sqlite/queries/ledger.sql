-- name: held_tokens
-- Which of the given [id, attempt] rows still hold their token, what they were asked meanwhile, and whether they are to
-- run once more.
SELECT json_group_array(json_array(t.id, t.stop, t.rerun IS NOT NULL))
FROM json_each(?1) AS given
JOIN taskmill_task AS t ON t.id = given.value ->> 0
WHERE t.attempt = given.value ->> 1 AND t.status = 'running';

-- name: record_endings
-- Write history for rows of [id, ending, ended_at, duration_ms, result, error, attempt]. A row that names its attempt is
-- written only while that holds its token and nobody wants anything else of the task; others the caller has checked.
INSERT INTO taskmill_history (
    id, type, key, label, group_name, priority, ending, payload, tags, overrides, attempt, retries, created_at,
    due_at, expires_at, started_at, ended_at, duration_ms, parent_id, saved, progress, last_error, result, error
)
SELECT
    t.id, t.type, t.key, t.label, t.group_name, t.priority, given.value ->> 1, t.payload, t.tags, t.overrides,
    t.attempt, t.retries, t.created_at, t.due_at, t.expires_at, t.started_at, given.value ->> 2,
    given.value ->> 3, t.parent_id, t.saved, t.progress, t.last_error, given.value ->> 4, given.value ->> 5
FROM json_each(?1) AS given
JOIN taskmill_task AS t ON t.id = given.value ->> 0
WHERE given.value ->> 6 IS NULL
    OR t.attempt = given.value ->> 6 AND t.status = 'running' AND t.stop IS NULL AND t.rerun IS NULL;

-- name: delete_active
DELETE FROM taskmill_task WHERE id IN (SELECT value FROM json_each(?1));

-- name: move_tags
INSERT INTO taskmill_history_tag (name, value, task_id)
SELECT name, value, task_id FROM taskmill_task_tag
WHERE task_id IN (SELECT value FROM json_each(?1));

-- name: delete_active_tags
DELETE FROM taskmill_task_tag WHERE task_id IN (SELECT value FROM json_each(?1));

-- name: tally
-- Add [type, group, ending, count, duration_ms] rows to what has ended.
INSERT INTO taskmill_tally (type, group_name, ending, ended, kept, duration_ms)
SELECT value ->> 0, value ->> 1, value ->> 2, value ->> 3, value ->> 3, value ->> 4 FROM json_each(?1) WHERE true
ON CONFLICT (type, group_name, ending) DO UPDATE SET
    ended = ended + excluded.ended, kept = kept + excluded.kept,
    duration_ms = duration_ms + excluded.duration_ms;

-- name: sums_of_endings
-- The same rows for ended tasks of which only the ids are known.
SELECT json_group_array(json_array(type, group_name, ending, ended, duration_ms)) FROM (
    SELECT type, group_name, ending, count(*) AS ended, coalesce(sum(duration_ms), 0) AS duration_ms
    FROM taskmill_history WHERE id IN (SELECT value FROM json_each(?1))
    GROUP BY type, group_name, ending
);

-- name: gated
-- Who waits for the given tasks to end.
SELECT json_group_array(json_array(gate_id, id, group_name, priority, queued_at, due_at)) FROM taskmill_task
WHERE gate_id IN (SELECT value FROM json_each(?1));

-- name: open_gates
-- The given tasks have ended and are in history: their successors may start, and read what was saved last.
UPDATE taskmill_task SET
    status = CASE WHEN due_at > ?2 THEN 'scheduled' ELSE 'pending' END,
    replaced = coalesce((SELECT saved FROM taskmill_history WHERE id = taskmill_task.gate_id), replaced),
    gate_id = NULL
WHERE gate_id IN (SELECT value FROM json_each(?1));

-- name: start_over
-- The given tasks run once more, as the newest submission of their key wants it.
UPDATE taskmill_task SET
    status = 'pending', payload = rerun ->> 0, expires_at = rerun ->> 1, rerun = NULL, retries = 0, crashes = 0,
    interrupted = 0, created_at = ?2, queued_at = ?2, due_at = NULL, last_error = NULL, progress = NULL
WHERE id IN (SELECT value FROM json_each(?1));

-- name: described
-- What events and callers are told about the given [id, …] rows of the active table.
SELECT json_group_array(json_array(
    t.id, t.type, t.key, t.label, t.group_name, t.priority, t.tags, t.created_at, t.status, t.stop))
FROM json_each(?1) AS given
JOIN taskmill_task AS t ON t.id = given.value ->> 0;

-- name: return_to_queue
-- Rows of [id, status, retries, crashes, due_at, last_error, interrupted]: an attempt ended, the task did not.
UPDATE taskmill_task SET
    status = given.value ->> 1,
    retries = given.value ->> 2,
    crashes = given.value ->> 3,
    due_at = given.value ->> 4,
    due_is_relative = 1,
    last_error = coalesce(given.value ->> 5, last_error),
    interrupted = given.value ->> 6
FROM json_each(?1) AS given
WHERE taskmill_task.id = given.value ->> 0;

-- name: save
UPDATE taskmill_task SET saved = ?3 WHERE id = ?1 AND attempt = ?2 AND status = 'running';

-- name: report_progress
-- Rows of [id, attempt, progress].
UPDATE taskmill_task SET progress = given.value ->> 2
FROM json_each(?1) AS given
WHERE taskmill_task.id = given.value ->> 0 AND taskmill_task.attempt = given.value ->> 1
    AND taskmill_task.status = 'running';

-- name: request_stop
-- Ask the given running tasks to stop; their dispatcher will see it.
UPDATE taskmill_task SET stop = ?2
WHERE id IN (SELECT value FROM json_each(?1)) AND status = 'running' AND stop IS NULL;

-- name: orphans
-- Tasks that were running when their dispatcher died.
SELECT json_group_array(json_array(id, retries, crashes, stop))
FROM taskmill_task WHERE status = 'running';

-- name: revive
-- Bring a dead letter back with its id, its payload and its saved state, and a fresh retry counter.
INSERT INTO taskmill_task (
    id, type, key, label, group_name, priority, status, payload, tags, overrides, attempt, created_at, queued_at,
    parent_id, saved, last_error
)
SELECT
    id, type, key, label, group_name, priority, 'pending', payload, tags, overrides, attempt, created_at, ?2,
    parent_id, saved, error
FROM taskmill_history WHERE id = ?1 AND ending = 'dead_letter';

-- name: key_holder
SELECT id FROM taskmill_task WHERE type = ?1 AND key = ?2 AND key IS NOT NULL AND stop IS NULL;

-- name: forget_ending
DELETE FROM taskmill_history WHERE id = ?1;

-- name: forget_ending_tags
DELETE FROM taskmill_history_tag WHERE task_id = ?1;

-- name: untally
UPDATE taskmill_tally SET ended = ended - 1, kept = kept - 1, duration_ms = duration_ms - coalesce(?4, 0)
WHERE type = ?1 AND group_name = ?2 AND ending = ?3;
