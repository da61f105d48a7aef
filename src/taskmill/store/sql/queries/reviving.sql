-- name: revive
-- Bring a dead letter back with its id, payload and saved state, and a fresh retry counter. It is blocked at first; the
-- caller releases it, unless it has to wait for the task $3 or for its parent's limit on children in the queue.
INSERT INTO taskmill_task (
    id, type, key, label, group_name, priority, urgency, status, payload, tags, overrides, attempt, created_at, queued_at,
    gate_id, parent_id, children_after, saved, replaced, io, last_error, held, cron
)
SELECT
    id, type, key, label, group_name, priority, priority, 'blocked', payload, tags, overrides, attempt, created_at,
    $2::bigint, $3::bigint, parent_id, {last_id}, saved, replaced, io, error,
    EXISTS (SELECT 1 FROM taskmill_task AS parent
        WHERE parent.id = taskmill_history.parent_id AND parent.max_children IS NOT NULL),
    $4
FROM taskmill_history WHERE id = $1::bigint AND ending = 'dead_letter';

-- name: recount_child
-- Make the parent wait for a child that was brought back.
UPDATE taskmill_task SET children_ended = children_ended - 1
WHERE id = (SELECT parent_id FROM taskmill_task WHERE id = $1::bigint) AND children_ended > 0;

-- name: forget_ending
DELETE FROM taskmill_history WHERE id = $1::bigint;

-- name: forget_ending_tags
DELETE FROM taskmill_history_tag WHERE task_id = $1::bigint;

-- name: untally
-- Subtract one ended task from the tally.
-- sqlite:
UPDATE taskmill_tally SET ended = ended - 1, kept = kept - 1, duration_ms = duration_ms - coalesce($4, 0)
WHERE type = $1 AND group_name = $2 AND ending = $3;
-- postgres: as in uncount.
INSERT INTO taskmill_tally AS tally (type, group_name, ending, ended, kept, duration_ms, shard)
VALUES ($1, $2, $3, -1, -1, -coalesce($4::bigint, 0), pg_backend_pid() % 64)
ON CONFLICT (type, group_name, ending, shard) DO UPDATE SET
    ended = tally.ended + excluded.ended, kept = tally.kept + excluded.kept,
    duration_ms = tally.duration_ms + excluded.duration_ms;

-- name: dead_letter
-- Return the type, group, duration and key of a dead letter, and the name of the cron task that it was a firing of.
SELECT
    type, group_name, duration_ms, key,
    (SELECT c.name FROM taskmill_cron AS c
        WHERE c.name = taskmill_history.tags::json ->> 'cron' AND c.type = taskmill_history.type)
FROM taskmill_history WHERE id = $1::bigint AND ending = 'dead_letter';

-- name: return_tags
INSERT INTO taskmill_task_tag SELECT name, value, task_id FROM taskmill_history_tag WHERE task_id = $1::bigint;
