-- name: record_endings
-- Move tasks to history, for rows of [id, ending, ended_at, duration_ms, result, error, attempt]. A row that names its
-- attempt is moved only if that attempt still holds its token, the task was not asked to stop, and no other task is
-- linked to it; for rows without one the caller has checked this. The tally is updated here too, in one of 64 shards
-- and in a fixed order, so that transactions rarely wait for each other and cannot deadlock. With $2 and $3, a common
-- ending and instant, rows of [id] are enough.
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
-- Nothing to do: record_endings has deleted the rows.
;

-- name: move_tags
INSERT INTO taskmill_history_tag (name, value, task_id)
SELECT name, value, task_id FROM taskmill_task_tag
WHERE task_id = ANY (taskmill_ids($1));

-- name: delete_active_tags
DELETE FROM taskmill_task_tag WHERE task_id = ANY (taskmill_ids($1));

-- name: tally
-- Nothing to do: record_endings has updated the tally.
;

-- name: forget_damaged_counts
-- Nothing to do: the server enforces the types of its columns.
DELETE FROM taskmill_tally WHERE false;

-- name: count_anew
;

-- name: rebuild_indexes
;

-- name: sums_of_endings
-- Return tally rows for tasks in history of which only the ids are known.
SELECT coalesce(json_agg(json_build_array(type, group_name, ending, ended, duration_ms)), '[]') FROM (
    SELECT type, group_name, ending, count(*) AS ended, coalesce(sum(duration_ms), 0) AS duration_ms
    FROM taskmill_history WHERE id = ANY (taskmill_ids($1))
    GROUP BY type, group_name, ending
) AS sums;

-- name: gated
-- Return [ended task, task that waits for it] for the given tasks and their replacements or added runs.
SELECT coalesce(json_agg(json_build_array(gate_id, id) ORDER BY id), '[]') FROM taskmill_task
WHERE gate_id IS NOT NULL AND gate_id = ANY (taskmill_ids($1));

-- name: gates
-- Return [task, gate] of those of the given tasks that wait for another task to end.
SELECT coalesce(json_agg(json_build_array(id, gate_id)), '[]') FROM taskmill_task
WHERE id = ANY (taskmill_ids($1)) AND gate_id IS NOT NULL;

-- name: open_gates
-- Clear the gates of tasks that waited for the given ended tasks. A replacement takes over what the replaced task saved
-- last.
UPDATE taskmill_task SET
    replaced = coalesce((
        SELECT h.saved FROM taskmill_history AS h WHERE h.id = taskmill_task.gate_id AND h.ending = 'superseded'
    ), replaced),
    gate_id = NULL
WHERE gate_id IS NOT NULL AND gate_id = ANY (taskmill_ids($1));

-- name: take_keys_back
-- Return the key to those of the given tasks whose added runs have all ended.
UPDATE taskmill_task SET gave_key = false
WHERE id = ANY (taskmill_ids($1)) AND gave_key
    AND NOT EXISTS (SELECT 1 FROM taskmill_task AS added WHERE added.gate_id = taskmill_task.id);

-- name: ties
-- Return which kinds of links exist at all: replacements, dependents, parents, series, cron firings. Most stores have
-- none, and one look at an empty index costs less than many.
SELECT json_build_array(
    EXISTS (SELECT 1 FROM taskmill_task WHERE gate_id IS NOT NULL),
    EXISTS (SELECT 1 FROM taskmill_dependency WHERE open),
    true,
    EXISTS (SELECT 1 FROM taskmill_series),
    EXISTS (SELECT 1 FROM taskmill_cron WHERE task_id IS NOT NULL)
);
