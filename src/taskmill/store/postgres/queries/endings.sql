-- name: record_endings
-- Move tasks to history, by rows of [id, ending, ended_at, duration_ms, result, error, attempt]. A row that names its
-- attempt is moved only while that holds its token, nobody wants anything else of the task, and no other task is concerned;
-- for the others the caller sees to all that. They are counted here too, in rows of the session's own and in one order, so
-- that nobody waits for another in a circle. With $2 and $3, an ending and an instant for all, ids in the rows are enough.
WITH given AS MATERIALIZED (
    SELECT
        (value ->> 0)::bigint AS id, coalesce($2::text, value ->> 1) AS ending,
        coalesce($3::bigint, (value ->> 2)::bigint) AS ended_at, (value ->> 3)::bigint AS duration_ms,
        value ->> 4 AS result, value ->> 5 AS error, (value ->> 6)::integer AS attempt
    FROM jsonb_array_elements($1::jsonb) AS row (value)
), gone AS (
    DELETE FROM taskmill_task AS t USING given
    WHERE t.id = given.id AND (
        given.attempt IS NULL
        OR t.attempt = given.attempt AND t.status = 'running' AND t.stop IS NULL AND NOT t.gave_key
        AND t.parent_id IS NULL AND t.children = 0 AND NOT t.awaited AND t.series_id IS NULL)
    RETURNING
        t.id, t.type, t.key, t.label, t.group_name, t.priority, given.ending, t.payload, t.tags, t.overrides, t.attempt,
        t.retries, t.created_at, t.due_at, t.expires_at, t.started_at, given.ended_at, given.duration_ms, t.parent_id,
        t.series_id, t.saved, t.progress, t.io, t.actual_io, t.last_error, given.result, given.error
), counted AS (
    INSERT INTO taskmill_tally AS tally (type, group_name, ending, ended, kept, duration_ms, shard)
    SELECT type, group_name, ending, count(*), count(*), coalesce(sum(duration_ms), 0), pg_backend_pid() % 64
    FROM gone GROUP BY type, group_name, ending ORDER BY type, group_name, ending
    ON CONFLICT (type, group_name, ending, shard) DO UPDATE SET
        ended = tally.ended + excluded.ended, kept = tally.kept + excluded.kept,
        duration_ms = tally.duration_ms + excluded.duration_ms
)
INSERT INTO taskmill_history (
    id, type, key, label, group_name, priority, ending, payload, tags, overrides, attempt, retries, created_at,
    due_at, expires_at, started_at, ended_at, duration_ms, parent_id, series_id, saved, progress, io, actual_io, last_error,
    result, error
)
SELECT * FROM gone;

-- name: delete_active
-- Nothing is left to do: whatever was recorded has left the active table with the same statement.
;

-- name: move_tags
INSERT INTO taskmill_history_tag (name, value, task_id)
SELECT name, value, task_id FROM taskmill_task_tag
WHERE task_id = ANY (taskmill_ids($1));

-- name: delete_active_tags
DELETE FROM taskmill_task_tag WHERE task_id = ANY (taskmill_ids($1));

-- name: tally
-- Nothing is left to do: whoever is recorded is counted with the same statement.
;

-- name: forget_damaged_counts
-- The server checks its columns.
DELETE FROM taskmill_tally WHERE false;

-- name: count_anew
;

-- name: rebuild_indexes
;

-- name: sums_of_endings
-- The same rows for ended tasks of which only the ids are known.
SELECT coalesce(json_agg(json_build_array(type, group_name, ending, ended, duration_ms)), '[]') FROM (
    SELECT type, group_name, ending, count(*) AS ended, coalesce(sum(duration_ms), 0) AS duration_ms
    FROM taskmill_history WHERE id = ANY (taskmill_ids($1))
    GROUP BY type, group_name, ending
) AS sums;

-- name: gated
-- Who waits for the given tasks to end.
SELECT coalesce(json_agg(json_build_array(gate_id, id) ORDER BY id), '[]') FROM taskmill_task
WHERE gate_id IS NOT NULL AND gate_id = ANY (taskmill_ids($1));

-- name: gates
-- [task, gate] of those of the given tasks that wait for another to end.
SELECT coalesce(json_agg(json_build_array(id, gate_id)), '[]') FROM taskmill_task
WHERE id = ANY (taskmill_ids($1)) AND gate_id IS NOT NULL;

-- name: open_gates
-- The given tasks have ended and are in history: what replaces one of them reads what was saved last.
UPDATE taskmill_task SET
    replaced = coalesce((
        SELECT h.saved FROM taskmill_history AS h WHERE h.id = taskmill_task.gate_id AND h.ending = 'superseded'
    ), replaced),
    gate_id = NULL
WHERE gate_id IS NOT NULL AND gate_id = ANY (taskmill_ids($1));

-- name: take_keys_back
-- Runs that were added behind the given tasks have ended: those that have none left hold their keys again.
UPDATE taskmill_task SET gave_key = false
WHERE id = ANY (taskmill_ids($1)) AND gave_key
    AND NOT EXISTS (SELECT 1 FROM taskmill_task AS added WHERE added.gate_id = taskmill_task.id);

-- name: ties
-- Whom any ending can concern: whether there are successors, dependents, parents, series at all. Most stores have none, and
-- a look at an empty index costs less than many looks at it.
SELECT json_build_array(
    EXISTS (SELECT 1 FROM taskmill_task WHERE gate_id IS NOT NULL),
    EXISTS (SELECT 1 FROM taskmill_dependency WHERE open),
    true,
    EXISTS (SELECT 1 FROM taskmill_series),
    EXISTS (SELECT 1 FROM taskmill_cron WHERE task_id IS NOT NULL)
);
